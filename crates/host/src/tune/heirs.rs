//! Threads and processes that have inherited a value of ours since we gave it to their parent.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use super::change::Change;
use super::journal::{Entry, Head};
use super::setting::Setting;
use crate::process::{ProcessIdentity, Stat, numbers_in, threads};
use crate::roots::{Roots, status};

/// An entry for each heir. Its old value is that of its parent, which it would have inherited.
///
/// An heir began after the apply, descends from a process in the journal, and has our value. The
/// children of a parent that has ended belong to process 1: they are found only if that one is in
/// the journal.
pub(super) fn of(roots: &Roots, head: &Head, entries: &[Entry]) -> Vec<Entry> {
    let is_inherited = |entry: &&Entry| entry.change.setting.inherited_from().is_some();
    if !entries.iter().any(|entry| is_inherited(&entry)) {
        return Vec::new();
    }
    let tree = Tree::read(roots, head.began_ticks);
    let mut asked = HashSet::new();
    let mut heirs = Vec::new();
    for entry in entries.iter().filter(is_inherited) {
        let setting = &entry.change.setting;
        let process = (setting.inherited_from())
            .and_then(|thread| status(roots, thread.pid, "Tgid")?.parse::<u32>().ok());
        let Some(process) = process else { continue };
        // all threads of a process have the same heirs, so one look per process and value is enough
        let value = entry.change.new.as_str();
        if !asked.insert((discriminant(setting), process, value)) {
            continue;
        }
        for heir in tree.heirs_of(process) {
            let Some(setting) = setting.of_thread(heir) else {
                continue;
            };
            // the kernel fixed the CPUs of such a thread
            if matches!(setting, Setting::Affinity(_)) && is_bound(roots, heir) {
                continue;
            }
            let now = setting.read(roots);
            if now.is_ok_and(|now| setting.same(&now, &entry.change.new)) {
                heirs.push(Entry {
                    number: entry.number,
                    old: entry.old.clone(),
                    change: Change {
                        setting,
                        ..entry.change.clone()
                    },
                });
            }
        }
    }
    heirs
}

fn is_bound(roots: &Roots, thread: ProcessIdentity) -> bool {
    let stat = Stat::of(roots, thread.pid);
    stat.is_some_and(|stat| stat.is_bound())
}

/// What has begun after the apply.
#[derive(Default)]
struct Tree {
    /// New threads by their process.
    threads: HashMap<u32, Vec<ProcessIdentity>>,
    /// New processes by their parent.
    children: HashMap<u32, Vec<u32>>,
}

impl Tree {
    /// What began in that very tick counts, too: it may have begun after the apply.
    fn read(roots: &Roots, since_ticks: u64) -> Self {
        let mut tree = Self::default();
        for pid in numbers_in(&roots.proc) {
            let Some(stat) = Stat::of(roots, pid) else {
                continue;
            };
            let new = threads(roots, pid)
                .into_iter()
                .filter_map(|tid| ProcessIdentity::of(roots, tid))
                .filter(|thread| thread.start_time_ticks >= since_ticks);
            tree.threads.insert(pid, new.collect());
            if stat.start_time_ticks >= since_ticks {
                tree.children.entry(stat.parent).or_default().push(pid);
            }
        }
        tree
    }

    /// New threads of a process, and those of the new processes below it.
    fn heirs_of(&self, process: u32) -> Vec<ProcessIdentity> {
        let mut heirs = Vec::new();
        let mut next = vec![process];
        while let Some(process) = next.pop() {
            heirs.extend(self.threads.get(&process).into_iter().flatten());
            next.extend(self.children.get(&process).into_iter().flatten());
        }
        heirs
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn an_heir_gets_the_old_value_of_the_thread_whose_value_it_has() {
        let (folder, roots) = tree(&[]);
        let add = |pid: u32, process: u32, parent: u32, start: u64, cpus: &str| {
            let place = folder.path().join(format!("proc/{pid}"));
            fs::create_dir_all(place.join(format!("task/{pid}"))).unwrap();
            let stat = format!(
                "{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 7 9 0 0 20 0 5 0 {start} 1000 200 0 1 1 0 \
                 0 0 0 0 0 0 0 0 0 17 3 0 0 0"
            );
            fs::write(place.join("stat"), stat).unwrap();
            let status = format!("Tgid:\t{process}\nCpus_allowed_list:\t{cpus}\n");
            fs::write(place.join("status"), status).unwrap();
            ProcessIdentity {
                pid,
                start_time_ticks: start,
            }
        };
        // a process with two threads, which had different CPUs and got different ones
        let of_threads = [
            (add(7, 7, 1, 50, "0-3"), "0-3", "0-1"),
            (add(8, 7, 1, 50, "0,2"), "0,2", "0"),
        ];
        let entries: Vec<Entry> = (0..)
            .zip(of_threads)
            .map(|(number, (thread, old, new))| Entry {
                number,
                old: old.into(),
                change: Change::new(Setting::affinity(thread), new, "a test"),
            })
            .collect();
        add(20, 20, 7, 200, "0");
        add(21, 21, 7, 200, "0-1");
        add(22, 22, 7, 200, "3");
        // in the tick in which the apply began, and before it
        add(23, 23, 7, 100, "0");
        add(24, 24, 7, 99, "0");
        let mut head = Head::new(&roots, false, Vec::new()).unwrap();
        head.began_ticks = 100;
        let mut found: Vec<(u32, String, usize)> = of(&roots, &head, &entries)
            .into_iter()
            .map(|heir| {
                let thread = heir.change.setting.inherited_from().unwrap();
                (thread.pid, heir.old, heir.number)
            })
            .collect();
        found.sort();
        let wanted = [
            (20_u32, "0,2".to_owned(), 1_usize),
            (21, "0-3".to_owned(), 0),
            (23, "0,2".to_owned(), 1),
        ];
        assert_eq!(found, wanted);
    }
}
