use alloc::rc::Rc;
use core::cell::RefCell;
use std::prelude::rust_2024::*;
use std::{assert, assert_eq};

use super::*;
use crate::all;
use crate::class::{label, mirror};

/// What a server does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Good,
    Vanishes,
    /// Answers requests that nobody made, answers twice, and too short.
    Lies,
    /// Answers in its hundredth turn.
    Slow,
    Silent,
}

#[derive(Debug)]
struct Program {
    bytes: Rc<RefCell<Vec<u8>>>,
    mood: Rc<RefCell<Mood>>,
    held: Vec<Request>,
    turns: u32,
}

impl Server for Program {
    fn turn(&mut self, queue: &mut Queue) -> Result<(), String> {
        let mood = *self.mood.borrow();
        self.held.extend(queue.take());
        self.turns += 1;
        if mood == Mood::Vanishes {
            return Err("it fell over".into());
        }
        if mood == Mood::Silent || mood == Mood::Slow && !self.turns.is_multiple_of(100) {
            return Ok(());
        }
        for request in core::mem::take(&mut self.held) {
            let mut bytes = self.bytes.borrow_mut();
            let mut answer = match request.wanted {
                Wanted::Read { offset, length } => {
                    bytes[offset as usize..][..length as usize].to_vec()
                }
                Wanted::Write { offset, bytes: new } => {
                    bytes[offset as usize..][..new.len()].copy_from_slice(&new);
                    Vec::new()
                }
                Wanted::Delete { .. } | Wanted::Flush => Vec::new(),
            };
            if mood == Mood::Lies {
                queue.done(request.number + 7, Ok(answer.clone()));
                answer.pop();
                answer.push(1);
                answer.push(2);
            }
            queue.done(request.number, Ok(answer.clone()));
            if mood == Mood::Lies {
                queue.done(request.number, Ok(answer));
            }
        }
        Ok(())
    }
}

fn gate(options: GateOptions) -> (Graph, ProviderId, Rc<RefCell<Mood>>) {
    let mut graph = Graph::new(&all(), 1);
    let mood = Rc::new(RefCell::new(Mood::Good));
    let bytes = Rc::new(RefCell::new(vec![0; 1 << 20]));
    let program = Program { bytes, mood: Rc::clone(&mood), held: Vec::new(), turns: 0 };
    let shape = Shape { media_size: 1 << 20, sector_size: 512, stripe_size: 0, stripe_offset: 0 };
    let provider = create(&mut graph, Box::new(program), (shape, options)).unwrap();
    (graph, provider, mood)
}

fn read(graph: &mut Graph, provider: ProviderId) -> Result<u8, block::BlockError> {
    let open = graph.open(provider, Access::READ).map_err(|_| block::BlockError::Gone)?;
    let mut bytes = [0; 512];
    let done = graph.io(open, Io::Read { offset: 4096, to: &mut bytes });
    graph.shut(open);
    graph.settle();
    done.map(|()| bytes[0])
}

fn told(graph: &Graph, name: &str) -> String {
    let geom = graph.geom("GATE", "ggate0").unwrap();
    GATE.config(graph, Object::Geom(geom)).into_iter().find(|(key, _)| *key == name).unwrap().1
}

#[test]
fn a_program_outside_is_a_provider_as_any_other() {
    let (mut graph, provider, mood) = gate(GateOptions::default());
    assert_eq!(graph[provider].name, "ggate0");
    let open = graph.open(provider, Access::ALONE).unwrap();
    graph.io(open, Io::Write { offset: 4096, from: &[5; 512] }).unwrap();
    graph.io(open, Io::Flush).unwrap();
    graph.shut(open);
    graph.settle();
    assert_eq!(read(&mut graph, provider), Ok(5));
    label::label(&mut graph, "far", provider, false).unwrap();
    let label = graph.provider("label/far").unwrap();
    assert_eq!(read(&mut graph, label), Ok(5));
    // Slow, but within its time.
    *mood.borrow_mut() = Mood::Slow;
    assert_eq!(read(&mut graph, label), Ok(5));
    // It vanishes: everything above it is removed too, and nothing panics.
    *mood.borrow_mut() = Mood::Vanishes;
    assert_eq!(read(&mut graph, label), Err(block::BlockError::Gone));
    assert!(graph.provider("label/far").is_err() && graph.provider("ggate0").is_err());
}

#[test]
fn what_a_server_says_wrongly_is_dropped() {
    let (mut graph, provider, mood) = gate(GateOptions::default());
    *mood.borrow_mut() = Mood::Lies;
    assert!(matches!(read(&mut graph, provider), Err(block::BlockError::Device(_))));
    let before: u64 = told(&graph, "dropped").parse().unwrap();
    assert!(before >= 3, "{before}");
    *mood.borrow_mut() = Mood::Good;
    assert_eq!(read(&mut graph, provider), Ok(0));
}

#[test]
fn who_never_answers_has_a_bounded_queue() {
    let options = GateOptions { queue: 4, turns: 10, read_only: true, ..GateOptions::default() };
    let (mut graph, provider, mood) = gate(options);
    assert!(graph.open(provider, Access::ALONE).is_err());
    *mood.borrow_mut() = Mood::Silent;
    for _ in 0..20 {
        assert_eq!(read(&mut graph, provider), Err(block::BlockError::TimedOut));
    }
    assert_eq!((told(&graph, "queue_count"), told(&graph, "timeouts")), ("4".into(), "20".into()));
    // A late answer belongs to nobody; afterwards everything works as before.
    *mood.borrow_mut() = Mood::Good;
    assert_eq!(read(&mut graph, provider), Ok(0));
    assert_eq!(told(&graph, "queue_count"), "0");
    let geom = graph.geom("GATE", "ggate0").unwrap();
    destroy(&mut graph, geom, false).unwrap();
    assert!(graph.provider("ggate0").is_err());
}

#[test]
fn a_mirror_goes_on_when_the_server_of_its_half_vanishes() {
    for looks in [false, true] {
        let (mut graph, far, mood) =
            gate(GateOptions { name: Some("far".into()), ..GateOptions::default() });
        assert_eq!(graph[far].name, "far");
        let near = Box::new(super::super::disk::Memory::new(1 << 20));
        let near = super::super::disk::MD.insert(&mut graph, "near", near).unwrap();
        graph.settle();
        let options = mirror::MirrorOptions::default();
        mirror::label(&mut graph, "gm", &[far, near], &options).unwrap();
        let whole = graph.provider("mirror/gm").unwrap();
        let open = graph.open(whole, Access::ALONE).unwrap();
        graph.io(open, Io::Write { offset: 4096, from: &[5; 512] }).unwrap();
        *mood.borrow_mut() = Mood::Vanishes;
        if looks {
            look(&mut graph);
            assert!(graph.provider("far").is_err());
        }
        let mut bytes = [0; 512];
        for at in 0..4 {
            graph.io(open, Io::Write { offset: 8192 + at * 512, from: &[6; 512] }).unwrap();
            graph.io(open, Io::Read { offset: 4096, to: &mut bytes }).unwrap();
            assert_eq!(bytes, [5; 512]);
        }
        graph.shut(open);
        graph.settle();
        assert!(graph.provider("far").is_err() && graph.provider("mirror/gm").is_ok());
        let why = "GATE: the server of far is gone: it fell over";
        assert!(graph.record.messages().any(|line| line.ends_with(why)));
    }
}

#[test]
fn names_are_checked() {
    let mut graph = Graph::new(&all(), 1);
    for name in ["", "a b", "a/b", "..\n"] {
        let bytes = Rc::new(RefCell::new(Vec::new()));
        let mood = Rc::new(RefCell::new(Mood::Good));
        let program = Program { bytes, mood, held: Vec::new(), turns: 0 };
        let shape =
            Shape { media_size: 1 << 20, sector_size: 512, stripe_size: 0, stripe_offset: 0 };
        let options = GateOptions { name: Some(name.into()), ..GateOptions::default() };
        assert!(create(&mut graph, Box::new(program), (shape, options)).is_err(), "{name:?}");
    }
}
