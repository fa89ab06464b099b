//! The paper's figures (Zilberman et al., *Where Has My Time Gone?*, PAM 2017), row by row.

use taillab_model::Nanos;

use crate::result::PaperFigures;

/// Minimum, median, 99.9th percentile and tail, in nanoseconds.
const fn figures(ns: [u64; 4]) -> PaperFigures {
    PaperFigures {
        min_ns: Nanos::new(ns[0]),
        median_ns: Nanos::new(ns[1]),
        p999_ns: Nanos::new(ns[2]),
        tail_ns: Nanos::new(ns[3]),
    }
}

pub const TSC_USER: PaperFigures = figures([9, 10, 11, 49_000]);
pub const TSC_KERNEL: PaperFigures = figures([9, 9, 9, 6_900]);
pub const TSC_EARLY_BOOT: PaperFigures = figures([7, 7, 7, 11]);
pub const TSC_VM: PaperFigures = figures([12, 12, 13, 64_000_000]);
pub const SAME_CORE: PaperFigures = figures([2_000, 2_000, 2_000, 68_000]);
pub const OTHER_CORE: PaperFigures = figures([4_000, 5_000, 5_000, 31_000]);
pub const HOST: PaperFigures = figures([3_900, 4_500, 21_000, 45_000]);
pub const BYPASS: PaperFigures = figures([890, 940, 1_100, 5_400]);
pub const PCIE_64: PaperFigures = figures([550, 570, 590, 600]);
pub const PCIE_1536: PaperFigures = figures([970, 980, 1_020, 1_030]);
pub const UDP: PaperFigures = figures([7_000, 9_000, 107_000, 203_000]);
pub const MEMCACHED: PaperFigures = figures([10_000, 13_000, 240_000, 20_300_000]);
