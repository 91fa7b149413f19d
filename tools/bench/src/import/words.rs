//! The figures as text.

use std::fmt::Write as _;

use flysch_api::count::counted;

use super::summary::{Group, Summary};
use crate::text::format::{binary_size, share, time};

/// The complete text.
pub fn render(summary: &Summary) -> String {
    let mut text = String::new();
    for line in head(summary) {
        let _ = writeln!(text, "{line}");
    }
    for group in &summary.groups {
        let _ = writeln!(text, "\n{}", title(group));
        let heading = ["mean", "p50", "p99", "p99.9", "max"];
        let _ = write!(text, "  {:<28}", "");
        heading.iter().for_each(|word| {
            let _ = write!(text, "{word:>10}");
        });
        let _ = writeln!(text);
        for area in &group.areas {
            let _ = write!(text, "  {:<28}", area.name);
            let all = [area.p50_ns, area.p99_ns, area.p999_ns, area.max_ns].map(|it| it as f64);
            for nanos in std::iter::once(area.mean_ns).chain(all) {
                let _ = write!(text, "{:>10}", time(nanos));
            }
            match area.count < group.ios {
                true => {
                    let _ = writeln!(text, "  ({} of them)", area.count);
                }
                false => {
                    let _ = writeln!(text);
                }
            }
        }
        let _ = writeln!(text, "  software {} of the time", share(group.software_percent));
    }
    text
}

/// The description of a group.
pub(super) fn title(group: &Group) -> String {
    let driver = match group.driver {
        super::join::Driver::Block => "block layer",
        super::join::Driver::Scsi => "scsi",
        super::join::Driver::Ufs => "ufs",
        super::join::Driver::Nvme => "nvme",
        super::join::Driver::Mmc => "mmc",
    };
    let by = match &group.call {
        Some(call) => format!("by {call}"),
        None => "by the kernel".into(),
    };
    let threads = counted(group.threads, "thread", "threads");
    let failed =
        if group.failed > 0 { format!(", {} failed", group.failed) } else { String::new() };
    format!(
        "{} ({driver}): {} {} of {} {by}, {threads}{failed}",
        group.disk,
        group.ios,
        group.operation,
        binary_size(group.bytes)
    )
}

/// What was read, and what could not be joined.
pub(super) fn head(summary: &Summary) -> Vec<String> {
    let Summary { told, loss, .. } = summary;
    let mut lines = vec![format!(
        "{} of {} in {}; {} of other names",
        counted(summary.ios, "I/O", "I/Os"),
        counted(told.events, "event", "events"),
        counted(told.lines, "line or record", "lines or records"),
        told.other_events
    )];
    let counts = [
        (told.unknown_lines, "lines were not understood"),
        (told.odd_events, "events were known by name and not understood"),
        (told.lost, "events were lost by the recorder"),
        (loss.unfinished, "I/Os have no end in the trace"),
        (loss.unknown_requests, "requests were of bios that are not in the trace"),
        (loss.unknown_completions, "completions were of requests that are not in the trace"),
        (
            loss.without_interrupt,
            "completions came without an interrupt of their own: area 3 ends \
            where the driver saw them",
        ),
        (loss.after_the_call, "I/Os went on after their system call"),
        (summary.others, "I/Os are of further kinds"),
    ];
    lines
        .extend(counts.iter().filter(|it| it.0 > 0).map(|(count, what)| format!("{count} {what}")));
    if let Some(line) = told.first_odd.as_ref().filter(|_| told.unknown_lines + told.odd_events > 0)
    {
        lines.push(format!("the first of those lines: {line}"));
    }
    lines
}
