//! The table of queue depths: measured figures, beside published ones if they belong to the device,
//! followed by the time of each I/O by area.

use std::fmt::Write as _;

use super::format::{share, time};
use super::{COLUMNS, clock_note, headline, percentile};
use crate::published::{Column, DEPTHS, MACHINE, Origin};
use crate::results::{Areas, DirectionResults, JobResults, TargetResults};

/// Depths whose areas are printed; the JSON has all.
const AREA_DEPTHS: [u32; 2] = [1, 32];

/// Writes the table of `target`.
pub(super) fn write(out: &mut String, target: &TargetResults) -> std::fmt::Result {
    writeln!(out, "{}", headline(target))?;
    writeln!(out)?;
    let is_published = is_published(target);
    write_heads(out, is_published)?;
    for depth in DEPTHS {
        write!(out, "{depth:>6}")?;
        for column in Column::ALL {
            let job = target.jobs.iter().find(|job| is_cell(job, column, depth));
            let cell = job.map_or_else(|| "-".to_string(), |job| value(job, column));
            write!(out, "{cell:>11}")?;
        }
        for linux in [false, true].into_iter().filter(|_| is_published) {
            write!(out, "  |")?;
            for column in Column::ALL {
                let published = column.published(depth);
                let figure = published.map(|p| if linux { p.linux } else { p.freebsd });
                write!(out, "{:>7}", figure.map_or_else(String::new, |f| digits(f, column)))?;
            }
        }
        writeln!(out)?;
    }
    for job in target.jobs.iter().filter(|job| job.failures > 0) {
        let cause = job.failure.as_deref().unwrap_or("tolerated");
        writeln!(out, "{} at queue depth {}: {cause}", job.name, job.iodepth)?;
    }
    super::write_incidents(out, target)?;
    write_areas(out, target)?;
    write_shares(out, target)?;
    super::write_energy(out, target)?;
    match clock_note(target) {
        Some(note) => writeln!(out, "\n{note}"),
        None => Ok(()),
    }
}

/// Whether the table's published figures belong to the device of `target`.
fn is_published(target: &TargetResults) -> bool {
    target.origin == Some(Origin::GalaxyBookS)
}

fn write_heads(out: &mut String, is_published: bool) -> std::fmt::Result {
    if is_published {
        writeln!(out, "{:<50}  |  published: {MACHINE}", "")?;
        writeln!(out, "{:<50}  |{:<28}  |  Linux", "", "  FreeBSD")?;
    }
    let mut lines = [format!("{:>6}", "queue"), format!("{:>6}", "depth")];
    for column in Column::ALL {
        write!(lines[0], "{:>11}", column.to_string())?;
        write!(lines[1], "{:>11}", column.unit())?;
    }
    for _ in 0..if is_published { 2 } else { 0 } {
        write!(lines[0], "  |{:>7}{:>7}{:>7}{:>7}", "seq", "seq", "rand", "rand")?;
        write!(lines[1], "  |{:>7}{:>7}{:>7}{:>7}", "read", "write", "read", "write")?;
    }
    writeln!(out, "{}\n{}", lines[0], lines[1])
}

fn is_cell(job: &JobResults, column: Column, depth: u32) -> bool {
    job.iodepth == depth && job.name == column.job_name()
}

/// A job's figure in the unit of its column.
fn value(job: &JobResults, column: Column) -> String {
    let figure = if column.is_sequential() {
        job.bandwidth() / f64::from(1 << 20)
    } else {
        job.iops() / 1e3
    };
    digits(figure, column)
}

fn digits(figure: f64, column: Column) -> String {
    if column.is_sequential() { format!("{figure:.0}") } else { format!("{figure:.1}") }
}

/// The areas of every column at the least and the greatest depth.
fn write_areas(out: &mut String, target: &TargetResults) -> std::fmt::Result {
    writeln!(out, "\nWhere the time of each I/O goes\n")?;
    write!(out, "{:<17}", "")?;
    for area in ["submission", "device", "completion"] {
        write!(out, "{area:^36}")?;
    }
    write!(out, "{:>8}\n{:<17}", "software", "")?;
    for _ in 0..3 {
        write!(out, "{:>9}{:>9}{:>9}{:>9}", "mean", "p50", "p99", "p99.9")?;
    }
    writeln!(out, "{:>8}", "share")?;
    for column in Column::ALL {
        for depth in AREA_DEPTHS {
            let Some(job) = target.jobs.iter().find(|job| is_cell(job, column, depth)) else {
                continue;
            };
            for (_, results) in job.directions() {
                let Areas { submission, device, completion, software_percent, .. } = &results.areas;
                write!(out, "{:<17}", format!("{column} qd {depth}"))?;
                for latency in [submission, device, completion] {
                    write!(out, "{:>9}", time(latency.mean))?;
                    for percent in COLUMNS {
                        write!(out, "{:>9}", percentile(latency, percent))?;
                    }
                }
                writeln!(out, "{:>8}", share(*software_percent))?;
            }
        }
    }
    Ok(())
}

/// The mean time of an I/O by owner: the device's time, and what the software above it adds, ours
/// as measured, theirs as the rest of the published time.
fn write_shares(out: &mut String, target: &TargetResults) -> std::fmt::Result {
    if !(is_published(target) && target.is_bare) {
        return Ok(());
    }
    writeln!(out, "\nWhose time it is, mean of one I/O\n")?;
    let heads = ["device", "our software", "FreeBSD's", "Linux's"];
    write!(out, "{:<17}", "")?;
    for head in heads {
        write!(out, "{head:>14}")?;
    }
    writeln!(out)?;
    for column in Column::ALL {
        for depth in AREA_DEPTHS {
            let job = target.jobs.iter().find(|job| is_cell(job, column, depth));
            let (Some(job), Some(published)) = (job, column.published(depth)) else { continue };
            for (_, DirectionResults { areas, .. }) in job.directions() {
                let ours = areas.submission.mean + areas.completion.mean;
                write!(out, "{:<17}", format!("{column} qd {depth}"))?;
                write!(out, "{:>14}{:>14}", time(areas.device.mean), time(ours))?;
                for figure in [published.freebsd, published.linux] {
                    let theirs = column.nanos(depth, figure) - areas.device.mean;
                    let cell = if theirs > 0.0 { time(theirs) } else { "none".to_string() };
                    write!(out, "{cell:>14}")?;
                }
                writeln!(out)?;
            }
        }
    }
    Ok(())
}
