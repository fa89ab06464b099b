//! Where the server's threads may run once a plan is made, and whom they can starve there: the CPUs that are
//! named say where the server is wanted, not where it is.

use taillab_model::mitigation;

use super::change::Change;
use super::proposal::Conflict;
use super::scene::{Scene, Thread};
use super::setting::{Policy, SchedulingValue, Setting};
use crate::cpus::CpuSet;

/// Those that make the server real-time, take its limit away, or leave fewer CPUs to the others.
const TIGHTENING: [&str; 4] = [
    mitigation::RT_PRIORITY.name,
    mitigation::RT_RUNTIME.name,
    mitigation::DEDICATED_CPUS.name,
    mitigation::OTHERS_AFFINITY.name,
];

/// Those that move everything else to the other CPUs.
const MOVING: [&str; 2] = [
    mitigation::DEDICATED_CPUS.name,
    mitigation::OTHERS_AFFINITY.name,
];

/// What the server's threads do to everything else, by where they may run once `changes` are made.
pub(super) fn of(scene: &Scene, changes: &[&Change]) -> Vec<Conflict> {
    let Some(server) = &scene.server else {
        return Vec::new();
    };
    let plans = |names: &[&str]| {
        let mut planned = changes.iter().map(|change| change.mitigation.as_str());
        planned.any(|name| names.contains(&name))
    };
    if !plans(&TIGHTENING) {
        return Vec::new();
    }
    let mut left = scene.online.clone();
    let moves = plans(&MOVING);
    if moves {
        left = left.difference(&scene.cpus);
    }
    let after = |thread: &Thread| {
        (
            is_real_time_after(thread, changes),
            cpus_after(thread, changes),
        )
    };
    let threads: Vec<(bool, CpuSet)> = server.threads.iter().map(after).collect();
    let reach = |of: &[&CpuSet]| of.iter().flat_map(|cpus| cpus.iter()).collect::<CpuSet>();
    let all: Vec<&CpuSet> = threads.iter().map(|(_, cpus)| cpus).collect();
    let real_time = threads.iter().filter(|(is_real_time, _)| *is_real_time);
    let real_time: Vec<&CpuSet> = real_time.map(|(_, cpus)| cpus).collect();
    if !real_time.is_empty() && can_fill(&real_time, &left) {
        return vec![Conflict {
            who: format!(
                "{}, whose threads may run on CPU {},",
                server.name,
                reach(&real_time)
            ),
            effect: format!(
                "would starve everything else, which has CPU {left}, if they spin in real time"
            ),
            remedy: "leave a CPU to the others (dedicated-cpus at the same time, with -C)".into(),
            is_harmful: true,
        }];
    }
    let beside = reach(&all).intersection(&left);
    if moves && !beside.is_empty() {
        return vec![Conflict {
            who: server.name.clone(),
            effect: format!("may also run on CPU {beside}, where everything else is moved"),
            remedy: format!("bind it to CPU {} (dedicated-cpus)", scene.cpus),
            is_harmful: false,
        }];
    }
    Vec::new()
}

/// The value that a plan gives a setting of this thread last.
fn planned<'c>(changes: &[&'c Change], setting: &Setting) -> Option<&'c str> {
    let mut changes = changes.iter().rev();
    let found = changes.find(|change| change.setting == *setting);
    found.map(|change| change.new.as_str())
}

fn cpus_after(thread: &Thread, changes: &[&Change]) -> CpuSet {
    let new = planned(changes, &Setting::affinity(thread.identity));
    new.and_then(|list| list.parse().ok())
        .unwrap_or_else(|| thread.cpus.clone())
}

fn is_real_time_after(thread: &Thread, changes: &[&Change]) -> bool {
    let new = planned(changes, &Setting::scheduling(thread.identity));
    let new = new.and_then(|text| text.parse::<SchedulingValue>().ok());
    new.map_or(thread.is_real_time, |value| {
        matches!(value.policy, Policy::Fifo | Policy::RoundRobin)
    })
}

/// Whether these threads can be on all of `cpus` at the same time, each on one of those where it may run.
fn can_fill(threads: &[&CpuSet], cpus: &CpuSet) -> bool {
    // the CPU that each thread has
    let mut has: Vec<Option<u32>> = vec![None; threads.len()];
    (cpus.iter()).all(|cpu| place(cpu, threads, &mut has, &mut vec![false; threads.len()]))
}

/// Finds a thread for `cpu`; those that have a CPU already may have to take another.
fn place(cpu: u32, threads: &[&CpuSet], has: &mut [Option<u32>], asked: &mut [bool]) -> bool {
    for thread in 0..threads.len() {
        if asked[thread] || !threads[thread].contains(cpu) {
            continue;
        }
        asked[thread] = true;
        let other = has[thread];
        if other.is_none_or(|other| place(other, threads, has, asked)) {
            has[thread] = Some(cpu);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;
    use crate::tune::scene::Scope;
    use crate::tune::setting::{FileSetting, Form};

    const STAT: &str = "4711 (server) S 1 4711 4711 0 -1 0 100 0 0 0 7 9 0 0 20 0 1 0 12345 1 2 \
                        3 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0";

    /// A machine with four CPUs, and a server whose threads may run on these.
    struct Machine {
        _folder: tempfile::TempDir,
        scene: Scene,
    }

    impl std::ops::Deref for Machine {
        type Target = Scene;

        fn deref(&self) -> &Scene {
            &self.scene
        }
    }

    fn machine(threads: &[&str], named: Option<&str>) -> Machine {
        let mut files: Vec<(String, String)> = vec![
            ("sys/devices/system/cpu/online".into(), "0-3\n".into()),
            ("proc/4711/stat".into(), STAT.into()),
        ];
        for (tid, cpus) in (4711..).zip(threads) {
            let task = format!("proc/4711/task/{tid}");
            files.push((format!("{task}/stat"), STAT.into()));
            files.push((
                format!("{task}/status"),
                format!("Cpus_allowed_list:\t{cpus}\n"),
            ));
        }
        let files: Vec<(&str, &str)> = (files.iter())
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let (_folder, roots) = tree(&files);
        let scope = Scope {
            pid: Some(4711),
            cpus: named.map(|list| list.parse().unwrap()),
            ..Scope::default()
        };
        Machine {
            scene: Scene::look(&roots, &scope).unwrap(),
            _folder,
        }
    }

    fn change(mitigation: &str, setting: Setting, new: &str) -> Change {
        Change {
            mitigation: mitigation.into(),
            ..Change::new(setting, new, "")
        }
    }

    fn real_time(scene: &Scene) -> Vec<Change> {
        let threads = &scene.server.as_ref().unwrap().threads;
        let of = |thread: &Thread| {
            let setting = Setting::scheduling(thread.identity);
            change("rt-priority", setting, "fifo priority=49")
        };
        threads.iter().map(of).collect()
    }

    fn pinned(scene: &Scene) -> Vec<Change> {
        let threads = &scene.server.as_ref().unwrap().threads;
        let of = |thread: &Thread| {
            let setting = Setting::affinity(thread.identity);
            change("dedicated-cpus", setting, &scene.cpus.to_string())
        };
        threads.iter().map(of).collect()
    }

    fn starves(scene: &Scene, changes: &[Change]) -> bool {
        let changes: Vec<&Change> = changes.iter().collect();
        let found = of(scene, &changes);
        found.iter().any(|conflict| conflict.is_harmful)
    }

    #[test]
    fn the_masks_of_the_threads_say_who_is_starved_and_not_the_cpus_that_are_named() {
        let everywhere = ["0-3"; 4];
        for named in [None, Some("1"), Some("0-3")] {
            let scene = machine(&everywhere, named);
            assert!(starves(&scene, &real_time(&scene)), "{named:?}");
        }
        let bound = machine(&["0-2"; 4], Some("0-3"));
        assert!(!starves(&bound, &real_time(&bound)));
    }

    #[test]
    fn as_many_threads_as_cpus_are_needed_and_each_has_one() {
        let few = machine(&["0-3"; 3], None);
        assert!(!starves(&few, &real_time(&few)));
        // three of them share two CPUs, so one of the others stays free
        let crowded = machine(&["0-1", "0-1", "0-1", "2-3"], None);
        assert!(!starves(&crowded, &real_time(&crowded)));
        // a thread that came first has to take another CPU
        let spread = machine(&["0-3", "0-1", "0", "2"], None);
        assert!(starves(&spread, &real_time(&spread)));
    }

    #[test]
    fn a_plan_that_binds_them_at_the_same_time_leaves_the_others_their_cpus() {
        let scene = machine(&["0-3"; 4], Some("1"));
        let both = [real_time(&scene), pinned(&scene)].concat();
        assert!(!starves(&scene, &both));
        assert!(!starves(&scene, &pinned(&scene)));
    }

    #[test]
    fn whatever_leaves_the_others_fewer_cpus_is_judged_too() {
        // two real-time threads that are bound to no CPU, and everything else on one
        let roaming = machine(&["0-3"; 2], Some("1-3"));
        let idle = Setting::File(FileSetting::new("/proc/sys/vm/stat_interval", Form::Text));
        let moved = change("others-affinity", idle.clone(), "0");
        let alone = [moved.clone()];
        assert!(!starves(&roaming, &alone));
        let said = of(&roaming, &[&moved]).pop().unwrap();
        assert!(said.to_string().contains("may also run on CPU 0"), "{said}");
        assert!(starves(
            &roaming,
            &[real_time(&roaming), alone.to_vec()].concat()
        ));
        // what leaves them their CPUs is not to blame
        let mut already = machine(&["0-3"; 4], None);
        for thread in &mut already.scene.server.as_mut().unwrap().threads {
            thread.is_real_time = true;
        }
        assert!(!starves(
            &already,
            &[change("busy-poll", idle.clone(), "50")]
        ));
        assert!(starves(&already, &[change("rt-runtime", idle, "-1")]));
    }
}
