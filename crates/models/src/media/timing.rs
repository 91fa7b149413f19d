//! The structure of a device's media and the speed of its parts.

/// Work of the flash translation layer that stops the array for some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Once per this many bytes; 0 for never.
    pub every_bytes: u64,
    /// Duration, nanoseconds.
    pub ns: u64,
}

/// Timing parameters. Times are nanoseconds, sizes bytes, rates bytes per microsecond (MB/s).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Share of the raw lane rate that carries data, per mille: what remains after UniPro framing
    /// and flow control, UPIU headers and the host's DMA.
    pub link_efficiency_permille: u64,
    /// Serial stage shared by all commands: fetch, decode, queue.
    pub command_ns: u64,
    /// Per command, on the lane direction of its data: DMA set-up, RTT or first DATA IN, RESPONSE,
    /// interrupt.
    pub transfer_setup_ns: u64,
    /// Firmware latency of a command; occupies no resource.
    pub firmware_ns: u64,
    /// Spread of the firmware latency: a uniform value from 0 to this is added.
    pub firmware_jitter_ns: u64,
    /// Logical-to-physical look-up of a read not covered by read-ahead.
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
    /// Time added to a read whose die is programming: the suspend.
    pub suspend_ns: u64,
    /// How far a sequential stream is read ahead; at most [`READ_AHEAD_MAX_PAGES`] pages.
    pub read_ahead_bytes: u64,
    /// Size of the write buffer.
    pub write_buffer_bytes: u64,
    /// Mapping checkpoints and foreground collection, by bytes programmed.
    pub checkpoint: Pause,
    /// Read-disturb patrol, by bytes read from the array.
    pub patrol: Pause,
}

/// Maximum number of pages read ahead for a stream.
pub const READ_AHEAD_MAX_PAGES: u64 = 64;

impl Timing {
    /// Checks whether the values are possible for a device.
    ///
    /// # Errors
    /// The first impossible value: its name, the value, and the permitted values.
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
