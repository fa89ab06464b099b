//! The time stamp counter: reading it, how fast it ticks, and whether it can be trusted.

use std::fs;
use std::thread;
use std::time::Duration;

use taillab_model::Monotonic;
use taillab_model::noise::TscClock;

use super::error::NoiseError;
use crate::clock::now;
use crate::roots::{Roots, field, read_optional};

/// The counter and the CPU on which it was read.
///
/// `rdtscp` waits for all instructions before it, and the fence lets none after it begin
/// earlier (Intel SDM, volume 2, RDTSCP).
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn read() -> (u64, u32) {
    use std::arch::x86_64::{__rdtscp, _mm_lfence};
    let mut place = 0;
    // SAFETY: `check` has found the instruction before anybody reads; both only use registers
    // and `place`, which lives here.
    let ticks = unsafe {
        let ticks = __rdtscp(&raw mut place);
        _mm_lfence();
        ticks
    };
    // Linux keeps node << 12 | cpu there
    (ticks, place & 0xfff)
}

/// Other architectures have none; [`check`] says so first.
#[cfg(not(target_arch = "x86_64"))]
pub fn read() -> (u64, u32) {
    (0, 0)
}

/// Whether the counter is there, counts at one rate, and is trusted by the kernel.
///
/// # Errors
/// [`NoiseError::NoTsc`], [`NoiseError::Unstable`], [`NoiseError::ClockUnknown`].
pub fn check(roots: &Roots) -> Result<(), NoiseError> {
    let info = fs::read_to_string(roots.proc.join("cpuinfo")).unwrap_or_default();
    let flags = field(&info, &["flags"]).unwrap_or_default();
    let has = |wanted: &str| flags.split_ascii_whitespace().any(|flag| flag == wanted);
    if !cfg!(target_arch = "x86_64") || !has("tsc") || !has("rdtscp") {
        return Err(NoiseError::NoTsc);
    }
    let (current, available) = sources(roots);
    let why = if !has("constant_tsc") {
        "it does not count at one rate (no constant_tsc)"
    } else if available == NOT_SAID {
        return Err(NoiseError::ClockUnknown);
    } else if !available.split_ascii_whitespace().any(|name| name == "tsc") {
        "the kernel has found it unstable"
    } else {
        return Ok(());
    };
    Err(NoiseError::Unstable {
        why,
        current,
        available,
    })
}

/// For a file that cannot be read.
const NOT_SAID: &str = "none";

fn sources(roots: &Roots) -> (String, String) {
    let folder = roots.sys.join("devices/system/clocksource/clocksource0");
    let read = |name: &str| read_optional(&folder.join(name)).unwrap_or_else(|| NOT_SAID.into());
    (read("current_clocksource"), read("available_clocksource"))
}

/// One instant by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// By the counter.
    pub ticks: u64,
    /// By the kernel's clock.
    pub at: Monotonic,
}

impl Anchor {
    /// Now: the best of several attempts, to some ten nanoseconds.
    pub fn take() -> Self {
        const ATTEMPTS: u32 = 32;
        let mut best = (u64::MAX, 0, now());
        for _ in 0..ATTEMPTS {
            let (before, _) = read();
            let at = now();
            let (after, _) = read();
            let took = after.saturating_sub(before);
            if took < best.0 {
                best = (took, before + took / 2, at);
            }
        }
        Self {
            ticks: best.1,
            at: best.2,
        }
    }

    /// Ticks per second from here to `later`; `None` where no time has passed.
    pub fn frequency_to(self, later: Self) -> Option<f64> {
        let ns = later.at.saturating_since(self.at).get();
        let ticks = later.ticks.checked_sub(self.ticks)?;
        (ns > 0 && ticks > 0).then(|| ticks as f64 * 1e9 / ns as f64)
    }

    /// The instant at which the counter is at `ticks`, on the line from here to `later` or a
    /// little beyond its ends.
    pub fn instant(self, later: Self, ticks: u64) -> Monotonic {
        let ns = later.at.saturating_since(self.at).get() as f64;
        let per_tick = ns / (later.ticks.saturating_sub(self.ticks)).max(1) as f64;
        let since = (ticks as i64).wrapping_sub(self.ticks as i64) as f64 * per_tick;
        // a double is exact up to 104 days in nanoseconds, so only the distance is one
        let whole = self.at.nanos_since_boot() as i128 + since.round() as i128;
        Monotonic::from_nanos_since_boot(u64::try_from(whole).unwrap_or(0))
    }
}

/// Describes the counter, which takes about a fifth of a second.
///
/// # Errors
/// As [`check`].
pub fn describe(roots: &Roots) -> Result<TscClock, NoiseError> {
    const WATCHED: Duration = Duration::from_millis(200);
    check(roots)?;
    let first = Anchor::take();
    let quantum_ticks = quantum();
    thread::sleep(WATCHED);
    let frequency_hz = first.frequency_to(Anchor::take()).unwrap_or(1e9);
    let info = fs::read_to_string(roots.proc.join("cpuinfo")).unwrap_or_default();
    Ok(TscClock {
        frequency_hz,
        quantum_ticks,
        quantum_fractional_ns: quantum_ticks as f64 * 1e9 / frequency_hz,
        invariant: info.contains(" nonstop_tsc"),
        clocksource: sources(roots).0,
    })
}

/// The greatest common divisor of all differences between reads.
fn quantum() -> u64 {
    const READS: u32 = 20_000;
    let (mut last, _) = read();
    let mut step = 0;
    for _ in 0..READS {
        let (ticks, _) = read();
        step = common_divisor(step, ticks.wrapping_sub(last));
        last = ticks;
    }
    step.max(1)
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn instants_lie_on_the_line_between_two_anchors() {
        let at = Monotonic::from_nanos_since_boot;
        let first = Anchor {
            ticks: 10_000,
            at: at(1 << 60),
        };
        let later = Anchor {
            ticks: 12_000,
            at: at((1 << 60) + 1_000),
        };
        assert_eq!(first.frequency_to(later), Some(2e9));
        for (ticks, ns) in [(10_000, 0), (10_500, 250), (13_000, 1_500)] {
            assert_eq!(first.instant(later, ticks), at((1 << 60) + ns));
        }
        assert_eq!(first.instant(later, 9_000), at((1 << 60) - 500));
    }

    #[test]
    fn a_counter_that_the_kernel_does_not_trust_is_refused() {
        let check_on = |flags: &str, available: &str| {
            let folder = "sys/devices/system/clocksource/clocksource0";
            let (_folder, roots) = tree(&[
                ("proc/cpuinfo", &format!("flags\t\t: fpu {flags}\n")),
                (&format!("{folder}/current_clocksource"), "hpet\n"),
                (
                    &format!("{folder}/available_clocksource"),
                    &format!("{available}\n"),
                ),
            ]);
            check(&roots)
        };
        let all = "tsc rdtscp constant_tsc";
        let unstable = check_on(all, "hpet acpi_pm");
        if cfg!(target_arch = "x86_64") {
            assert!(check_on(all, "hpet tsc").is_ok());
            assert!(matches!(unstable, Err(NoiseError::Unstable { .. })));
            let slows = check_on("tsc rdtscp", "tsc");
            assert!(matches!(slows, Err(NoiseError::Unstable { .. })));
        }
        assert!(matches!(check_on("tsc", "tsc"), Err(NoiseError::NoTsc)));
    }

    /// A container may have an empty `/sys`: that is no fault of the counter.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_kernel_that_does_not_say_what_it_trusts_is_not_taken_for_one_that_distrusts() {
        let flags = "flags\t\t: fpu tsc rdtscp constant_tsc\n";
        let (_folder, roots) = tree(&[("proc/cpuinfo", flags)]);
        let error = check(&roots).unwrap_err().to_string();
        assert!(
            error.contains("mount sysfs") && !error.contains("cannot be trusted"),
            "{error}"
        );
    }

    #[test]
    fn the_step_is_what_all_differences_share() {
        let differences = [48, 72, 24, 240];
        assert_eq!(differences.into_iter().fold(0, common_divisor), 24);
    }
}
