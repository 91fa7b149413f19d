//! `cargo xtask bench`: measures every figure of docs/bench.md and prints its tables.

use crate::workspace::Workspace;
use crate::{Failure, shell};

/// One figure: its name and the command that measures it and prints a Markdown table.
struct Figure {
    name: &'static str,
    title: &'static str,
    command: &'static [&'static str],
}

const FIGURES: [Figure; 0] = [];

/// Measures the figures asked for.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<(), Failure> {
    let only = match options {
        [] => None,
        [list] if list == "--list" => {
            FIGURES.iter().for_each(|figure| println!("{:<14} {}", figure.name, figure.title));
            return Ok(());
        }
        [only, name] if only == "--only" => Some(name),
        [other, ..] => return Err(Failure::Usage(format!("unknown option `{other}`"))),
    };
    let wanted = |figure: &&Figure| only.is_none_or(|name| name == figure.name);
    let figures: Vec<&Figure> = FIGURES.iter().filter(wanted).collect();
    if figures.is_empty() {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        return Err(Failure::Usage(format!("no such figure; there are: {}", names.join(", "))));
    }
    for figure in figures {
        let mut command = shell::cargo(&workspace.root);
        let measured = shell::output(command.args(figure.command))?;
        println!("## {}\n\n    cargo {}\n\n{measured}", figure.title, figure.command.join(" "));
    }
    Ok(())
}
