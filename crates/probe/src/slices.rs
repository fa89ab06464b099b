//! Slices: stretches of time in which everything is recorded. Between them, only T1 and T6 are.
//!
//! An attached program costs about 90 ns each time it is reached, even if it returns at once. So the
//! programs of everything else are attached at the beginning of each slice and detached at its end. A
//! separate thread does that, because each program takes up to a millisecond, mostly spent waiting.
//!
//! Each slice is announced in the recording, by a program that this thread runs: after the last
//! program was attached, and before the first one is detached.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libbpf_rs::{Object, ProgramType, libbpf_sys};

use crate::cgroup;
use crate::hooks;

/// The program that announces slices.
pub(crate) const MARK: &str = "mark_slice";

/// The length of a slice. What is known about the threads starts afresh in each slice, and attaching
/// takes 6 to 21 ms, so a slice must be much longer than that. But 20 s of recording with 1/16 must
/// contain a dozen slices.
const LENGTH: Duration = Duration::from_millis(100);

/// The first slice begins after this time, which no measurement counts.
const SETTLE: Duration = Duration::from_millis(100);

/// The thread that attaches and detaches. Dropping this ends the thread and detaches everything that it
/// attached.
#[derive(Debug)]
pub(crate) struct Slicer {
    /// Dropping it ends the thread.
    alive: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Slicer {
    /// Records in slices that take one `one_in`-th of the time; `always` says which programs of the
    /// object are attached already.
    ///
    /// # Errors
    /// When something cannot be opened or no thread can be started.
    pub(crate) fn start(
        object: &Object,
        one_in: u32,
        always: impl Fn(&str) -> bool,
    ) -> Result<Self, libbpf_rs::Error> {
        let programs = Programs::of(object, always)?;
        let (alive, ended) = channel();
        let thread = thread::Builder::new()
            .name("taillab-slices".into())
            .spawn(move || programs.record(LENGTH * one_in, &ended))?;
        Ok(Self {
            alive: Some(alive),
            thread: Some(thread),
        })
    }
}

impl Drop for Slicer {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // if it panicked, its links were dropped too
            let _ = thread.join();
        }
    }
}

/// Duplicates of the programs' descriptors, so that the thread does not need the object.
struct Programs {
    mark: OwnedFd,
    sliced: Vec<Program>,
}

/// A program that is attached in slices.
enum Program {
    /// The kernel has known what to attach it to since it was loaded.
    Tracing(OwnedFd),
    /// Attached at the root of the cgroups.
    OfCgroups {
        program: OwnedFd,
        root: OwnedFd,
        kind: u32,
    },
}

impl Programs {
    fn of(object: &Object, always: impl Fn(&str) -> bool) -> Result<Self, libbpf_rs::Error> {
        let mut mark = None;
        let mut sliced = Vec::new();
        let loaded = object.progs().filter(|program| program.autoload());
        let mut programs: Vec<_> = loaded.collect();
        programs.sort_by_key(|program| hooks::attach_rank(program.name()));
        for program in programs {
            let name = program.name().to_str().unwrap_or_default();
            let own = program.as_fd().try_clone_to_owned()?;
            match program.prog_type() {
                _ if name == MARK => mark = Some(own),
                _ if always(name) => {}
                ProgramType::CgroupSockAddr => sliced.push(Program::OfCgroups {
                    program: own,
                    root: cgroup::root()?.into(),
                    kind: program.attach_type() as u32,
                }),
                _ => sliced.push(Program::Tracing(own)),
            }
        }
        let mark = mark.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self { mark, sliced })
    }

    /// Records a slice in each period, until told to end.
    fn record(&self, period: Duration, ended: &Receiver<Infallible>) {
        let begin = Instant::now() + SETTLE;
        let goes_on = |until: Instant| {
            let left = until.saturating_duration_since(Instant::now());
            ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
        };
        let mut number = 0;
        while goes_on(begin + period * number + place(number, period - LENGTH)) {
            // a slice that the kernel refuses is missing: the result says how many there are
            if let Ok(links) = self.attach() {
                let begun = self.mark(true);
                let ending = !goes_on(Instant::now() + LENGTH);
                if begun.is_ok() {
                    let _ = self.mark(false);
                }
                // beginnings first: what was seen to begin is seen to end
                links.into_iter().rev().for_each(drop);
                if ending {
                    return;
                }
            }
            number += 1;
        }
    }

    fn attach(&self) -> io::Result<Vec<OwnedFd>> {
        self.sliced.iter().map(Program::attach).collect()
    }

    /// Announces the beginning or the end of a slice.
    fn mark(&self, begins: bool) -> io::Result<()> {
        let mut argument = u64::from(begins);
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            ctx_in: (&raw mut argument).cast(),
            ctx_size_in: size_of_val(&argument) as u32,
            ..Default::default()
        };
        // SAFETY: the descriptor is open, and the kernel reads only the argument, whose size is given.
        let answer =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.mark.as_raw_fd(), &raw mut options) };
        match answer {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

impl Program {
    /// Attaches the program. Dropping the returned descriptor detaches it.
    fn attach(&self) -> io::Result<OwnedFd> {
        let link = match self {
            // SAFETY: the descriptor is open, and a tracing program needs no name.
            Self::Tracing(program) => unsafe {
                libbpf_sys::bpf_raw_tracepoint_open(ptr::null(), program.as_raw_fd())
            },
            Self::OfCgroups {
                program,
                root,
                kind,
            } => {
                let (program, root) = (program.as_raw_fd(), root.as_raw_fd());
                // SAFETY: the descriptors are open, and no options are given.
                unsafe { libbpf_sys::bpf_link_create(program, root, *kind, ptr::null()) }
            }
        };
        if link < 0 {
            return Err(io::Error::from_raw_os_error(-link));
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(link) })
    }
}

/// When a slice begins within its period, from 0 to `room` after the period's start.
///
/// The fractional parts of multiples of the golden ratio are spread evenly and never repeat. So the
/// slices cover their share of anything that happens regularly.
fn place(number: u32, room: Duration) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    room.mul_f64((f64::from(number) * GOLDEN).fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_evenly_and_follow_no_rhythm() {
        let room = Duration::from_millis(1_500);
        let mut places: Vec<Duration> = (0..64).map(|number| place(number, room)).collect();
        assert_eq!(places[0], Duration::ZERO);
        assert!(places.iter().all(|place| *place <= room));
        // whatever comes back every 100 ms, at any time within them
        for phase in 0..10 {
            let hit = places.iter().enumerate().filter(|&(number, place)| {
                let at = number as u128 * 1_600 + place.as_millis();
                at % 100 / 10 == phase
            });
            let hit = hit.count();
            assert!((3..=10).contains(&hit), "{phase}: {hit}");
        }
        places.sort_unstable();
        let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
        let widest = gaps.max().unwrap();
        assert!(widest < Duration::from_millis(80), "{widest:?}");
    }
}
