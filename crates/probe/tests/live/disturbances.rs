//! Each kind of disturbance, caused on purpose: it is recorded, with its length and culprit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::testbed::recorded::{events_of, own_tid};
use crate::testbed::{
    PATIENCE, Testbed, await_sleep, eventually, live, now, threads_of, times_asleep, within,
};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::pwrite;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use taillab_model::{Event, EventKind, Interrupt, Nanos, Tid};
use taillab_probe::{Disturbances, Probe, ProbeSpec, ServerProcesses};

fn count(events: &[Event], of: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| of(&event.kind)).count()
}

#[test]
fn nothing_is_recorded_that_was_not_asked_for() {
    let Some(_alone) = live("nothing_is_recorded_that_was_not_asked_for") else {
        return;
    };
    let testbed = Testbed::veth();
    let (events, _) = events_of(&testbed.spec, Disturbances::NONE, || {
        for id in 0..100_u16 {
            testbed.round_trip(&id.to_be_bytes());
        }
    });
    let stamps = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::PacketIn { .. }
                | EventKind::Enqueued { .. }
                | EventKind::ReadReturned { .. }
                | EventKind::WriteCalled { .. }
                | EventKind::PacketOut { .. }
                | EventKind::Announced { .. }
                | EventKind::Switched { asleep: None, .. }
        )
    };
    assert!(events.len() > 500);
    assert_eq!(count(&events, stamps), events.len());
}

/// recvfrom(2) of x86-64.
const RECVFROM: u16 = 45;

#[test]
fn a_sleep_has_its_system_call_and_a_wake_up_its_waker() {
    let Some(_alone) = live("a_sleep_has_its_system_call_and_a_wake_up_its_waker") else {
        return;
    };
    let testbed = Testbed::veth();
    let server = testbed.server_tid;
    let threads = [PathBuf::from(format!("/proc/self/task/{server}"))];
    let kinds = Disturbances::SCHED | Disturbances::WAKE;
    let (events, _) = events_of(&testbed.spec, kinds, || {
        for id in 0..300_u16 {
            await_sleep(&threads);
            testbed.round_trip(&id.to_be_bytes());
            // the client may find its response there already
            std::thread::sleep(Duration::from_micros(50));
        }
    });
    let mut sleeps = 0;
    for event in &events {
        if let EventKind::Switched {
            prev,
            preempted: false,
            asleep,
            ..
        } = event.kind
            && prev == server
        {
            let asleep = asleep.expect("the server's sleeps are known");
            assert_eq!(asleep.call, Some(RECVFROM));
            assert!(!asleep.uninterruptible);
            sleeps += 1;
        }
    }
    let wakes = count(
        &events,
        |kind| matches!(kind, EventKind::Woken { tid, .. } if *tid == server),
    );
    // each request wakes it, except in blind windows; so may a time-out of its read
    assert!(
        sleeps > 250 && wakes > 250,
        "{sleeps} sleeps, {wakes} wake-ups"
    );
    assert!(wakes <= sleeps + 30, "{sleeps} sleeps, {wakes} wake-ups");
    // the client, which is this process too, sleeps elsewhere
    let (client, others) = (
        own_tid(),
        |kind: &EventKind| matches!(kind, EventKind::Switched { asleep: Some(_), prev, .. } if *prev != server),
    );
    assert!(count(&events, others) > 0, "{client} sleeps as well");
}

/// Sleeps for some milliseconds in poll(2) as a 32-bit program calls it: its number, 168, is that of swapoff(2) of
/// 64-bit programs.
fn sleep_in_a_32_bit_call(ms: u32) -> i32 {
    let answer;
    // SAFETY: poll without descriptors reads and writes no memory. The call keeps all registers but these.
    unsafe {
        std::arch::asm!(
            "push rbx",
            "xor ebx, ebx",
            "int 0x80",
            "pop rbx",
            inlateout("eax") 168 => answer,
            in("ecx") 0,
            in("edx") ms,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
    }
    answer
}

#[test]
fn a_32_bit_call_is_not_taken_for_the_64_bit_one_of_its_number() {
    let Some(_alone) = live("a_32_bit_call_is_not_taken_for_the_64_bit_one_of_its_number") else {
        return;
    };
    let testbed = Testbed::veth();
    let mut sleeper = 0;
    let (events, _) = events_of(&testbed.spec, Disturbances::SCHED, || {
        let thread = std::thread::spawn(|| {
            for _ in 0..50 {
                assert_eq!(sleep_in_a_32_bit_call(2), 0);
            }
            own_tid()
        });
        sleeper = thread.join().unwrap();
    });
    let asleep = events.iter().filter_map(|event| match event.kind {
        EventKind::Switched {
            prev,
            preempted: false,
            asleep,
            ..
        } if prev == sleeper => Some(asleep.and_then(|asleep| asleep.call)),
        _ => None,
    });
    let calls: Vec<Option<u16>> = asleep.collect();
    // the first and the last may be of the thread's start and end
    let unknown = calls.iter().filter(|call| call.is_none()).count();
    assert!(unknown > 30, "{calls:?}");
    assert!(!calls.contains(&Some(168)), "{calls:?}");
}

fn on_cpu(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

#[test]
fn a_migration_says_where_to() {
    let Some(_alone) = live("a_migration_says_where_to") else {
        return;
    };
    let testbed = Testbed::veth();
    let server = testbed.server_tid;
    let pid = Pid::from_raw(server as i32);
    let served_on = |round: u16| {
        let cpu = usize::from(round % 2);
        sched_setaffinity(pid, &on_cpu(cpu)).expect("a CPU of the server");
        testbed.round_trip(&round.to_be_bytes());
        std::thread::sleep(Duration::from_millis(1));
    };
    // from wherever it was
    served_on(1);
    let (events, _) = events_of(&testbed.spec, Disturbances::SCHED, || {
        (0..40).for_each(served_on);
    });
    let to: Vec<u16> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Migrated { tid, to } if tid == server => Some(to),
            _ => None,
        })
        .collect();
    assert!(to.len() >= 20, "{to:?}");
    assert!(
        to.windows(2).filter(|pair| pair[0] != pair[1]).count() >= 15,
        "{to:?}"
    );
    assert!(to.iter().all(|&cpu| cpu < 2));
}

#[test]
fn nothing_reaches_back_to_before_it_was_attached_again() {
    let Some(_alone) = live("nothing_reaches_back_to_before_it_was_attached_again") else {
        return;
    };
    let testbed = Testbed::veth();
    let spec = ProbeSpec {
        disturbances: Disturbances::IDLE | Disturbances::IRQ | Disturbances::SOFTIRQ,
        ring_bytes_per_cpu: 16 << 20,
        ..testbed.spec.clone()
    };
    let mut probe = Probe::load(&spec).expect("this kernel lets the probe load");
    // some CPU is idle whenever this thread sleeps
    let pause = || std::thread::sleep(Duration::from_millis(20));
    let mut ended = 0;
    for _ in 0..5 {
        let from = now();
        probe.attach().expect("the hooks are there");
        pause();
        let recording = probe.take_recording().expect("the counters can be read");
        pause();
        // a program that runs while it is detached may still write its event
        let events = recording.into_events();
        for event in events.filter(|event| event.at >= from) {
            let lasted = event.kind.lasted();
            assert!(lasted <= event.at.saturating_since(from), "{event:?}");
            ended += usize::from(lasted > Nanos::ZERO);
        }
    }
    assert!(ended > 0);
}

#[test]
fn interrupts_have_their_names_and_lengths() {
    let Some(_alone) = live("interrupts_have_their_names_and_lengths") else {
        return;
    };
    let testbed = Testbed::veth();
    let began = Instant::now();
    let (events, _) = events_of(&testbed.spec, Disturbances::IRQ, || {
        // a thread on the other CPU, whose TLB has to be flushed
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = StopOnDrop(&stop);
            scope.spawn(|| {
                sched_setaffinity(None, &on_cpu(1)).expect("a second CPU");
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            sched_setaffinity(None, &on_cpu(0)).expect("a CPU");
            let (timers, calls) = (interrupts_of("LOC"), calls());
            eventually("the kernel counts interrupts", || {
                touch_pages(4);
                interrupts_of("LOC") >= timers + 50 && self::calls() >= calls + 50
            });
        });
    });
    let all = interrupts(&events);
    let of = |which: Interrupt| all.iter().filter(|(found, _)| *found == which).count();
    assert!(
        of(Interrupt::LocalTimer) >= 5,
        "{}",
        of(Interrupt::LocalTimer)
    );
    assert!(
        of(Interrupt::CallFunction) >= 5,
        "{}",
        of(Interrupt::CallFunction)
    );
    let longest = all.iter().map(|&(_, lasted)| lasted).max();
    let took = Nanos::new(began.elapsed().as_nanos() as u64);
    assert!(longest.is_some_and(|longest| longest < took));
    assert!(all.iter().all(|&(_, lasted)| lasted > Nanos::new(0)));
    let known = known_interrupts();
    for (interrupt, _) in all {
        if let Interrupt::Device(number) = interrupt {
            assert!(
                known.contains(&number),
                "{number} is not in /proc/interrupts"
            );
        }
    }
}

/// Ends a thread that goes on until the flag is set, also when the test fails.
struct StopOnDrop<'f>(&'f AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many interrupts of a kind the kernel has counted, over all CPUs.
fn interrupts_of(kind: &str) -> u64 {
    let table = fs::read_to_string("/proc/interrupts").expect("/proc is mounted");
    let mut rows = table.lines().filter_map(|line| line.trim().split_once(':'));
    let (_, counts) = rows.find(|(name, _)| *name == kind).expect("of x86-64");
    let counts = counts
        .split_whitespace()
        .map_while(|word| word.parse::<u64>().ok());
    counts.sum()
}

/// Calls of functions on other CPUs, TLB flushes included.
fn calls() -> u64 {
    interrupts_of("CAL") + interrupts_of("TLB")
}

fn interrupts(events: &[Event]) -> Vec<(Interrupt, Nanos)> {
    events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Interrupt { interrupt, lasted } => Some((interrupt, lasted)),
            _ => None,
        })
        .collect()
}

fn known_interrupts() -> Vec<u32> {
    let table = fs::read_to_string("/proc/interrupts").expect("/proc is mounted");
    table
        .lines()
        .filter_map(|line| line.split(':').next()?.trim().parse().ok())
        .collect()
}

/// Maps this many pages, writes to each and unmaps them.
fn touch_pages(pages: usize) {
    const PAGE: usize = 4096;
    // SAFETY: a new mapping at an address of the kernel's choice, written to within its
    // length and unmapped whole, with no reference to it left.
    unsafe {
        let at = mmap_anonymous(
            std::ptr::null_mut(),
            pages * PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
        .expect("there is memory");
        for page in 0..pages {
            at.cast::<u8>().add(page * PAGE).write_volatile(1);
        }
        munmap(at, pages * PAGE).expect("it is mapped");
    }
}

#[test]
fn packets_are_received_within_a_softirq() {
    let Some(_alone) = live("packets_are_received_within_a_softirq") else {
        return;
    };
    const NET_RX: u8 = 3;
    let testbed = Testbed::veth();
    let (events, _) = events_of(&testbed.spec, Disturbances::SOFTIRQ, || {
        for id in 0..500_u16 {
            testbed.round_trip(&id.to_be_bytes());
        }
    });
    let mut inside = 0;
    for event in &events {
        if !matches!(event.kind, EventKind::Enqueued { .. }) {
            continue;
        }
        let around = |other: &&Event| {
            matches!(other.kind, EventKind::Softirq { vector: NET_RX, lasted }
                if other.cpu == event.cpu
                    && other.at >= event.at
                    && other.at.saturating_since(event.at) <= lasted)
        };
        inside += usize::from(events.iter().any(|other| around(&other)));
    }
    let enqueued = count(&events, |kind| matches!(kind, EventKind::Enqueued { .. }));
    // the others came while the probe was blind
    assert!(enqueued > 400, "{enqueued} of 500 packets were seen");
    assert!(
        inside * 100 >= enqueued * 98,
        "{inside} of {enqueued} packets within a softirq"
    );
}

#[test]
fn idle_times_have_their_length() {
    let Some(_alone) = live("idle_times_have_their_length") else {
        return;
    };
    let testbed = Testbed::veth();
    let cpus = testbed.spec.server_cpus.len() as u64;
    let start = Instant::now();
    // an idle time that lasts beyond the end of the recording has no event
    let end_idle_times = || {
        for &cpu in &testbed.spec.server_cpus {
            sched_setaffinity(None, &on_cpu(cpu.into())).expect("a CPU");
        }
    };
    let (events, _) = events_of(&testbed.spec, Disturbances::IDLE, || {
        end_idle_times();
        let before = idle_ticks();
        // programs beside the tests can leave hardly any for minutes
        within(10 * PATIENCE, "the kernel counts idle times", || {
            std::thread::sleep(Duration::from_millis(10));
            idle_ticks() >= before + 2
        });
        end_idle_times();
    });
    let took = start.elapsed().as_nanos() as u64;
    let idle = events.iter().filter_map(|event| match event.kind {
        EventKind::IdleLeft { lasted, .. } => Some(lasted.get()),
        _ => None,
    });
    let idle: Vec<u64> = idle.collect();
    assert!(idle.iter().sum::<u64>() <= took * cpus, "{idle:?}");
    assert!(idle.iter().any(|&lasted| lasted > 0), "{idle:?}");
}

/// What the kernel counts as idle, in ticks of 10 ms over all CPUs.
fn idle_ticks() -> u64 {
    let table = fs::read_to_string("/proc/stat").expect("/proc is mounted");
    let all = table.lines().next().expect("the first line has all CPUs");
    let idle = all.split_whitespace().nth(4).expect("the fourth number");
    idle.parse().expect("a number")
}

#[test]
fn page_faults_are_the_threads_own() {
    let Some(_alone) = live("page_faults_are_the_threads_own") else {
        return;
    };
    let testbed = Testbed::veth();
    let me = own_tid();
    let (events, _) = events_of(&testbed.spec, Disturbances::FAULT, || {
        for _ in 0..10 {
            touch_pages(50);
        }
    });
    let writes = count(
        &events,
        |kind| matches!(kind, EventKind::PageFault { tid, write: true } if *tid == me),
    );
    assert!(
        (500..600).contains(&writes),
        "{writes} of 500 pages touched"
    );

    let stranger = Command::new("sleep")
        .arg("60")
        .spawn()
        .expect("sleep is there");
    let stranger = ChildGuard(stranger);
    // its own page faults, while it starts, are over
    await_sleep(&threads_of(stranger.0.id()));
    let spec = ProbeSpec {
        server: ServerProcesses::These(vec![stranger.0.id()]),
        ..testbed.spec.clone()
    };
    let (events, _) = events_of(&spec, Disturbances::FAULT, || touch_pages(50));
    assert_eq!(
        count(&events, |kind| matches!(kind, EventKind::PageFault { .. })),
        0
    );
}

#[test]
fn waits_for_a_lock_of_the_kernel_have_their_length() {
    let Some(_alone) = live("waits_for_a_lock_of_the_kernel_have_their_length") else {
        return;
    };
    let testbed = Testbed::veth();
    // a write holds the file's lock while it copies, and others wait for it
    let file = memfd_create("written", MemfdFlags::CLOEXEC).expect("there is memory");
    let block = vec![7; 4 << 20];
    let start = Instant::now();
    let (events, _) = events_of(&testbed.spec, Disturbances::LOCK, || {
        let stop = AtomicBool::new(false);
        // two on each CPU: one that is preempted keeps the lock
        std::thread::scope(|scope| {
            let stop_on_drop = StopOnDrop(&stop);
            let (tell, told) = channel();
            for place in 0..4 {
                let (file, block, stop, tell) = (&file, &block, &stop, tell.clone());
                scope.spawn(move || {
                    sched_setaffinity(None, &on_cpu(place % 2)).expect("a CPU");
                    tell.send(own_tid()).expect("somebody listens");
                    while !stop.load(Ordering::Relaxed) {
                        pwrite(file, block, 0).expect("there is memory");
                    }
                });
            }
            let writers: Vec<Tid> = told.iter().take(4).collect();
            // they sleep for nothing else
            let slept = || writers.iter().copied().map(times_asleep).sum::<u64>();
            let before = slept();
            eventually("the writers wait for each other", || slept() >= before + 50);
            drop(stop_on_drop);
        });
    });
    let limit = Nanos::new(start.elapsed().as_nanos() as u64);
    let mut waits = 0;
    for event in &events {
        if let EventKind::LockTaken { waited, .. } = event.kind {
            assert!(waited > Nanos::new(0) && waited <= limit, "{waited}");
            waits += 1;
        }
    }
    assert!(waits > 10, "{waits}");
}

/// A process that is killed when this is dropped.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A shell that sleeps and wakes up, and starts another process each time.
fn restless() -> ChildGuard {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do sleep 0.002; done"]);
    ChildGuard(command.stdin(Stdio::null()).spawn().expect("sh is there"))
}

/// Waits until a restless shell has started a few processes and slept meanwhile.
fn await_turns(shell: u32) {
    let before = times_asleep(shell);
    eventually("the shell goes on", || times_asleep(shell) >= before + 20);
}

#[test]
fn threads_have_names_also_after_exec() {
    let Some(_alone) = live("threads_have_names_also_after_exec") else {
        return;
    };
    let testbed = Testbed::veth();
    let named = || {
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        own_tid()
    };
    let mut own = 0;
    let shell = restless();
    let (_, threads) = events_of(&testbed.spec, Disturbances::NONE, || {
        let thread = std::thread::Builder::new().name("restless-worker".into());
        own = thread
            .spawn(named)
            .expect("a thread")
            .join()
            .expect("no panic");
        await_turns(shell.0.id());
    });
    let find = |tid: Tid| threads.iter().find(|thread| thread.tid == tid);
    let worker = find(own).expect("it slept and woke up");
    assert_eq!(worker.comm, "restless-worker");
    assert_eq!((worker.pid, worker.server), (std::process::id(), true));
    // which waited all the time, on whatever CPU
    let main = find(std::process::id()).expect("the main thread of a thread that ran");
    let comm = fs::read_to_string("/proc/self/comm").expect("it has a name");
    assert_eq!((main.comm.as_str(), main.pid), (comm.trim_end(), main.tid));
    let shell = find(shell.0.id()).expect("it slept and woke up");
    assert_eq!((shell.comm.as_str(), shell.server), ("sh", false));
    // forked by sh, and renamed by its exec
    assert!(threads.iter().any(|thread| thread.comm == "sleep"));
}

/// A new cgroup with one below it; both are removed when this is dropped.
struct Nested(PathBuf);

impl Nested {
    fn below(root: &Path) -> Option<Self> {
        let outer = root.join(format!("taillab-test-{}", std::process::id()));
        fs::create_dir(&outer).ok()?;
        let nested = Self(outer);
        fs::create_dir(nested.0.join("inner")).ok()?;
        Some(nested)
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        for directory in [self.0.join("inner"), self.0.clone()] {
            // its processes were killed just now, and may have children that end by themselves
            for _ in 0..3_000 {
                if fs::remove_dir(&directory).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn a_cgroup_and_those_below_it_are_the_server() {
    let Some(_alone) = live("a_cgroup_and_those_below_it_are_the_server") else {
        return;
    };
    let testbed = Testbed::veth();
    let mut tried = 0;
    // only version 2, or both versions where both are mounted
    for root in [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/freezer",
    ] {
        let root = Path::new(root);
        if !root.join("cgroup.procs").exists() {
            continue;
        }
        let Some(nested) = Nested::below(root) else {
            continue;
        };
        tried += 1;
        let (inside, outside) = (restless(), restless());
        let procs = nested.0.join("inner/cgroup.procs");
        fs::write(&procs, inside.0.id().to_string()).expect("root can move a process");
        let spec = ProbeSpec {
            server: ServerProcesses::Cgroup(nested.0.clone()),
            ..testbed.spec.clone()
        };
        let kinds = Disturbances::SCHED | Disturbances::WAKE;
        let (events, threads) = events_of(&spec, kinds, || {
            await_turns(inside.0.id());
            await_turns(outside.0.id());
        });
        let woken = |who: Tid| {
            count(
                &events,
                |kind| matches!(kind, EventKind::Woken { tid, .. } if *tid == who),
            )
        };
        assert!(woken(inside.0.id()) > 5, "{root:?}");
        assert_eq!(woken(outside.0.id()), 0, "{root:?}");
        assert_eq!(woken(testbed.server_tid), 0, "{root:?}");
        let is_server = |tid: Tid| threads.iter().find(|t| t.tid == tid).map(|t| t.server);
        assert_eq!(is_server(inside.0.id()), Some(true), "{root:?}");
        assert_eq!(is_server(outside.0.id()), Some(false), "{root:?}");
        drop((inside, outside));
    }
    assert!(
        tried > 0,
        "no cgroup file system where a cgroup can be made"
    );
    let nowhere = ServerProcesses::Cgroup("/tmp".into());
    let spec = ProbeSpec {
        server: nowhere,
        ..testbed.spec.clone()
    };
    let error = Probe::load(&spec)
        .expect_err("/tmp is no cgroup")
        .to_string();
    assert!(error.contains("/sys/fs/cgroup"), "{error}");
}
