//! Published figures to hold our own against, drawn as dashed lines.

/// One published series.
#[derive(Debug)]
pub(super) struct Published {
    /// Who measured what.
    pub(super) name: &'static str,
    /// Class that gives the line its look.
    pub(super) class: &'static str,
    /// fio's name of the access pattern it is about.
    pub(super) pattern: &'static str,
    /// The block size it is about, bytes.
    pub(super) block_size: u32,
    /// MiB/s for large blocks, thousands of requests per second for 4 KiB.
    pub(super) values: Values,
}

/// Figures by queue depth, or one for a run in which the depth does not count.
#[derive(Debug)]
pub(super) enum Values {
    /// At depths 1, 2, 4, 8, 16 and 32.
    ByDepth([f64; 6]),
    /// One figure.
    Always(f64),
}

impl Published {
    /// The figure at a queue depth.
    pub(super) fn at(&self, depth: u32) -> Option<f64> {
        match self.values {
            Values::ByDepth(values) => {
                let place = DEPTHS.iter().position(|d| *d == depth)?;
                Some(values[place])
            }
            Values::Always(value) => Some(value),
        }
    }

    /// The series about this workload.
    pub(super) fn about(pattern: &str, block_size: u32) -> impl Iterator<Item = &'static Self> {
        let is_about = move |p: &&Self| p.pattern == pattern && p.block_size == block_size;
        PUBLISHED.iter().filter(is_about)
    }
}

const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];

const fn by_depth(
    linux: bool,
    pattern: &'static str,
    block_size: u32,
    values: [f64; 6],
) -> Published {
    let (name, class) = match linux {
        false => ("FreeBSD, published", "published-a"),
        true => ("Linux, published", "published-b"),
    };
    Published { name, class, pattern, block_size, values: Values::ByDepth(values) }
}

const SEQUENTIAL: u32 = 128 << 10;
const RANDOM: u32 = 4 << 10;

/// Galaxy Book S, UFS 4.0 part at HS-G4 on a 3.1 host: J. Choi, FreeBSD Journal, 2025. OK3576-C
/// board, 1 MiB blocks, eight threads: Forlinx, UFS against eMMC on RK3576.
const PUBLISHED: [Published; 10] = [
    by_depth(false, "read", SEQUENTIAL, [709.0, 1395.0, 1416.0, 1417.0, 1399.0, 1361.0]),
    by_depth(true, "read", SEQUENTIAL, [542.0, 1358.0, 1351.0, 1352.0, 1351.0, 1355.0]),
    by_depth(false, "write", SEQUENTIAL, [554.0, 556.0, 559.0, 554.0, 555.0, 556.0]),
    by_depth(true, "write", SEQUENTIAL, [479.0, 548.0, 550.0, 550.0, 552.0, 553.0]),
    by_depth(false, "randread", RANDOM, [7.1, 14.8, 31.6, 63.5, 103.7, 114.2]),
    by_depth(true, "randread", RANDOM, [6.1, 13.0, 29.7, 61.1, 119.0, 142.0]),
    by_depth(false, "randwrite", RANDOM, [12.1, 29.4, 68.2, 102.3, 105.5, 106.6]),
    by_depth(true, "randwrite", RANDOM, [11.0, 21.0, 53.1, 84.1, 114.0, 120.0]),
    Published {
        name: "OK3576-C, published",
        class: "published-a",
        pattern: "read",
        block_size: 1 << 20,
        values: Values::Always(755.0),
    },
    Published {
        name: "OK3576-C, published",
        class: "published-a",
        pattern: "write",
        block_size: 1 << 20,
        values: Values::Always(333.0),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_workload_and_depth() {
        let found: Vec<_> = Published::about("randread", 4096).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].at(32), found[1].at(32), found[0].at(3)),
            (Some(114.2), Some(142.0), None)
        );
        let board: Vec<_> = Published::about("write", 1 << 20).collect();
        assert_eq!((board.len(), board[0].at(7)), (1, Some(333.0)));
        assert_eq!(Published::about("randread", 8192).count(), 0);
    }
}
