//! The names of threads and of interrupts.

use std::collections::BTreeMap;
use std::fs;

use taillab_model::explanation::{THIS_GENERATOR, THIS_TRACER};
use taillab_model::{InterruptName, RecordingContext, ThreadName, Tid, UpstreamServer};

use crate::process::{Stat, numbers_in, threads};
use crate::roots::{Roots, read_optional, status};
use crate::target::upstreams;

/// Names what a recording knows by number: the `seen` threads, those of the server's
/// `processes`, and the interrupts. Adds the servers that these processes ask.
pub fn name(
    context: &mut RecordingContext,
    roots: &Roots,
    seen: Vec<ThreadName>,
    processes: &[u32],
) {
    name_threads(context, roots, seen, processes);
    context.interrupts = interrupts(roots);
    add_upstreams(&mut context.upstreams, upstreams(roots, processes));
}

/// Adds what is connected now to what was connected when the recording began.
fn add_upstreams(known: &mut Vec<UpstreamServer>, now: Vec<UpstreamServer>) {
    for server in now {
        let same = |other: &&mut UpstreamServer| {
            (other.address, other.port) == (server.address, server.port)
        };
        match known.iter_mut().find(same) {
            Some(there) => {
                there.connections = there.connections.max(server.connections);
                if there.program.is_empty() {
                    there.program = server.program;
                }
            }
            None => known.push(server),
        }
    }
    known.sort_by_key(|server| std::cmp::Reverse(server.connections));
}

/// As [`name`], without the interrupts: on many CPUs, listing them takes tens of milliseconds.
pub fn name_threads(
    context: &mut RecordingContext,
    roots: &Roots,
    seen: Vec<ThreadName>,
    processes: &[u32],
) {
    let nameless: Vec<Tid> = (seen.iter().filter(|thread| thread.comm.is_empty()))
        .map(|thread| thread.tid)
        .collect();
    let known = seen.into_iter().chain(of_server(roots, processes));
    context.threads = of_threads(roots, known, nameless);
}

/// Names our own threads by what they do, so that a reader does not take them for another program's.
/// These are the generator's threads (`load-0` …), also where another taillab sends the load, and the
/// threads of this process that have no name of their own: they record.
pub fn name_own(context: &mut RecordingContext, roots: &Roots) {
    let own = std::process::id();
    let named = |thread: &&ThreadName| thread.tid == thread.pid && thread.comm == OURS;
    let ours: Vec<Tid> = context
        .threads
        .iter()
        .filter(named)
        .map(|t| t.tid)
        .collect();
    let is_ours = |pid| {
        pid == own || ours.contains(&pid) || comm(roots, pid, pid).is_some_and(|comm| comm == OURS)
    };
    for thread in context.threads.iter_mut().filter(|thread| !thread.server) {
        let sends = thread.comm.starts_with("load-") && is_ours(thread.pid);
        if sends || thread.comm == OURS && thread.pid != own && sends_load(roots, thread.pid) {
            THIS_GENERATOR.clone_into(&mut thread.comm);
        } else if thread.pid == own && thread.comm == OURS {
            THIS_TRACER.clone_into(&mut thread.comm);
        }
    }
}

/// The name of our processes.
const OURS: &str = "taillab";

/// Whether a process of ours is a generator.
fn sends_load(roots: &Roots, pid: u32) -> bool {
    let line = fs::read(roots.proc.join(format!("{pid}/cmdline"))).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"load")
}

/// The interrupts of devices, in order of their numbers.
///
/// By `/sys/kernel/irq/N/actions` and, where that is missing, by `/proc/interrupts`.
fn interrupts(roots: &Roots) -> Vec<InterruptName> {
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let table = fs::read_to_string(roots.proc.join("interrupts")).unwrap_or_default();
    let cpus = (table.lines().next()).map_or(0, |head| head.split_ascii_whitespace().count());
    for line in table.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace();
        let number = fields
            .next()
            .and_then(|name| name.strip_suffix(':')?.parse().ok());
        let Some(number) = number else { continue };
        // the counts, the controller, its own number, then the devices
        let devices: Vec<&str> = fields.skip(cpus + 2).collect();
        names.insert(number, devices.join(" "));
    }
    let folder = roots.sys.join("kernel/irq");
    for number in numbers_in(&folder) {
        if let Some(devices) = read_optional(&folder.join(number.to_string()).join("actions")) {
            names.insert(number, devices);
        }
    }
    names
        .into_iter()
        .filter(|(_, name)| !name.is_empty())
        .map(|(number, name)| InterruptName { number, name })
        .collect()
}

/// Every thread of the server's processes.
fn of_server(roots: &Roots, processes: &[u32]) -> Vec<ThreadName> {
    let one = |pid: u32| {
        threads(roots, pid).into_iter().map(move |tid| ThreadName {
            tid,
            pid,
            comm: comm(roots, pid, tid).unwrap_or_default(),
            server: true,
            real_time: real_time(roots, pid, tid),
        })
    };
    processes.iter().copied().flat_map(one).collect()
}

/// The threads of `known` and `wanted`, each once, in order of their numbers. Known names stay; the
/// others are looked up in /proc, which has only threads that still live.
fn of_threads(
    roots: &Roots,
    known: impl IntoIterator<Item = ThreadName>,
    wanted: impl IntoIterator<Item = Tid>,
) -> Vec<ThreadName> {
    let mut names: BTreeMap<Tid, ThreadName> = BTreeMap::new();
    for thread in known {
        match names.get_mut(&thread.tid) {
            None => {
                names.insert(thread.tid, thread);
            }
            Some(there) => {
                there.server |= thread.server;
                there.real_time = thread.real_time.or(there.real_time);
                if there.pid == 0 {
                    there.pid = thread.pid;
                }
                if there.comm.is_empty() {
                    there.comm = thread.comm;
                }
            }
        }
    }
    for tid in wanted {
        let nameless = names.get(&tid).is_none_or(|thread| thread.comm.is_empty());
        // 0 is the idle thread of every CPU
        if tid == 0 || !nameless {
            continue;
        }
        let Some(comm) = comm(roots, tid, tid) else {
            continue;
        };
        let thread = names.entry(tid).or_insert_with(|| ThreadName {
            tid,
            pid: process_of(roots, tid),
            comm: String::new(),
            server: false,
            real_time: None,
        });
        thread.comm = comm;
    }
    names.into_values().collect()
}

/// A thread's name. `/proc/TID` is there for every thread, though not listed.
fn comm(roots: &Roots, pid: u32, tid: Tid) -> Option<String> {
    let process = roots.proc.join(pid.to_string());
    read_optional(&process.join("task").join(tid.to_string()).join("comm"))
        .or_else(|| read_optional(&process.join("comm")))
}

/// Whether a thread has a real-time priority; `None` when it has ended.
fn real_time(roots: &Roots, pid: u32, tid: Tid) -> Option<bool> {
    let thread = roots.proc.join(format!("{pid}/task/{tid}/stat"));
    Some(Stat::read(&thread)?.is_real_time())
}

/// The process of a thread, 0 where unknown.
fn process_of(roots: &Roots, tid: Tid) -> Tid {
    status(roots, tid, "Tgid")
        .and_then(|pid| pid.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn interrupts_are_named_by_their_devices() {
        let (_folder, roots) = tree(&[
            (
                "proc/interrupts",
                "           CPU0       CPU1\n 24:          1          0  IO-APIC   5-edge      ACPI:Ged\n \
                 38:   0   5 PCI-MSIX-0000:00:03.0   0-edge\nLOC:   5   6   Local timer interrupts\n",
            ),
            ("sys/kernel/irq/38/actions", "virtio2-input.0\n"),
            ("sys/kernel/irq/39/actions", "\n"),
        ]);
        let names = interrupts(&roots);
        let names: Vec<_> = names.iter().map(|i| (i.number, i.name.as_str())).collect();
        assert_eq!(names, [(24, "ACPI:Ged"), (38, "virtio2-input.0")]);
    }

    #[test]
    fn our_own_threads_are_called_what_they_do() {
        let own = std::process::id();
        let (_folder, roots) = tree(&[
            ("proc/3/comm", "taillab\n"),
            ("proc/3/cmdline", "/bin/taillab\0load\0echo+tcp://x\0"),
            ("proc/4/comm", "wrk\n"),
            ("proc/5/cmdline", "taillab\0trace\0"),
        ]);
        let thread = |pid, comm: &str| ThreadName {
            tid: 1,
            pid,
            comm: comm.into(),
            server: false,
            real_time: None,
        };
        let mut context = RecordingContext {
            threads: vec![
                thread(own, "taillab"),
                thread(own, "load-1"),
                thread(own, "spin"),
                // another generator of ours, another program with such a thread name, another tracer
                thread(3, "load-0"),
                thread(3, "taillab"),
                thread(4, "load-0"),
                thread(5, "taillab"),
                // the server
                ThreadName {
                    server: true,
                    ..thread(3, "load-0")
                },
            ],
            ..RecordingContext::default()
        };
        name_own(&mut context, &roots);
        let names: Vec<_> = context.threads.iter().map(|t| t.comm.as_str()).collect();
        let expected = [
            "this tracer",
            "this generator",
            "spin",
            "this generator",
            "this generator",
            "load-0",
            "taillab",
            "load-0",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn threads_are_named_once_and_the_known_name_stays() {
        // from the state (3) to the policy (41)
        let stat = |policy: u32| format!("7 (x) S {}{policy} 0\n", "0 ".repeat(37));
        let (_folder, roots) = tree(&[
            ("proc/7/task/7/comm", "nginx\n"),
            ("proc/7/task/8/comm", "pool\n"),
            ("proc/7/task/7/stat", &stat(0)),
            ("proc/7/task/8/stat", &stat(1)),
            ("proc/9/comm", "later\n"),
            ("proc/9/status", "Name:\tlater\nTgid:\t5\n"),
        ]);
        let server = of_server(&roots, &[7]);
        assert_eq!(server.len(), 2);
        let seen = |tid, comm: &str| ThreadName {
            tid,
            pid: 0,
            comm: comm.into(),
            server: false,
            real_time: None,
        };
        let known = [seen(8, "kept"), seen(3, "dead")];
        let all = of_threads(&roots, known.into_iter().chain(server), [0, 9, 10, 3]);
        let shown: Vec<_> = all
            .iter()
            .map(|t| (t.tid, t.pid, t.comm.as_str(), t.server, t.real_time))
            .collect();
        assert_eq!(
            shown,
            [
                (3, 0, "dead", false, None),
                (7, 7, "nginx", true, Some(false)),
                (8, 7, "kept", true, Some(true)),
                (9, 5, "later", false, None)
            ]
        );
    }
}
