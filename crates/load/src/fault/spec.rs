//! The notation of faults.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64, NonZeroUsize};
use std::str::FromStr;

use taillab_model::Nanos;

use super::disk::REGIONS;

/// Something that a server does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One in `every` requests of a worker burns CPU time.
    Slow {
        /// One in this number of requests has the fault.
        every: NonZeroU64,
        /// How long it burns CPU time.
        lasts: Nanos,
    },
    /// An extra thread holds the lock that each request takes.
    Lock {
        /// The time from the start of one hold to the next.
        every: Nanos,
        /// How long it holds it.
        held: Nanos,
        /// What it does meanwhile.
        does: HolderActivity,
    },
    /// One in `every` requests of a worker touches fresh pages of memory.
    FreshPages {
        /// One in this number of requests has the fault.
        every: NonZeroU64,
        /// Pages, each a page fault.
        pages: NonZeroU32,
    },
    /// One in `every` requests of a worker touches pages of a file that are on disk only.
    FilePages {
        /// One in this number of requests has the fault.
        every: NonZeroU64,
        /// Pages, each a page fault that waits for 2 MiB from the disk; at most 32.
        pages: NonZeroU32,
    },
    /// One in `every` requests of a worker reads from a disk past the page cache.
    Io {
        /// One in this number of requests has the fault.
        every: NonZeroU64,
        /// Number of reads, each of 2 MiB.
        reads: NonZeroU32,
    },
    /// One in `every` requests of a worker asks another server and waits for its answer.
    Upstream {
        /// One in this number of requests has the fault.
        every: NonZeroU64,
        /// Where that server listens, on the loopback address.
        port: NonZeroU16,
    },
    /// Connections are assigned to workers unevenly.
    Skew {
        /// One in this number of connections goes to the first worker.
        one_in: NonZeroUsize,
    },
    /// One in `every` responses is written in two pieces, on connections without TCP_NODELAY.
    Nagle {
        /// One in this number of responses has the fault.
        every: NonZeroU64,
    },
}

/// What a thread does while it holds the server's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HolderActivity {
    /// It sleeps by a timer.
    #[default]
    Sleep,
    /// It reads from a disk, past the page cache.
    Read,
    /// It burns CPU time.
    Burn,
}

/// A text that is not a valid fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a fault: write {}, e.g. slow:1000,500us",
    Fault::NOTATION
)]
pub struct BadFault {
    text: String,
}

/// The most pages or reads of one occurrence; more would only measure the disk.
const MOST: u32 = 4096;

impl Fault {
    /// How faults are written; N counts requests of a worker.
    pub const NOTATION: &str = "slow:N,TIME, lock:EVERY,LENGTH (or lock:EVERY,LENGTH,read and lock:EVERY,LENGTH,burn: \
         what the holder does), fault:N,PAGES, major-fault:N,PAGES (up to 32), io:N,READS, upstream:N,PORT (of 127.0.0.1), \
         nagle:N (of responses, one in N is written in two pieces) or skew:N (of connections, one in N is the first \
         worker's)";

    /// N of [`Self::Skew`]; `None` for other faults.
    pub fn skew(&self) -> Option<NonZeroUsize> {
        match self {
            Self::Skew { one_in } => Some(*one_in),
            _ => None,
        }
    }

    /// N of [`Self::Nagle`]; `None` for other faults.
    pub fn nagle(&self) -> Option<NonZeroU64> {
        match self {
            Self::Nagle { every } => Some(*every),
            _ => None,
        }
    }
}

impl FromStr for Fault {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text.trim()).ok_or_else(|| BadFault {
            text: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<Fault> {
    let (kind, parameters) = text.split_once(':')?;
    if kind == "skew" {
        let one_in = parameters.parse().ok()?;
        return Some(Fault::Skew { one_in });
    }
    if kind == "nagle" {
        let every = parameters.parse().ok()?;
        return Some(Fault::Nagle { every });
    }
    let (every, much) = parameters.split_once(',')?;
    let time = |text: &str| text.parse().ok().filter(|time| *time > Nanos::ZERO);
    let up_to = |most: u32, text: &str| {
        let count = text.parse::<NonZeroU32>().ok();
        count.filter(|count| count.get() <= most)
    };
    let count = |text: &str| up_to(MOST, text);
    Some(match kind {
        "slow" => Fault::Slow {
            every: every.parse().ok()?,
            lasts: time(much)?,
        },
        "lock" => {
            let (held, does) = much.split_once(',').unwrap_or((much, "sleep"));
            Fault::Lock {
                every: time(every)?,
                held: time(held)?,
                does: HolderActivity::named(does)?,
            }
        }
        "fault" => Fault::FreshPages {
            every: every.parse().ok()?,
            pages: count(much)?,
        },
        "major-fault" => Fault::FilePages {
            every: every.parse().ok()?,
            pages: up_to(REGIONS as u32, much)?,
        },
        "io" => Fault::Io {
            every: every.parse().ok()?,
            reads: count(much)?,
        },
        "upstream" => Fault::Upstream {
            every: every.parse().ok()?,
            port: much.parse().ok()?,
        },
        _ => return None,
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow { every, lasts } => write!(f, "slow:{every},{}", lasts.to_exact_string()),
            Self::Lock { every, held, does } => write!(
                f,
                "lock:{},{}{}",
                every.to_exact_string(),
                held.to_exact_string(),
                does.suffix()
            ),
            Self::FreshPages { every, pages } => write!(f, "fault:{every},{pages}"),
            Self::FilePages { every, pages } => write!(f, "major-fault:{every},{pages}"),
            Self::Io { every, reads } => write!(f, "io:{every},{reads}"),
            Self::Upstream { every, port } => write!(f, "upstream:{every},{port}"),
            Self::Skew { one_in } => write!(f, "skew:{one_in}"),
            Self::Nagle { every } => write!(f, "nagle:{every}"),
        }
    }
}

impl HolderActivity {
    /// As it is written after the length of a hold.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Sleep => "",
            Self::Read => ",read",
            Self::Burn => ",burn",
        }
    }

    fn named(text: &str) -> Option<Self> {
        Some(match text {
            "sleep" => Self::Sleep,
            "read" => Self::Read,
            "burn" => Self::Burn,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_written_back() {
        for text in [
            "slow:1000,500us",
            "lock:50ms,2ms",
            "lock:50ms,2ms,read",
            "lock:50ms,2ms,burn",
            "nagle:10",
            "fault:200,64",
            "major-fault:200,4",
            "io:500,2",
            "upstream:100,7998",
            "skew:2",
        ] {
            let fault: Fault = text.parse().unwrap();
            assert_eq!(fault.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_fault_is_told_how_to_write_one() {
        for text in [
            "",
            "slow",
            "slow:1000",
            "slow:0,1ms",
            "slow:10,0ms",
            "slow:10,5",
            "lock:5,1ms",
            "lock:5ms,1ms,think",
            "nagle:0",
            "nagle:2,1",
            "io:10,0",
            "upstream:10,0",
            "upstream:10,65536",
            "skew:0",
            "skew:2,1",
            "io:10,9999",
            "major-fault:10,33",
            "burn:1,1ms",
            "fault:1.5,2",
        ] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.contains("slow:1000,500us"), "{text}: {error}");
        }
    }
}
