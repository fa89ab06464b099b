//! Who else uses the CPUs of a measurement.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cpu_time::{CpuSample, CpuUsage};
use crate::cpus::CpuSet;
use crate::process::{Stat, numbers_in};
use crate::roots::Roots;

/// A process that ran on the observed CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusyProcess {
    /// Name of the program, at most 15 bytes.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// CPU time per time, in CPUs: 0.5 is half of one CPU.
    pub cpus: f64,
}

/// What ran on a set of CPUs in a short time before the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Length of the observation in seconds.
    pub observed_s: f64,
    /// How the CPUs' time was used; `None` when too short for a tick.
    pub usage: Option<CpuUsage>,
    /// Processes above [`BUSY_CPUS`], busiest first; ours is left out.
    pub busy_processes: Vec<BusyProcess>,
}

/// A process that uses this much of a CPU, or more, counts as busy.
pub const BUSY_CPUS: f64 = 0.01;

/// Run time in nanoseconds of every thread whose last CPU is in the set, by process and thread.
struct Threads(BTreeMap<(u32, u32), u64>);

impl Threads {
    fn read(roots: &Roots, cpus: &CpuSet) -> Self {
        let own = std::process::id();
        let mut run_time_ns = BTreeMap::new();
        for pid in numbers_in(&roots.proc)
            .into_iter()
            .filter(|&pid| pid != own)
        {
            let tasks = roots.proc.join(pid.to_string()).join("task");
            for tid in numbers_in(&tasks) {
                let task = tasks.join(tid.to_string());
                let stat = Stat::read(&task.join("stat"));
                // a large machine has many threads elsewhere
                if !stat.is_some_and(|stat| cpus.contains(stat.cpu)) {
                    continue;
                }
                let run_ns = fs::read_to_string(task.join("schedstat"))
                    .ok()
                    .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
                if let Some(run_ns) = run_ns {
                    run_time_ns.insert((pid, tid), run_ns);
                }
            }
        }
        Self(run_time_ns)
    }

    /// CPUs used by each busy process, busiest first. A thread that came to these CPUs in
    /// between has no earlier value and does not count.
    fn since(&self, earlier: &Self, wall_s: f64) -> Vec<(u32, f64)> {
        let mut cpus: BTreeMap<u32, f64> = BTreeMap::new();
        for ((pid, tid), now) in &self.0 {
            if let Some(before) = earlier.0.get(&(*pid, *tid)) {
                *cpus.entry(*pid).or_default() += now.saturating_sub(*before) as f64 / 1e9 / wall_s;
            }
        }
        let mut busy: Vec<(u32, f64)> = cpus
            .into_iter()
            .filter(|(_, cpus)| *cpus >= BUSY_CPUS)
            .collect();
        busy.sort_by(|a, b| b.1.total_cmp(&a.1));
        busy
    }
}

/// Watches `cpus` for `length`. This thread sleeps meanwhile, so only other work is seen.
pub fn observe(roots: &Roots, cpus: &CpuSet, length: Duration) -> Activity {
    let (start, sample, threads) = (
        Instant::now(),
        CpuSample::take(roots).ok(),
        Threads::read(roots, cpus),
    );
    thread::sleep(length);
    let later = Threads::read(roots, cpus);
    let observed_s = start.elapsed().as_secs_f64();
    let usage = sample.and_then(|before| CpuSample::take(roots).ok()?.usage_since(&before, cpus));
    let busy_processes = later
        .since(&threads, observed_s.max(1e-9))
        .into_iter()
        .map(|(pid, cpus)| BusyProcess {
            name: Stat::of(roots, pid).map_or_else(|| "(ended)".into(), |stat| stat.comm),
            pid,
            cpus,
        })
        .collect();
    Activity {
        observed_s,
        usage,
        busy_processes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread_of(roots: &Roots, pid: u32, tid: u32, cpu: u32, run_ns: u64) {
        let task = roots.proc.join(format!("{pid}/task/{tid}"));
        fs::create_dir_all(&task).unwrap();
        let zeros = "0 ".repeat(35);
        fs::write(task.join("stat"), format!("{tid} (x) S {zeros}{cpu} 0 0")).unwrap();
        fs::write(task.join("schedstat"), format!("{run_ns} 0 0")).unwrap();
    }

    #[test]
    fn threads_on_other_cpus_and_our_own_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let cpus = CpuSet::single(1);
        let own = std::process::id();
        for (pid, tid, cpu) in [(8, 8, 1), (8, 9, 1), (8, 10, 0), (7, 7, 1), (own, own, 1)] {
            thread_of(&roots, pid, tid, cpu, 1_000);
        }
        let before = Threads::read(&roots, &cpus);
        for (pid, tid, cpu) in [(8, 8, 1), (8, 9, 1), (8, 10, 0), (own, own, 1), (6, 6, 1)] {
            thread_of(&roots, pid, tid, cpu, 250_001_000);
        }
        let busy = Threads::read(&roots, &cpus).since(&before, 1.0);
        assert_eq!(busy, [(8, 0.5)]);
    }
}
