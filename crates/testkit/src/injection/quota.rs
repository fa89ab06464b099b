//! A control group whose CPU quota is close to zero from time to time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use taillab_load::ground_truth::{GroundTruth, InjectedInterval};

use taillab_model::Nanos;
use taillab_model::explanation::Cause;

use super::disturber::{Disturber, earlier, sleep_until};
use super::{InjectionError, Schedule, system};
use taillab_host::clock::now;
use taillab_host::journal::Journal;
use taillab_host::process::set_fifo;
use taillab_host::{Roots, throttled_time};

const NAME: &str = "tl-quota";
/// The smallest quota that the kernel accepts (`min_cfs_quota_period`), and the usual period.
const LEAST_US: u64 = 1_000;
const PERIOD_US: u64 = 100_000;

const REMEDY: &str = "it needs root and a control group of version 1 with the cpu controller, or \
     of version 2 with cpu in the root group's cgroup.subtree_control";

/// A control group of our own for the cpu controller; dropping it gives its processes back
/// to the root group and removes it.
#[derive(Debug)]
pub struct CpuGroup {
    path: PathBuf,
    root: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl CpuGroup {
    /// Enters a new group in the journal, then makes it.
    ///
    /// # Errors
    /// [`InjectionError`] if no cpu controller is usable, or the journal cannot be written.
    pub fn new(roots: &Roots, journal: &mut Journal) -> Result<Self, InjectionError> {
        let mount = roots.sys.join("fs/cgroup");
        let one = ["cpu", "cpu,cpuacct"]
            .map(|name| mount.join(name))
            .into_iter()
            .find(|path| path.join("cgroup.procs").exists());
        let (root, version) = match one {
            Some(root) => (root, Version::One),
            None => {
                let enabled =
                    fs::read_to_string(mount.join("cgroup.subtree_control")).unwrap_or_default();
                if !enabled.split_whitespace().any(|name| name == "cpu") {
                    return Err(InjectionError::NoQuota {
                        why: format!("{} has no cpu controller for its children", mount.display()),
                    });
                }
                (mount, Version::Two)
            }
        };
        let path = root.join(format!("taillab-{}", journal.name()));
        journal.plan_control_group(&path)?;
        fs::create_dir(&path).map_err(system("make a control group", REMEDY))?;
        let group = Self {
            path,
            root,
            version,
        };
        // if this fails, other programs disturb the server more
        let _ = group.goes_first();
        Ok(group)
    }

    /// Gives it the largest weight: threads outside compete with the group as a whole, whatever the
    /// priorities inside it.
    fn goes_first(&self) -> io::Result<()> {
        match self.version {
            Version::One => fs::write(self.path.join("cpu.shares"), "262144"),
            Version::Two => fs::write(self.path.join("cpu.weight"), "10000"),
        }
    }

    /// Moves a process with all of its threads into it.
    ///
    /// # Errors
    /// [`InjectionError`] when the kernel refuses.
    pub fn take_in(&self, process: u32) -> Result<(), InjectionError> {
        fs::write(self.path.join("cgroup.procs"), process.to_string())
            .map_err(system("move the server into a control group", REMEDY))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Limits the group to [`LEAST_US`] in each period, or lifts the limit.
    fn limit(&self, limited: bool) -> io::Result<()> {
        let (file, limit) = match (self.version, limited) {
            (Version::One, true) => ("cpu.cfs_quota_us", LEAST_US.to_string()),
            (Version::One, false) => ("cpu.cfs_quota_us", "-1".to_owned()),
            (Version::Two, true) => ("cpu.max", format!("{LEAST_US} {PERIOD_US}")),
            (Version::Two, false) => ("cpu.max", "max".to_owned()),
        };
        fs::write(self.path.join(file), limit)
    }

    /// How often and for how long its threads have been throttled so far, summed over the CPUs.
    fn throttled(&self) -> io::Result<Throttled> {
        let text = fs::read_to_string(self.path.join("cpu.stat"))?;
        let nothing = || io::Error::other("cpu.stat says nothing of throttling");
        let times = throttles(&text).zip(throttled_time(&text));
        let (times, held) = times.ok_or_else(nothing)?;
        Ok(Throttled { times, held })
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // a group with processes in it cannot be removed
        for process in fs::read_to_string(self.path.join("cgroup.procs"))
            .unwrap_or_default()
            .lines()
        {
            let _ = fs::write(self.root.join("cgroup.procs"), process);
        }
        // if this fails, the group is still in the journal
        let _ = fs::remove_dir(&self.path);
    }
}

/// What the kernel says of a group's throttles.
#[derive(Clone, Copy, Debug)]
struct Throttled {
    times: u64,
    held: Nanos,
}

/// How often a group was throttled, by its accounts before the limit, at its end and after it was lifted. The kernel
/// counts a throttle at the end of its period (`do_sched_cfs_period_timer`), and its time when it ends. So the last one
/// is counted by neither: it is lifted in the middle of its period, and only its time is added then.
fn throttles_within(before: Throttled, at_end: Throttled, after: Throttled) -> u32 {
    let whole = (after.times - before.times) as u32;
    whole + u32::from(after.held > at_end.held)
}

/// `nr_throttled` of a group's account.
fn throttles(account: &str) -> Option<u64> {
    let mut lines = account.lines();
    let value = lines.find_map(|line| line.strip_prefix("nr_throttled "));
    value?.trim().parse().ok()
}

/// During each disturbance a server in a [`CpuGroup`] may use only 1 ms of CPU time. The disturber, a thread
/// on `cpu` (not the server's), owns the group and removes it when it ends.
///
/// `lasts` includes the time that the group needs to use up its millisecond.
///
/// # Errors
/// [`InjectionError`] if the group cannot be limited.
pub fn quota(
    group: CpuGroup,
    cpu: u32,
    server_cpu: u32,
    schedule: Schedule,
) -> Result<Disturber, InjectionError> {
    Disturber::start(
        NAME,
        cpu,
        move || {
            // without this privilege, it acts a little late
            let _ = set_fifo(0, 1);
            let refused = || system("give a control group a CPU quota", REMEDY);
            if group.version == Version::One {
                fs::write(group.path.join("cpu.cfs_period_us"), PERIOD_US.to_string())
                    .map_err(refused())?;
            }
            group.limit(false).map_err(refused())?;
            group.throttled().map_err(refused())?;
            Ok(group)
        },
        move |group, running| {
            let mut intervals = Vec::with_capacity(4096);
            running.by(schedule, |at| {
                let Ok(before) = group.throttled() else {
                    return;
                };
                if group.limit(true).is_err() {
                    return;
                }
                sleep_until(at.max(now()) + schedule.lasts);
                let Ok(at_end) = group.throttled() else {
                    return;
                };
                // unthrottles before it returns (tg_set_cfs_bandwidth)
                let lifted = group.limit(false);
                let to_ns = now();
                let Ok(after) = group.throttled() else { return };
                let held = after.held.saturating_sub(before.held);
                if lifted.is_ok() && held > Nanos::ZERO {
                    let held = earlier(to_ns, held)..to_ns;
                    intervals.push(InjectedInterval {
                        times: throttles_within(before, at_end, after),
                        ..InjectedInterval::on_cpu(server_cpu, held)
                    });
                }
            });
            let injected = format!("quota:{schedule}");
            GroundTruth::of_one(injected, Cause::Throttled, None, intervals)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn account(times: u64, held_ms: u64) -> Throttled {
        Throttled {
            times,
            held: Nanos::from_millis(held_ms),
        }
    }

    #[test]
    fn a_throttle_that_is_lifted_in_its_period_counts() {
        let times = |at_end, after| throttles_within(account(7, 100), at_end, after);
        // one, lifted
        assert_eq!(times(account(7, 100), account(7, 111)), 1);
        // a period ended meanwhile: one before, and one that is lifted
        assert_eq!(times(account(8, 105), account(8, 110)), 2);
        // the second period's time was not used up
        assert_eq!(times(account(8, 111), account(8, 111)), 1);
    }
}
