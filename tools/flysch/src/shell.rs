//! What shells and `man` need to know about the command.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::Output;

/// A completion script.
pub(crate) fn completions(shell: Shell, output: &mut Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "flysch", &mut script);
    output.bytes(&script)
}

/// The manual page of the command, or of the subcommand that `words` name.
pub(crate) fn man(words: &[String], output: &mut Output) -> Result<(), Failure> {
    let all = documented();
    let mut text = Vec::new();
    page(named(&all, words)?).render(&mut text)?;
    output.bytes(&text)
}

/// The manual pages of all commands, as files in `folder`, each named as others refer to it.
pub(crate) fn all_pages(folder: &Path) -> Result<(), Failure> {
    let written = write_pages(&documented(), folder);
    written.map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))
}

fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, folder)?;
    }
    page(command).generate_to(folder)?;
    Ok(())
}

/// The manual page of `command`, one of [`documented`].
fn page(command: &clap::Command) -> Man {
    // The date is blank and not empty: an empty one is left out, and what follows takes its place.
    let source = concat!("flysch ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).date(" ").source(source).manual("Flysch manual")
}

/// The command as its pages describe it.
fn documented() -> clap::Command {
    let mut all = without_help(Cli::described());
    all.build();
    all
}

/// The command that `words` name under `all`; each name as typed, or as pages refer to it.
fn named<'c>(all: &'c clap::Command, words: &[String]) -> Result<&'c clap::Command, Failure> {
    let mut command = all;
    for word in words {
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        command = find(command, word).or_else(|| of_page(all, word)).ok_or_else(|| {
            let names: Vec<&str> = below.map(clap::Command::get_name).collect();
            let has = match names.as_slice() {
                [] => "has none".into(),
                names => format!("has {}", names.join(", ")),
            };
            Failure::usage(format!("no command `{word}`: {} {has}", command.get_name()))
        })?;
    }
    Ok(command)
}

/// The command that a page is about, such as `flysch-ufs-rpmb`.
fn of_page<'c>(all: &'c clap::Command, page: &str) -> Option<&'c clap::Command> {
    let below = page.strip_prefix(all.get_name())?;
    if below.is_empty() { Some(all) } else { find(all, below.strip_prefix('-')?) }
}

/// The command under `command` of this name, or on the way to a name whose words are joined by
/// hyphens. Names may contain hyphens themselves.
fn find<'c>(command: &'c clap::Command, name: &str) -> Option<&'c clap::Command> {
    let on_the_way = |at: usize| find(command.find_subcommand(&name[..at])?, &name[at + 1..]);
    command.find_subcommand(name).or_else(|| {
        let mut hyphens = name.match_indices('-');
        hyphens.find_map(|(at, _)| on_the_way(at))
    })
}

/// `help` is not a command with its own page.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_found_by_the_name_that_others_call_it() {
        fn pages(command: &clap::Command, name: &str, all: &clap::Command) -> usize {
            let words = [name.to_owned()];
            let found = named(all, &words).unwrap_or_else(|_| panic!("{name} is not found"));
            assert_eq!(found.get_display_name(), command.get_display_name(), "{name}");
            let below = command.get_subcommands();
            1 + below.map(|it| pages(it, &format!("{name}-{}", it.get_name()), all)).sum::<usize>()
        }
        let all = documented();
        assert!(pages(&all, "flysch", &all) > 60);
        for word in ["nonsense", "flysch-", "flysch-nonsense", "ufs-", "ufs-nonsense", "flyschufs"]
        {
            assert!(named(&all, &[word.to_owned()]).is_err(), "{word}");
        }
    }
}
