//! Whole stacks: seeds, chips, power cuts and wear, one file a subject, in one program.

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
