//! How the CPUs' time was used: samples of the kernel's own accounts and their differences.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use taillab_model::Nanos;

use crate::cpus::CpuSet;
use crate::process::Stat;
use crate::roots::Roots;

/// The accounts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CpuTimeError {
    /// The file is not readable.
    #[error("cannot read {path}: {source}; is /proc mounted?")]
    Read {
        /// The file in /proc.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file is not what proc_stat(5) describes.
    #[error("{path} has no times of single CPUs: this kernel's /proc is not as proc_stat(5) says")]
    Format {
        /// The file in /proc.
        path: PathBuf,
    },
}

/// What one CPU did since boot, in clock ticks, in the order of proc_stat(5): user, nice,
/// system, idle, iowait, irq, softirq, steal.
///
/// On most kernels these are estimates by sampling at the tick, or exact times rounded to
/// it (10 ms): compare over seconds. `user` holds guest time too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTicks([u64; 8]);

impl CpuTicks {
    fn parse<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut ticks = [0; 8];
        for tick in &mut ticks {
            *tick = fields.next()?.parse().ok()?;
        }
        Some(Self(ticks))
    }

    /// What the hypervisor took.
    pub(crate) const fn steal(self) -> u64 {
        self.0[7]
    }

    /// All of it: busy and idle.
    fn total(self) -> u64 {
        self.0.iter().sum()
    }

    /// Field by field; a counter that ran backwards (idle and iowait may) counts 0.
    fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|i| {
            self.0[i].saturating_sub(earlier.0[i])
        }))
    }

    fn plus(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
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
        let spent = self.since(earlier, cpus);
        let CpuTicks([user, nice, system, _, _, irq, softirq, steal]) = spent;
        let busy = user + nice + system + irq + softirq + steal;
        let total = spent.total();
        let share = |ticks: u64| ticks as f64 / total as f64;
        (total > 0).then(|| CpuUsage {
            busy_share: share(busy),
            user_share: share(user + nice),
            system_share: share(system),
            irq_share: share(irq),
            softirq_share: share(softirq),
            steal_share: share(steal),
        })
    }

    /// The share of the time of `cpus` since `earlier` that makes up so many clock ticks, as
    /// [`process_ticks`] counts them; `None` when no tick passed.
    pub fn share_since(&self, earlier: &Self, cpus: &CpuSet, ticks: u64) -> Option<f64> {
        let total = self.since(earlier, cpus).total();
        (total > 0).then(|| ticks as f64 / total as f64)
    }

    /// Whether the kernel measures the time of interrupts (`CONFIG_IRQ_TIME_ACCOUNTING`), as it has counted some.
    /// If not, the CPU time of a process contains the interrupts and softirqs that came while it ran.
    pub fn measures_interrupts(&self) -> bool {
        self.ticks.values().any(|CpuTicks(ticks)| ticks[5] > 0)
    }

    fn since(&self, earlier: &Self, cpus: &CpuSet) -> CpuTicks {
        cpus.iter()
            .filter_map(|cpu| Some(self.ticks.get(&cpu)?.since(earlier.ticks.get(&cpu)?)))
            .fold(CpuTicks::default(), |sum, spent| sum.plus(&spent))
    }
}

/// CPU time that these processes have used until now, in the clock ticks of proc_stat(5). One that has ended
/// counts nothing.
pub fn process_ticks(roots: &Roots, processes: &[u32]) -> u64 {
    let of = |pid: &u32| Some(Stat::of(roots, *pid)?.cpu_ticks);
    processes.iter().filter_map(of).sum()
}

/// How long the threads of these processes have been runnable so far without a CPU, all together (the second field
/// of `schedstat`, Documentation/scheduler/sched-stats.rst). `None` where the kernel does not say, or where they have
/// more than `most` threads. A thread that has ended counts nothing.
pub fn waiting_time(roots: &Roots, processes: &[u32], most: usize) -> Option<Nanos> {
    let tasks = processes.iter().filter_map(|pid| {
        let tasks = roots.proc.join(pid.to_string()).join("task");
        fs::read_dir(tasks).ok()
    });
    let paths: Vec<PathBuf> = tasks.flatten().flatten().map(|task| task.path()).collect();
    if paths.len() > most {
        return None;
    }
    let waited = |path: &PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let known: Vec<u64> = paths.iter().filter_map(waited).collect();
    (!known.is_empty()).then(|| Nanos::new(known.iter().sum()))
}

/// The CPU and its ticks, from a line of /proc/stat about one CPU.
pub(crate) fn parse_cpu(line: &str) -> Option<(u32, CpuTicks)> {
    let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
    // the line of all CPUs together has no number
    let (true, Some(cpu)) = (line.as_bytes().get(3) != Some(&b' '), fields.next()) else {
        return None;
    };
    Some((cpu.parse().ok()?, CpuTicks::parse(fields)?))
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
    fn processes_have_a_share_of_their_cpus() {
        let stat = "cpu0 10 0 10 100 0 0 0 0\ncpu1 0 0 0 500 0 0 0 0\n";
        let process = |user, system| {
            format!(
                "7 (a b) S 1 7 7 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 \
                 0 0 0 17 0 0 0\n"
            )
        };
        let (_folder, roots) = roots_with(&[("stat", stat), ("7/stat", &process(3, 4))]);
        let used = process_ticks(&roots, &[7, 8]);
        assert_eq!(used, 7);
        let first = CpuSample::take(&roots).unwrap();
        let later = "cpu0 30 0 20 120 0 0 0 0\ncpu1 0 0 0 550 0 0 0 0\n";
        write(&roots, &[("stat", later), ("7/stat", &process(20, 12))]);
        let second = CpuSample::take(&roots).unwrap();
        let used = process_ticks(&roots, &[7, 8]) - used;
        let share = |cpus: &str| second.share_since(&first, &cpus.parse().unwrap(), used);
        assert_eq!(share("0"), Some(0.5));
        assert_eq!(share("0-1"), Some(0.25));
        assert_eq!(share("3"), None);
    }

    #[test]
    fn waiting_for_a_cpu_is_that_of_all_threads() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        for (pid, tid, waited) in [(7, 7, 1_000), (7, 9, 200), (8, 8, 30)] {
            let task = roots.proc.join(format!("{pid}/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("schedstat"), format!("5000 {waited} 12\n")).unwrap();
        }
        let waited = |processes: &[u32], most| waiting_time(&roots, processes, most);
        assert_eq!(waited(&[7, 8], 3), Some(Nanos::new(1_230)));
        assert_eq!(waited(&[7, 8], 2), None);
        assert_eq!(waited(&[8, 4], 2), Some(Nanos::new(30)));
        assert_eq!(waited(&[4], 2), None);
    }

    #[test]
    fn a_kernel_that_measures_interrupts_has_counted_some() {
        let measures = |irq| {
            let stat = format!("cpu0 10 0 10 100 0 0 3 0\ncpu1 0 0 0 500 0 {irq} 0 0\n");
            let (_folder, roots) = roots_with(&[("stat", &stat)]);
            CpuSample::take(&roots).unwrap().measures_interrupts()
        };
        assert!(measures(1) && !measures(0));
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
    }
}
