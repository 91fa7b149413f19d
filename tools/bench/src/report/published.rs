//! Published figures as lines of a chart.

use crate::published::{Column, Origin};

/// One published series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Published {
    /// The source.
    pub(super) name: &'static str,
    /// Class that determines the line's look.
    pub(super) class: &'static str,
    /// The machine.
    pub(super) origin: Origin,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    FreeBsd(Column),
    Linux(Column),
    /// One figure, from a run in which the queue depth does not matter.
    Always(f64),
}

impl Published {
    /// The series about this workload, in the unit of its chart.
    pub(super) fn about(pattern: &str, block_size: u32) -> Vec<Self> {
        let is_about = |c: &Column| c.pattern() == pattern && c.block_bytes() == block_size;
        let table = Column::ALL.into_iter().filter(is_about).flat_map(|column| {
            let origin = Origin::GalaxyBookS;
            let series = |name, class, source| Self { name, class, origin, source };
            [
                series("FreeBSD, published", "published-a", Source::FreeBsd(column)),
                series("Linux, published", "published-b", Source::Linux(column)),
            ]
        });
        let board = BOARD.into_iter().filter(|(p, _)| *p == pattern && block_size == BOARD_BLOCK);
        let board = board.map(|(_, figure)| Self {
            name: "OK3576-C, published",
            class: "published-a",
            origin: Origin::Ok3576,
            source: Source::Always(figure),
        });
        table.chain(board).collect()
    }

    /// The figure of this many workers at a queue depth: most were measured with one.
    pub(super) fn at(&self, depth: u32, workers: u32) -> Option<f64> {
        match self.source {
            Source::FreeBsd(_) | Source::Linux(_) if workers > 1 => None,
            Source::FreeBsd(column) => column.published(depth).map(|p| p.freebsd),
            Source::Linux(column) => column.published(depth).map(|p| p.linux),
            Source::Always(figure) => Some(figure),
        }
    }
}

/// Forlinx OK3576-C (RK3576), UFS against eMMC: fio, 1 MiB blocks, eight threads, synchronous;
/// MiB/s.
const BOARD: [(&str, f64); 2] = [("read", 755.0), ("write", 333.0)];
const BOARD_BLOCK: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_workload_and_depth() {
        let found = Published::about("randread", 4096);
        let at = |depth, workers| found.iter().map(|p| p.at(depth, workers)).collect::<Vec<_>>();
        assert_eq!((at(32, 1), at(3, 1)), (vec![Some(114.2), Some(142.0)], vec![None, None]));
        assert_eq!(at(32, 4), [None, None]);
        let board = Published::about("write", 1 << 20);
        assert_eq!((board.len(), board[0].at(7, 8)), (1, Some(333.0)));
        assert_eq!(Published::about("randread", 8192), []);
    }
}
