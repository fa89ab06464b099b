//! Labels: small numbers for pairs of cause and culprit, and the culprits' names.

use std::collections::{BTreeMap, BTreeSet};

use taillab_model::explanation::{
    Cause, Culprit, OTHER_THREADS, SendWait, ServerStop, is_our_thread, nameless,
};
use taillab_model::{Interrupt, RecordingContext, Tid};

use crate::id_map::{IdMap, Numbered};
use crate::timeline::{Top, call_name, pack_top};

/// From so many labels on, threads that have none yet are [`OTHER_THREADS`]: a server may start one for each
/// connection.
const MOST: usize = 1 << 13;

/// The most threads that are counted on a CPU.
const MOST_ON_CPU: usize = 1 << 10;

/// Number of a cause with its culprit, in the [`Labels`] that gave it.
pub type Label = u32;

/// A culprit, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CulpritId {
    /// Nobody in particular.
    Nobody,
    /// A thread, by its number.
    Thread(Tid),
    /// A worker of the server, by its thread's number.
    Worker(Tid),
    /// An interrupt.
    Interrupt(Interrupt),
    /// A softirq, by its vector.
    Softirq(u8),
    /// A system call, by its number on x86-64.
    Call(u16),
    /// What stops all threads of the server.
    Stopped(ServerStop),
    /// What a response waited for that was written.
    Sending(SendWait),
    /// A server that the recorded one asks itself, by its number in events; 0: one of them.
    Upstream(u16),
    /// The threads of the server that share a CPU, by its number.
    OnCpu(u16),
    /// A power state of a CPU, by its number.
    Idle(u8),
    /// The end of a chain of wake-ups, by its number in the [`Labels`] that gave it.
    Chain(u32),
}

/// Waiting for storage: in a system call, or (`None`) in a page fault.
pub(crate) fn of_storage(call: Option<u16>) -> (Cause, CulpritId) {
    match call {
        Some(call) => (Cause::BlockedIo, CulpritId::Call(call)),
        None => (Cause::BlockedFault, CulpritId::Nobody),
    }
}

/// The cause and culprit while this is on top of a CPU's current thread; `None` if it is not a delay by
/// itself.
pub(crate) fn of_top(top: Top) -> Option<(Cause, CulpritId)> {
    Some(match top {
        Top::Nothing | Top::Idle { .. } => return None,
        Top::Softirq { vector } => (Cause::Softirq, CulpritId::Softirq(vector)),
        Top::Interrupt(interrupt) => (Cause::Irq, CulpritId::Interrupt(interrupt)),
        Top::KernelLock => (Cause::BlockedLock, CulpritId::Nobody),
        Top::Storage { call } => of_storage(call),
        Top::Blind => (Cause::Unobserved, CulpritId::Nobody),
        Top::Stall => (Cause::Hypervisor, CulpritId::Nobody),
    })
}

/// All pairs of cause and culprit that occurred, and the culprits' names.
#[derive(Clone, Debug)]
pub struct Labels {
    met: Vec<(Cause, CulpritId)>,
    /// The labels without a culprit, by cause; `None` while not met.
    plain: [Option<Label>; Cause::ALL.len()],
    numbers: Numbered<Label>,
    threads: IdMap<(String, Tid)>,
    /// The threads that run softirqs for their CPU (`ksoftirqd`).
    softirq_threads: Vec<Tid>,
    /// The threads of the server's own processes.
    own_threads: IdMap<()>,
    /// The workers that share a CPU, by its number.
    on_cpu: IdMap<Vec<Tid>>,
    /// The names of the threads that were seen to stop all others, by what for.
    stopped_by: BTreeMap<ServerStop, BTreeSet<String>>,
    /// The servers that the recorded one asks itself.
    upstreams: Vec<(u16, String)>,
    interrupts: IdMap<String>,
    /// Chains of wake-ups: the thread for which a worker waited, and who made that one wait in the end.
    chains: Vec<(Tid, CulpritId)>,
    numbers_of_chains: BTreeMap<(Tid, CulpritId), u32>,
}

/// The name of a softirq (`softirq_to_name` in the kernel's kernel/softirq.c), or its number.
pub(crate) fn softirq_name(vector: u8) -> String {
    const NAMES: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    let name = NAMES.get(usize::from(vector));
    name.map_or_else(|| format!("softirq {vector}"), |name| (*name).to_owned())
}

impl Labels {
    /// No labels yet; names come from `context`.
    pub fn new(context: &RecordingContext) -> Self {
        let thread = |t: &taillab_model::ThreadName| (t.tid, (t.comm.clone(), t.pid));
        let interrupts = context.interrupts.iter();
        let threads = context.threads.iter();
        let own_threads = threads.clone().filter(|thread| thread.server);
        let softirq_threads = threads.filter(|thread| thread.comm.starts_with("ksoftirqd"));
        Self {
            met: Vec::new(),
            plain: [None; Cause::ALL.len()],
            numbers: Numbered::default(),
            threads: context.threads.iter().map(thread).collect(),
            softirq_threads: softirq_threads.map(|thread| thread.tid).collect(),
            own_threads: own_threads.map(|thread| (thread.tid, ())).collect(),
            on_cpu: IdMap::default(),
            stopped_by: BTreeMap::new(),
            upstreams: (context.upstreams.iter())
                .map(|server| (server.number, server.to_string()))
                .collect(),
            interrupts: interrupts.map(|i| (i.number, i.name.clone())).collect(),
            chains: Vec::new(),
            numbers_of_chains: BTreeMap::new(),
        }
    }

    /// The number of this cause with this culprit.
    pub fn label(&mut self, cause: Cause, who: CulpritId) -> Label {
        let plain = who == CulpritId::Nobody;
        if let Some(label) = self.plain[cause as usize].filter(|_| plain) {
            return label;
        }
        let packed = |who| (cause as u64) << 40 | pack(who);
        let (who, key) = match who {
            CulpritId::Thread(_) | CulpritId::Worker(_) | CulpritId::Chain(_)
                if self.met.len() >= MOST && !self.numbers.contains(packed(who)) =>
            {
                let others = match who {
                    CulpritId::Worker(_) => CulpritId::Worker(OTHER_THREADS),
                    _ => CulpritId::Thread(OTHER_THREADS),
                };
                (others, packed(others))
            }
            who => (who, packed(who)),
        };
        let met = &mut self.met;
        let label = self.numbers.get_or_insert_with(key, || {
            met.push((cause, who));
            (met.len() - 1) as Label
        });
        if plain {
            self.plain[cause as usize] = Some(label);
        }
        label
    }

    /// How many labels there are; they are the numbers below this one.
    pub(crate) const fn len(&self) -> usize {
        self.met.len()
    }

    /// The cause of a label.
    pub fn cause(&self, label: Label) -> Cause {
        self.met[label as usize].0
    }

    /// The culprit of a label, without its name.
    pub fn who(&self, label: Label) -> CulpritId {
        self.met[label as usize].1
    }

    /// The culprit of a label, by name. A thread is named with its own number.
    pub fn culprit(&self, label: Label) -> Option<Culprit> {
        match (self.cause(label), self.named(self.who(label))?) {
            // the program that took the CPU from the workers is the server itself
            (
                Cause::Background | Cause::OwnThreads,
                Culprit::Thread {
                    name,
                    pid,
                    tid: Some(tid),
                    ..
                },
            ) if self.is_own(tid) => Some(Culprit::OwnThread { name, pid, tid }),
            (_, culprit) => Some(culprit),
        }
    }

    /// The culprit with its name; `None` for [`CulpritId::Nobody`].
    pub fn named(&self, who: CulpritId) -> Option<Culprit> {
        Some(match who {
            CulpritId::Nobody => return None,
            CulpritId::Thread(tid) => {
                let pid = self.threads.get(&tid).map(|(_, pid)| *pid);
                Culprit::Thread {
                    name: self.thread_name(tid),
                    pid: pid.filter(|pid| *pid != 0),
                    tid: Some(tid).filter(|tid| *tid != OTHER_THREADS),
                    process: self.process_name(tid).map(str::to_owned),
                }
            }
            CulpritId::Worker(tid) => Culprit::Worker {
                name: self.thread_name(tid),
                tid,
            },
            CulpritId::Interrupt(interrupt) => self.interrupt(interrupt),
            CulpritId::Softirq(vector) => Culprit::Softirq {
                name: softirq_name(vector),
            },
            CulpritId::Call(number) => Culprit::SystemCall {
                name: call_name(number),
            },
            CulpritId::Stopped(why) => Culprit::Runtime {
                task: why.task().to_owned(),
                threads: (self.stopped_by.get(&why).into_iter())
                    .flatten()
                    .cloned()
                    .collect(),
            },
            CulpritId::Sending(wait) => Culprit::Sending {
                what: wait.what().to_owned(),
            },
            CulpritId::Upstream(number) => Culprit::Upstream {
                servers: match self.upstream_name(number) {
                    Some(name) => vec![name.to_owned()],
                    None => self
                        .upstreams
                        .iter()
                        .map(|(_, name)| name.clone())
                        .collect(),
                },
            },
            CulpritId::OnCpu(cpu) => Culprit::SharedCpu {
                cpu,
                threads: self.on_cpu.get(&cpu.into()).map_or(0, Vec::len) as u32,
            },
            CulpritId::Idle(state) => Culprit::IdleState { state },
            CulpritId::Chain(number) => {
                let (waited_for, end) = self.chains[number as usize];
                return self.chain(self.named(CulpritId::Thread(waited_for))?, self.named(end));
            }
        })
    }

    /// A chain from a thread to who made it wait in the end.
    fn chain(&self, waited_for: Culprit, end: Option<Culprit>) -> Option<Culprit> {
        let Culprit::Thread { name, pid, tid, .. } = waited_for else {
            return None;
        };
        Some(Culprit::Chain {
            name,
            pid,
            tid,
            end: end.map(|end| end.to_string()),
        })
    }

    /// Who made `waited_for` wait in the end, for which a worker waits.
    pub(super) fn chain_to(&mut self, waited_for: Tid, end: CulpritId) -> CulpritId {
        let chains = &mut self.chains;
        if chains.len() >= MOST && !self.numbers_of_chains.contains_key(&(waited_for, end)) {
            return CulpritId::Thread(waited_for);
        }
        let number = self.numbers_of_chains.entry((waited_for, end));
        CulpritId::Chain(*number.or_insert_with(|| {
            chains.push((waited_for, end));
            (chains.len() - 1) as u32
        }))
    }

    /// The name of a thread, or its number.
    pub fn thread_name(&self, tid: Tid) -> String {
        self.threads
            .get(&tid)
            .map_or_else(|| nameless(tid), |(name, _)| name.clone())
    }

    /// The name of a thread's process, if that is known and another one.
    fn process_name(&self, tid: Tid) -> Option<&str> {
        let (name, pid) = self.threads.get(&tid)?;
        let (process, _) = self.threads.get(pid)?;
        // ours are named by what each thread does
        (process != name && !process.is_empty() && !is_our_thread(name)).then_some(process)
    }

    /// Whether it is a thread of the server's own processes.
    pub(super) fn is_own(&self, thread: Tid) -> bool {
        self.own_threads.contains_key(&thread)
    }

    /// All threads: their numbers, their names, and their processes.
    pub(super) fn threads(&self) -> impl Iterator<Item = (Tid, &str, Tid)> {
        let threads = self.threads.iter();
        threads.map(|(tid, (name, pid))| (*tid, name.as_str(), *pid))
    }

    /// The threads of the server's own processes.
    pub(super) fn own(&self) -> impl Iterator<Item = (Tid, &str, Tid)> {
        self.threads().filter(|(tid, ..)| self.is_own(*tid))
    }

    /// Who is waited for where the server has asked another one: this one, where that is known.
    pub(super) fn upstream(&self, asked: Option<u16>) -> CulpritId {
        match asked.filter(|number| self.upstream_name(*number).is_some()) {
            Some(number) => CulpritId::Upstream(number),
            None if self.upstreams.is_empty() => CulpritId::Nobody,
            None => CulpritId::Upstream(0),
        }
    }

    /// What another server is called that has this number in events.
    pub(crate) fn upstream_name(&self, number: u16) -> Option<&str> {
        let mut numbered = self.upstreams.iter().filter(|(own, _)| *own != 0);
        let (_, name) = numbered.find(|(own, _)| *own == number)?;
        Some(name)
    }

    /// Threads with this name stopped all others.
    pub(super) fn stopped_by(&mut self, why: ServerStop, name: &str) {
        self.stopped_by
            .entry(why)
            .or_default()
            .insert(name.to_owned());
    }

    /// A worker shares this CPU with others.
    pub(super) fn shares(&mut self, cpu: u16, worker: Tid) {
        let workers = self.on_cpu.entry(cpu.into()).or_default();
        if workers.len() < MOST_ON_CPU && !workers.contains(&worker) {
            workers.push(worker);
        }
    }

    /// Whether this thread runs softirqs that were deferred.
    pub(super) fn runs_softirqs(&self, thread: Tid) -> bool {
        self.softirq_threads.contains(&thread)
    }

    /// The key by which labels are grouped: threads with the same name and process are one culprit.
    pub(crate) fn group(&self, label: Label) -> (Cause, GroupKey) {
        let (cause, who) = self.met[label as usize];
        let key = match who {
            // each of the server's own threads does different work
            CulpritId::Thread(tid)
                if matches!(cause, Cause::Background | Cause::OwnThreads) && self.is_own(tid) =>
            {
                GroupKey::Single(who)
            }
            CulpritId::Chain(number) => {
                let (waited_for, end) = self.chains[number as usize];
                let both = [CulpritId::Thread(waited_for), end].map(|who| self.of_process(who));
                GroupKey::Chain(Box::new(both))
            }
            _ => self.of_process(who),
        };
        (cause, key)
    }

    /// Threads of one name and process are one.
    fn of_process(&self, who: CulpritId) -> GroupKey {
        match who {
            CulpritId::Thread(tid) => match self.threads.get(&tid) {
                Some((name, pid)) => GroupKey::Process(name.clone(), *pid),
                None => GroupKey::Single(who),
            },
            _ => GroupKey::Single(who),
        }
    }

    /// The culprit for all labels in this label's [`group`](Self::group): threads with the same name and
    /// process have no thread number.
    pub(crate) fn culprit_of_group(&self, label: Label) -> Option<Culprit> {
        if let CulpritId::Chain(number) = self.who(label) {
            let (waited_for, end) = self.chains[number as usize];
            let waited_for = self.without_number(CulpritId::Thread(waited_for))?;
            return self.chain(waited_for, self.without_number(end));
        }
        match (self.group(label).1, self.culprit(label)) {
            (GroupKey::Process(..), Some(_)) => self.without_number(self.who(label)),
            (_, culprit) => culprit,
        }
    }

    /// The culprit; a thread stands for all of its name and process.
    fn without_number(&self, who: CulpritId) -> Option<Culprit> {
        match (self.of_process(who), self.named(who)?) {
            (
                GroupKey::Process(..),
                Culprit::Thread {
                    name, pid, process, ..
                },
            ) => Some(Culprit::Thread {
                name,
                pid,
                tid: None,
                process,
            }),
            (_, culprit) => Some(culprit),
        }
    }

    fn interrupt(&self, interrupt: Interrupt) -> Culprit {
        let plain = |name: &str| Culprit::Interrupt {
            name: name.to_owned(),
            number: None,
        };
        match interrupt {
            Interrupt::Device(number) => Culprit::Interrupt {
                name: self
                    .interrupts
                    .get(&number)
                    .map_or_else(|| format!("irq {number}"), Clone::clone),
                number: Some(number),
            },
            Interrupt::LocalTimer => plain("local timer"),
            Interrupt::Reschedule => plain("reschedule"),
            Interrupt::CallFunction => plain("function call"),
            Interrupt::IrqWork => plain("irq work"),
            Interrupt::Other => plain("other interrupt"),
        }
    }
}

/// What makes two labels of one cause the same culprit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum GroupKey {
    Process(String, Tid),
    Single(CulpritId),
    Chain(Box<[GroupKey; 2]>),
}

fn pack(who: CulpritId) -> u64 {
    let with = |kind: u64, value: u64| kind << 32 | value;
    match who {
        CulpritId::Nobody => 0,
        CulpritId::Thread(tid) => with(1, tid.into()),
        CulpritId::Worker(tid) => with(2, tid.into()),
        CulpritId::Softirq(vector) => with(3, vector.into()),
        CulpritId::Call(number) => with(4, number.into()),
        CulpritId::Idle(state) => with(5, state.into()),
        CulpritId::Interrupt(interrupt) => with(6, pack_top(Top::Interrupt(interrupt)).into()),
        CulpritId::OnCpu(cpu) => with(7, cpu.into()),
        CulpritId::Stopped(why) => with(8, why as u64),
        CulpritId::Upstream(server) => with(9, server.into()),
        CulpritId::Sending(wait) => with(10, wait as u64),
        CulpritId::Chain(number) => with(11, number.into()),
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::ThreadName;
    use taillab_model::explanation::THIS_GENERATOR;

    use super::*;

    fn thread(tid: Tid, comm: &str, server: bool) -> ThreadName {
        ThreadName {
            tid,
            pid: 70,
            comm: comm.to_owned(),
            server,
            real_time: None,
        }
    }

    /// A server that starts a thread for each connection.
    #[test]
    fn of_very_many_threads_the_later_ones_are_one_culprit() {
        let mut labels = Labels::new(&RecordingContext::default());
        let label =
            |labels: &mut Labels, tid| labels.label(Cause::SlowService, CulpritId::Worker(tid));
        let first = label(&mut labels, 1);
        for tid in 2..=100_000 {
            label(&mut labels, tid);
            let chain = labels.chain_to(tid, CulpritId::Nobody);
            labels.label(Cause::BlockedLock, chain);
            labels.shares(3, tid);
        }
        assert!(labels.len() <= MOST + 2, "{}", labels.len());
        assert_eq!(
            labels.chains.len().max(labels.numbers_of_chains.len()),
            MOST
        );
        assert_eq!(labels.on_cpu[&3].len(), MOST_ON_CPU);
        assert_eq!(label(&mut labels, 1), first);
        let late = label(&mut labels, 99_999);
        assert_eq!(late, label(&mut labels, 88_888));
        let named = labels.culprit(late).unwrap().to_string();
        assert_eq!(named, "worker other threads");
        // what is not a thread still has a label of its own
        let softirq = labels.label(Cause::Softirq, CulpritId::Softirq(3));
        assert_eq!(labels.who(softirq), CulpritId::Softirq(3));
    }

    /// Of a compiler that has ended, only the threads ran on the core.
    #[test]
    fn a_thread_knows_the_name_of_its_process() {
        let mut labels = Labels::new(&RecordingContext {
            threads: vec![
                thread(70, "rustc", false),
                thread(71, "lto cgu.10", false),
                thread(72, THIS_GENERATOR, false),
            ],
            ..RecordingContext::default()
        });
        let mut process_of = |tid| {
            let label = labels.label(Cause::Background, CulpritId::Thread(tid));
            match labels.culprit_of_group(label) {
                Some(Culprit::Thread { process, .. }) => process,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(process_of(71).as_deref(), Some("rustc"));
        // itself; a thread of ours, which has its own name; one that is not known
        assert_eq!([70, 72, 99].map(process_of), [None, None, None]);
    }

    /// memcached's LRU maintainer on its only CPU is not another program; a lock is held by a worker.
    #[test]
    fn a_thread_of_the_server_itself_is_named_as_such() {
        let mut labels = Labels::new(&RecordingContext {
            threads: vec![thread(71, "mc-lrumaint", true), thread(80, "dpkg", false)],
            ..RecordingContext::default()
        });
        let mut name = |cause, tid| {
            let label = labels.label(cause, CulpritId::Thread(tid));
            labels.culprit_of_group(label).unwrap().to_string()
        };
        assert_eq!(
            name(Cause::Background, 71),
            "mc-lrumaint (thread 71 of the server itself)"
        );
        assert_eq!(name(Cause::Background, 80), "dpkg (pid 70)");
        assert_eq!(name(Cause::BlockedLock, 71), "mc-lrumaint (pid 70)");
    }
}
