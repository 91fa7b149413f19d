//! `flysch pci`: shows which driver owns which PCI function of this machine, and changes it.

use clap::Subcommand;
use flysch_vfio::{Address, Change, Function, Tree, Use, VfioError};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch pci`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List storage controllers: their drivers, IOMMU groups, and users of their disks.
    List {
        /// All functions, not only storage controllers.
        #[arg(long)]
        all: bool,
    },
    /// Take functions from Linux's drivers, for targets such as `ufs@pci:` and `nvme@pci:`.
    Bind {
        /// The addresses, such as 0000:00:12.5.
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<Address>,
        /// Also take those whose disks are in use, and all that share their IOMMU groups.
        #[arg(long)]
        yes: bool,
    },
    /// Give functions back to Linux's own drivers.
    Unbind {
        /// The addresses, such as 0000:00:12.5.
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<Address>,
    },
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let tree = Tree::system();
    match &arguments.command {
        Command::List { all } => list(&tree, *all, output),
        Command::Bind { addresses, yes } => {
            change(addresses, output, |address| tree.bind(address, *yes))
        }
        Command::Unbind { addresses } => {
            change(addresses, output, |address| Ok(vec![tree.unbind(address)?]))
        }
    }
}

fn list(tree: &Tree, all: bool, output: &mut Output) -> Result<(), Failure> {
    let functions = tree.functions().map_err(Failure::failed)?;
    let shown: Vec<&Function> = functions.iter().filter(|one| all || one.is_storage()).collect();
    if output.json() {
        return output.value(&shown.into_iter().map(to_json).collect::<Vec<_>>());
    }
    let rows: Vec<Vec<String>> = shown.into_iter().map(row).collect();
    let heading = ["Address", "Id", "What", "Driver", "Group", "Shared with", "Disks in use"];
    output.table(&heading, &rows)
}

fn row(function: &Function) -> Vec<String> {
    let Function { address, vendor, device, driver, group, members, disks, uses, .. } = function;
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    let uses: Vec<String> = uses.iter().map(Use::to_string).collect();
    let disks = if uses.is_empty() { disks.join(", ") } else { uses.join(", ") };
    vec![
        address.to_string(),
        format!("{vendor:04x}:{device:04x}"),
        function.kind().to_owned(),
        or_none(driver.clone().unwrap_or_default()),
        or_none(group.map_or_else(String::new, |group| group.to_string())),
        or_none(members.join(", ")),
        or_none(disks),
    ]
}

fn to_json(function: &Function) -> Value {
    let Function { address, vendor, device, class, driver, group, .. } = function;
    let members: Vec<String> = function.members.iter().map(ToString::to_string).collect();
    let one = |one: &Use| {
        let (kind, what) = one.kind.words();
        json!({ "disk": one.disk, "use": kind, "by": what })
    };
    json!({
        "address": address.to_string(),
        "vendor": format!("{vendor:04x}"),
        "device": format!("{device:04x}"),
        "class": format!("{class:06x}"),
        "what": function.kind(),
        "driver": driver,
        "group": group,
        "members": members,
        "protected": group.is_some() && !function.is_unprotected,
        "disks": function.disks,
        "uses": function.uses.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Changes each function in turn and reports the result.
fn change(
    addresses: &[Address],
    output: &mut Output,
    make: impl Fn(Address) -> Result<Vec<Change>, VfioError>,
) -> Result<(), Failure> {
    for address in addresses {
        let changes = make(*address).map_err(Failure::failed)?;
        if changes.is_empty() && !output.json() {
            output.line(format!("{address}: vfio-pci already has it"))?;
        }
        for Change { address, from, to } in changes {
            let event = json!({ "address": address.to_string(), "from": from, "to": to });
            let name = |driver: &Option<String>| driver.clone().unwrap_or("no driver".into());
            output.event(&event, |_| format!("{address}: {} -> {}", name(&from), name(&to)))?;
        }
    }
    Ok(())
}
