//! `flysch bench --iosched RULES`: an I/O scheduler in front of every lane.

use std::str::FromStr;

use flysch_api::block::BlockDevice;
use flysch_api::machine::Clock;
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{self, PlayError, PlayOptions, Played};
use flysch_bench::results::Incident;
use flysch_cam::iosched::{Class, Limit, Rules, Scheduler};
use flysch_rig::{Visitor, size};

/// Minimum number of requests for which a scheduler has room: a flood must wait here, not before
/// it.
const ROOM: u32 = 1024;

/// Names of the rules, and their values.
const KEYS: &str = "read-bias=READS, read-latency=MICROSECONDS, and for read, write and delete \
                    CLASS-depth=N, CLASS-iops=N, CLASS-bandwidth=BYTES; or `default`";

/// Parses rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen(Rules);

impl FromStr for Chosen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Rules::default();
        if text == "default" {
            return Ok(Self(rules));
        }
        for pair in text.split(',') {
            set(&mut rules, pair)
                .ok_or_else(|| format!("--iosched: `{pair}` is not understood: {KEYS}"))?;
        }
        Ok(Self(rules))
    }
}

fn set(rules: &mut Rules, pair: &str) -> Option<()> {
    let (key, value) = pair.split_once('=')?;
    match key {
        "read-bias" => rules.read_bias = value.parse().ok()?,
        "read-latency" => {
            rules.read_latency = u64::from(value.parse::<u32>().ok()?).checked_mul(1000)?;
        }
        _ => {
            let (class, what) = key.split_once('-')?;
            let limit: &mut Limit = match class {
                "read" => &mut rules.read,
                "write" => &mut rules.write,
                "delete" => &mut rules.delete,
                _ => return None,
            };
            match what {
                "depth" => limit.depth = value.parse().ok()?,
                "iops" => limit.per_second = value.parse().ok()?,
                "bandwidth" => limit.bytes_per_second = size::parse(value)?,
                _ => return None,
            }
        }
    }
    Some(())
}

impl Chosen {
    /// A scheduler before each lane.
    pub(super) fn before<'a, D: BlockDevice>(
        self,
        lanes: &'a mut [D],
    ) -> Vec<Scheduler<&'a mut dyn BlockDevice>> {
        let one = |lane: &'a mut D| {
            let room = ROOM.max(lane.geometry().queue_depth.saturating_mul(4));
            let lane: &mut dyn BlockDevice = lane;
            Scheduler::new(lane, self.0, 1, room.min(0xFFFF) as u16)
        };
        lanes.iter_mut().map(one).collect()
    }
}

/// What schedulers did, for the results.
pub(super) fn incidents<D: BlockDevice>(lanes: &[Scheduler<D>]) -> Vec<Incident> {
    let all = || lanes.iter().map(Scheduler::statistics);
    let incident = |what: String, count| Incident { source: "scheduler".into(), what, count };
    let throttled = all().map(|statistics| statistics.throttled).sum();
    let mut told = vec![incident("less room for writes and deletes".into(), throttled)];
    for class in Class::ALL {
        let most = all().map(|statistics| statistics.class(class).queued_max).max().unwrap_or(0);
        told.push(incident(format!("most {}s waiting", class.name()), most.into()));
    }
    told
}

/// A job file on its way into a stack with a scheduler in front of each lane.
pub(super) struct Scheduled<'a> {
    pub(super) file: &'a JobFile,
    pub(super) options: PlayOptions<'a>,
    pub(super) rules: Chosen,
    /// What the schedulers did.
    pub(super) incidents: &'a mut Vec<Incident>,
}

impl Visitor for Scheduled<'_> {
    type Output = Result<Played, PlayError>;

    fn visit<D: BlockDevice, C: Clock>(self, lanes: &mut [D], clock: &C) -> Self::Output {
        let mut lanes = self.rules.before(lanes);
        let played = play::play(&mut lanes, clock, self.file, self.options);
        self.incidents.extend(incidents(&lanes));
        played
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rules = |text: &str| text.parse::<Chosen>().map(|chosen| chosen.0);
        assert_eq!(rules("default"), Ok(Rules::default()));
        let text = "read-bias=7,read-latency=500,write-depth=4,write-bandwidth=10M,delete-iops=9";
        let some = rules(text).unwrap();
        assert_eq!((some.read_bias, some.read_latency), (7, 500_000));
        let write = Limit { depth: 4, per_second: 0, bytes_per_second: 10 << 20 };
        assert_eq!((some.write, some.delete.per_second), (write, 9));
        for wrong in ["", "read", "read-bias=x", "trim-depth=1", "write-speed=1", "write-depth=-1"]
        {
            assert!(rules(wrong).is_err(), "{wrong}");
        }
    }
}
