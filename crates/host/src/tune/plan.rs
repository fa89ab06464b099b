//! What an apply would do: mitigations, each with its changes and reasons.

use std::collections::HashMap;

use super::Tuner;
use super::change::{Change, Hold};
use super::conflicts;
use super::error::TuneError;
use super::mitigations::{self, Mitigation};
use super::proposal::{Conflict, Proposal, Unavailable};
use super::scene::{Scene, Scope};
use super::setting::{SchedulingValue, Setting};
use crate::process::ProcessIdentity;
use crate::roots::{Roots, status};
use crate::target::comm;

/// The part of one mitigation in a plan.
#[derive(Clone, Debug)]
pub struct Part {
    /// The mitigation that is planned.
    pub mitigation: &'static Mitigation,
    /// What it changes here, or why it cannot.
    pub proposal: Result<Proposal, Unavailable>,
}

/// What an apply would do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One part for each mitigation, in the order asked for.
    pub parts: Vec<Part>,
    /// Who would overwrite a setting, and which changes do harm.
    pub conflicts: Vec<Conflict>,
    /// The server's process: if it ends meanwhile, nothing is applied.
    pub process: Option<ProcessIdentity>,
}

impl Plan {
    /// All changes, in the order in which they are made.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.proposals().flat_map(|proposal| &proposal.changes)
    }

    /// What a process must hold while the plan is applied.
    pub fn holds(&self) -> impl Iterator<Item = Hold> {
        self.proposals()
            .flat_map(|proposal| proposal.holds.iter().copied())
    }

    /// The names of the mitigations that are possible.
    pub fn names(&self) -> Vec<String> {
        let possible = self.parts.iter().filter(|part| part.proposal.is_ok());
        possible
            .map(|part| part.mitigation.is.name.to_owned())
            .collect()
    }

    /// What it changes, process by process and then of the machine, in the order of the changes:
    /// `nginx (pid 71), 3 threads: sched_setattr → "fifo priority=49"`.
    pub fn by_process(&self, roots: &Roots) -> Vec<String> {
        /// Equal changes of one process.
        struct ProcessLine<'c> {
            process: Option<u32>,
            what: String,
            new: &'c str,
            threads: usize,
        }
        let mut lines: Vec<ProcessLine<'_>> = Vec::new();
        for change in self.changes() {
            let thread = change.setting.thread().map(|thread| thread.pid);
            let process = thread.map(|thread| {
                let of = status(roots, thread, "Tgid").and_then(|of| of.parse().ok());
                of.unwrap_or(thread)
            });
            let (what, new) = (change.setting.what(), change.new.as_str());
            let is_it = |line: &&mut ProcessLine<'_>| {
                (line.process, line.what.as_str(), line.new) == (process, what.as_str(), new)
            };
            match lines.iter_mut().find(is_it) {
                Some(line) => line.threads += 1,
                None => lines.push(ProcessLine {
                    process,
                    what,
                    new,
                    threads: 1,
                }),
            }
        }
        let text = |line: &ProcessLine<'_>| {
            let of = line.process.map_or_else(String::new, |pid| {
                let threads = match line.threads {
                    1 => String::new(),
                    n => format!(", {n} threads"),
                };
                format!("{} (pid {pid}){threads}: ", comm(roots, pid))
            });
            format!("{of}{} → \"{}\"", line.what, line.new)
        };
        lines.iter().map(text).collect()
    }

    fn proposals(&self) -> impl Iterator<Item = &Proposal> {
        self.parts
            .iter()
            .filter_map(|part| part.proposal.as_ref().ok())
    }

    /// Refuses a plan that does harm or has a part that is not possible.
    ///
    /// # Errors
    /// [`TuneError::Unavailable`], [`TuneError::Harmful`].
    pub fn check(&self, is_forced: bool) -> Result<(), TuneError> {
        for part in &self.parts {
            if let Err(Unavailable(reason)) = &part.proposal {
                return Err(TuneError::Unavailable {
                    mitigation: part.mitigation.is.name,
                    reason: reason.clone(),
                });
            }
        }
        let harms: Vec<String> = (self.conflicts.iter())
            .filter(|conflict| conflict.is_harmful)
            .map(ToString::to_string)
            .collect();
        match harms.is_empty() || is_forced {
            true => Ok(()),
            false => Err(TuneError::Harmful(harms)),
        }
    }
}

impl Tuner {
    /// What applying these mitigations would change here. Nothing is changed.
    ///
    /// # Errors
    /// [`TuneError::Unknown`], [`TuneError::Scope`]. What is not possible is a part of the plan.
    pub fn plan<N: AsRef<str>>(&self, names: &[N], scope: &Scope) -> Result<Plan, TuneError> {
        let mut wanted = Vec::new();
        for name in names {
            let found = mitigations::by_name(name.as_ref())?;
            if !wanted
                .iter()
                .any(|other: &&Mitigation| other.is == found.is)
            {
                wanted.push(found);
            }
        }
        let scene = Scene::look(&self.roots, scope)?;
        let mut parts: Vec<Part> = (wanted.into_iter())
            .map(|mitigation| {
                let mut proposal = (mitigation.plan)(&scene);
                if let Ok(proposal) = &mut proposal {
                    for change in &mut proposal.changes {
                        change.mitigation = mitigation.is.name.into();
                    }
                }
                Part {
                    mitigation,
                    proposal,
                }
            })
            .collect();
        join(&self.roots, &mut parts);
        let possible = parts.iter().filter_map(|part| part.proposal.as_ref().ok());
        let conflicts = conflicts::of(&scene, possible);
        Ok(Plan {
            parts,
            conflicts,
            process: scene.server.map(|server| server.process),
        })
    }
}

/// One call sets everything about how a thread is scheduled. So mitigations that change different parts of it, as
/// `nice` and `slice` do, all plan the value with all of their changes: none undoes another, and each is seen to hold.
fn join(roots: &Roots, parts: &mut [Part]) {
    let mut by_thread: HashMap<Setting, Vec<&mut Change>> = HashMap::new();
    let proposals = parts.iter_mut().flat_map(|part| &mut part.proposal);
    for change in proposals.flat_map(|proposal| &mut proposal.changes) {
        if matches!(change.setting, Setting::Scheduling(_)) {
            let of_thread = by_thread.entry(change.setting.clone()).or_default();
            of_thread.push(change);
        }
    }
    let parsed = |text: &str| text.parse::<SchedulingValue>().ok();
    for (setting, changes) in by_thread {
        if changes.len() < 2 {
            continue;
        }
        let now = setting.read(roots).ok().and_then(|now| parsed(&now));
        let Some(now) = now else { continue };
        let mut joined: Option<SchedulingValue> = None;
        let mut joining = Vec::new();
        for change in changes {
            let Some(value) = parsed(&change.new) else {
                continue;
            };
            let with_it = joined.map_or(Some(value), |others| others.joined(value, now));
            if with_it.is_some() {
                joined = with_it;
                joining.push(change);
            }
        }
        if let Some(joined) = joined {
            for change in joining {
                change.new = joined.to_string();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;
    use crate::tune::setting::{FileSetting, Form};

    #[test]
    fn a_plan_is_told_by_processes_and_not_by_numbers_of_threads() {
        let stat = |pid: u32| {
            format!(
                "{pid} (nginx) S 1 1 1 0 -1 0 0 0 0 0 7 9 0 0 20 0 5 0 9 1 2 0 1 1 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0"
            )
        };
        let (one, two) = (stat(71), stat(80));
        let (_folder, roots) = tree(&[
            ("proc/71/stat", one.as_str()),
            ("proc/80/stat", two.as_str()),
            ("proc/71/status", "Tgid:\t71\n"),
            ("proc/72/status", "Tgid:\t71\n"),
            ("proc/80/status", "Tgid:\t80\n"),
        ]);
        let of = |pid| {
            let thread = ProcessIdentity {
                pid,
                start_time_ticks: 9,
            };
            Change::new(Setting::scheduling(thread), "fifo priority=49", "a test")
        };
        let limit = FileSetting::new("/proc/sys/kernel/sched_rt_runtime_us", Form::Text);
        let machine = Change::new(Setting::File(limit), "-1", "a test");
        let plan = Plan {
            parts: vec![Part {
                mitigation: mitigations::MITIGATIONS[0],
                proposal: Ok(vec![machine, of(71), of(72), of(80)].into()),
            }],
            conflicts: Vec::new(),
            process: None,
        };
        assert_eq!(
            plan.by_process(&roots),
            [
                "/proc/sys/kernel/sched_rt_runtime_us → \"-1\"",
                "nginx (pid 71), 2 threads: sched_setattr → \"fifo priority=49\"",
                "nginx (pid 80): sched_setattr → \"fifo priority=49\"",
            ]
        );
    }

    #[test]
    fn changes_of_different_parts_of_a_value_are_planned_together() {
        let roots = Roots::default();
        let own = Setting::scheduling(ProcessIdentity::current(&roots).unwrap());
        let now: SchedulingValue = own.read(&roots).unwrap().parse().unwrap();
        let nice = SchedulingValue {
            nice: now.nice - 1,
            ..now
        };
        let slice = SchedulingValue {
            runtime_ns: now.runtime_ns + 1,
            ..now
        };
        let real_time = now.with_fifo(49);
        let part = |value: SchedulingValue| Part {
            mitigation: mitigations::MITIGATIONS[0],
            proposal: Ok(vec![Change::new(own.clone(), value.to_string(), "a test")].into()),
        };
        let mut parts = [nice, real_time, slice].map(part);
        join(&roots, &mut parts);
        let both = SchedulingValue {
            nice: nice.nice,
            ..slice
        };
        let new: Vec<&str> = (parts.iter())
            .flat_map(|part| &part.proposal.as_ref().unwrap().changes)
            .map(|change| change.new.as_str())
            .collect();
        let [both, real_time] = [both, real_time].map(|value| value.to_string());
        assert_eq!(new, [&both, &real_time, &both]);
    }
}
