//! How much less the generator is disturbed when it is scheduled in other ways.
//!
//! Starts memcached on CPU 0 and loads it from CPU 1, round after round in each way once, and prints
//! for each way the median over the rounds and the range:
//!
//! ```text
//! sudo target/release/examples/generator [ROUNDS [PER_S [SECONDS]]]     # default: 5 40000 2
//! ```
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use taillab_analysis::cut::{self, Span, Spans};
use taillab_host::Interrupt;
use taillab_load::{
    AnyClient, Endpoint, Hooks, KernelStamps, LoadRun, NoHooks, OpenLoop, Progress, Protocol,
    SHORTEST_WINDOW, Waiting, Workload, arrivals_verdict, open_loop, prefill,
};
use taillab_model::{Cut, Monotonic, Nanos};
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::random::lanes::mix;

const USAGE: &str = "usage: generator [ROUNDS [PER_S [SECONDS]]], each from 1 to 1000000";

const PORT: u16 = 21_311;
const SERVER: usize = 0;
const CLIENT: usize = 1;
const WARM_UP: Nanos = Nanos::from_millis(200);

/// How the generator's thread is scheduled.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    policy: i32,
    nice: i32,
    priority: u32,
    slice: Nanos,
    waiting: Waiting,
    /// It sleeps in a gap of the schedule after so much time on the CPU.
    rests_after: Option<Nanos>,
    /// Threads that may run elsewhere are kept off its CPU.
    others_away: bool,
}

const ORDINARY: Way = Way {
    name: "ordinary, spinning",
    policy: libc::SCHED_OTHER,
    nice: 0,
    priority: 0,
    slice: Nanos::ZERO,
    waiting: Waiting::Spin,
    rests_after: None,
    others_away: false,
};

const FIFO: Way = Way {
    name: "SCHED_FIFO 50, spinning",
    policy: libc::SCHED_FIFO,
    priority: 50,
    ..ORDINARY
};

const WAYS: [Way; 9] = [
    ORDINARY,
    Way {
        name: "nice -20",
        nice: -20,
        ..ORDINARY
    },
    Way {
        name: "nice -20, slice 100 ms",
        nice: -20,
        slice: Nanos::from_millis(100),
        ..ORDINARY
    },
    Way {
        name: "ordinary, hybrid waiting",
        waiting: Waiting::Hybrid,
        ..ORDINARY
    },
    FIFO,
    Way {
        name: "SCHED_FIFO 50, hybrid waiting",
        waiting: Waiting::Hybrid,
        ..FIFO
    },
    Way {
        name: "SCHED_FIFO 50, a rest each 0.6 ms",
        rests_after: Some(Nanos::from_micros(600)),
        ..FIFO
    },
    Way {
        name: "ordinary, others moved away",
        others_away: true,
        ..ORDINARY
    },
    Way {
        name: "nice -20, slice 100 ms, others away",
        nice: -20,
        slice: Nanos::from_millis(100),
        others_away: true,
        ..ORDINARY
    },
];

/// What one run showed.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// p99.9 of the lateness, in microseconds.
    late_us: f64,
    /// The same outside what is cut.
    late_left_us: f64,
    late_max_us: f64,
    cut_percent: f64,
    cuts_per_s: f64,
    ks: f64,
    cpu_us: f64,
    /// For how long the server's threads waited for their CPU, in ms for each second.
    server_waited_ms: f64,
}

fn main() -> ExitCode {
    let Some([rounds, per_s, seconds]) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let rounds = rounds as usize;
    // Ctrl-C ends the program after the current run, so that the other threads get their CPUs back
    let interrupt = Interrupt::register().unwrap();
    let server = Server::start();
    let mut seen: Vec<Vec<Seen>> = vec![Vec::new(); WAYS.len()];
    for round in 0..rounds {
        for place in order(round) {
            if interrupt.is_raised() {
                return ExitCode::from(130);
            }
            let (way, pid) = (WAYS[place], server.0.id());
            let away = way.others_away.then(OthersAway::now);
            let run = || run(&way, per_s, seconds, round as u64, pid);
            seen[place].push(thread::scope(|scope| scope.spawn(run).join().unwrap()));
            drop(away);
        }
    }
    println!("{rounds} rounds, {per_s} requests/s, {seconds} s each; median (lowest to highest)");
    for (way, seen) in WAYS.iter().zip(&seen) {
        print(way, seen);
    }
    ExitCode::SUCCESS
}

/// The arguments or their defaults; `None` where one makes no sense.
fn arguments() -> Option<[f64; 3]> {
    let mut given = std::env::args().skip(1);
    let mut numbers = [5.0, 40_000.0, 2.0];
    for number in &mut numbers {
        if let Some(text) = given.next() {
            let parsed = text.parse::<f64>().ok();
            *number = parsed.filter(|number| (1.0..=1e6).contains(number))?;
        }
    }
    Some(numbers)
}

/// The ways in an order drawn at random for each round, so that none always follows the same other.
fn order(round: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..WAYS.len()).collect();
    places.sort_by_key(|place| mix((1 + round * WAYS.len() + place) as u64));
    places
}

fn print(way: &Way, seen: &[Seen]) {
    println!("{}", way.name);
    let row = |what: &str, of: fn(&Seen) -> f64| {
        let mut values: Vec<f64> = seen.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let (lo, hi) = (values[0], values[values.len() - 1]);
        let middle = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        println!("    {what:38} {middle:9.3} ({lo:.3} to {hi:.3})");
    };
    row("lateness p99.9, µs", |seen| seen.late_us);
    row("lateness p99.9 outside cuts, µs", |seen| seen.late_left_us);
    row("lateness, longest, µs", |seen| seen.late_max_us);
    row("time cut, %", |seen| seen.cut_percent);
    row("cuts per second", |seen| seen.cuts_per_s);
    row("KS distance of the gaps", |seen| seen.ks);
    row("client CPU for a request, µs", |seen| seen.cpu_us);
    row("server's threads waited, ms/s", |seen| {
        seen.server_waited_ms
    });
}

/// memcached; dropping it ends it.
struct Server(Child);

impl Server {
    fn start() -> Self {
        let (cpu, port) = (SERVER.to_string(), PORT.to_string());
        let server = Command::new("taskset")
            .args(["-c", &cpu, "memcached", "-u", "root", "-t", "1"])
            .args(["-p", "0", "-U", &port, "-l", "127.0.0.1"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(500));
        Self(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // one that has already ended needs nothing
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One run, on a thread of its own, whose policy ends with it.
fn run(way: &Way, per_s: f64, seconds: f64, seed: u64, server: u32) -> Seen {
    let mut cpus = CpuSet::new();
    cpus.set(CLIENT);
    sched_setaffinity(None, &cpus).unwrap();
    let (stop, progress) = (AtomicBool::new(false), Progress::new());
    let endpoint = Endpoint::Udp(([127, 0, 0, 1], PORT).into());
    let protocol = Protocol::named("memcached").unwrap();
    let codec = protocol.codec(&Workload::default(), true).unwrap();
    let mut client = AnyClient::connect(&endpoint, 16, codec, KernelStamps::NONE).unwrap();
    prefill(&mut client, &endpoint, &stop).unwrap();
    let length = Nanos::new((1e9 * seconds) as u64);
    let schedule = ArrivalProcess::Poisson.schedule(per_s, WARM_UP + length, seed);
    let schedule = schedule.unwrap();
    let load = OpenLoop {
        measure_from: schedule.partition_point(|due| *due < WARM_UP),
        schedule,
        seed,
        timeout: OpenLoop::TIMEOUT,
        waiting: way.waiting,
        stop: &stop,
        progress: &progress,
    };
    schedule_self(way).unwrap();
    let before = waited(server);
    let began = Instant::now();
    let run = match way.rests_after {
        None => open_loop(&mut client, load, &mut NoHooks),
        Some(after) => {
            let rested = Instant::now();
            open_loop(&mut client, load, &mut Rests { after, rested })
        }
    };
    let lasted = began.elapsed().as_secs_f64();
    let waited_ms = waited(server).saturating_sub(before) as f64 / 1e6;
    seen(&run.unwrap(), per_s, waited_ms / lasted)
}

/// Gives the CPU back for a while in gaps of the schedule.
struct Rests {
    after: Nanos,
    rested: Instant,
}

impl Hooks for Rests {
    fn idle(&mut self, until_due: Nanos) {
        const WAY_BACK: Nanos = Nanos::from_micros(15);
        const SHORTEST: Nanos = Nanos::from_micros(25);
        let nap = until_due.saturating_sub(WAY_BACK);
        if self.rested.elapsed().as_nanos() >= u128::from(self.after.get()) && nap >= SHORTEST {
            thread::sleep(Duration::from_nanos(nap.get()));
            self.rested = Instant::now();
        }
    }
}

fn seen(run: &LoadRun, per_s: f64, server_waited_ms: f64) -> Seen {
    let waits = run.waits.iter().map(|wait| (wait.at, wait.lasted));
    let waits: Vec<_> = waits.collect();
    let sends = run.record.iter().map(|entry| entry.times);
    let sends = sends.map(|times| (times.intended, times.sent));
    let thread = cut::Thread {
        waits: &waits,
        cpu: CLIENT as u32,
        occupants: &cut::Occupants::default(),
    };
    let spans = spans(&cut::cuts_of(sends, thread));
    let measured: Vec<(Monotonic, Monotonic)> = (run.record.iter())
        .filter(|entry| !entry.warm_up)
        .map(|entry| (entry.times.intended, entry.times.sent))
        .collect();
    let late = |left_only: bool| {
        let mut late: Vec<u64> = (measured.iter())
            .filter(|(due, _)| !left_only || !spans.contain(*due))
            .map(|(due, sent)| sent.saturating_since(*due).get())
            .collect();
        late.sort_unstable();
        let p999 = late[late.len() - 1 - late.len() / 1_000] as f64 / 1e3;
        (p999, late[late.len() - 1] as f64 / 1e3)
    };
    let (from, to) = (measured[0].0, measured[measured.len() - 1].1);
    let length = to.saturating_since(from).as_secs_f64();
    let arrivals = arrivals_verdict(
        spans.spliced(measured.iter().map(|(_, sent)| *sent)),
        per_s,
        SHORTEST_WINDOW,
    );
    Seen {
        late_us: late(false).0,
        late_left_us: late(true).0,
        late_max_us: late(false).1,
        cut_percent: 100.0 * spans.length(from, to).as_secs_f64() / length,
        cuts_per_s: spans.within(from, to).count() as f64 / length,
        ks: arrivals.unwrap().ks_d,
        cpu_us: run.cpu.cost().cpu_ns_per_request.get() as f64 / 1e3,
        server_waited_ms,
    }
}

fn spans(cuts: &[Cut]) -> Spans {
    let mut spans: Vec<Span> = Vec::new();
    for cut in cuts {
        match spans.last_mut() {
            Some(last) if cut.from <= last.to => last.to = last.to.max(cut.to),
            _ => spans.push(Span {
                from: cut.from,
                to: cut.to,
            }),
        }
    }
    spans.into()
}

/// For how long the threads of a process could have run while others had their CPU, in ns.
fn waited(process: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let accounts = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    accounts.sum()
}

/// sched_setattr(2) of the calling thread.
fn schedule_self(way: &Way) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: way.policy as u32,
        flags: 0,
        nice: way.nice,
        priority: way.priority,
        runtime: way.slice.get(),
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of the attributes, which are that long.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0_u32) };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Threads that are kept off the client's CPU until this is dropped.
struct OthersAway(Vec<(Pid, CpuSet)>);

impl OthersAway {
    fn now() -> Self {
        let mut moved = Vec::new();
        let own = std::process::id();
        for process in numbers("/proc").filter(|process| *process != own) {
            for thread in numbers(&format!("/proc/{process}/task")) {
                let Some(thread) = Pid::from_raw(thread as i32) else {
                    continue;
                };
                let Ok(before) = sched_getaffinity(Some(thread)) else {
                    continue;
                };
                let mut others = before;
                others.unset(CLIENT);
                // one that may run nowhere else stays, and so does one that the kernel binds
                let is_movable = before.is_set(CLIENT) && others.count() > 0;
                if is_movable && sched_setaffinity(Some(thread), &others).is_ok() {
                    moved.push((thread, before));
                }
            }
        }
        Self(moved)
    }
}

impl Drop for OthersAway {
    fn drop(&mut self) {
        for (thread, before) in &self.0 {
            // one that has ended meanwhile needs nothing
            let _ = sched_setaffinity(Some(*thread), before);
        }
    }
}

fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
