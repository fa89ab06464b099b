//! Who used the CPUs: samples of the kernel's own accounts and their differences.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use taillab_model::Nanos;

use crate::cpus::CpuSet;
use crate::process::numbers_in;
use crate::roots::Roots;

/// The accounts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CpuTimeError {
    /// The file is not readable.
    #[error("cannot read {path}: {source}; is /proc mounted?")]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file is not what proc_stat(5) describes.
    #[error("{path} has no times of single CPUs: this kernel's /proc is not as proc_stat(5) says")]
    Format {
        /// The file.
        path: PathBuf,
    },
}

/// What one CPU did since boot, in clock ticks (proc_stat(5)).
///
/// On most kernels these are estimates by sampling at the tick, or exact times
/// rounded to it (10 ms): compare over seconds. `user` holds guest time too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTicks {
    /// User mode.
    pub user: u64,
    /// User mode at low priority.
    pub nice: u64,
    /// Kernel mode.
    pub system: u64,
    /// Nothing to run.
    pub idle: u64,
    /// Nothing to run and a task waiting for a disk.
    pub iowait: u64,
    /// Hardware interrupts.
    pub irq: u64,
    /// Softirqs, network receive among them.
    pub softirq: u64,
    /// Wanted to run and the hypervisor ran something else.
    pub steal: u64,
}

impl CpuTicks {
    fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq + self.steal
    }

    fn total(&self) -> u64 {
        self.busy() + self.idle + self.iowait
    }

    /// Field by field; a counter that ran backwards (idle and iowait may) counts 0.
    fn since(&self, earlier: &Self) -> Self {
        let minus = u64::saturating_sub;
        Self {
            user: minus(self.user, earlier.user),
            nice: minus(self.nice, earlier.nice),
            system: minus(self.system, earlier.system),
            idle: minus(self.idle, earlier.idle),
            iowait: minus(self.iowait, earlier.iowait),
            irq: minus(self.irq, earlier.irq),
            softirq: minus(self.softirq, earlier.softirq),
            steal: minus(self.steal, earlier.steal),
        }
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            user: self.user + other.user,
            nice: self.nice + other.nice,
            system: self.system + other.system,
            idle: self.idle + other.idle,
            iowait: self.iowait + other.iowait,
            irq: self.irq + other.irq,
            softirq: self.softirq + other.softirq,
            steal: self.steal + other.steal,
        }
    }
}

/// All CPUs at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSample {
    ticks: BTreeMap<u32, CpuTicks>,
}

impl CpuSample {
    /// Reads `/proc/stat`.
    ///
    /// # Errors
    /// [`CpuTimeError`].
    pub fn take(roots: &Roots) -> Result<Self, CpuTimeError> {
        let path = roots.proc.join("stat");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(CpuTimeError::Read { path, source }),
        };
        let ticks: BTreeMap<u32, CpuTicks> = text.lines().filter_map(parse_cpu).collect();
        if ticks.is_empty() {
            return Err(CpuTimeError::Format { path });
        }
        Ok(Self { ticks })
    }

    /// What `cpus` did from `earlier` to this sample; `None` when no tick passed on
    /// any of them.
    pub fn usage_since(&self, earlier: &Self, cpus: &CpuSet) -> Option<CpuUsage> {
        let spent = cpus
            .iter()
            .filter_map(|cpu| Some(self.ticks.get(&cpu)?.since(earlier.ticks.get(&cpu)?)))
            .fold(CpuTicks::default(), |sum, spent| sum.plus(&spent));
        let share = |ticks: u64| ticks as f64 / spent.total() as f64;
        (spent.total() > 0).then(|| CpuUsage {
            busy_share: share(spent.busy()),
            user_share: share(spent.user + spent.nice),
            system_share: share(spent.system),
            irq_share: share(spent.irq),
            softirq_share: share(spent.softirq),
            steal_share: share(spent.steal),
        })
    }
}

fn parse_cpu(line: &str) -> Option<(u32, CpuTicks)> {
    let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
    // the line of all CPUs together has no number
    let (true, Some(cpu)) = (line.as_bytes().get(3) != Some(&b' '), fields.next()) else {
        return None;
    };
    let mut next = || fields.next()?.parse().ok();
    Some((
        cpu.parse().ok()?,
        CpuTicks {
            user: next()?,
            nice: next()?,
            system: next()?,
            idle: next()?,
            iowait: next()?,
            irq: next()?,
            softirq: next()?,
            steal: next()?,
        },
    ))
}

/// Shares of CPU time between two samples, each in 0..=1 of all the CPUs' time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuUsage {
    /// Not idle; steal counts as busy, since the CPU was not there for anybody else.
    pub busy_share: f64,
    /// In user mode.
    pub user_share: f64,
    /// In kernel mode, on behalf of processes.
    pub system_share: f64,
    /// In hardware interrupts.
    pub irq_share: f64,
    /// In softirqs.
    pub softirq_share: f64,
    /// Taken by the hypervisor.
    pub steal_share: f64,
}

/// The run time of a process's threads at one instant.
///
/// Exact (scheduler's account, `/proc/PID/task/TID/schedstat`), but an ended
/// thread's time is gone with it: meant for servers whose threads stay.
#[derive(Clone, Debug)]
pub struct ProcessSample {
    run_time: BTreeMap<u32, Nanos>,
    at: Instant,
}

impl ProcessSample {
    /// Reads the account of all threads of `pid`; `None` when the process has ended
    /// or the kernel keeps no such account (CONFIG_SCHED_INFO).
    pub fn take(roots: &Roots, pid: u32) -> Option<Self> {
        let tasks = roots.proc.join(pid.to_string()).join("task");
        let run_time: BTreeMap<u32, Nanos> = numbers_in(&tasks)
            .into_iter()
            .filter_map(|tid| {
                let text =
                    fs::read_to_string(tasks.join(tid.to_string()).join("schedstat")).ok()?;
                let run_ns = text.split_ascii_whitespace().next()?.parse().ok()?;
                Some((tid, Nanos::new(run_ns)))
            })
            .collect();
        (!run_time.is_empty()).then(|| Self {
            run_time,
            at: Instant::now(),
        })
    }

    /// CPU time used from `earlier` to this sample, by threads alive in this one.
    pub fn run_time_since(&self, earlier: &Self) -> Nanos {
        let before = |tid| earlier.run_time.get(tid).copied().unwrap_or(Nanos::ZERO);
        self.run_time
            .iter()
            .map(|(tid, now)| now.saturating_sub(before(tid)))
            .sum()
    }

    /// The same in CPUs: 1 is one CPU all the time.
    pub fn cpus_since(&self, earlier: &Self) -> f64 {
        let wall_s = self.at.saturating_duration_since(earlier.at).as_secs_f64();
        if wall_s > 0.0 {
            self.run_time_since(earlier).as_secs_f64() / wall_s
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        write(&roots, files);
        (folder, roots)
    }

    fn write(roots: &Roots, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = roots.proc.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn shares_are_of_the_chosen_cpus_only() {
        let before = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 0 10 100 0 0 0 0 0 0\n\
                      cpu1 0 0 0 500 0 0 0 0 0 0\nintr 5\n";
        let after = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 30 0 20 150 0 0 15 5 0 0\n\
                     cpu1 0 0 0 600 0 0 0 0 0 0\nintr 6\n";
        let (_folder, roots) = roots_with(&[("stat", before)]);
        let first = CpuSample::take(&roots).unwrap();
        write(&roots, &[("stat", after)]);
        let second = CpuSample::take(&roots).unwrap();
        let usage = second.usage_since(&first, &"0".parse().unwrap()).unwrap();
        assert_eq!(
            usage,
            CpuUsage {
                busy_share: 0.5,
                user_share: 0.2,
                system_share: 0.1,
                irq_share: 0.0,
                softirq_share: 0.15,
                steal_share: 0.05,
            }
        );
        let both = second.usage_since(&first, &"0-1".parse().unwrap()).unwrap();
        assert_eq!(both.busy_share, 0.25);
        assert_eq!(second.usage_since(&first, &"7".parse().unwrap()), None);
        assert_eq!(first.usage_since(&first, &"0".parse().unwrap()), None);
    }

    #[test]
    fn idle_that_runs_backwards_is_not_negative() {
        let (_folder, roots) = roots_with(&[("stat", "cpu0 0 0 0 100 50 0 0 0\n")]);
        let first = CpuSample::take(&roots).unwrap();
        write(&roots, &[("stat", "cpu0 10 0 0 110 40 0 0 0\n")]);
        let usage = CpuSample::take(&roots)
            .unwrap()
            .usage_since(&first, &"0".parse().unwrap());
        assert_eq!(usage.unwrap().busy_share, 0.5);
    }

    #[test]
    fn what_is_missing_is_named() {
        let (_folder, roots) = roots_with(&[("stat", "cpu  1 2 3 4 5 6 7 8\n")]);
        assert!(
            CpuSample::take(&roots)
                .unwrap_err()
                .to_string()
                .contains("no times of single CPUs")
        );
        fs::remove_file(roots.proc.join("stat")).unwrap();
        assert!(
            CpuSample::take(&roots)
                .unwrap_err()
                .to_string()
                .contains("cannot read")
        );
        assert!(ProcessSample::take(&roots, 42).is_none());
    }

    #[test]
    fn threads_add_up_and_new_ones_count_from_zero() {
        let (_folder, roots) = roots_with(&[("42/task/42/schedstat", "1000 5 1\n")]);
        let first = ProcessSample::take(&roots, 42).unwrap();
        write(
            &roots,
            &[
                ("42/task/42/schedstat", "4000 5 1\n"),
                ("42/task/43/schedstat", "500 5 1\n"),
            ],
        );
        let second = ProcessSample::take(&roots, 42).unwrap();
        assert_eq!(second.run_time_since(&first), Nanos::new(3500));
        assert!(second.cpus_since(&first) > 0.0);
        assert_eq!(first.run_time_since(&second), Nanos::ZERO);
    }

    #[test]
    fn this_process_is_seen_to_work() {
        let roots = Roots::default();
        let pid = std::process::id();
        let first = ProcessSample::take(&roots, pid).unwrap();
        let mut x = 0_u64;
        for i in 0..20_000_000_u64 {
            x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(i));
        }
        let second = ProcessSample::take(&roots, pid).unwrap();
        assert!(second.run_time_since(&first) > Nanos::ZERO);
    }
}
