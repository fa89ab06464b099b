//! The loop itself: a thread that reads the counter until it is told to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use taillab_model::noise::ReadStyle;

use super::counts::TickCounts;
use super::error::NoiseError;
use super::policy::Policy;
use super::tsc;
use crate::cpus::{self, CpuSet};

/// Room for gaps that nobody has taken yet: at 3,000 a second, those of twenty seconds.
const KEPT: usize = 1 << 16;

/// How often a loop checks whether to stop.
const LOOK_HZ: f64 = 1_000.0;

/// A loop to run.
#[derive(Clone, Debug)]
pub struct LoopSpec {
    /// Its CPU; `None` for wherever the scheduler puts it.
    pub cpu: Option<u32>,
    /// How it is scheduled.
    pub policy: Policy,
    /// How it reads.
    pub style: ReadStyle,
    /// A longer time between two reads is a gap.
    pub threshold_ticks: u64,
    /// Ticks of the counter per second.
    pub frequency_hz: f64,
    /// How long it runs; it ends earlier when told to.
    pub length: Duration,
}

/// A time in which the thread did not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawGap {
    /// The counter at the last read before.
    pub from: u64,
    /// The counter at the first read after.
    pub to: u64,
}

/// What a loop found, when it has ended.
#[derive(Debug, Default)]
pub struct LoopEnd {
    /// The time between each two reads.
    pub counts: TickCounts,
    /// The counter at the first and at the last read.
    pub span: (u64, u64),
    /// Ticks inside that span in which the loop kept its books instead of watching.
    pub unwatched_ticks: u64,
    /// Pairs of reads on two different CPUs.
    pub migrations: u64,
    /// How many gaps there were.
    pub gaps: u64,
    /// Of these, how many were lost because there was no room.
    pub gaps_not_kept: u64,
    /// Ticks in gaps.
    pub stolen_ticks: u64,
}

/// A loop that runs.
#[derive(Debug)]
pub struct Loop {
    /// As it was asked for.
    pub spec: LoopSpec,
    /// The kernel's id of its thread.
    pub tid: u32,
    gaps: Receiver<RawGap>,
    thread: JoinHandle<LoopEnd>,
}

impl Loop {
    /// The gaps since the last call.
    pub fn gaps(&self) -> impl Iterator<Item = RawGap> {
        self.gaps.try_iter()
    }

    /// Waits for its end; also returns the gaps that were not taken yet.
    pub fn join(self) -> (LoopEnd, Vec<RawGap>) {
        let end = match self.thread.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        (end, self.gaps.try_iter().collect())
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Loops that are ready, each on its CPU, and wait for [`RunningLoops::begin`].
#[derive(Debug)]
pub struct RunningLoops {
    /// In the order of their specifications.
    pub loops: Vec<Loop>,
    /// Set once they may begin.
    begin: Arc<OnceLock<()>>,
    stop: Arc<AtomicBool>,
}

impl RunningLoops {
    /// Lets all of them begin.
    pub fn begin(&self) {
        // they have begun already, where it is set
        let _ = self.begin.set(());
    }

    /// Tells all of them to end, which takes them up to a millisecond.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Starts a thread for each loop; they begin to read with [`RunningLoops::begin`].
///
/// # Errors
/// [`NoiseError`]: a CPU or a policy that the kernel refuses. No thread is left then.
pub fn start(specs: Vec<LoopSpec>) -> Result<RunningLoops, NoiseError> {
    let mut running = RunningLoops {
        loops: Vec::with_capacity(specs.len()),
        begin: Arc::default(),
        stop: Arc::default(),
    };
    for spec in specs {
        match launch(spec, &running.begin, &running.stop) {
            Ok(one) => running.loops.push(one),
            Err(error) => {
                // those that are there end only once they have begun
                running.stop();
                running.begin();
                running.loops.into_iter().for_each(|one| drop(one.join()));
                return Err(error);
            }
        }
    }
    Ok(running)
}

fn launch(
    spec: LoopSpec,
    begin: &Arc<OnceLock<()>>,
    stop: &Arc<AtomicBool>,
) -> Result<Loop, NoiseError> {
    let (out, gaps) = sync_channel(KEPT);
    let (ready, is_ready) = sync_channel(1);
    let (begin, stop) = (Arc::clone(begin), Arc::clone(stop));
    let own = spec.clone();
    let thread = thread::Builder::new()
        .name("noise".into())
        .spawn(move || {
            let prepared = own
                .cpu
                .map_or(Ok(()), |cpu| cpus::pin_current_thread(&CpuSet::single(cpu)))
                .map_err(NoiseError::from)
                .and_then(|()| own.policy.apply());
            let failed = prepared.is_err();
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            // before it is ready, so that all loops begin at once
            let end = LoopEnd::default();
            // `launch` waits for this
            let _ = ready.send(prepared.map(|()| tid));
            if failed {
                return end;
            }
            begin.wait();
            match own.style {
                ReadStyle::Single => spin::<false>(&own, end, &stop, &out),
                ReadStyle::Double => spin::<true>(&own, end, &stop, &out),
            }
        })
        .map_err(NoiseError::Thread)?;
    match is_ready.recv() {
        Ok(Ok(tid)) => Ok(Loop {
            spec,
            tid,
            gaps,
            thread,
        }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(NoiseError::Thread(std::io::ErrorKind::BrokenPipe.into())),
    }
}

/// The two listings of the paper. Rare work (a gap, another CPU, the check whether to stop) is kept
/// off the fast path, and the time it takes is not watched.
fn spin<const DOUBLE: bool>(
    spec: &LoopSpec,
    mut end: LoopEnd,
    stop: &AtomicBool,
    out: &SyncSender<RawGap>,
) -> LoopEnd {
    let short = spec.threshold_ticks.min(TickCounts::SHORT);
    let look_ticks = (spec.frequency_hz / LOOK_HZ) as u64;
    let (first, mut last_cpu) = tsc::read();
    let until = first + (spec.length.as_secs_f64() * spec.frequency_hz) as u64;
    let mut look_at = first + look_ticks;
    let mut last = first;
    loop {
        if DOUBLE {
            (last, last_cpu) = tsc::read();
        }
        let (now, cpu) = tsc::read();
        let ticks = now.wrapping_sub(last);
        if ticks < short && cpu == last_cpu && now < look_at {
            end.counts.count_short(ticks);
            (last, last_cpu) = (now, cpu);
            continue;
        }
        if cpu == last_cpu {
            end.counts.count(ticks);
            if ticks >= spec.threshold_ticks {
                end.gaps += 1;
                end.stolen_ticks += ticks;
                let gap = RawGap {
                    from: last,
                    to: now,
                };
                end.gaps_not_kept += u64::from(out.try_send(gap).is_err());
            }
        } else {
            end.migrations += 1;
        }
        if now >= look_at {
            look_at = now + look_ticks;
            if now >= until || stop.load(Ordering::Relaxed) {
                end.span = (first, now);
                return end;
            }
        }
        (last, last_cpu) = tsc::read();
        end.unwatched_ticks += last.wrapping_sub(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(cpu: Option<u32>, style: ReadStyle) -> LoopSpec {
        LoopSpec {
            cpu,
            policy: Policy::Other,
            style,
            threshold_ticks: 2_000,
            frequency_hz: 2e9,
            // longer than the machine stands still at its beginning
            length: Duration::from_millis(250),
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_time_watched_is_all_there_was() {
        for style in [ReadStyle::Single, ReadStyle::Double] {
            let cpu = cpus::allowed().unwrap().first();
            let running = start(vec![spec(cpu, style)]).unwrap();
            running.begin();
            let mut loops = running.loops;
            let (end, gaps) = loops.remove(0).join();
            let counted = end.counts.in_nanos(1e9);
            let sum: u64 = counted
                .ranked()
                .counts()
                .iter()
                .map(|(t, n)| t.get() * n)
                .sum();
            let span = end.span.1 - end.span.0;
            assert!(counted.count() > 1_000);
            assert_eq!(end.migrations, 0);
            assert_eq!(gaps.len() as u64 + end.gaps_not_kept, end.gaps);
            // a cell of the histogram is 0.1 % wide
            if style == ReadStyle::Single {
                let watched = span - end.unwatched_ticks;
                assert!(sum.abs_diff(watched) < watched / 100, "{sum} of {watched}");
            } else {
                assert!(sum <= span + span / 100, "{sum} of {span}");
            }
            assert!(gaps.iter().all(|gap| gap.to - gap.from >= 2_000));
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_leaves_no_thread() {
        let there = cpus::allowed().unwrap().first();
        let specs = vec![
            spec(there, ReadStyle::Single),
            spec(Some(cpus::MAX_CPUS - 1), ReadStyle::Single),
            spec(there, ReadStyle::Single),
        ];
        assert!(matches!(start(specs), Err(NoiseError::Cpu(_))));
    }

    #[test]
    fn a_loop_ends_when_it_is_told_to() {
        let mut long = spec(None, ReadStyle::Single);
        long.length = Duration::from_secs(3_600);
        let running = start(vec![long]).unwrap();
        running.begin();
        running.stop();
        for one in running.loops {
            one.join();
        }
    }
}
