//! Words that `clap` refuses, reported in one line: what is wrong, and the correct form.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What is wrong with `words`, and the correct form.
pub(crate) fn right_form(
    mut command: clap::Command,
    words: &[OsString],
    error: &clap::Error,
) -> String {
    command.build();
    instead(&command, words, error).unwrap_or_else(|| in_one_line(&command, words, error))
}

/// The commands to which `words` lead, outermost first.
fn path<'c>(command: &'c clap::Command, words: &[OsString]) -> Vec<&'c clap::Command> {
    let mut path = vec![command];
    for word in words {
        path.extend(path.last().and_then(|at| at.find_subcommand(word)));
    }
    path
}

/// The content of the error's several lines.
fn in_one_line(command: &clap::Command, words: &[OsString], error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = |paragraph: &str| {
        let lines: Vec<&str> = paragraph.lines().map(str::trim).collect();
        lines.join(" ")
    };
    let mut paragraphs = text.split("\n\n").map(lines);
    let what = paragraphs.next().unwrap_or_default();
    let mut line = what.trim_start_matches("error: ").to_string();
    // A command with subcommands has a second line of usage, for those.
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    for paragraph in paragraphs {
        if let Some(hint) = paragraph.strip_prefix("tip: ").filter(|it| it.contains("similar")) {
            line += &format!(": {hint}");
        }
    }
    let name = path(command, words).last().and_then(|it| it.get_bin_name()).unwrap_or("flysch");
    match usage.filter(|_| error.kind() != ErrorKind::InvalidSubcommand) {
        Some(usage) => format!("{line}; use `{usage}`"),
        None => format!("{line}; `{name} --help` shows what there is"),
    }
}

/// The correct form if a refused argument belongs to a command further up, or is one too many
/// because an option was left out: there the hint of the error is misleading.
fn instead(command: &clap::Command, words: &[OsString], error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else { return None };
    let path = path(command, words);
    let (last, above) = path.split_last()?;
    let has = |at: &clap::Command| {
        let mut names = at.get_arguments().filter_map(clap::Arg::get_long);
        names.any(|name| found.strip_prefix("--") == Some(name))
    };
    let number = found.strip_prefix('-').filter(|it| it.starts_with(|c: char| c.is_ascii_digit()));
    if number.is_some() {
        let word = words.iter().filter_map(|word| word.to_str()).find(|it| it.starts_with(found));
        let word = word.unwrap_or(found);
        return Some(format!("`{word}` is negative, and no negative number is taken there"));
    }
    // Options that only go without a subcommand are not for this one.
    let is_owner = |at: &&clap::Command| has(at) && !at.is_args_conflicts_with_subcommands_set();
    if let Some(at) = above.iter().rposition(is_owner) {
        let (owner, next) = (path[at], path[at + 1].get_name());
        let named = owner.get_bin_name().filter(|name| !name.is_empty());
        let owner = named.unwrap_or(owner.get_name());
        return Some(format!("`{found}` is an option of `{owner}`: put it before `{next}`"));
    }
    let is_given = |arg: &&clap::Arg| {
        let short = arg.get_short().map(|it| format!("-{it}"));
        let long = arg.get_long().map(|it| format!("--{it}"));
        let is = |word: &OsString| {
            let word = word.to_string_lossy();
            short.iter().chain(&long).any(|option| word.starts_with(option.as_str()))
        };
        words.iter().any(is)
    };
    let options = last.get_arguments().filter(|arg| !arg.is_positional() && arg.is_required_set());
    let missing: Vec<String> =
        options.filter(|arg| !is_given(arg)).map(|a| a.to_string()).collect();
    if missing.is_empty() || found.starts_with('-') {
        return None;
    }
    let (name, missing) = (last.get_bin_name().unwrap_or(last.get_name()), missing.join(" "));
    let usage = (*last).clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    Some(format!("`{found}` is too many: `{name}` needs `{missing}`; use `{usage}`"))
}
