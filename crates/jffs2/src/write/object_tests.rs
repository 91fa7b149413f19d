//! Each object that writes, by itself.

use alloc::vec;

use flysch_api::vfs::FsError;
use flysch_wire::jffs2::{ByteOrder, Inode};

use super::collector::{Collector, Purpose};
use super::inodes::Inodes;
use super::log::{Log, NewNode, Room};
use super::medium::Medium;
use super::nodes::Nodes;
use super::space::{Blocks, Kind, Raw, State};
use super::tables::{Directory, InodeState, Tables};
use super::tests::Nor;
use crate::compressor::Compressors;
use crate::read::Attributes;
use crate::stamp::Stamp;

const RAW: Raw = Raw { at: 0, len: 68, kind: Kind::Inode, is_dead: false, owner: 7, tag: 1 };

fn log(flash: Nor) -> Log<Nor> {
    let medium = Medium::new(flash, ByteOrder::Little);
    let geometry = *flysch_api::flash::Flash::geometry(&medium);
    let mut blocks = Blocks::new(geometry, 1);
    (0..geometry.blocks()).for_each(|block| blocks.settle(block, State::Free));
    Log::new(medium, ByteOrder::Little, blocks, true)
}

fn nodes(flash: Nor) -> Nodes<Nor> {
    Nodes { log: log(flash), tables: Tables::default() }
}

fn dirent(owner: u32, tag: u32) -> NewNode {
    NewNode { kind: Kind::Dirent, owner, tag }
}

#[test]
fn the_log_puts_a_stamp_before_the_first_node_of_a_block() {
    let mut log = log(Nor::new(8));
    log.blocks.free.pop_front();
    log.blocks.open(0, 12);
    log.stamps.is_due = true;
    let before = log.room_left(18).unwrap();
    let (first, done) = log.try_append(&[0; 68], RAW);
    assert_eq!((first.offset(), done), (12 + Stamp::LEN as u64, Ok(())));
    let (second, _) = log.try_append(&[0; 68], RAW);
    assert_eq!(second.offset(), first.offset() + 68);
    // The room for the stamp was kept, and entries of a summary are besides.
    assert_eq!(before - log.room_left(18).unwrap(), 2 * (68 + 18));
}

#[test]
fn the_log_ends_a_block_in_which_programming_failed() {
    let mut log = log(Nor::failing_after(1));
    log.blocks.free.pop_front();
    log.blocks.open(0, 12);
    assert_eq!(log.try_append(&[0; 68], RAW).1, Ok(()));
    assert!(log.try_append(&[0; 68], RAW).1.is_err());
    // The first one is on the flash: it is collected from there.
    assert_eq!(log.give_up_current(0).unwrap().len(), 0);
    assert_eq!((log.blocks.current, log.blocks.victim()), (None, Some(0)));
    assert_eq!(log.activity.program_failures, 1);
    assert!(!log.is_dead);
}

#[test]
fn nodes_count_what_an_older_name_could_come_back_from_until_its_block_is_erased() {
    let mut nodes = nodes(Nor::new(8));
    nodes.find_room(Room::dirent(b"name")).unwrap();
    let address = nodes.append(&mut vec![0; 44], dirent(1, 6)).unwrap();
    nodes.kill(address);
    assert_eq!(nodes.tables.old_names.get(&(1, 6)), Some(&1));
    // Killed twice it counts once.
    nodes.kill(address);
    assert_eq!(nodes.tables.old_names.get(&(1, 6)), Some(&1));
    nodes.log.blocks.close(false);
    nodes.erase_all().unwrap();
    assert!(nodes.tables.old_names.is_empty());
    assert_eq!(nodes.log.activity.erased, 1);
}

#[test]
fn nodes_go_elsewhere_when_programming_fails() {
    let mut nodes = nodes(Nor::failing_after(1));
    nodes.find_room(Room::dirent(b"name")).unwrap();
    let address = nodes.append(&mut vec![0; 44], dirent(1, 6)).unwrap();
    let (block, _) = nodes.log.blocks.place(address);
    assert_ne!(block, 0);
    assert_eq!(nodes.log.blocks.current, Some(block));
}

#[test]
fn inodes_know_what_the_newest_node_tells() {
    let mut inodes = Inodes::new(nodes(Nor::new(8)), false);
    inodes.tables_mut().inodes.insert(1, InodeState::new(Some(Directory::below(0))));
    assert_eq!(inodes.loaded_mut(1).unwrap().attributes, Attributes::MADE_UP);
    inodes.loaded_mut(1).unwrap().attributes.uid = 5;
    inodes.nodes.find_room(Room::inode(0)).unwrap();
    inodes.append_metadata(1).unwrap();
    let first = inodes.loaded(1).unwrap().latest.unwrap();
    inodes.nodes.find_room(Room::inode(0)).unwrap();
    inodes.append_metadata(1).unwrap();
    let second = inodes.loaded(1).unwrap().latest.unwrap();
    assert_eq!((first.version, second.version), (1, 2));
    assert_eq!(inodes.log().blocks.blocks[0].used, Inode::LEN as u32);
    assert_eq!(inodes.kind(2), Err(FsError::NotFound));
}

#[test]
fn the_collector_keeps_blocks_back_for_removals_and_for_itself() {
    let inodes = Inodes::new(nodes(Nor::new(8)), false);
    let mut collector = Collector::new(inodes, Compressors::none());
    collector.reserve(Room::inode(0), Purpose::Change).unwrap();
    let taken = |collector: &mut Collector<Nor>, left: usize| {
        collector.log_mut().blocks.free.truncate(left);
    };
    // What is neither free nor dirty is as good as full.
    let (write, removal) = (collector.reserves.write, collector.reserves.removal);
    taken(&mut collector, write as usize - 1);
    let full = collector.reserve(Room::inode(0), Purpose::Change);
    assert_eq!(full, Err(FsError::NoSpace));
    taken(&mut collector, removal as usize);
    collector.reserve(Room::inode(0), Purpose::Removal).unwrap();
    taken(&mut collector, 0);
    collector.reserve(Room::inode(0), Purpose::Collection).unwrap();
}
