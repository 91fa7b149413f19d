//! The HTML report: a self-contained page with charts over the queue depth and tables below.
//!
//! The page loads nothing from the network and runs no script: charts are inline SVG, details are
//! tooltips, the reader's preference decides between light and dark.

mod chart;
mod published;

use serde::Serialize;

use crate::page::{self, Frame, Table};
use crate::published::Origin;
use crate::results::{DirectionResults, EnergyPart, JobResults, Results, TargetResults};
use chart::{Chart, Kind, Scale, Series};
use published::Published;

/// Block sizes from this on are judged by MiB/s, smaller ones by requests per second.
const LARGE_BLOCK: u32 = 64 << 10;
/// Targets with their own colour.
const COLOURS: usize = 6;

/// The results of one job on one target at one queue depth, in one direction.
#[derive(Clone, Debug)]
struct Sample {
    /// The target as the user wrote it.
    target: String,
    /// Where figures of its device were published.
    origin: Option<Origin>,
    /// The job's name, with the direction if it has more than one.
    job: String,
    /// fio's name of the access pattern, such as `randread`.
    pattern: String,
    /// Bytes per request.
    block_size: u32,
    /// Requests in flight per worker.
    depth: u32,
    /// Workers whose rates are added up.
    workers: u32,
    bytes_per_second: f64,
    requests_per_second: f64,
    /// Latency from acceptance to delivery at [`PERCENTILES`], nanoseconds.
    percentiles: [Option<u64>; 3],
    /// Mean time in each of [`AREAS`], nanoseconds.
    areas: [f64; 3],
    /// Share of submission and completion in the total time.
    software_percent: f64,
}

/// From the top of the chart to the bottom, with the class of each line.
const PERCENTILES: [(f64, &str, &str); 3] =
    [(99.9, "99.9 %", "p999"), (99.0, "99 %", "p99"), (50.0, "50 %", "p50")];
const AREAS: [&str; 3] = ["submission", "device", "completion"];

impl Sample {
    /// All measurements, in the order of the results.
    fn all(results: &Results) -> Vec<Self> {
        let jobs = results.targets.iter().flat_map(|t| t.wholes().map(move |job| (t, job)));
        let samples = jobs.flat_map(|(target, job)| {
            let single = job.directions().count() == 1;
            job.directions().map(move |(name, direction)| {
                let job_name = match single {
                    true => job.name.clone(),
                    false => format!("{} {name}", job.name),
                };
                Self::of(target, job, job_name, direction)
            })
        });
        samples.collect()
    }

    fn of(target: &TargetResults, job: &JobResults, name: String, d: &DirectionResults) -> Self {
        let areas = &d.areas;
        Self {
            target: target.target.clone(),
            origin: target.origin,
            job: name,
            pattern: job.rw.clone(),
            block_size: job.block_bytes,
            depth: job.iodepth,
            workers: job.workers,
            bytes_per_second: d.bandwidth,
            requests_per_second: d.iops,
            percentiles: PERCENTILES.map(|(percent, ..)| d.lat.percentile(percent)),
            areas: [areas.submission.mean, areas.device.mean, areas.completion.mean],
            software_percent: areas.software_percent,
        }
    }
}

impl Sample {
    /// The figure of a published series at its depth, if it belongs to its device.
    fn published(&self, published: &Published) -> Option<f64> {
        let is_of_it = self.origin == Some(published.origin);
        published.at(self.depth, self.workers).filter(|_| is_of_it)
    }
}

/// The page.
pub fn render(results: &Results, command: &str) -> String {
    let samples = &Sample::all(results);
    let jobs = Job::group(samples);
    let targets = distinct(samples.iter().map(|sample| sample.target.as_str()));
    let mut sections = [
        section("throughput", &jobs, |job| vec![job.throughput(&targets)]),
        section("latency", &jobs, |job| job.per_target(&targets, Job::latency)),
        section("areas", &jobs, |job| job.per_target(&targets, Job::areas)),
        section("software", &jobs, |job| job.per_target(&targets, Job::software)),
    ];
    if jobs.iter().all(|job| job.published().is_empty()) {
        sections[0].about = "Measured here.";
    }
    let target = |(number, name): (usize, &&str)| Item::line(name, &colour(number));
    let page = Page {
        frame: Frame::new(
            "Flysch benchmark",
            Some(results.timestamp_ms),
            command,
            &results.version,
        ),
        targets: targets.iter().enumerate().map(target).collect(),
        sections,
        tables: jobs
            .iter()
            .map(Job::table)
            .chain(energy(results))
            .chain(incidents(results))
            .collect(),
    };
    page::render(include_str!("page.html"), &page)
}

/// Everything the template uses.
#[derive(Debug, Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    frame: Frame<'a>,
    targets: Vec<Item>,
    sections: [Section; 4],
    tables: Vec<Table>,
}

#[derive(Debug, Serialize)]
struct Section {
    id: &'static str,
    title: &'static str,
    about: &'static str,
    figures: Vec<Figure>,
}

#[derive(Debug, Serialize)]
struct Figure {
    title: String,
    legend: Vec<Item>,
    svg: String,
    caption: String,
}

#[derive(Debug, Serialize)]
struct Item {
    name: String,
    class: String,
    area: bool,
}

impl Item {
    fn line(name: &str, class: &str) -> Self {
        Self { name: name.into(), class: class.into(), area: false }
    }
}

fn section(
    id: &'static str,
    jobs: &[Job<'_>],
    figures: impl Fn(&Job<'_>) -> Vec<Figure>,
) -> Section {
    let (title, about) = match id {
        "throughput" => (
            "Throughput over queue depth",
            "Solid: measured here. Dashed: published figures for the same workload.",
        ),
        "latency" => (
            "Latency",
            "From the request's acceptance to its delivery, at the percentiles given; \
             the scale is logarithmic.",
        ),
        "areas" => (
            "Where the time goes",
            "Mean time of one request, stacked: submission is software down to the doorbell, \
             completion is software from the end of the device's work to delivery.",
        ),
        _ => ("The software's part", "The same without the device, at a scale that shows it."),
    };
    Section { id, title, about, figures: jobs.iter().flat_map(figures).collect() }
}

/// Everything about one job: its samples on all targets and at all depths.
struct Job<'a> {
    number: usize,
    name: &'a str,
    pattern: &'a str,
    block_size: u32,
    depths: Vec<u32>,
    samples: Vec<&'a Sample>,
}

impl<'a> Job<'a> {
    /// The samples by job, in the order of their first appearance.
    fn group(samples: &'a [Sample]) -> Vec<Self> {
        let names = distinct(samples.iter().map(|sample| sample.job.as_str()));
        let job = |(number, name): (usize, &'a str)| {
            let samples: Vec<&Sample> = samples.iter().filter(|s| s.job == name).collect();
            let mut depths: Vec<u32> = samples.iter().map(|s| s.depth).collect();
            depths.sort_unstable();
            depths.dedup();
            let first = samples.first()?;
            let (pattern, block_size) = (first.pattern.as_str(), first.block_size);
            Some(Self { number, name, pattern, block_size, depths, samples })
        };
        names.into_iter().enumerate().filter_map(job).collect()
    }

    fn sample(&self, target: &str, depth: u32) -> Option<&'a Sample> {
        self.samples.iter().find(|s| s.target == target && s.depth == depth).copied()
    }

    fn title(&self) -> String {
        format!("{} · {} {}", self.name, self.pattern, size(self.block_size))
    }

    /// Unit of the job's rate, and its size.
    fn unit(&self) -> (&'static str, fn(&Sample) -> f64) {
        if self.block_size >= LARGE_BLOCK {
            ("MiB/s", |sample| sample.bytes_per_second / f64::from(1 << 20))
        } else {
            ("thousand IOPS", |sample| sample.requests_per_second / 1e3)
        }
    }

    /// A series of one value per depth.
    fn series(
        &self,
        name: &str,
        class: &str,
        value: impl Fn(u32) -> Option<f64>,
        unit: &str,
    ) -> Series {
        let values: Vec<Option<f64>> = self.depths.iter().map(|depth| value(*depth)).collect();
        let hint = |(depth, value): (&u32, &Option<f64>)| match value {
            Some(value) => format!("{name}: {} {unit} at depth {depth}", short(*value)),
            None => String::new(),
        };
        let hints = self.depths.iter().zip(&values).map(hint).collect();
        Series { name: name.into(), class: class.into(), values, hints }
    }

    fn figure(&self, chart: Chart, caption: String) -> Figure {
        let area = chart.kind == Kind::Areas;
        let item = |s: &Series| Item { name: s.name.clone(), class: s.class.clone(), area };
        let mut legend: Vec<Item> = chart.series.iter().map(item).collect();
        // Published lines are drawn first, to lie beneath; they are named last.
        legend.sort_by_key(|item| item.class.starts_with("published"));
        Figure { title: chart.title.clone(), legend, svg: chart.svg(), caption }
    }

    fn throughput(&self, targets: &[&str]) -> Figure {
        let (unit, rate) = self.unit();
        let measured = targets.iter().enumerate().map(|(number, target)| {
            let value = |depth| self.sample(target, depth).map(rate);
            self.series(target, &colour(number), value, unit)
        });
        let published = self.published().into_iter();
        let published = published
            .map(|p| self.series(p.name, p.class, |depth| p.at(depth, self.workers()), unit));
        let chart = Chart {
            id: format!("throughput-{}", self.number),
            title: self.title(),
            y_title: unit.into(),
            scale: Scale::Linear,
            kind: Kind::Lines,
            x: self.depths.clone(),
            series: published.chain(measured).filter(has_values).collect(),
        };
        self.figure(chart, String::new())
    }

    /// Workers whose rates are added up.
    fn workers(&self) -> u32 {
        self.samples.first().map_or(1, |sample| sample.workers)
    }

    /// Published figures for this workload at any of its depths, on a device that it ran on.
    fn published(&self) -> Vec<Published> {
        let mut published = Published::about(self.pattern, self.block_size);
        published.retain(|p| self.samples.iter().any(|sample| sample.published(p).is_some()));
        published
    }

    /// One figure for each target that ran this job.
    fn per_target(
        &self,
        targets: &[&str],
        draw: impl Fn(&Self, &str, String) -> Figure,
    ) -> Vec<Figure> {
        let did = |(_, target): &(usize, &&str)| self.samples.iter().any(|s| s.target == **target);
        let figure = |(number, target): (usize, &&str)| {
            let mut figure = draw(self, target, format!("{}-{number}", self.number));
            if targets.len() > 1 {
                figure.title = format!("{} · {target}", self.name);
            }
            figure
        };
        targets.iter().enumerate().filter(did).map(figure).collect()
    }

    fn latency(&self, target: &str, id: String) -> Figure {
        let line = |(place, (_, name, class)): (usize, (f64, &str, &str))| {
            let value = |depth| {
                let nanos = self.sample(target, depth)?.percentiles[place]?;
                Some((nanos as f64 / 1e3).max(1e-3))
            };
            self.series(name, class, value, "µs")
        };
        let chart = Chart {
            id: format!("latency-{id}"),
            title: self.title(),
            y_title: "latency".into(),
            scale: Scale::Microseconds,
            kind: Kind::Lines,
            x: self.depths.clone(),
            series: PERCENTILES.into_iter().enumerate().map(line).collect(),
        };
        self.figure(chart, String::new())
    }

    fn areas(&self, target: &str, id: String) -> Figure {
        let shares: Vec<(u32, f64)> = self
            .depths
            .iter()
            .filter_map(|depth| Some((*depth, self.sample(target, *depth)?.software_percent)))
            .collect();
        let caption = match (shares.first(), shares.last()) {
            (Some((first, low)), Some((last, high))) if first != last => format!(
                "Software: {} % of the time at depth {first}, {} % at depth {last}.",
                short(*low),
                short(*high)
            ),
            (Some((depth, share)), _) => {
                format!("Software: {} % of the time at depth {depth}.", short(*share))
            }
            _ => String::new(),
        };
        let chart =
            self.stack(target, format!("areas-{id}"), &["submission", "device", "completion"]);
        self.figure(chart, caption)
    }

    fn software(&self, target: &str, id: String) -> Figure {
        let chart = self.stack(target, format!("software-{id}"), &["submission", "completion"]);
        self.figure(chart, String::new())
    }

    /// Stacked areas, named after the areas of a request.
    fn stack(&self, target: &str, id: String, areas: &[&'static str]) -> Chart {
        let nanos = |name: &str, depth| {
            let place = AREAS.iter().position(|area| *area == name)?;
            Some(self.sample(target, depth)?.areas[place])
        };
        let sum = |depth: &u32| areas.iter().filter_map(|name| nanos(name, *depth)).sum::<f64>();
        let most = self.depths.iter().map(sum).fold(0.0, f64::max);
        let (unit, one) = match most {
            nanos if nanos >= 1e7 => ("ms", 1e6),
            nanos if nanos >= 1e4 => ("µs", 1e3),
            _ => ("ns", 1.0),
        };
        let area = |name: &&str| {
            self.series(name, name, |depth| nanos(name, depth).map(|nanos| nanos / one), unit)
        };
        Chart {
            id,
            title: self.title(),
            y_title: format!("mean per request, {unit}"),
            scale: Scale::Linear,
            kind: Kind::Areas,
            x: self.depths.clone(),
            series: areas.iter().map(area).collect(),
        }
    }

    fn table(&self) -> Table {
        let published = self.published();
        let mut heading = vec!["target", "depth", "workers", "MiB/s", "IOPS"];
        // From the least to the greatest, as one reads; the chart has them from top to bottom.
        let percentiles = || (0..PERCENTILES.len()).rev();
        heading.extend(percentiles().map(|place| PERCENTILES[place].1));
        heading.extend(AREAS);
        heading.push("software %");
        heading.extend(published.iter().map(|p| p.name));
        let (_, rate) = self.unit();
        let row = |s: &&Sample| {
            let mut cells = vec![
                s.target.clone(),
                s.depth.to_string(),
                s.workers.to_string(),
                short(s.bytes_per_second / f64::from(1 << 20)),
                format!("{:.0}", s.requests_per_second),
            ];
            let microseconds = |nanos: u64| short(nanos as f64 / 1e3);
            let percentile = |place: usize| s.percentiles[place].map_or("-".into(), microseconds);
            cells.extend(percentiles().map(percentile));
            cells.extend(s.areas.map(|nanos| short(nanos / 1e3)));
            cells.push(short(s.software_percent));
            cells.extend(published.iter().map(|p| match s.published(p) {
                Some(figure) => {
                    let percent = (rate(s) / figure - 1.0) * 100.0;
                    format!("{figure} ({percent:+.1} %)")
                }
                None => "-".into(),
            }));
            cells
        };
        Table::new(self.title(), &heading).with(self.samples.iter().map(row))
    }
}

/// The energy used by the devices, if they are modelled.
fn energy(results: &Results) -> Option<Table> {
    let row = |target: &TargetResults| {
        let energy = target.energy.as_ref()?;
        let per_gib = energy.joules_per_gib.map_or("-".into(), short);
        let sum = |parts: &[EnergyPart]| short(parts.iter().map(|part| part.joules).sum());
        Some(vec![
            target.target.clone(),
            short(energy.joules),
            short(energy.seconds),
            per_gib,
            short(energy.watts),
            sum(&energy.states),
            sum(&energy.work),
        ])
    };
    let rows: Vec<_> = results.targets.iter().filter_map(row).collect();
    let heading = ["target", "J", "s", "J/GiB", "mean W", "states, J", "work, J"];
    let caption = "Energy of the devices, all jobs together";
    (!rows.is_empty()).then(|| Table::new(caption, &heading).with(rows))
}

/// What went wrong on each target, if anything.
fn incidents(results: &Results) -> impl Iterator<Item = Table> {
    let with_some = results.targets.iter().filter(|target| !target.incidents.is_empty());
    with_some.map(|target| {
        let what = "What went wrong meanwhile, and what was done about it";
        let incidents = target.incidents.iter();
        Table::new(format!("{what} · {}", target.target), &["who tells", "what", "count"]).with(
            incidents.map(|it| vec![it.source.clone(), it.what.clone(), it.count.to_string()]),
        )
    })
}

fn has_values(series: &Series) -> bool {
    series.values.iter().any(Option::is_some)
}

/// Class of the n-th target.
fn colour(number: usize) -> String {
    format!("s{}", number % COLOURS)
}

/// Each value once, in the order of first appearance.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// A number with three significant digits, or all digits before the point.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        v if v == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A block size in the usual notation.
fn size(bytes: u32) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests;
