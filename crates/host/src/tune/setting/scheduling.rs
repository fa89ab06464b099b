//! How a thread is scheduled: policy, niceness, priority, slice (sched_setattr(2)).

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use libc::sched_attr;

use super::{Knob, SettingError, ThreadScheduling, with_thread};
use crate::roots::{Roots, read_optional};
use crate::syscall::answer;

/// A scheduling policy (sched(7)) with its number (`include/uapi/linux/sched.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`: fair.
    #[default]
    Other = 0,
    /// `SCHED_FIFO`: real time.
    Fifo = 1,
    /// `SCHED_RR`: real time, in turns.
    RoundRobin = 2,
    /// `SCHED_BATCH`: fair, wakes up later.
    Batch = 3,
    /// `SCHED_IDLE`: fair, after everybody else.
    Idle = 5,
    /// `SCHED_DEADLINE`.
    Deadline = 6,
}

/// Policies and their names here.
const POLICIES: [(Policy, &str); 6] = [
    (Policy::Other, "other"),
    (Policy::Fifo, "fifo"),
    (Policy::RoundRobin, "rr"),
    (Policy::Batch, "batch"),
    (Policy::Idle, "idle"),
    (Policy::Deadline, "deadline"),
];

impl Policy {
    /// Threads of this policy share the CPU by their niceness.
    pub const fn is_fair(self) -> bool {
        matches!(self, Self::Other | Self::Batch | Self::Idle)
    }
}

const SIZE: u32 = size_of::<sched_attr>() as u32;

/// How a thread is scheduled: `other nice=0 slice_ns=2800000`, `fifo priority=49`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulingValue {
    /// The policy.
    pub policy: Policy,
    /// Niceness, −20 to 19; 0 for real time.
    pub nice: i32,
    /// Real-time priority, 1 to 99; else 0.
    pub priority: u32,
    /// Fair: the slice, 0 where the kernel does not say. `SCHED_DEADLINE`: the runtime.
    pub runtime_ns: u64,
    /// `SCHED_DEADLINE`: the deadline.
    pub deadline_ns: u64,
    /// `SCHED_DEADLINE`: the period.
    pub period_ns: u64,
    /// `SCHED_FLAG_…`.
    pub flags: u64,
    /// Fair: the slack of its timers; 0 where it may not be seen. Real time takes it away, and the kernel then gives
    /// back the default of the thread instead.
    pub timer_slack_ns: u64,
}

impl SchedulingValue {
    /// Real time (`SCHED_FIFO`) with this priority and the same flags; what real time does not use is 0.
    #[must_use]
    pub fn with_fifo(self, priority: u32) -> Self {
        Self {
            policy: Policy::Fifo,
            priority,
            flags: self.flags,
            ..Self::default()
        }
    }

    /// This value of a thread that has `old`, with what `other` changes: the niceness, the slice. `None` where they
    /// cannot both hold.
    pub(crate) fn joined(self, other: Self, old: Self) -> Option<Self> {
        let both = Self {
            nice: match self.nice == old.nice {
                true => other.nice,
                false => self.nice,
            },
            runtime_ns: match self.runtime_ns == old.runtime_ns {
                true => other.runtime_ns,
                false => self.runtime_ns,
            },
            ..self
        };
        // what `other` wants holds too, except for what it leaves as it was
        let unlike = Self {
            nice: other.nice,
            runtime_ns: other.runtime_ns,
            ..both
        };
        let holds = unlike == other
            && [both.nice, old.nice].contains(&other.nice)
            && [both.runtime_ns, old.runtime_ns].contains(&other.runtime_ns);
        holds.then_some(both)
    }

    fn of(attr: &sched_attr) -> Option<Self> {
        let mut policies = POLICIES.into_iter().map(|(policy, _)| policy);
        let policy = policies.find(|policy| *policy as u32 == attr.sched_policy)?;
        Some(Self {
            policy,
            nice: attr.sched_nice,
            priority: attr.sched_priority,
            runtime_ns: attr.sched_runtime,
            deadline_ns: attr.sched_deadline,
            period_ns: attr.sched_period,
            flags: attr.sched_flags,
            timer_slack_ns: 0,
        })
    }

    fn attr(&self) -> sched_attr {
        sched_attr {
            size: SIZE,
            sched_policy: self.policy as u32,
            sched_flags: self.flags,
            sched_nice: self.nice,
            sched_priority: self.priority,
            sched_runtime: self.runtime_ns,
            sched_deadline: self.deadline_ns,
            sched_period: self.period_ns,
        }
    }
}

impl fmt::Display for SchedulingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut policies = POLICIES.into_iter();
        let named = policies.find(|(policy, _)| *policy == self.policy);
        f.write_str(named.map_or("", |(_, name)| name))?;
        if self.policy.is_fair() {
            write!(f, " nice={}", self.nice)?;
            if self.runtime_ns > 0 {
                write!(f, " slice_ns={}", self.runtime_ns)?;
            }
            if self.timer_slack_ns > 0 {
                write!(f, " timer_slack_ns={}", self.timer_slack_ns)?;
            }
        } else if self.policy == Policy::Deadline {
            write!(
                f,
                " runtime_ns={} deadline_ns={} period_ns={}",
                self.runtime_ns, self.deadline_ns, self.period_ns
            )?;
        } else {
            write!(f, " priority={}", self.priority)?;
        }
        if self.flags != 0 {
            write!(f, " flags={}", self.flags)?;
        }
        Ok(())
    }
}

impl FromStr for SchedulingValue {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let invalid = || io::Error::from(rustix::io::Errno::INVAL);
        let mut words = text.split_ascii_whitespace();
        let name = words.next().ok_or_else(invalid)?;
        let mut policies = POLICIES.into_iter();
        let named = policies.find(|(_, other)| *other == name);
        let (policy, _) = named.ok_or_else(invalid)?;
        let mut value = Self {
            policy,
            ..Self::default()
        };
        for word in words {
            let (key, number) = word.split_once('=').ok_or_else(invalid)?;
            let unsigned = || number.parse::<u64>().map_err(|_| invalid());
            match key {
                "nice" => value.nice = number.parse().map_err(|_| invalid())?,
                "priority" => value.priority = number.parse().map_err(|_| invalid())?,
                "slice_ns" | "runtime_ns" => value.runtime_ns = unsigned()?,
                "deadline_ns" => value.deadline_ns = unsigned()?,
                "period_ns" => value.period_ns = unsigned()?,
                "flags" => value.flags = unsigned()?,
                "timer_slack_ns" => value.timer_slack_ns = unsigned()?,
                _ => return Err(invalid()),
            }
        }
        Ok(value)
    }
}

fn get(thread: i32) -> io::Result<SchedulingValue> {
    let mut attr = SchedulingValue::default().attr();
    // SAFETY: the kernel writes at most SIZE bytes into `attr`, which is plain data.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attr, SIZE, 0_u32) };
    answer(got)?;
    SchedulingValue::of(&attr).ok_or_else(|| rustix::io::Errno::NOTSUP.into())
}

fn set(thread: i32, value: &SchedulingValue) -> io::Result<()> {
    let attr = value.attr();
    // SAFETY: the kernel reads `size` bytes of `attr`, which has that size.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attr, 0_u32) };
    answer(set).map(drop)
}

/// The default slice of fair threads; 0 when the kernel does not report it. It is read from a
/// short-lived thread that is given the default.
fn default_slice_ns() -> u64 {
    let ask = || {
        let mut value = get(0).ok()?;
        value.runtime_ns = 0;
        value.policy.is_fair().then_some(())?;
        set(0, &value).ok()?;
        Some(get(0).ok()?.runtime_ns)
    };
    std::thread::scope(|scope| scope.spawn(ask).join())
        .ok()
        .flatten()
        .unwrap_or(0)
}

impl ThreadScheduling {
    /// The file with the slack of its timers.
    fn slack(&self, roots: &Roots) -> PathBuf {
        roots
            .proc
            .join(format!("{}/timerslack_ns", self.thread.pid))
    }
}

impl Knob for ThreadScheduling {
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        with_thread(self, roots, self.thread, |pid| {
            let mut value = get(pid.as_raw_pid()).map_err(|e| self.unreadable(e))?;
            let slack = read_optional(&self.slack(roots)).and_then(|text| text.parse().ok());
            value.timer_slack_ns = slack.unwrap_or(0);
            Ok(value.to_string())
        })
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        let mut wanted: SchedulingValue = value.parse().map_err(|e| self.refused(value, e))?;
        // A thread without a slice of its own reads as the default. To write that back as it
        // was read would fix it: 0 asks for the default, whatever it becomes.
        if wanted.policy.is_fair() && wanted.runtime_ns == default_slice_ns() {
            wanted.runtime_ns = 0;
        }
        with_thread(self, roots, self.thread, |pid| {
            let pid = pid.as_raw_pid();
            let was_fair = get(pid)
                .map_err(|e| self.refused(value, e))?
                .policy
                .is_fair();
            set(pid, &wanted).map_err(|e| self.refused(value, e))?;
            // between fair policies it stays as it is, and is not ours to set
            if wanted.policy.is_fair() && !was_fair && wanted.timer_slack_ns > 0 {
                let slack = wanted.timer_slack_ns.to_string();
                let written = std::fs::write(self.slack(roots), slack);
                written.map_err(|e| self.refused(value, e))?;
            }
            Ok(())
        })
    }

    /// A fair value without a slice leaves it to the kernel, so it equals one with any slice.
    fn same(&self, left: &str, right: &str) -> bool {
        let parse = SchedulingValue::from_str;
        let (Ok(left), Ok(mut right)) = (parse(left), parse(right)) else {
            return left == right;
        };
        let is_open = left.runtime_ns == 0 || right.runtime_ns == 0;
        if left.policy.is_fair() && is_open {
            right.runtime_ns = left.runtime_ns;
        }
        // a setting of its own, which is only put back with this one
        right.timer_slack_ns = left.timer_slack_ns;
        left == right
    }
}

impl fmt::Display for ThreadScheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sched_setattr(thread {})", self.thread.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        for text in [
            "other nice=0",
            "other nice=-5 slice_ns=100000",
            "other nice=0 slice_ns=2800000 timer_slack_ns=50000",
            "idle nice=3 flags=1",
            "fifo priority=49",
            "deadline runtime_ns=1 deadline_ns=2 period_ns=3",
        ] {
            let value: SchedulingValue = text.parse().unwrap();
            assert_eq!(value.to_string(), text);
            let of_kernel = SchedulingValue {
                timer_slack_ns: 0,
                ..value
            };
            assert_eq!(SchedulingValue::of(&value.attr()), Some(of_kernel));
        }
        for wrong in ["", "best", "other nice", "other nice=x", "other colour=1"] {
            assert!(wrong.parse::<SchedulingValue>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn niceness_and_slice_are_joined_and_nothing_else_is() {
        let value = |text: &str| text.parse::<SchedulingValue>().unwrap();
        let old = value("other nice=0 slice_ns=2800000");
        let joined = |one: &str, other: &str| {
            let of = |one, other| value(one).joined(value(other), old);
            let both = of(one, other);
            assert_eq!(both, of(other, one));
            both.map(|both| both.to_string())
        };
        let (nice, slice) = (
            "other nice=-20 slice_ns=2800000",
            "other nice=0 slice_ns=100000",
        );
        let both = "other nice=-20 slice_ns=100000";
        assert_eq!(joined(nice, slice).as_deref(), Some(both));
        assert_eq!(joined(both, slice).as_deref(), Some(both));
        assert_eq!(joined(nice, nice).as_deref(), Some(nice));
        for other in ["other nice=5 slice_ns=2800000", "fifo priority=49"] {
            assert_eq!(joined(nice, other), None, "{other}");
        }
    }

    #[test]
    fn a_thread_says_how_it_is_scheduled_and_only_that_thread() {
        let roots = Roots::default();
        let thread = crate::process::ProcessIdentity::current(&roots).unwrap();
        let setting = ThreadScheduling { thread };
        let text = setting.read(&roots).unwrap();
        let value: SchedulingValue = text.parse().unwrap();
        // of a thread of our own it can be seen
        assert!(
            value.timer_slack_ns > 0 || !value.policy.is_fair(),
            "{text}"
        );
        let other_slack = SchedulingValue {
            timer_slack_ns: 7,
            ..value
        };
        assert!(setting.same(&text, &other_slack.to_string()));
        let other = ThreadScheduling {
            thread: crate::ProcessIdentity {
                start_time_ticks: thread.start_time_ticks + 1,
                ..thread
            },
        };
        assert!(other.read(&roots).unwrap_err().is_gone());
        assert!(other.write(&roots, &text).unwrap_err().is_gone());
    }
}
