//! What shells and `man` want to know about the command.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::Output;

/// A completion script.
pub(crate) fn completions(shell: Shell, output: &mut Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "flysch", &mut script);
    output.bytes(&script)
}

/// The manual page of the command, or of the command under it that `words` name.
pub(crate) fn man(words: &[String], output: &mut Output) -> Result<(), Failure> {
    let mut all = without_help(Cli::command());
    all.build();
    let mut command = &all;
    for word in words {
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        command = command.find_subcommand(word).ok_or_else(|| {
            let names: Vec<&str> = below.map(clap::Command::get_name).collect();
            let has = match names.as_slice() {
                [] => "has none".into(),
                names => format!("has {}", names.join(", ")),
            };
            Failure::usage(format!("no command `{word}`: {} {has}", command.get_name()))
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    output.bytes(&page)
}

/// `help` is no command with a page of its own.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
