//! Numbers in human-readable form: three or four digits and a unit.

/// A time: `350 ns`, `35.1 us`, `12.4 ms`, `3.20 s`.
pub(crate) fn time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n < 1e3 => return format!("{n:.0} ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A rate per second: `950`, `114.2k`, `1.52M`.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        r if r < 1e3 => format!("{r:.1}"),
        r if r < 1e6 => format!("{}k", four_digits(r / 1e3)),
        r => format!("{}M", three_digits(r / 1e6)),
    }
}

/// Bytes per second in units of both kinds: `446.1 MiB/s (467.8 MB/s)`, `19.5 KiB/s (20.0 kB/s)`.
pub(crate) fn speed(per_second: f64) -> String {
    let (binary, decimal, units) = match per_second < f64::from(1 << 20) {
        true => (f64::from(1 << 10), 1e3, ["KiB/s", "kB/s"]),
        false => (f64::from(1 << 20), 1e6, ["MiB/s", "MB/s"]),
    };
    format!("{:.1} {} ({:.1} {})", per_second / binary, units[0], per_second / decimal, units[1])
}

/// A size in binary units: `4 KiB`, `1.50 GiB`.
pub(crate) fn binary_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let power = (bytes.ilog2() / 10).min(5);
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    let unit = UNITS[power as usize - 1];
    if value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{value:.2} {unit}") }
}

/// A share in percent.
pub(crate) fn share(percent: f64) -> String {
    if percent < 10.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn four_digits(value: f64) -> String {
    if value < 9.9995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_their_unit() {
        let times = [(0.0, "0 ns"), (999.4, "999 ns"), (1500.0, "1.50 us"), (99_960.0, "100 us")];
        for (nanos, text) in times {
            assert_eq!(time(nanos), text);
        }
        assert_eq!((time(12_400_000.0), time(3.2e9)), ("12.4 ms".into(), "3.20 s".into()));
        let rates = [(950.25, "950.2"), (7100.0, "7.10k"), (114_200.0, "114.2k"), (1.5e6, "1.50M")];
        for (value, text) in rates {
            assert_eq!(rate(value), text);
        }
        let speeds = [(467.8e6, "446.1 MiB/s (467.8 MB/s)"), (20_480.0, "20.0 KiB/s (20.5 kB/s)")];
        for (value, text) in speeds {
            assert_eq!(speed(value), text);
        }
        let sizes =
            [(512, "512 bytes"), (4096, "4 KiB"), (1 << 30, "1 GiB"), (1_610_612_736, "1.50 GiB")];
        for (bytes, text) in sizes {
            assert_eq!(binary_size(bytes), text);
        }
    }
}
