//! The models as their drivers see them, one file a subject, in one program.

mod ahci;
mod controller;
mod device;
mod emmc;
mod first;
mod host;
mod inline;
mod nvme;
mod nvme_commands;
mod nvme_host;
mod profiles;
mod sd;
mod speed;
mod threaded;
