//! What /proc says of a process, and its identity, since a process id alone is reused.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::roots::{Roots, status};
use crate::syscall::answer;

/// Identifies a process for good: its number and when it started. The kernel reuses
/// numbers, but not within one clock tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The process id.
    pub pid: u32,
    /// Its start, in clock ticks since boot (`starttime` of proc_pid_stat(5)).
    pub start_time_ticks: u64,
}

impl ProcessIdentity {
    /// The process that has `pid` now; `None` when there is none, or only its zombie.
    pub fn of(roots: &Roots, pid: u32) -> Option<Self> {
        let stat = Stat::of(roots, pid)?;
        (!stat.is_dead()).then_some(Self {
            pid,
            start_time_ticks: stat.start_time_ticks,
        })
    }

    /// The calling process.
    pub fn current(roots: &Roots) -> Option<Self> {
        Self::of(roots, std::process::id())
    }

    /// Whether this process still lives (not another one with its number).
    pub fn is_alive(&self, roots: &Roots) -> bool {
        Self::of(roots, self.pid) == Some(*self)
    }

    /// Whether it still lives and is not ending. A process that is ending keeps its open files until
    /// it is dead, but has already left its control groups.
    pub(crate) fn goes_on(&self, roots: &Roots) -> bool {
        let stat = Stat::of(roots, self.pid);
        stat.is_some_and(|stat| {
            !stat.is_dead() && !stat.is_ending() && stat.start_time_ticks == self.start_time_ticks
        })
    }

    /// Kills it (SIGKILL) if it still lives, and waits until it has ended. Returns
    /// whether there was anything to kill.
    ///
    /// # Errors
    /// The kernel's answer, e.g. EPERM; `TimedOut` when it outlives `patience`.
    pub(crate) fn kill(&self, roots: &Roots, patience: Duration) -> io::Result<bool> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(false) };
        // A pidfd pins the process: checked after it is open, the number cannot pass
        // to another process between the check and the signal.
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        if !self.is_alive(roots) {
            return Ok(false);
        }
        match pidfd_send_signal(&pidfd, Signal::KILL) {
            Ok(()) => {}
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        let timeout = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        // a signal that we handle, such as Ctrl-C, interrupts the wait
        let ended =
            retry_on_intr(|| poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)))?;
        match ended {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(true),
        }
    }
}

/// A process held by a pidfd, which shows its end even after we have changed user or when /proc
/// hides it.
#[derive(Debug)]
pub struct HeldProcess(OwnedFd);

impl HeldProcess {
    /// The process that has `pid` now; `None` when there is none.
    pub fn of(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some(Self(pidfd_open(pid, PidfdFlags::empty()).ok()?))
    }

    /// Whether it has ended; false when that cannot be found out.
    pub fn has_ended(&self) -> bool {
        has_ended(&self.0).unwrap_or(false)
    }
}

/// Whether the process of a pidfd has ended. Async-signal-safe.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> rustix::io::Result<bool> {
    const AT_ONCE: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    Ok(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&AT_ONCE))? > 0)
}

/// The fields of `/proc/PID/stat` that are used here (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Name of the program or thread, at most 15 bytes.
    pub(crate) comm: String,
    /// `R`, `S`, `Z`, …
    pub(crate) state: char,
    /// Its parent's process id.
    pub(crate) parent: u32,
    /// `PF_…` of the kernel's `include/linux/sched.h`.
    pub(crate) flags: u64,
    /// CPU time of all its threads, in clock ticks.
    pub(crate) cpu_ticks: u64,
    /// Start, in clock ticks since boot.
    pub(crate) start_time_ticks: u64,
    /// The CPU it last ran on.
    pub(crate) cpu: u32,
    /// How it is scheduled (`SCHED_OTHER` and so on, sched(7)).
    pub(crate) policy: u32,
}

impl Stat {
    pub(crate) fn read(path: &Path) -> Option<Self> {
        // the name may hold any bytes
        Self::parse(&String::from_utf8_lossy(&fs::read(path).ok()?))
    }

    /// Of a process, or of a thread by its own number.
    pub(crate) fn of(roots: &Roots, pid: u32) -> Option<Self> {
        Self::read(&roots.proc.join(format!("{pid}/stat")))
    }

    fn parse(text: &str) -> Option<Self> {
        // The name is in parentheses and may contain spaces and parentheses.
        let (head, rest) = text.rsplit_once(')')?;
        let (_, comm) = head.split_once('(')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            comm: comm.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: u32::try_from(number(4)?).ok()?,
            flags: number(9)?,
            cpu_ticks: number(14)? + number(15)?,
            start_time_ticks: number(22)?,
            cpu: u32::try_from(number(39)?).ok()?,
            policy: u32::try_from(number(41)?).ok()?,
        })
    }

    /// A thread of the kernel.
    pub(crate) const fn is_kernel(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }

    /// The kernel has bound it to its CPUs for good.
    pub(crate) const fn is_bound(&self) -> bool {
        const PF_NO_SETAFFINITY: u64 = 0x0400_0000;
        self.flags & PF_NO_SETAFFINITY != 0
    }

    /// It runs before ordinary threads (a real-time or deadline policy).
    pub(crate) fn is_real_time(&self) -> bool {
        let policies = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE];
        policies.contains(&self.policy.cast_signed())
    }

    /// It is exiting, or has.
    pub(crate) const fn is_ending(&self) -> bool {
        const PF_EXITING: u64 = 0x4;
        self.flags & PF_EXITING != 0
    }

    /// It has ended and only its exit status is left.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// The thread ids of a process in ascending order; empty when it has ended.
pub fn threads(roots: &Roots, pid: u32) -> Vec<u32> {
    numbers_in(&roots.proc.join(pid.to_string()).join("task"))
}

/// A process and all its descendants, in ascending order; dead ones are left out.
pub fn family(roots: &Roots, pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = numbers_in(&roots.proc)
        .into_iter()
        .filter_map(|pid| {
            let stat = Stat::of(roots, pid)?;
            (!stat.is_dead()).then_some((pid, stat.parent))
        })
        .collect();
    let mut family = Vec::from_iter(parents.iter().map(|(pid, _)| *pid).find(|p| *p == pid));
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        next += 1;
        let children = parents.iter().filter(|(_, of)| *of == parent);
        family.extend(children.map(|(pid, _)| *pid));
    }
    family.sort_unstable();
    family
}

/// Whether a process handles a signal itself (`SigCgt` of
/// proc_pid_status(5)).
pub(crate) fn catches(roots: &Roots, pid: u32, signal: Signal) -> bool {
    is_in_mask(roots, pid, "SigCgt", signal)
}

/// Whether a process blocks a signal, perhaps to wait for it (`SigBlk` of proc_pid_status(5)).
pub(crate) fn blocks(roots: &Roots, pid: u32, signal: Signal) -> bool {
    is_in_mask(roots, pid, "SigBlk", signal)
}

/// Whether a process ignores a signal (`SigIgn` of proc_pid_status(5)).
pub(crate) fn ignores(roots: &Roots, pid: u32, signal: Signal) -> bool {
    is_in_mask(roots, pid, "SigIgn", signal)
}

fn is_in_mask(roots: &Roots, pid: u32, name: &str, signal: Signal) -> bool {
    status(roots, pid, name)
        .and_then(|mask| u64::from_str_radix(&mask, 16).ok())
        .is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// Gives a thread the policy SCHED_FIFO with this priority (sched(7)); 0 is the calling thread.
///
/// # Errors
/// The kernel's answer, e.g. EPERM without CAP_SYS_NICE.
pub fn set_fifo(thread: u32, priority: u8) -> io::Result<()> {
    // musl's sched_setscheduler() always fails, without asking the kernel
    let parameters = libc::c_int::from(priority);
    // SAFETY: the kernel reads one int, `sched_priority`, from a local that outlives the call.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread,
            libc::SCHED_FIFO,
            &raw const parameters,
        )
    };
    answer(ret).map(drop)
}

/// The numbers that name entries of a folder: processes of /proc, threads of `task`.
pub(crate) fn numbers_in(folder: &Path) -> Vec<u32> {
    let mut numbers: Vec<u32> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 7 9 0 0 20 0 5 0 12345 \
                        1000 200 18446744073709551615 1 1 0 0 0 0 0 4096 81928 0 0 0 17 3 0 0 0";

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = Stat::parse(LINE).unwrap();
        assert_eq!(stat.comm, "a) b (c");
        assert_eq!((stat.state, stat.parent, stat.cpu), ('S', 1, 3));
        assert_eq!(stat.start_time_ticks, 12345);
        assert_eq!(Stat::parse("42 (cut"), None);
        assert_eq!(Stat::parse("42 (cut) S 1 2"), None);
    }

    #[test]
    fn a_zombie_or_another_start_time_is_not_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let process = roots.proc.join("42");
        fs::create_dir_all(process.join("task/42")).unwrap();
        fs::create_dir_all(process.join("task/43")).unwrap();
        fs::write(process.join("stat"), LINE).unwrap();
        let identity = ProcessIdentity::of(&roots, 42).unwrap();
        assert!(identity.is_alive(&roots));
        assert_eq!(threads(&roots, 42), [42, 43]);
        fs::write(process.join("stat"), LINE.replace("12345", "99999")).unwrap();
        assert!(!identity.is_alive(&roots));
        fs::write(process.join("stat"), LINE.replace(" S 1 ", " Z 1 ")).unwrap();
        assert_eq!(ProcessIdentity::of(&roots, 42), None);
    }

    #[test]
    fn a_family_is_found_through_its_parents_and_without_its_dead() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        for (pid, state, parent) in [
            (7, 'S', 1),
            (9, 'S', 7),
            (8, 'R', 9),
            (10, 'Z', 7),
            (11, 'S', 10),
            (12, 'S', 1),
        ] {
            let process = roots.proc.join(pid.to_string());
            fs::create_dir_all(&process).unwrap();
            let line = LINE.replace(" S 1 ", &format!(" {state} {parent} "));
            fs::write(process.join("stat"), line).unwrap();
        }
        assert_eq!(family(&roots, 7), [7, 8, 9]);
        assert_eq!(family(&roots, 12), [12]);
        assert_eq!(family(&roots, 10), [0; 0]);
        assert_eq!(family(&roots, 99), [0; 0]);
    }

    #[test]
    fn a_handler_is_told_from_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let process = roots.proc.join("42");
        fs::create_dir_all(&process).unwrap();
        fs::write(
            process.join("status"),
            "Name:\tx\nSigBlk:\t0000000000000001\nSigCgt:\t0000000000004002\n",
        )
        .unwrap();
        assert!(catches(&roots, 42, Signal::TERM));
        assert!(catches(&roots, 42, Signal::INT));
        assert!(!catches(&roots, 42, Signal::HUP));
        assert!(!catches(&roots, 43, Signal::TERM));
        assert!(blocks(&roots, 42, Signal::HUP));
        assert!(!blocks(&roots, 42, Signal::TERM));
    }

    /// A process that sleeps, until the test ends.
    struct Sleeper(std::process::Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn only_the_process_that_was_meant_is_killed() {
        let roots = Roots::default();
        let mut command = std::process::Command::new("sleep");
        let mut sleeper = Sleeper(command.arg("600").spawn().unwrap());
        let identity = ProcessIdentity::of(&roots, sleeper.0.id()).unwrap();
        let later = ProcessIdentity {
            start_time_ticks: identity.start_time_ticks + 1,
            ..identity
        };
        let patience = Duration::from_secs(30);
        assert!(!later.kill(&roots, patience).unwrap());
        assert!(identity.is_alive(&roots));
        assert!(identity.kill(&roots, patience).unwrap());
        sleeper.0.wait().unwrap();
        assert!(!identity.kill(&roots, patience).unwrap());
    }
}
