//! Queries.
use flysch_wire::ufs::query::{FlagId, QueryOpcode, QueryResult};
use flysch_wire::ufs::upiu::{QueryRequest, QueryResponse};

use super::Ufs;

impl Ufs {
    pub(super) fn query(&mut self, index: u16) {
        let task = self.tasks.get(index);
        let request = QueryRequest::parse(&task.request).expect("dispatched by its code");
        let mut fields = request.fields;
        let id = FlagId::from_bits(fields.idn);
        let result = match (fields.opcode, id) {
            (QueryOpcode::SetFlag, FlagId::DeviceInit) => QueryResult::Success,
            (QueryOpcode::ReadFlag, FlagId::DeviceInit) => {
                fields.operand = 0;
                QueryResult::Success
            }
            _ => QueryResult::InvalidIdn,
        };
        let mut bytes = [0; 32];
        QueryResponse::new(&request, result, fields).emit(&mut bytes);
        self.answer(index, &bytes);
    }
}
