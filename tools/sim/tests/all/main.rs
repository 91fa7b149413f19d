//! Whole stacks: seeds, chips, power cuts and wear, one file per subject, in one program.

mod chips;
mod cuts;
mod emmc;
mod front;
mod full;
mod late;
mod multiplier;
mod policy;
mod sata;
mod seeds;
mod wear;
