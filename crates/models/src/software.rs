//! The software of a published host: what it adds to each request on a modelled device.
//!
//! A profile is a device. The figures published for a device also include the processor and the
//! operating system in front of it; with a [`Software`] in its configuration the model spends that
//! time too, on one processor between the host's registers and the device: every request waits for
//! its turn on it twice, on its way down and on its way up. A processor with nothing to do sleeps,
//! the more deeply the longer, and an interrupt must wake it first.
//!
//! The values are fitted to half of the published cells; `docs/bench.md` has the errors of both
//! halves. They determine only the sum of the two parts of a [`Cost`], hardly how it divides.
//!
//! This is how the published tables are reproduced, and how the device is separated from the
//! software: without a `Software` the model takes the time of the device alone.

/// Processor time per request, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// On its way to the controller.
    pub submit_ns: u64,
    /// On its way back, from the interrupt on.
    pub complete_ns: u64,
}

/// The kind of a request, for the host's software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Takes data from the device, or moves none.
    Read,
    /// Sends data to the device.
    Write,
}

/// The cost of a host's software. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software {
    /// Name in targets: `software=NAME`.
    pub name: &'static str,
    /// A description.
    pub description: &'static str,
    /// A read, or a request without data.
    pub read: Cost,
    /// A write.
    pub write: Cost,
    /// How the processor sleeps.
    pub sleep: Sleep,
}

/// The idle states of a processor: the envelope of its states, in which a longer sleep is a deeper
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// Shorter pauses are spent awake.
    pub after_ns: u64,
    /// Minimum time to wake up.
    pub exit_ns: u64,
    /// Additional time to wake up for each millisecond slept, microseconds.
    pub exit_permille: u64,
}

impl Sleep {
    /// Time to wake up after a pause of `pause_ns`.
    fn exit(self, pause_ns: u64) -> u64 {
        if pause_ns < self.after_ns {
            return 0;
        }
        self.exit_ns + (pause_ns - self.after_ns) * self.exit_permille / 1000
    }
}

const FREEBSD_COST: Cost = Cost { submit_ns: 8_600, complete_ns: 500 };
const LINUX_COST: Cost = Cost { submit_ns: 7_100, complete_ns: 650 };

/// FreeBSD's `ufshci(4)` and CAM on the Galaxy Book S.
pub const FREEBSD: Software = Software {
    name: "freebsd",
    description: "FreeBSD on a Galaxy Book S",
    read: FREEBSD_COST,
    write: FREEBSD_COST,
    sleep: Sleep { after_ns: 47_000, exit_ns: 28_000, exit_permille: 60 },
};

/// Linux's `ufshcd` on the same machine.
pub const LINUX: Software = Software {
    name: "linux",
    description: "Linux on a Galaxy Book S",
    read: LINUX_COST,
    write: LINUX_COST,
    sleep: Sleep { after_ns: 19_500, exit_ns: 10_000, exit_permille: 700 },
};

impl Software {
    /// Every published host.
    pub const ALL: [&'static Self; 2] = [&FREEBSD, &LINUX];

    /// The cost of a request of this kind.
    fn cost(&self, kind: Kind) -> Cost {
        match kind {
            Kind::Read => self.read,
            Kind::Write => self.write,
        }
    }

    /// The software with this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|software| software.name == name)
    }
}

/// The processor that runs a [`Software`]: one request at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor {
    software: Software,
    /// When it is idle next.
    free: u64,
}

impl Processor {
    pub(crate) const fn new(software: Software) -> Self {
        Self { software, free: 0 }
    }

    /// A request is made at `now`: returns when it is at the controller.
    pub(crate) fn submit(&mut self, kind: Kind, now: u64) -> u64 {
        self.free = self.free.max(now) + self.software.cost(kind).submit_ns;
        self.free
    }

    /// The device finishes a request at `now`: returns when the caller has it.
    pub(crate) fn complete(&mut self, kind: Kind, now: u64) -> u64 {
        let exit = self.software.sleep.exit(now.saturating_sub(self.free));
        self.free = self.free.max(now) + exit + self.software.cost(kind).complete_ns;
        self.free
    }
}
