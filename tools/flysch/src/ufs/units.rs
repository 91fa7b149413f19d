//! `flysch ufs lu`.

use flysch_rig::{Control, size};
use flysch_wire::ufs::descriptor::{BootLunId, LuWriteProtect, MemoryType, ProvisioningType};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

pub(super) fn run(control: &mut dyn Control, output: &mut Output) -> Result<(), Failure> {
    let units: Vec<_> = control.device().units.iter().flatten().cloned().collect();
    let mut rows = Vec::new();
    let mut list = Vec::new();
    for unit in units {
        let block_size = unit.block_size().unwrap_or(0);
        let bytes = unit.q_logical_block_count.saturating_mul(u64::from(block_size));
        let boot = BootLunId::from_bits(unit.b_boot_lun_id).name();
        let protection = LuWriteProtect::from_bits(unit.b_lu_write_protect).name();
        let provisioning = ProvisioningType::from_bits(unit.b_provisioning_type).name();
        let memory = MemoryType::from_bits(unit.b_memory_type).name();
        list.push(json!({
            "lun": unit.b_unit_index,
            "bytes": bytes,
            "block_size": block_size,
            "memory_type": memory,
            "provisioning": provisioning,
            "write_protect": protection,
            "boot": boot,
            "queue_depth": unit.b_lu_queue_depth,
        }));
        rows.push(vec![
            unit.b_unit_index.to_string(),
            size::display(bytes),
            block_size.to_string(),
            memory.to_owned(),
            provisioning.to_owned(),
            protection.to_owned(),
            boot.to_owned(),
        ]);
    }
    if output.json() {
        return output.value(&list);
    }
    output.table(&["LU", "size", "block", "memory", "provisioning", "protection", "boot"], &rows)
}
