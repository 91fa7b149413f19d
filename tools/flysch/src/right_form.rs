//! Words that `clap` refuses with a hint that leads astray: what they had to be instead.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What `words` had to be instead, where an argument is refused that belongs to a command further
/// up, or that is too many because an option was left out.
pub(crate) fn right_form(
    mut command: clap::Command,
    words: &[OsString],
    error: &clap::Error,
) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else { return None };
    command.build();
    let mut path = vec![&command];
    for word in words {
        path.extend(path.last().and_then(|at| at.find_subcommand(word)));
    }
    let (last, above) = path.split_last()?;
    let has = |at: &clap::Command| {
        let mut names = at.get_arguments().filter_map(clap::Arg::get_long);
        names.any(|name| found.strip_prefix("--") == Some(name))
    };
    if let Some(at) = above.iter().rposition(|at| has(at)) {
        let (owner, next) = (path[at].get_bin_name().unwrap_or_default(), path[at + 1].get_name());
        return Some(format!("`{found}` is an option of `{owner}`: say it in front of `{next}`"));
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
    Some(format!("`{found}` is too many: `{name}` needs `{missing}`; say `{usage}`"))
}
