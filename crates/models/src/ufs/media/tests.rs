//! The media alone in a closed loop: the calibration without the protocol around it.

use std::collections::VecDeque;
use std::println;

use super::*;
use crate::events::Events;
use crate::ufs::profile::{GALAXY_BOOK_S, OK3576, Profile};
use flysch_api::machine::Instant;

#[derive(Clone, Copy)]
enum Event {
    Accepted(usize),
    Ready(usize, Ready),
    Done(usize),
    Die(u16),
}

struct Loop {
    media: Media,
    events: Events<Event>,
    waiting: VecDeque<usize>,
    now: u64,
    random: Random,
    next: Vec<u64>,
    issued: Vec<u64>,
    latencies: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Job {
    write: bool,
    random: bool,
    bytes: u64,
    depth: usize,
    streams: usize,
    slc: bool,
}

impl Loop {
    fn new(profile: &Profile) -> Self {
        let mut media = Media::new(profile.timing, 1);
        let lane = [0, 145_920_000, 291_840_000, 583_680_000, 1_167_360_000, 2_334_720_000];
        media.set_link_rate(lane[usize::from(profile.gear_max)] / 1000 * u64::from(profile.lanes));
        Self {
            media,
            events: Events::with_capacity(64),
            waiting: VecDeque::new(),
            now: 0,
            random: Random::new(9),
            next: Vec::new(),
            issued: Vec::new(),
            latencies: Vec::new(),
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.events.push(Instant::from_nanos(at), event);
    }

    fn issue(&mut self, task: usize, job: &Job) {
        self.issued[task] = self.now;
        let at = self.media.accept(self.now);
        if job.write {
            return self.at(at, Event::Accepted(task));
        }
        let address = if job.random {
            self.random.below((1 << 30) / job.bytes) * job.bytes
        } else {
            let stream = task % job.streams;
            let next = self.next[stream];
            self.next[stream] = next + job.bytes;
            ((stream as u64) << 30) + next % (1 << 30)
        };
        let ready = self.media.read(Span { address, len: job.bytes, limit: u64::MAX / 2 }, at);
        self.at(ready.first, Event::Ready(task, ready));
    }

    fn drain(&mut self) {
        while let Some(started) = self.media.program(self.now, false) {
            self.at(started.end, Event::Die(started.die));
        }
    }

    /// Bytes per microsecond and mean latency of `count` commands after a warm-up.
    fn run(mut self, job: Job, count: usize) -> (f64, Vec<u64>) {
        self.next = vec![0; job.streams];
        self.issued = vec![0; job.depth];
        for task in 0..job.depth {
            self.issue(task, &job);
        }
        let (mut done, warm) = (0, count / 8);
        let mut start = 0;
        while let Some((at, event)) = self.events.pop_due(Instant::NEVER) {
            self.now = at.nanos();
            match event {
                Event::Accepted(task) if self.media.admit(job.bytes) => {
                    let end = self.media.receive(self.now, job.bytes);
                    self.at(end, Event::Done(task));
                }
                Event::Accepted(task) => self.waiting.push_back(task),
                Event::Ready(task, ready) => {
                    let end = self.media.send(ready, job.bytes);
                    self.at(end, Event::Done(task));
                }
                Event::Die(die) => match self.media.programmed(die, self.now) {
                    Err(end) => self.at(end, Event::Die(die)),
                    Ok(_) => {
                        self.drain();
                        while let Some(&task) = self.waiting.front() {
                            if !self.media.admit(job.bytes) {
                                break;
                            }
                            self.waiting.pop_front();
                            let end = self.media.receive(self.now, job.bytes);
                            self.at(end, Event::Done(task));
                        }
                    }
                },
                Event::Done(task) => {
                    if job.write {
                        self.media.arrived(job.bytes, job.slc);
                        self.drain();
                    }
                    done += 1;
                    if done == warm {
                        start = self.now;
                    }
                    if done > warm {
                        self.latencies.push(self.now - self.issued[task]);
                    }
                    if done == count {
                        break;
                    }
                    self.issue(task, &job);
                }
            }
        }
        self.latencies.sort_unstable();
        let bytes = (count - warm) as f64 * job.bytes as f64;
        (bytes * 1000.0 / (self.now - start) as f64, self.latencies)
    }
}

#[test]
fn the_media_alone_lands_near_the_published_table() {
    let depths = [1, 2, 4, 8, 16, 32];
    let table: [(&str, Job, usize, [f64; 6]); 4] = [
        (
            "seq read MiB/s",
            job(false, false, 131_072),
            8192,
            [709., 1395., 1416., 1417., 1399., 1361.],
        ),
        ("seq write MiB/s", job(true, false, 131_072), 8192, [554., 556., 559., 554., 555., 556.]),
        ("rand read kIOPS", job(false, true, 4096), 40_000, [7.1, 14.8, 31.6, 63.5, 103.7, 114.2]),
        (
            "rand write kIOPS",
            job(true, true, 4096),
            40_000,
            [12.1, 29.4, 68.2, 102.3, 105.5, 106.6],
        ),
    ];
    let mut worst: f64 = 0.0;
    for (name, mut job, count, published) in table {
        for (depth, published) in depths.into_iter().zip(published) {
            job.depth = depth;
            let (rate, latencies) = Loop::new(&GALAXY_BOOK_S).run(job, count);
            let model = if job.bytes == 4096 { rate / 4.096 } else { rate / 1.048_576 };
            let error = (model / published - 1.0) * 100.0;
            worst = worst.max(error.abs());
            let p50 = latencies[latencies.len() / 2];
            println!("{name:18} {depth:3} {model:8.1} {published:8.1} {error:+6.1}% p50 {p50}");
        }
    }
    let mut wb = job(true, false, 1 << 20);
    (wb.depth, wb.slc) = (32, true);
    let (rate, _) = Loop::new(&GALAXY_BOOK_S).run(wb, 2048);
    let error = (rate / 1.048_576 / 1568.0 - 1.0) * 100.0;
    println!("WriteBooster {:.1} 1568 {error:+.1}%", rate / 1.048_576);
    worst = worst.max(error.abs());
    for (write, published) in [(true, 333.0), (false, 755.0)] {
        let mut job = job(write, false, 1 << 20);
        (job.depth, job.streams) = (8, 8);
        let (rate, latencies) = Loop::new(&OK3576).run(job, 8192);
        let error = (rate / 1.048_576 / published - 1.0) * 100.0;
        worst = worst.max(error.abs());
        let mean = latencies.iter().sum::<u64>() / latencies.len() as u64;
        let p99 = latencies[latencies.len() * 99 / 100];
        println!("ok3576 {:.1} {published} {error:+.1}% mean {mean} p99 {p99}", rate / 1.048_576);
    }
    assert!(worst < 10.0, "worst error {worst:.1}%");
}

fn job(write: bool, random: bool, bytes: u64) -> Job {
    Job { write, random, bytes, depth: 1, streams: 1, slc: false }
}

#[test]
fn a_stream_of_reads_does_not_starve_a_program_operation() {
    let timing = GALAXY_BOOK_S.timing;
    let mut media = Loop::new(&GALAXY_BOOK_S).media;
    let unit = media.unit(Program::Tlc);
    assert!(media.admit(unit));
    media.arrived(unit, false);
    let started = media.program(0, false).expect("a whole unit and an idle die");
    let pages_per_row = u64::from(timing.channels * timing.dies_per_channel);
    let mut at = 0;
    for page in 0..10_000 {
        // Every page of this loop lies on the die that programs.
        at = media.read_page(page * pages_per_row + u64::from(started.die), 4096, at);
    }
    let bound = u64::from(SUSPENDS_MAX) * (timing.suspend_ns + timing.read_ns);
    assert!(at > started.end + bound, "the reads outlast the program operation");
    assert!(media.programmed(started.die, started.end + bound).is_ok());
}
