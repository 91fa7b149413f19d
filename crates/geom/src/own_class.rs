//! An external class, as `docs/geom.md` promises: it inverts every bit written.

use alloc::vec::Vec;
use std::boxed::Box;
use std::{assert, assert_eq};

use flysch_api::block;

use crate::class::disk::{MD, Memory};
use crate::class::{pass, pass_access_alone, slice_of, stack};
use crate::{Access, Class, GeomError, Graph, Io, ProviderId, Requests, Taste};

pub(crate) struct Invert;

pub(crate) static INVERT: Invert = Invert;
pub(crate) const MAGIC: &[u8] = b"UPSIDE DOWN";

impl Class for Invert {
    fn name(&self) -> &'static str {
        "INVERT"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let Ok(sector) = graph.peek_last(provider) else { return Taste::passed("unreadable") };
        if !sector.starts_with(MAGIC) {
            return Taste::passed("no magic in the last sector");
        }
        let (at, len) = (graph[provider].last_sector(), MAGIC.len() as u64);
        let shape = slice_of(graph, provider, 0, at);
        let names = ("upside".into(), "invert/down".into());
        match stack(graph, &INVERT, names, provider, shape) {
            Ok(_) => Taste::claimed("magic", at, len),
            Err(error) => Taste::refused(error.cause, at, len),
        }
    }

    fn access(&self, g: &mut Graph, provider: ProviderId, change: Access) -> Result<(), GeomError> {
        pass_access_alone(g, provider, change)
    }
}

impl Requests for Invert {
    fn start(
        &self,
        g: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        match io {
            Io::Write { offset, from } => {
                let turned: Vec<u8> = from.iter().map(|byte| !byte).collect();
                pass(g, provider, Io::Write { offset, from: &turned }, 0)
            }
            Io::Read { offset, to } => {
                pass(g, provider, Io::Read { offset, to }, 0)?;
                to.iter_mut().for_each(|byte| *byte = !*byte);
                Ok(())
            }
            other => pass(g, provider, other, 0),
        }
    }
}

#[test]
fn a_class_is_one_file() {
    let mut memory = Memory::new(1 << 16);
    memory.bytes[(1 << 16) - 512..][..MAGIC.len()].copy_from_slice(MAGIC);
    let mut graph = Graph::new(&crate::all(), 1);
    let disk = MD.insert(&mut graph, "md0", Box::new(memory)).unwrap();
    graph.settle();
    graph.register(&INVERT);
    graph.settle();
    let down = graph.provider("invert/down").unwrap();
    let open = graph.open(down, Access::ALONE).unwrap();
    graph.io(open, Io::Write { offset: 512, from: &[0x0F; 512] }).unwrap();
    let mut back = [0; 512];
    graph.io(open, Io::Read { offset: 512, to: &mut back }).unwrap();
    assert_eq!(back, [0x0F; 512]);
    graph.peek(disk, 512, &mut back).unwrap();
    assert_eq!(back, [0xF0; 512]);
    assert!(graph.open(disk, Access::ALONE).is_err(), "nobody writes beneath");
    graph.shut(open);
}
