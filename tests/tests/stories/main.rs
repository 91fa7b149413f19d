//! The stories: what a user sees, one file a subject, all in one program.
//!
//! One program links the stack once. One file of it:
//! `cargo test --workspace --test stories image_edit::`.

mod cli_copy;
mod cli_errors;
mod cli_export;
mod cli_interrupt;
mod cli_nvme;
mod cli_output;
mod cli_serve;
mod cli_services;
mod extremes_common;
mod fuse_mount;
mod fuse_write;
mod geom_cli;
mod geom_peers;
mod geom_raid;
mod geom_rig;
mod geom_rig_mount;
mod image_common;
mod image_create;
mod image_dump;
mod image_edit;
mod image_escape;
mod image_matrix;
mod image_mount;
mod image_mutate;
mod image_repair;
mod image_volumes;
mod jffs2_common;
mod jffs2_create;
mod jffs2_damage;
mod jffs2_mkfs;
mod jffs2_write;
mod library;
mod nvme_driver;
mod paired_pages;
mod posix_tools;
mod report;
mod ubifs_check;
mod ubifs_contract;
mod ubifs_damage;
mod ubifs_mkfs;
mod ubifs_sealed;
mod ufs_booster;
mod ufs_bring_up;
mod ufs_control;
mod ufs_crypto;
mod ufs_fair;
mod ufs_interrupts;
mod ufs_model;
mod ufs_quirks;
mod ufs_recovery;
mod ufs_services;
mod write_exercise;
mod write_extremes;
