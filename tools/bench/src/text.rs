//! Results for people: the queue-depth table, one block per job, targets side by side.

mod depth_table;
pub(crate) mod format;

use std::fmt::Write as _;

use crate::results::{
    Areas, DirectionResults, Incident, JobResults, Latency, Layer, Results, SteadyResults,
    TargetResults, VerifyResults,
};
use flysch_api::count::counted;
use format::{binary_size, rate, share, speed, time};

/// The percentiles in every table of areas.
const COLUMNS: [f64; 3] = [50.0, 99.0, 99.9];

/// The complete output for `results`.
pub fn render(results: &Results) -> String {
    let mut out = String::new();
    for target in &results.targets {
        if !out.is_empty() {
            out.push('\n');
        }
        // Writing to a String cannot fail.
        let _ = if results.is_table {
            depth_table::write(&mut out, target)
        } else {
            write_target(&mut out, target)
        };
    }
    if results.targets.len() > 1 {
        let _ = write_comparison(&mut out, results);
    }
    out
}

/// The line that describes a target.
fn headline(target: &TargetResults) -> String {
    let TargetResults { target: name, description, clock, bytes, block_size, .. } = target;
    let what = if description.is_empty() { String::new() } else { format!("{description}, ") };
    let size = binary_size(*bytes);
    format!("{name}: {what}{size} in blocks of {block_size} bytes, {clock} clock")
}

/// A note about the times of this clock.
fn clock_note(target: &TargetResults) -> Option<&'static str> {
    (target.clock == "virtual").then_some("On the virtual clock software takes no time.")
}

fn write_target(out: &mut String, target: &TargetResults) -> std::fmt::Result {
    writeln!(out, "{}", headline(target))?;
    for job in target.jobs.iter().chain(&target.totals) {
        writeln!(out)?;
        write_job(out, job)?;
    }
    write_energy(out, target)?;
    write_layers(out, target)?;
    write_incidents(out, target)?;
    if let Some(note) = clock_note(target) {
        writeln!(out, "\n{note}")?;
    }
    Ok(())
}

/// The energy used by the device: one line for the total of how many runs, two more for its use.
fn write_energy(out: &mut String, target: &TargetResults) -> std::fmt::Result {
    let Some(energy) = &target.energy else { return Ok(()) };
    let per_gib = energy.joules_per_gib.map(|joules| format!(", {joules:.3} J/GiB"));
    writeln!(
        out,
        "\nEnergy of the device: {:.3} J in {:.3} s{}, {:.3} W on average",
        energy.joules,
        energy.seconds,
        per_gib.unwrap_or_default(),
        energy.watts
    )?;
    for (kind, parts) in [("states", &energy.states), ("work", &energy.work)] {
        let told: Vec<String> =
            parts.iter().map(|part| format!("{} {:.3} J", part.name, part.joules)).collect();
        writeln!(out, "  {kind:<9} {}", told.join(", "))?;
    }
    Ok(())
}

/// Alignment of the columns of numbers in the table of the block layer.
const WIDTHS: [usize; 7] = [9, 9, 7, 8, 8, 12, 8];

/// Where requests went through the block layer, and what delayed them there.
fn write_layers(out: &mut String, target: &TargetResults) -> std::fmt::Result {
    if target.layers.is_empty() {
        return Ok(());
    }
    let name = |layer: &Layer| format!("{} {}", layer.class, layer.provider);
    let width = target.layers.iter().map(|layer| name(layer).len()).max().unwrap_or(0);
    let heading = "The block layer";
    let width = width.max(heading.len());
    let columns = ["reads", "writes", "others", "held up", "each", "asked again", "each"];
    write!(out, "\n{heading:<width$}  ")?;
    for (column, width) in columns.into_iter().zip(WIDTHS) {
        write!(out, " {column:>width$}")?;
    }
    writeln!(out)?;
    let each = |count: u64, nanos: u64| match count {
        0 => "-".into(),
        count => time(nanos as f64 / count as f64),
    };
    for layer in &target.layers {
        let cells = [
            layer.reads.to_string(),
            layer.writes.to_string(),
            layer.others.to_string(),
            layer.stalls.to_string(),
            each(layer.stalls, layer.stalled_nanos),
            layer.retries.to_string(),
            each(layer.retries, layer.retried_nanos),
        ];
        write!(out, "  {:<width$}", name(layer))?;
        for (cell, width) in cells.into_iter().zip(WIDTHS) {
            write!(out, " {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// What went wrong and what was done about it, one line per reporter.
fn write_incidents(out: &mut String, target: &TargetResults) -> std::fmt::Result {
    if target.incidents.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhat went wrong meanwhile, and what was done about it")?;
    for (source, group) in Incident::grouped(&target.incidents) {
        let told: Vec<String> =
            group.iter().map(|incident| format!("{} {}", incident.what, incident.count)).collect();
        writeln!(out, "  {source:<9} {}", told.join(", "))?;
    }
    Ok(())
}

fn write_job(out: &mut String, job: &JobResults) -> std::fmt::Result {
    let JobResults { name, rw, bs, iodepth, workers, .. } = job;
    let workers = if *workers > 1 { format!(", {workers} workers") } else { String::new() };
    writeln!(out, "{name}: {rw}, {bs}, queue depth {iodepth}{workers}")?;
    if let Some(description) = &job.description {
        writeln!(out, "  {description}")?;
    }
    if let Some((wanted, size)) = job.size_cut {
        let [wanted, size] = [wanted, size].map(binary_size);
        writeln!(out, "  size {wanted} is more than the device has there; the job used {size}")?;
    }
    // What is shorter than a second has a unit of its own, or it would be none.
    let took = match job.runtime_nanos as f64 {
        nanos if nanos < 1e9 => time(nanos),
        nanos => format!("{:.3} s", nanos / 1e9),
    };
    let percentiles = match job.percentiles.as_slice() {
        [] => &COLUMNS[..],
        wanted => wanted,
    };
    if job.directions().next().is_none() {
        writeln!(out, "  no I/O")?;
    }
    for (direction, results) in job.directions() {
        let DirectionResults { iops, bandwidth, requests, bytes, .. } = results;
        writeln!(
            out,
            "  {direction:<6} {} IOPS   {}   {}, {} in {took}",
            rate(*iops),
            speed(*bandwidth),
            counted(*requests, "request", "requests"),
            binary_size(*bytes),
        )?;
        write_areas(out, results, percentiles)?;
    }
    if let Some(sync) = &job.sync {
        let flushes = counted(sync.count, "flush", "flushes");
        writeln!(out, "  flush  {flushes}   {}", latency_words(sync))?;
    }
    if let Some(verified) = &job.verified {
        write_verified(out, verified)?;
    }
    write_ends(out, job)?;
    if job.failures > 0 {
        let first = job.first_failure.as_deref().unwrap_or_default();
        let cause = match &job.failure {
            Some(failure) => failure.clone(),
            None => format!("tolerated by continue_on_error, the first: {first}"),
        };
        let requests = counted(job.failures, "request", "requests");
        writeln!(out, "  failed {requests}; {cause}")?;
    }
    Ok(())
}

/// What was verified, and what was not as written.
fn write_verified(out: &mut String, verified: &VerifyResults) -> std::fmt::Result {
    let (bytes, method) = (verified.bytes, &verified.method);
    let size = binary_size(bytes);
    match verified.mismatches {
        _ if !verified.checked => {
            writeln!(out, "  verify written with {method}, nothing read back (do_verify=0)")?;
        }
        0 => {
            writeln!(out, "  verify {size} ({bytes} bytes) verified with {method}, all as written")?
        }
        n => {
            let blocks = counted(n, "block is", "blocks are");
            writeln!(
                out,
                "  verify {size} ({bytes} bytes) verified with {method}, \
                 {blocks} NOT AS WRITTEN"
            )?;
        }
    }
    for told in &verified.first {
        writeln!(out, "         {told}")?;
    }
    let more = verified.mismatches.saturating_sub(verified.first.len() as u64);
    if more > 0 {
        writeln!(out, "         and {more} more, which are not listed")?;
    }
    if !verified.dumped.is_empty() {
        writeln!(out, "         left in files: {}", verified.dumped.join(", "))?;
    }
    Ok(())
}

/// What happened to zones; the result of a search for a depth or for a steady state.
fn write_ends(out: &mut String, job: &JobResults) -> std::fmt::Result {
    if let Some(count) = job.zone_resets {
        writeln!(out, "  zones  {count} reset")?;
    }
    if let Some(latency) = &job.latency {
        let [target, window] =
            [latency.target_nanos, latency.window_nanos].map(|nanos| time(nanos as f64));
        writeln!(
            out,
            "  latency target {target} for {} of the requests, tried for {window} each: queue \
             depth {}",
            share(latency.percentile),
            latency.depth
        )?;
    }
    let Some(steady) = &job.steady else { return Ok(()) };
    let SteadyResults { criterion, percent, window_seconds, .. } = steady;
    let sign = if *percent { " %" } else { "" };
    let attained = if steady.attained { "attained" } else { "NOT attained" };
    write!(
        out,
        "  steady state {attained}: {criterion} {:.3}{sign} in {window_seconds} s, limit {}{sign}; \
         mean {} IOPS, {}/s",
        steady.value,
        steady.limit,
        rate(steady.iops_mean as f64),
        binary_size(steady.bandwidth_mean),
    )?;
    match steady.latency_mean {
        Some(nanos) => writeln!(out, ", {}", time(nanos as f64)),
        None => writeln!(out),
    }
}

/// The rows under a direction: its areas, their total, the software's share.
fn write_areas(
    out: &mut String,
    results: &DirectionResults,
    percentiles: &[f64],
) -> std::fmt::Result {
    let Areas { file_system, submission, device, completion, software_percent } = &results.areas;
    write!(out, "    {:<12}{:>10}", "", "mean")?;
    for percent in percentiles {
        write!(out, "{:>10}", format!("p{percent}"))?;
    }
    writeln!(out, "{:>10}", "max")?;
    let rows = [
        ("file system", file_system.as_ref()),
        ("submission", Some(submission)),
        ("device", Some(device)),
        ("completion", Some(completion)),
        ("all", Some(&results.lat)),
    ];
    for (name, latency) in rows {
        let Some(latency) = latency else { continue };
        write!(out, "    {name:<12}{:>10}", time(latency.mean))?;
        for percent in percentiles {
            write!(out, "{:>10}", percentile(latency, *percent))?;
        }
        writeln!(out, "{:>10}", time(latency.max as f64))?;
    }
    writeln!(out, "    software {} of the time", share(*software_percent))
}

/// A percentile, or a dash if the job asked for others.
fn percentile(latency: &Latency, percent: f64) -> String {
    latency.percentile(percent).map_or_else(|| "-".to_string(), |nanos| time(nanos as f64))
}

fn latency_words(latency: &Latency) -> String {
    let p99 = latency.percentile(99.0).map(|nanos| format!("p99 {}, ", time(nanos as f64)));
    let (mean, max) = (time(latency.mean), time(latency.max as f64));
    format!("mean {mean}, {}max {max}", p99.unwrap_or_default())
}

/// One row per job and direction, one column per target, ratios to the first target.
fn write_comparison(out: &mut String, results: &Results) -> std::fmt::Result {
    let Some(first) = results.targets.first() else { return Ok(()) };
    writeln!(out, "\nSide by side, IOPS and ratio to {}", first.target)?;
    let width = results.targets.iter().map(|target| target.target.len()).max();
    let width = width.unwrap_or(0).max(18) + 2;
    write!(out, "{:<26}", "")?;
    for target in &results.targets {
        write!(out, "{:>width$}", target.target)?;
    }
    writeln!(out)?;
    for (index, job) in first.wholes().enumerate() {
        for (direction, base) in job.directions() {
            let depth =
                if results.is_table { format!(" qd {}", job.iodepth) } else { String::new() };
            write!(out, "{:<26}", format!("{}{depth} {direction}", job.name))?;
            for target in &results.targets {
                let other = target.wholes().nth(index);
                let other = other.and_then(|j| j.directions().find(|(d, _)| *d == direction));
                let cell = other.map_or_else(
                    || "-".to_string(),
                    |(_, d)| format!("{} ({:.2}x)", rate(d.iops), ratio(d.iops, base.iops)),
                );
                write!(out, "{cell:>width$}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn ratio(value: f64, base: f64) -> f64 {
    if base > 0.0 { value / base } else { 0.0 }
}

#[cfg(test)]
mod tests;
