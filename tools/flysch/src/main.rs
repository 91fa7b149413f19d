//! The `flysch` command.
#![forbid(unsafe_code)]

mod ata;
mod bench;
mod cam;
mod cleanup;
mod cli;
mod confirm;
mod copy;
mod emmc;
mod export;
mod failure;
mod file;
mod geom;
mod gstat;
mod image;
mod lab;
mod number;
mod nvme;
mod output;
mod pci;
mod place;
mod progress;
mod right_form;
mod serve;
mod shell;
mod targets;
mod ufs;

use std::process::ExitCode;

use cli::{Cli, Command};
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    cleanup::prepare();
    let words = geom::long_form(std::env::args_os());
    let cli = Cli::of(words).unwrap_or_else(|error| cli::refuse(&error));
    let mut output = Output::new(cli.json);
    let result = run(&cli.command, &mut output).and_then(|()| output.finish());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: &Command, output: &mut Output) -> Result<(), Failure> {
    if let Some(name) = command.in_own_format().filter(|_| output.json()) {
        return Err(Failure::usage(format!("`{name}` prints no JSON: leave out --json")));
    }
    match command {
        Command::Bench(arguments) => bench::run(arguments, output),
        Command::Devlist(arguments) => cam::devlist::run(arguments, output),
        Command::Cam(arguments) => cam::run(arguments, output),
        Command::Ufs(arguments) => ufs::run(arguments, output),
        Command::Nvme(arguments) => nvme::run(arguments, output),
        Command::Ata(arguments) => ata::run(arguments, output),
        Command::Emmc(arguments) => emmc::run(arguments, output),
        Command::Copy(arguments) => copy::run(arguments, output),
        Command::Image(arguments) => image::run(arguments, output),
        Command::Geom(arguments) => geom::run(arguments, output),
        Command::Gstat(arguments) => gstat::run(arguments, output),
        Command::Export(arguments) => export::run(arguments, output),
        Command::Pci(arguments) => pci::run(arguments, output),
        Command::Serve(arguments) => serve::run(arguments, output),
        Command::ServeCtl(arguments) => serve::control(arguments, output),
        Command::Lab(arguments) => lab::run(arguments, output),
        Command::Targets => targets::run(output),
        Command::Completions { shell } => shell::completions(*shell, output),
        Command::Man { all: Some(folder), .. } => shell::all_pages(folder),
        Command::Man { words, all: None } => shell::man(words, output),
    }
}
