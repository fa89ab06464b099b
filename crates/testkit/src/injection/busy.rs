//! A BPF program that keeps a CPU busy, at the expense of the thread on it.

use std::ops::Range;

use taillab_load::ground_truth::{GroundTruth, InjectedInterval};

use taillab_model::{Monotonic, Nanos};

use super::bpf::{Array, Assembly, JGE, JLT, KTIME};
use super::{InjectionError, system};

/// An upper bound on the loop's iterations per microsecond; each reads the clock [`READS`] times.
const TURNS_PER_MICROSECOND: i32 = 8;
/// Enough that even a long piece stays below the 8,192 iterations that the kernel's verifier follows.
const READS: usize = 8;
/// Values of the map: a count of the pieces, then the times of each.
const ROOM: u32 = 1 << 17;

/// When each piece of work began and ended, as stamped by the program that did it.
pub(super) struct BusyTimes(Array);

impl BusyTimes {
    pub(super) fn new(remedy: &'static str) -> Result<Self, InjectionError> {
        let times = Array::new(ROOM).map_err(system("make a BPF map", remedy))?;
        Ok(Self(times))
    }

    /// A program that is busy for `each`, records when, and returns `verdict`. Only one CPU may run
    /// it, one piece at a time.
    pub(super) fn program(&self, each: Nanos, verdict: i32) -> Assembly {
        let times = &self.0;
        let each_ns = each.get() as i32;
        let turns = each_ns / 1000 * TURNS_PER_MICROSECOND;
        let mut code = Assembly::default();
        // the first value of the map counts the pieces
        code.call(KTIME).copy(6, 0).set(7, 0).label("again");
        for _ in 0..READS {
            code.call(KTIME);
        }
        code.copy(8, 0)
            .copy(9, 0)
            .subtract(9, 6)
            .jump(JGE, 9, each_ns, "passed")
            .add(7, 1)
            .jump(JLT, 7, turns, "again")
            .label("passed")
            .set(1, 0)
            .value(times, 1, "end")
            .load(1, 0, 0)
            .add(1, 1)
            .store(0, 0, 1)
            .jump(JGE, 1, ROOM as i32, "end")
            .value(times, 1, "end")
            .store(0, 0, 6)
            .store(0, 8, 8)
            .label("end")
            .end(verdict);
        code
    }

    /// The `truth` of the pieces on this CPU, in order of time; pieces less than `together` apart are
    /// merged. Pieces that found no room are counted as unrecorded.
    pub(super) fn read(
        &self,
        (cpu, together): (u32, Nanos),
        remedy: &'static str,
        truth: impl FnOnce(Vec<InjectedInterval>) -> GroundTruth,
    ) -> Result<GroundTruth, InjectionError> {
        let read = |key| self.0.get(key).map_err(system("read a BPF map", remedy));
        let done = read(0)?.0;
        let recorded = done.min(u64::from(ROOM) - 1);
        let mut pieces: Vec<Range<Monotonic>> = Vec::new();
        for key in 1..=recorded as u32 {
            let (from, to) = read(key)?;
            let (from, to) = (
                Monotonic::from_nanos_since_boot(from),
                Monotonic::from_nanos_since_boot(to),
            );
            match pieces.last_mut() {
                Some(last) if from.saturating_since(last.end) < together => last.end = to,
                _ => pieces.push(from..to),
            }
        }
        let intervals = pieces
            .into_iter()
            .map(|piece| InjectedInterval::on_cpu(cpu, piece));
        Ok(GroundTruth {
            unrecorded: done - recorded,
            ..truth(intervals.collect())
        })
    }
}
