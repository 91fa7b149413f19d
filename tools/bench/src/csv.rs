//! Results as comma-separated values (RFC 4180): one row per target, job and direction.

use std::io::{self, Write};

use crate::results::{Latency, Results, TargetResults};

const HEAD: &str = "target,clock,job,rw,bs,iodepth,workers,direction,requests,failed,bytes,\
runtime_ns,iops,bandwidth_bytes_per_second,software_percent";
const AREAS: [&str; 4] = ["submission", "device", "completion", "latency"];
const PERCENTILES: [(f64, &str); 3] = [(50.0, "p50"), (99.0, "p99"), (99.9, "p99_9")];

/// Writes `results` to `out`.
///
/// # Errors
/// Errors of `out`.
pub fn write(out: &mut impl Write, results: &Results) -> io::Result<()> {
    write!(out, "{HEAD}")?;
    for area in AREAS {
        write!(out, ",{area}_mean_ns")?;
        for (_, name) in PERCENTILES {
            write!(out, ",{area}_{name}_ns")?;
        }
    }
    write!(out, ",published_freebsd,published_linux,published_unit,incidents\r\n")?;
    for target in &results.targets {
        let incidents = quoted(&incidents(target));
        for job in &target.jobs {
            for (direction, d) in job.directions() {
                let texts = [&target.target, &target.clock, &job.name, &job.rw, &job.bs];
                for text in texts {
                    write!(out, "{},", quoted(text))?;
                }
                write!(out, "{},{},{direction}", job.iodepth, job.workers)?;
                write!(out, ",{},{},{},{}", d.requests, d.failed, d.bytes, job.runtime_nanos)?;
                write!(out, ",{:.3},{:.0}", d.iops, d.bandwidth)?;
                write!(out, ",{:.4}", d.areas.software_percent)?;
                for latency in [&d.areas.submission, &d.areas.device, &d.areas.completion, &d.lat] {
                    write_latency(out, latency)?;
                }
                match job.published {
                    Some(p) => write!(out, ",{},{},{}", p.freebsd, p.linux, p.column.unit())?,
                    None => write!(out, ",,,")?,
                }
                write!(out, ",{incidents}\r\n")?;
            }
        }
    }
    Ok(())
}

/// What went wrong on a target and what was done about it: one field, the same in all its rows,
/// because it is counted for the target as a whole.
fn incidents(target: &TargetResults) -> String {
    let told = target.incidents.iter();
    let told: Vec<String> =
        told.map(|one| format!("{} {}={}", one.source, one.what, one.count)).collect();
    told.join("; ")
}

fn write_latency(out: &mut impl Write, latency: &Latency) -> io::Result<()> {
    write!(out, ",{:.1}", latency.mean)?;
    for (percent, _) in PERCENTILES {
        match latency.percentile(percent) {
            Some(nanos) => write!(out, ",{nanos}")?,
            None => write!(out, ",")?,
        }
    }
    Ok(())
}

/// A field, in quotes if it needs them.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{DirectionResults, Incident, JobResults};

    #[test]
    fn every_row_has_the_fields_of_the_head() {
        let name = "say \"hi\"".to_string();
        let read = Some(DirectionResults { iops: 5.0, ..Default::default() });
        let job = JobResults { name, read: read.clone(), write: read, ..Default::default() };
        let target = "ufs,mcq=4".to_string();
        let incident = |source: &str, what: &str, count| Incident {
            source: source.into(),
            what: what.into(),
            count,
        };
        let incidents = vec![incident("injected", "uic", 2), incident("disk", "retries", 1)];
        let target = TargetResults { target, jobs: vec![job], incidents, ..Default::default() };
        let results = Results { targets: vec![target], ..Default::default() };
        let mut out = Vec::new();
        write(&mut out, &results).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("\"ufs,mcq=4\",,\"say \"\"hi\"\"\",,,0,0,read,"));
        assert!(lines[2].ends_with(",,,injected uic=2; disk retries=1"), "{}", lines[2]);
        // The target's own comma stands in quotes.
        assert_eq!(lines[1].matches(',').count(), lines[0].matches(',').count() + 1);
    }
}
