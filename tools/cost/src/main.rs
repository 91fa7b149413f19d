//! `flysch-cost`: counts the instructions of the hot paths and checks them against their budgets.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;

use flysch_cost::layers;
use flysch_cost::measure::{self, Run};
use flysch_cost::path::{self, CASES, HEADING};

/// Reads in the two runs that are compared.
const SHORT: u64 = 1_600;
const LONG: u64 = 9_600;

const USAGE: &str = "\
usage: flysch-cost [NAME...]      count the named cases (all of them without a name) with callgrind
                                  and print them as a table with their goals; fails if one is
                                  over its budget
       flysch-cost run NAME READS do READS reads of one case, for a look with callgrind
       flysch-cost --help";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        ["run", name, reads] => run(name, reads),
        _ => check(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("flysch-cost: {why}");
            ExitCode::FAILURE
        }
    }
}

fn case(name: &str) -> Result<&'static path::Case, String> {
    let names = || CASES.map(|case| case.name).join(", ");
    let found = CASES.iter().find(|case| case.name == name);
    found.ok_or_else(|| format!("there is no case `{name}`; there are {}", names()))
}

fn run(name: &str, reads: &str) -> Result<(), String> {
    let count = reads.parse().map_err(|_| format!("`{reads}` is not a number of reads"))?;
    path::run(case(name)?, count);
    Ok(())
}

fn check(names: &[&str]) -> Result<(), String> {
    let named: Vec<_> = names.iter().map(|name| case(name)).collect::<Result<_, _>>()?;
    let wanted = if named.is_empty() { CASES.iter().collect() } else { named };
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let (mut findings, mut counts) = (Vec::new(), BTreeMap::new());
    println!("{HEADING}");
    for case in wanted {
        let run = Run { program: &program, name: case.name, short: SHORT, long: LONG };
        let count = measure::count(&run)?;
        println!("{}", case.row(count));
        counts.insert(case.name, count);
        findings.extend(case.budget.judge(count).err().map(|why| format!("{} {why}", case.name)));
    }
    if let Some(table) = layers::table(&counts) {
        println!("\n{table}");
    }
    if findings.is_empty() { Ok(()) } else { Err(findings.join("; ")) }
}
