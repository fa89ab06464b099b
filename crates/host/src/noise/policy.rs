//! How the loop's thread is scheduled.

use std::fmt;
use std::str::FromStr;

use super::error::NoiseError;
use crate::process::set_fifo;
use crate::roots::{Roots, read_optional};

/// The scheduling policy of the loop's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// As an ordinary thread.
    Other,
    /// Real time: `SCHED_FIFO` with this priority, 1 to 99.
    Fifo(u8),
}

impl Policy {
    /// Whether it runs before ordinary threads.
    pub const fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo(_))
    }

    /// Gives the calling thread this policy. [`Policy::Other`] leaves the thread as it is.
    ///
    /// # Errors
    /// [`NoiseError::NoRealTime`].
    pub fn apply(self) -> Result<(), NoiseError> {
        let Self::Fifo(priority) = self else {
            return Ok(());
        };
        set_fifo(0, priority).map_err(|source| NoiseError::NoRealTime { priority, source })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a policy: write other or fifo:80 (1 to 99)");
        match text.split_once(':') {
            None if text == "other" => Ok(Self::Other),
            Some(("fifo", priority)) => match priority.parse() {
                Ok(priority @ 1..=99) => Ok(Self::Fifo(priority)),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

/// How much of each period real-time threads may take, by the kernel's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtThrottle {
    /// Microseconds that they may take of each period; `None` for no limit.
    pub runtime_us: Option<u64>,
    /// The length of the period in microseconds.
    pub period_us: u64,
}

impl RtThrottle {
    /// As it is set now; `None` where the kernel does not say.
    pub fn read(roots: &Roots) -> Option<Self> {
        let number = |name: &str| -> Option<i64> {
            let path = roots.proc.join("sys/kernel").join(name);
            read_optional(&path)?.parse().ok()
        };
        Some(Self {
            runtime_us: u64::try_from(number("sched_rt_runtime_us")?).ok(),
            period_us: u64::try_from(number("sched_rt_period_us")?).ok()?,
        })
    }

    /// Whether real-time threads are held back at all.
    pub fn is_active(self) -> bool {
        self.runtime_us
            .is_some_and(|runtime| runtime < self.period_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn policies_are_read_as_they_are_written() {
        for policy in [Policy::Other, Policy::Fifo(1), Policy::Fifo(99)] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for wrong in ["", "fifo", "fifo:0", "fifo:100", "other:1", "deadline:1"] {
            assert!(wrong.parse::<Policy>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn throttling_is_active_below_the_whole_period() {
        let read = |runtime: &str| {
            let (_folder, roots) = tree(&[
                ("proc/sys/kernel/sched_rt_runtime_us", runtime),
                ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
            ]);
            RtThrottle::read(&roots).unwrap().is_active()
        };
        assert!(read("950000\n"));
        assert!(!read("1000000\n"));
        assert!(!read("-1\n"));
    }
}
