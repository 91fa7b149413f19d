//! Tests that need the Linux guest, one file per subject, in one program.

mod areas;
mod chip_work;
mod churn;
mod common;
mod exports;
mod guest;
mod image_create;
mod image_options;
mod image_repair;
mod jffs2_write;
mod lab_command;
mod linux;
mod linux_jffs2;
mod linux_ubifs;
mod mtd_device;
mod raid;
mod served;
mod turns;
mod ubi_write;
mod ubifs_sealed;
mod ubifs_write;
mod vfio;
