//! The recording: a thread beside the server drains the probe into a file.

use std::fs::File;
use std::io::{self, Seek};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use taillab_host::clock::now;
use taillab_host::environment::Environment;
use taillab_host::observe::{self, Counters, OwnCost, ProgramTime};
use taillab_host::{CpuSample, CpuSet, CpuUsage, Interrupt, Roots};
use taillab_model::{
    Event, EventOrder, EventSink, Monotonic, Nanos, PackedEvent, RecordingContext, RecordingWriter,
};
use taillab_probe::Probe;

use super::find::Found;
use super::framing::Known;
use super::live::Screen;
use super::probing;
use crate::cli::TraceArgs;
use crate::commands::canary::Canary;
use crate::exit::{Exit, Failure, OrExit};
use crate::fail::{host, probe as probe_failure};
use crate::progress::{Phase, Progress};

/// Between two drains of the probe, and two looks at steal and quotas.
const PERIOD: Duration = Duration::from_millis(10);
/// The first requests are not measured: those that came in before the probe did lack T1.
const SETTLE: Nanos = Nanos::from_millis(100);
/// Nor are more of a short recording than one part in so many.
const SETTLE_PART: u64 = 10;

/// What is to be recorded, and what takes part in it.
pub struct Work<'a> {
    pub args: &'a TraceArgs,
    pub found: &'a mut Found,
    pub watched: &'a CpuSet,
    /// CPUs that are not watched, for what we do.
    pub beside: &'a CpuSet,
    pub probe: Probe,
    pub file: File,
    pub roots: &'a Roots,
    pub interrupt: &'a Interrupt,
    pub environment: &'a Environment,
}

/// Why a recording ended.
#[derive(Debug)]
pub enum End {
    /// As it was to.
    TimeUp,
    /// By the user.
    Interrupted,
    /// With its server, in a line.
    ServerGone(String),
    /// The file could not be written any more.
    Unwritable(io::Error),
}

impl End {
    /// The failure that it is, if it is one.
    pub fn failure(self) -> Option<Failure> {
        match self {
            Self::TimeUp | Self::Interrupted => None,
            Self::ServerGone(line) => Some(Failure::new(Exit::Failed, line)),
            Self::Unwritable(error) => Some(Failure::new(
                Exit::Failed,
                format!(
                    "cannot write the recording: {error}; what came before is kept: free some \
                     space, or record fewer kinds of disturbance or for a shorter time"
                ),
            )),
        }
    }
}

/// A finished recording.
pub struct Recorded {
    /// At its start, to be read.
    pub file: File,
    pub end: End,
    pub events: u64,
    pub cost: Cost,
    /// What the server's CPUs did.
    pub server_cpus: Option<CpuUsage>,
}

/// What recording cost.
pub struct Cost {
    /// Share of a CPU.
    pub cpu_share: f64,
    /// Time in the probe's programs, where it was counted.
    pub program_ns: Option<u64>,
    pub written_bytes_per_s: f64,
    pub peak_memory_bytes: u64,
}

/// Records for as long as asked for, or until the user, the server or the disk ends it.
pub fn record(work: Work<'_>) -> Result<Recorded, Failure> {
    let Work {
        args,
        found,
        watched,
        beside,
        mut probe,
        file,
        roots,
        interrupt,
        environment,
    } = work;
    let program_time = (args.cost)
        .then(ProgramTime::count)
        .transpose()
        .map_err(host)?;
    let started_unix_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let mut context = first_context(args, found, watched, &probe, environment);
    context.started_unix_s = started_unix_s;
    // where the server may run everywhere there is none: it would disturb it
    let canary = Canary::start(beside, roots).ok();
    let mut counters = Counters::begin(roots, watched, &found.server.processes);
    let length = Duration::from_nanos(args.duration.get());
    let mut screen = args.live.then(|| Screen::new(&context, args));
    let batches = screen.as_mut().map(Screen::batches);

    let busy_before = CpuSample::take(roots).map_err(host)?;
    let cost_before = OwnCost::now();
    probe.attach().map_err(probe_failure)?;
    let from = now();
    let settle = SETTLE.min(Nanos::new(args.duration.get() / SETTLE_PART));
    context.measure_from_ns = Some((from + settle).nanos_since_boot());
    let writer = RecordingWriter::new(file, probe.base(), &context).map_err(unwritable)?;
    let mut sinks = Sinks {
        writer,
        live: batches.map(|out| Live::new(probe.base(), out)),
        until: None,
    };
    let (stop, elapsed_ms) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let mut gone = None;
    let draw = || {
        if gone.is_none() {
            gone = found.ended(roots);
        }
        if gone.is_some() || interrupt.is_raised() {
            stop.store(true, Ordering::Relaxed);
        }
        if let Some(screen) = &mut screen {
            screen.draw(began.elapsed(), length);
        }
        elapsed_ms.load(Ordering::Relaxed)
    };
    let drain = || {
        // it is this thread's alone
        let canary = canary;
        let mut written = Ok(());
        while written.is_ok() && !stop.load(Ordering::Relaxed) && began.elapsed() < length {
            let turn = Instant::now();
            written = turn_once(&mut probe, &mut sinks, |sinks| {
                let mut inserted = Ok(());
                counters.look(now(), |event| {
                    if inserted.is_ok() {
                        inserted = sinks.insert(event);
                    }
                });
                inserted?;
                canary
                    .iter()
                    .flat_map(Canary::stalls)
                    .try_for_each(|stall| sinks.insert(stall))
            });
            elapsed_ms.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
            let left = length.saturating_sub(began.elapsed());
            thread::sleep(PERIOD.saturating_sub(turn.elapsed()).min(left));
        }
        (probe, sinks, written)
    };
    let phases = [Phase {
        name: "recording",
        total: length.as_millis() as u64,
    }];
    let quiet = args.common.quiet || args.live;
    let (probe, sinks, written) = Progress::new(quiet).during(&phases, draw, drain);
    drop(screen);
    let took = began.elapsed();
    let cpu_share = OwnCost::now().cpu_share_since(&cost_before);
    let busy_after = CpuSample::take(roots).map_err(host)?;
    let server_cpus = busy_after.usage_since(&busy_before, watched);
    let end = match (written, gone) {
        (Err(error), _) => End::Unwritable(error),
        (_, Some(line)) => End::ServerGone(line),
        _ if interrupt.is_raised() => End::Interrupted,
        _ => End::TimeUp,
    };
    let program_ns = match program_time {
        None => None,
        Some(_) => {
            let costs = probe.costs().map_err(probe_failure)?;
            Some(costs.iter().map(|program| program.run_time_ns).sum())
        }
    };
    drop(program_time);
    context.observer_cpu_share = Some(cpu_share);
    observe::name(
        &mut context,
        roots,
        probe.threads(),
        &found.server.processes,
    );
    let (file, events, bytes, end) = finish(probe, sinks, &context, end)?;
    Ok(Recorded {
        file,
        end,
        events,
        cost: Cost {
            cpu_share,
            program_ns,
            written_bytes_per_s: bytes as f64 / took.as_secs_f64().max(1e-9),
            peak_memory_bytes: OwnCost::peak_memory_bytes(roots),
        },
        server_cpus,
    })
}

/// One drain, and what is added to it.
fn turn_once(
    probe: &mut Probe,
    sinks: &mut Sinks,
    add: impl FnOnce(&mut Sinks) -> io::Result<()>,
) -> io::Result<()> {
    probe.drain_into(sinks)?;
    add(sinks)
}

/// Detaches, takes the rest and closes the file; after a full disk it stays as it is.
fn finish(
    mut probe: Probe,
    mut sinks: Sinks,
    context: &RecordingContext,
    end: End,
) -> Result<(File, u64, u64, End), Failure> {
    // Hooks go one after the other: what the last of them still see makes no whole request.
    sinks.until = Some(now().saturating_since(probe.base()));
    let end = match (probe.finish_into(&mut sinks), end) {
        (Err(error), End::TimeUp | End::Interrupted) => End::Unwritable(error),
        (_, end) => end,
    };
    let lost = probe.lost().map_err(probe_failure)?;
    let (events, bytes) = (sinks.writer.events(), sinks.writer.bytes());
    let mut file = sinks.writer.finish(context, lost).map_err(unwritable)?;
    file.rewind().or_exit(Exit::Failed)?;
    Ok((file, events, bytes, end))
}

fn unwritable(error: io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("cannot write the recording: {error}; choose a place that can be written with -o"),
    )
}

/// What is known when the recording begins.
fn first_context(
    args: &TraceArgs,
    found: &Found,
    watched: &CpuSet,
    probe: &Probe,
    environment: &Environment,
) -> RecordingContext {
    let server = &found.server;
    let known = Known::of(server, args.protocol);
    RecordingContext {
        server: server.to_string(),
        transport: server.endpoint.transport.to_string().to_lowercase(),
        port: server.endpoint.port,
        kernel: environment.kernel.release.clone().unwrap_or_default(),
        hypervisor: crate::commands::run::hypervisor(environment),
        server_cpus: probing::numbers(watched),
        hooks: probe.hooks(),
        service_time_ns: args.analysis.service_time,
        workers: args.analysis.workers.map(std::num::NonZeroU32::get),
        timeout_ns: Some(args.timeout),
        sequential: known.sequential,
        datagram_ids: known.datagram_ids,
        framing: known.framing,
        ..RecordingContext::default()
    }
}

/// Where the events go.
struct Sinks {
    writer: RecordingWriter<File>,
    live: Option<Live>,
    /// Nothing later is kept.
    until: Option<Nanos>,
}

impl Sinks {
    fn insert(&mut self, event: Event) -> io::Result<()> {
        self.writer.insert(event)
    }
}

impl EventSink for Sinks {
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
        if let Some(until) = self.until {
            let kept = events.iter().filter(|event| event.since_base() <= until);
            return self.writer.take(cpu, &kept.copied().collect::<Vec<_>>());
        }
        self.writer.take(cpu, events)?;
        match &mut self.live {
            Some(live) => live.order.take(cpu, events),
            None => Ok(()),
        }
    }

    fn settle(&mut self, before: Nanos) -> io::Result<()> {
        self.writer.settle(before)?;
        match &mut self.live {
            Some(live) => {
                live.order.settle(before)?;
                live.pass_on();
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// The way of the events to the screen, a window at a time.
struct Live {
    order: EventOrder,
    window: Vec<Event>,
    out: SyncSender<Vec<Event>>,
}

impl Live {
    /// Length of a window.
    const WINDOW: Nanos = Nanos::from_secs(1);
    /// More events of one window than this are not shown, so that memory stays bounded.
    const MOST: usize = 4 << 20;

    fn new(base: Monotonic, out: SyncSender<Vec<Event>>) -> Self {
        Self {
            order: EventOrder::new(base),
            window: Vec::new(),
            out,
        }
    }

    fn pass_on(&mut self) {
        while let Some(event) = self.order.next_settled() {
            let full = (self.window.first())
                .is_some_and(|first| event.at.saturating_since(first.at) >= Self::WINDOW);
            if full {
                // a screen that is behind or gone leaves it out; the recording has it
                let _ = self.out.try_send(std::mem::take(&mut self.window));
            }
            if self.window.len() < Self::MOST {
                self.window.push(event);
            }
        }
    }
}
