//! The models as seen by their drivers, one file per subject, in one program.

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
