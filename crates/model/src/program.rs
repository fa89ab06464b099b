//! Culprits as a person counts them: the threads of a process are one program, and so are the processes of one
//! name.

use crate::Tid;
use crate::cause::Culprit;

/// Culprits that a person would call by one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Program<'a> {
    /// The one that stands for all of them.
    chief: &'a Culprit,
    /// All of them.
    culprits: Vec<&'a Culprit>,
    kind: Kind,
    /// What all of them are called.
    name: &'a str,
    /// Processes; threads, where each does work of its own.
    members: u64,
    /// Their parts together.
    pub part: f64,
}

/// What the members of a program are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Process,
    /// A thread of the kernel, or of a process that is not known.
    Thread,
    /// A thread of the server that serves no requests.
    OwnThread,
    Worker,
    /// Neither a thread nor a process: never one of several.
    Other,
}

/// The programs behind these culprits, each with its part of something, the largest part first.
pub fn programs<'a>(culprits: impl IntoIterator<Item = (&'a Culprit, f64)>) -> Vec<Program<'a>> {
    let mut all: Vec<Program<'a>> = Vec::new();
    for one in processes(culprits) {
        let same = |other: &&mut Program<'a>| {
            one.kind != Kind::Other && (other.kind, other.name) == (one.kind, one.name)
        };
        match all.iter_mut().find(same) {
            Some(known) => {
                known.members += 1;
                known.part += one.part;
                known.culprits.extend(one.culprits);
            }
            None => all.push(one),
        }
    }
    all.sort_by(|a, b| b.part.total_cmp(&a.part));
    all
}

/// Each process, whose threads may have names of their own, and each culprit that is none. What is told twice is one.
fn processes<'a>(culprits: impl IntoIterator<Item = (&'a Culprit, f64)>) -> Vec<Program<'a>> {
    let mut all: Vec<Program<'a>> = Vec::new();
    for (culprit, part) in culprits {
        let pid = process(culprit);
        let same = |other: &&mut Program<'a>| {
            other.chief == culprit || pid.is_some() && process(other.chief) == pid
        };
        let (kind, name) = kind_and_name(culprit);
        match all.iter_mut().find(same) {
            Some(known) => {
                known.part += part;
                known.culprits.push(culprit);
                // the main thread has the name of the process
                if is_main_thread(culprit) {
                    (known.chief, known.kind, known.name) = (culprit, kind, name);
                }
            }
            None => all.push(Program {
                chief: culprit,
                culprits: vec![culprit],
                kind,
                name,
                members: 1,
                part,
            }),
        }
    }
    all
}

/// The process of a thread that is not the server's, where it is known.
const fn process(culprit: &Culprit) -> Option<Tid> {
    match culprit {
        Culprit::Thread { pid, .. } => *pid,
        _ => None,
    }
}

fn is_main_thread(culprit: &Culprit) -> bool {
    matches!(culprit, Culprit::Thread { pid: Some(pid), tid: Some(tid), .. } if pid == tid)
}

fn kind_and_name(culprit: &Culprit) -> (Kind, &str) {
    match culprit {
        Culprit::Thread {
            name, pid, process, ..
        } => match (family(name), pid) {
            (Some(family), _) => (Kind::Thread, family),
            (None, Some(_)) => (Kind::Process, process.as_ref().unwrap_or(name)),
            (None, None) => (Kind::Thread, name),
        },
        Culprit::OwnThread { name, .. } => (Kind::OwnThread, name.as_str()),
        Culprit::Worker { name, .. } => (Kind::Worker, name.as_str()),
        Culprit::Interrupt { name, .. }
        | Culprit::Softirq { name }
        | Culprit::SystemCall { name } => (Kind::Other, name.as_str()),
        Culprit::Runtime { task: what, .. } | Culprit::Sending { what } => {
            (Kind::Other, what.as_str())
        }
        Culprit::Upstream { .. }
        | Culprit::SharedCpu { .. }
        | Culprit::IdleState { .. }
        | Culprit::Chain { .. } => (Kind::Other, ""),
    }
}

/// What the kernel's threads of one kind are called, of which each CPU has one or several: `kworker` of
/// `kworker/1:0`.
fn family(name: &str) -> Option<&str> {
    /// The part of their names before the slash.
    const FAMILIES: [&str; 10] = [
        "cpuhp",
        "idle_inject",
        "irq_work",
        "ksoftirqd",
        "ktimers",
        "kworker",
        "migration",
        "rcuc",
        "rcuog",
        "rcuop",
    ];
    let (family, _) = name.split_once('/')?;
    FAMILIES.contains(&family).then_some(family)
}

impl Program<'_> {
    /// Whether this culprit is one of them.
    pub fn contains(&self, culprit: &Culprit) -> bool {
        self.culprits.contains(&culprit)
    }

    /// In a few words, each name between two of these quotation marks: ``11 processes named `sh` ``. Processes
    /// and threads have no numbers.
    pub fn called(&self, quote: &str) -> String {
        let quoted = |name: &str| format!("{quote}{name}{quote}");
        let (name, n) = (quoted(self.name), self.members);
        match (self.kind, n) {
            (Kind::Other, _) => match self.chief {
                Culprit::Runtime { .. }
                | Culprit::Sending { .. }
                | Culprit::Upstream { .. }
                | Culprit::SharedCpu { .. }
                | Culprit::Chain { .. } => self.chief.to_string(),
                named => quoted(&named.to_string()),
            },
            (Kind::Process | Kind::Thread, 1) => quoted(self.own_name()),
            (Kind::OwnThread, 1) => format!("{name} (the server itself)"),
            (Kind::Worker, 1) => format!("worker {name}"),
            (Kind::Process, _) => format!("{n} processes named {name}"),
            (Kind::Thread, _) => format!("{n} threads named {name}"),
            (Kind::OwnThread, _) => format!("{n} threads of the server itself named {name}"),
            (Kind::Worker, _) => format!("{n} workers named {name}"),
        }
    }

    /// The same without quotation marks, with the number of the process where it is one: `dpkg (pid 30122)`.
    pub fn called_with_pid(&self) -> String {
        let called = self.called("");
        match process(self.chief).filter(|_| self.members == 1) {
            Some(pid) => format!("{called} (pid {pid})"),
            None => called,
        }
    }

    /// The whole name of the only member.
    fn own_name(&self) -> &str {
        match self.chief {
            Culprit::Thread { name, .. } if self.kind == Kind::Thread => name,
            _ => self.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(name: &str, pid: Tid, tid: Option<Tid>) -> Culprit {
        Culprit::Thread {
            name: name.to_owned(),
            pid: Some(pid),
            tid,
            process: None,
        }
    }

    fn called(culprits: &[Culprit]) -> Vec<String> {
        // each has a smaller part than the one before
        let parts = (1..=culprits.len()).map(|place| 1.0 / place as f64);
        let found = programs(culprits.iter().zip(parts));
        found.iter().map(|program| program.called("")).collect()
    }

    #[test]
    fn loops_in_processes_of_their_own_are_counted_by_name() {
        let loops: Vec<Culprit> = (0..11)
            .map(|i| thread("sh", 20_100 + i, Some(20_100 + i)))
            .collect();
        assert_eq!(called(&loops), ["11 processes named sh"]);
        let found = programs(loops.iter().map(|culprit| (culprit, 0.5)));
        assert_eq!(found[0].part, 5.5);
        assert_eq!(found[0].called("`"), "11 processes named `sh`");
        assert_eq!(found[0].called_with_pid(), "11 processes named sh");
        let one = programs([(&loops[3], 1.0)]);
        assert_eq!(one[0].called_with_pid(), "sh (pid 20103)");
    }

    #[test]
    fn threads_of_a_process_are_that_process() {
        let all = [
            thread("tokio-rt-worker", 70, None),
            thread("dpkg", 80, None),
            thread("agent", 70, Some(70)),
            thread("reaper", 70, Some(75)),
        ];
        // the main thread has the name of the process
        assert_eq!(called(&all), ["agent", "dpkg"]);
        let found = programs(all.iter().map(|culprit| (culprit, 1.0)));
        assert!(found[0].contains(&all[0]) && !found[0].contains(&all[1]));
        assert_eq!(
            called(&[all[0].clone(), all[3].clone()]),
            ["tokio-rt-worker"]
        );
    }

    /// A compiler whose main thread waits for the others delays nobody itself, and is what a person looks for.
    #[test]
    fn a_process_is_known_by_its_main_thread_also_where_that_did_nothing() {
        let of_rustc = |name: &str, pid| match thread(name, pid, None) {
            Culprit::Thread { name, pid, tid, .. } => Culprit::Thread {
                name,
                pid,
                tid,
                process: Some("rustc".to_owned()),
            },
            other => other,
        };
        let all = [
            of_rustc("lto cgu.10", 70),
            of_rustc("opt cgu.1", 70),
            of_rustc("lto cgu.2", 90),
            thread("dpkg", 80, None),
        ];
        assert_eq!(called(&all[..2]), ["rustc"]);
        assert_eq!(called(&all), ["2 processes named rustc", "dpkg"]);
        let found = programs(all[..1].iter().map(|culprit| (culprit, 1.0)));
        assert_eq!(found[0].called_with_pid(), "rustc (pid 70)");
    }

    #[test]
    fn threads_that_each_cpu_has_are_one_family() {
        let kernel = |name: &str, pid| thread(name, pid, Some(pid));
        let all = [
            kernel("kworker/1:0", 31),
            kernel("kdamond.0", 77),
            kernel("kworker/u8:2-events", 32),
            kernel("irq/26-nvme", 33),
        ];
        let two = "2 threads named kworker";
        assert_eq!(called(&all), [two, "kdamond.0", "irq/26-nvme"]);
        assert_eq!(called(&all[..1]), ["kworker/1:0"]);
    }

    #[test]
    fn what_is_no_program_keeps_its_name() {
        let worker = |tid| Culprit::Worker {
            name: "memcached".to_owned(),
            tid,
        };
        let own = |tid| Culprit::OwnThread {
            name: "mc-lru".to_owned(),
            pid: Some(70),
            tid,
        };
        let softirq = |name: &str| Culprit::Softirq {
            name: name.to_owned(),
        };
        let all = [worker(1), worker(2), own(3), softirq("RCU"), softirq("RCU")];
        assert_eq!(
            called(&all),
            [
                "2 workers named memcached",
                "RCU",
                "mc-lru (the server itself)"
            ]
        );
        let nameless = Culprit::Thread {
            name: "thread 4713".to_owned(),
            pid: None,
            tid: Some(4_713),
            process: None,
        };
        assert_eq!(called(&[nameless]), ["thread 4713"]);
    }
}
