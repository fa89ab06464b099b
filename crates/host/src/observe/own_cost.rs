//! What this process itself costs: CPU time and memory.

use rustix::time::{ClockId, clock_gettime};
use taillab_model::Nanos;

use crate::roots::{Roots, status};

/// CPU time of this process so far, its ended threads included, and when it was read.
#[derive(Clone, Copy, Debug)]
pub struct OwnCost {
    cpu: Nanos,
    at: Nanos,
}

impl OwnCost {
    /// Reads both clocks.
    pub fn now() -> Self {
        let read = |clock| {
            let time = clock_gettime(clock);
            Nanos::from_secs(time.tv_sec as u64) + Nanos::new(time.tv_nsec as u64)
        };
        Self {
            cpu: read(ClockId::ProcessCPUTime),
            at: read(ClockId::Monotonic),
        }
    }

    /// Share of one CPU that this process has used since `earlier`; above 1 it used several.
    pub fn cpu_share_since(&self, earlier: &Self) -> f64 {
        let length = self.at.saturating_sub(earlier.at).as_secs_f64();
        if length > 0.0 {
            self.cpu.saturating_sub(earlier.cpu).as_secs_f64() / length
        } else {
            0.0
        }
    }

    /// The most memory that it ever had resident, in bytes; 0 where the kernel does not say.
    pub fn peak_memory_bytes(roots: &Roots) -> u64 {
        let kibibytes = status(roots, "self", "VmHWM")
            .and_then(|value| value.strip_suffix("kB")?.trim().parse::<u64>().ok());
        kibibytes.unwrap_or(0) * 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_cpu_time_and_memory_as_memory() {
        let before = OwnCost::now();
        let mut sum = 0_u64;
        for i in 0..5_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i));
        }
        let after = OwnCost::now();
        assert!(after.cpu_share_since(&before) > 0.0);
        assert_eq!(before.cpu_share_since(&after), 0.0);
        assert!(OwnCost::peak_memory_bytes(&Roots::default()) > 1 << 20);
    }
}
