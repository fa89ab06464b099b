//! Loops in the kernel on several CPUs at once, and the thread that collects their gaps.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use taillab_analysis::gaps::Gap;
use taillab_console::exit::Failure;
use taillab_console::fail::{host, probe as probe_failure};
use taillab_host::{CpuSet, Interrupt, cpus};
use taillab_model::Nanos;
use taillab_model::noise::LoopKind;
use taillab_probe::{KernelAccount, KernelLoop};

use super::plan::Phase;
use super::rows::LoopReading;
use super::take::GapRecording;

/// Between two looks at what the loops found.
const PERIOD: Duration = Duration::from_millis(250);
/// Between two accounts of a loop; reading one takes some ten microseconds of its CPU.
const ACCOUNT: Duration = Duration::from_millis(50);

/// What a loop sends to the collecting thread.
enum LoopReport {
    Begins { cpu: u16, tid: u32 },
    Found(u16, KernelAccount),
}

/// Runs the loop of a phase on each of these CPUs, and hands its gaps to `take` as they come.
pub fn run(
    numbers: &[u16],
    phase: &Phase,
    interrupt: &Interrupt,
    take: &mut GapRecording,
) -> Result<BTreeMap<u16, LoopReading>, Failure> {
    let mut ends: BTreeMap<u16, LoopReading> = BTreeMap::new();
    thread::scope(|scope| {
        let (out, found) = channel();
        let on_cpu = |&cpu: &u16| {
            let out = out.clone();
            scope.spawn(move || on_this_cpu(cpu, phase, interrupt, &out))
        };
        let loops: Vec<_> = numbers.iter().map(on_cpu).collect();
        drop(out);
        let mut looked = Instant::now();
        loop {
            match found.recv_timeout(PERIOD) {
                Ok(LoopReport::Begins { cpu, tid }) => take.analysis.add_loop(cpu, tid),
                Ok(LoopReport::Found(cpu, account)) => {
                    for &(from, to) in &account.gaps {
                        take.analysis.gap(Gap { cpu, from, to });
                    }
                    add(ends.entry(cpu).or_default(), &account);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if looked.elapsed() >= PERIOD {
                take.drain();
                looked = Instant::now();
            }
        }
        for one in loops {
            match one.join() {
                Ok(ended) => ended?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, Failure>(())
    })?;
    match numbers.iter().find(|cpu| !ends.contains_key(cpu)) {
        None => Ok(ends),
        Some(cpu) => Err(Failure::failed(format!(
            "the loop in the kernel did not run on CPU {cpu}; run `taillab doctor`"
        ))),
    }
}

/// Runs the loop here, call by call.
fn on_this_cpu(
    cpu: u16,
    phase: &Phase,
    interrupt: &Interrupt,
    out: &Sender<LoopReport>,
) -> Result<(), Failure> {
    cpus::pin_current_thread(&CpuSet::single(cpu.into())).map_err(host)?;
    let running = KernelLoop::load(phase.kind == LoopKind::Masked).map_err(probe_failure)?;
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    // the thread that started it is listening
    let _ = out.send(LoopReport::Begins { cpu, tid });
    let (length, threshold) = (Duration::from_nanos(phase.length.get()), phase.threshold);
    let began = Instant::now();
    let mut taken = Instant::now();
    while began.elapsed() < length && !interrupt.is_raised() {
        let left = length.saturating_sub(began.elapsed());
        running.watch(left, threshold).map_err(probe_failure)?;
        if taken.elapsed() > ACCOUNT {
            let account = running.take().map_err(probe_failure)?;
            let _ = out.send(LoopReport::Found(cpu, account));
            taken = Instant::now();
        }
    }
    let account = running.take().map_err(probe_failure)?;
    let _ = out.send(LoopReport::Found(cpu, account));
    Ok(())
}

fn add(found: &mut LoopReading, account: &KernelAccount) {
    for (ns, &times) in account.short.iter().enumerate() {
        found.reads.record_times(Nanos::new(ns as u64), times);
    }
    let fine = account.short.len() as u64;
    for &(from, to) in &account.gaps {
        let length = to.saturating_since(from);
        found.stolen += length;
        // shorter ones are counted already
        if length.get() >= fine {
            found.reads.record(length);
        }
    }
    found.watched += account.watched;
    found.gaps += account.gaps.len() as u64 + account.gaps_not_kept;
    found.gaps_not_kept += account.gaps_not_kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::Monotonic;

    #[test]
    fn short_times_and_gaps_are_each_counted_once() {
        let at = Monotonic::from_nanos_since_boot;
        let mut short = vec![0; 4_096];
        (short[30], short[2_000]) = (100, 1);
        let account = KernelAccount {
            short,
            gaps: vec![(at(0), at(2_000)), (at(9_000), at(15_000))],
            gaps_not_kept: 3,
            watched: Nanos::from_micros(20),
        };
        let mut end = LoopReading::default();
        add(&mut end, &account);
        add(&mut end, &account);
        assert_eq!(end.reads.count(), 2 * 102);
        assert_eq!((end.gaps, end.gaps_not_kept), (10, 6));
        assert_eq!(end.stolen, Nanos::from_micros(16));
        assert_eq!(end.watched, Nanos::from_micros(40));
    }
}
