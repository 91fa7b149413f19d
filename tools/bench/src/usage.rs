//! What this process has used so far, from `/proc/self`; all zero where there is none.

use std::fs;
use std::time::Instant;

use crate::results::Cpu;

/// Clock ticks per second in `/proc`; fixed in Linux's interface (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// A starting point for counting usage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    at: Instant,
    user_ticks: u64,
    system_ticks: u64,
    minor_faults: u64,
    major_faults: u64,
    context_switches: u64,
}

impl Usage {
    /// Up to now.
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The program's name may hold anything; the fields after its closing bracket are numbers.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let field = |number: usize| {
            let field = fields.split_whitespace().nth(number - 3);
            field.and_then(|field| field.parse().ok()).unwrap_or(0)
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
        let switches = switches.filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok());
        Self {
            at: Instant::now(),
            minor_faults: field(10),
            major_faults: field(12),
            user_ticks: field(14),
            system_ticks: field(15),
            context_switches: switches.sum(),
        }
    }

    /// The usage since then.
    pub(crate) fn since(&self) -> Cpu {
        let now = Self::now();
        let seconds = now.at.duration_since(self.at).as_secs_f64();
        let percent = |ticks: u64| {
            if seconds > 0.0 { ticks as f64 / TICKS_PER_SECOND / seconds * 100.0 } else { 0.0 }
        };
        Cpu {
            user_percent: percent(now.user_ticks - self.user_ticks),
            system_percent: percent(now.system_ticks - self.system_ticks),
            context_switches: now.context_switches - self.context_switches,
            major_faults: now.major_faults - self.major_faults,
            minor_faults: now.minor_faults - self.minor_faults,
            elapsed_ms: (seconds * 1e3) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted() {
        let spent = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
        };
        // Around the two readings, and between them: what others do to this machine is in both.
        let outer = (Instant::now(), spent());
        let start = Usage::now();
        let inner = (Instant::now(), spent());
        let mut sum = 0u64;
        while spent() - inner.1 < 0.2 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let least = (inner.0.elapsed(), spent() - inner.1);
        let used = start.since();
        let most = (outer.0.elapsed(), spent() - outer.1);
        let elapsed = least.0.as_millis()..=most.0.as_millis();
        assert!(elapsed.contains(&used.elapsed_ms.into()), "{used:?}, {elapsed:?}");
        // The kernel tells user and system time in whole ticks each, and up to a tick late what
        // another thread uses.
        let ticks = 4.0 / TICKS_PER_SECOND;
        let share = (used.user_percent + used.system_percent) / 100.0;
        let [low, high] = [least.0, most.0].map(|whole| share * whole.as_secs_f64());
        let is_close = high >= least.1 - ticks && low <= most.1 + ticks;
        assert!(is_close, "{low} to {high} s told, {} to {} s spent", least.1, most.1);
    }
}
