//! What a device's media is made of and how fast its parts are.

/// Work of the flash translation layer that stops the array for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Once per so many bytes; 0 never.
    pub every_bytes: u64,
    /// For how long, nanoseconds.
    pub ns: u64,
}

/// Timing parameters. Times are nanoseconds, sizes bytes, rates bytes per microsecond (MB/s).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Share of the raw lane rate that carries data, per mille: what UniPro framing and flow
    /// control, UPIU headers and the host's DMA leave of it.
    pub link_efficiency_permille: u64,
    /// Serial stage shared by all commands: fetch, decode, queue.
    pub command_ns: u64,
    /// Per command on the lane direction its data takes: DMA set-up, RTT or first DATA IN,
    /// RESPONSE, interrupt.
    pub transfer_setup_ns: u64,
    /// Firmware latency of a command; does not occupy anything.
    pub firmware_ns: u64,
    /// Spread of the firmware latency: uniform from 0 to this, added.
    pub firmware_jitter_ns: u64,
    /// Logical-to-physical look-up of a read that no read-ahead covered.
    pub lookup_ns: u64,
    /// NAND channels.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Planes in each die, read independently, programmed together.
    pub planes_per_die: u32,
    /// Page size.
    pub page_bytes: u32,
    /// Cell array to page register (tR).
    pub read_ns: u64,
    /// One-shot program of three pages on every plane of a die, TLC (tPROG).
    pub program_ns: u64,
    /// Program of one page on every plane of a die, SLC mode.
    pub program_slc_ns: u64,
    /// Erase (tBERS).
    pub erase_ns: u64,
    /// Bytes in an erase block of one plane, TLC.
    pub block_bytes: u64,
    /// Rate of one channel.
    pub channel_rate: u64,
    /// What a read adds when its die is programming: the suspend.
    pub suspend_ns: u64,
    /// How far a sequential stream is read ahead; at most [`READ_AHEAD_MAX_PAGES`] pages.
    pub read_ahead_bytes: u64,
    /// Write buffer.
    pub write_buffer_bytes: u64,
    /// Mapping check-points and foreground collection, by bytes programmed.
    pub checkpoint: Pause,
    /// Read-disturb patrol, by bytes read from the array.
    pub patrol: Pause,
}

/// Most pages a stream may be read ahead.
pub const READ_AHEAD_MAX_PAGES: u64 = 64;

impl Timing {
    /// Whether a device can be timed like this.
    ///
    /// # Errors
    /// The first value that is impossible: its name, what it is, what it may be.
    pub fn check(&self) -> Result<(), (&'static str, u64, &'static str)> {
        let ranges = [
            ("channels", self.channels, 1..=64, "1 to 64"),
            ("dies_per_channel", self.dies_per_channel, 1..=64, "1 to 64"),
            ("planes_per_die", self.planes_per_die, 1..=16, "1 to 16"),
            ("page_bytes", self.page_bytes, 4096..=1 << 20, "a power of two from 4096 to 1048576"),
        ];
        for (key, is, may, text) in ranges {
            if !may.contains(&is) || key == "page_bytes" && !is.is_power_of_two() {
                return Err((key, u64::from(is), text));
            }
        }
        Ok(())
    }
}
