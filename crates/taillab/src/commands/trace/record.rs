//! The recording: a thread beside the server drains the probe into a file.

use std::fs::File;
use std::io::{self, Seek};
use std::path::Path;
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
use super::framing::Identification;
use super::live::{Screen, Window, Written};
use super::probing;
use crate::cli::TraceArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::fail::{host, probe as probe_failure};
use crate::pipeline::{Canary, hypervisor};
use crate::progress::{Phase, Progress};

/// Between two drains of the probe, and two looks at steal and quotas.
const PERIOD: Duration = Duration::from_millis(10);
/// The first requests are not measured: those that came in before the probe did lack T1.
const SETTLE: Nanos = Nanos::from_millis(100);
/// Nor are more of a short recording than one part in so many.
const SETTLE_PART: u64 = 10;
/// Events from which the programs' time for each is taken, meanwhile or a little later: the
/// kernel's count costs some itself.
const COUNTED_EVENTS: u64 = 1_000;

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
    /// Where the recording goes, if it is kept.
    pub place: Option<&'a Path>,
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
    /// Time in the probe's programs for each event, where it was counted.
    pub program_ns_per_event: Option<f64>,
    pub written_bytes_per_s: f64,
    pub peak_memory_bytes: u64,
}

/// Records for as long as asked for, or until the user, the server or the disk ends it.
#[cfg_attr(
    not(feature = "bpf"),
    expect(
        unreachable_code,
        unused_variables,
        reason = "without the probe nothing is recorded"
    )
)]
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
        place,
    } = work;
    // not every user may; then the result says that it is not known
    let mut counting = ProgramTime::count().ok();
    let mut program_ns_per_event = None;
    let started_unix_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let mut context = first_context(args, found, watched, &probe, environment);
    context.started_unix_s = started_unix_s;
    observe::name(&mut context, roots, Vec::new(), &found.server.processes);
    let processes = found.server.processes.clone();
    // where the server may run everywhere there is none: it would disturb it
    let canary = Canary::start(beside, roots).ok();
    let mut counters = Counters::begin(roots, watched, &found.server.processes);
    let asked = args.length().unwrap_or(Nanos::MAX);
    let length = Duration::from_nanos(asked.get());
    let mut screen =
        (args.result.live).then(|| Screen::new(&context, args, roots, &processes, place));
    let batches = screen.as_mut().map(Screen::batches);

    let busy_before = CpuSample::take(roots).map_err(host)?;
    let cost_before = OwnCost::now();
    probe.attach().map_err(probe_failure)?;
    let from = now();
    let settle = SETTLE.min(Nanos::new(asked.get() / SETTLE_PART));
    context.measure_from_ns = Some((from + settle).nanos_since_boot());
    let writer = RecordingWriter::new(file, probe.base(), &context).map_err(unwritable)?;
    let mut sinks = Sinks {
        writer,
        live: batches.map(|out| Live::new(probe.base(), out)),
        until: None,
    };
    let (stop, elapsed_ms) = (AtomicBool::new(false), AtomicU64::new(0));
    let (events, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut left = false;
    let began = Instant::now();
    let mut gone = None;
    let draw = || {
        if gone.is_none() {
            gone = found.ended(roots);
        }
        if let Some(screen) = &mut screen {
            left |= screen.is_left();
            let written = Written {
                events: events.load(Ordering::Relaxed),
                bytes: bytes.load(Ordering::Relaxed),
            };
            screen.draw(began.elapsed(), written);
        }
        if gone.is_some() || left || interrupt.is_raised() {
            stop.store(true, Ordering::Relaxed);
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
            events.store(sinks.writer.events(), Ordering::Relaxed);
            bytes.store(sinks.writer.bytes(), Ordering::Relaxed);
            let settled = began.elapsed() >= Duration::from_nanos(settle.get());
            if settled && sinks.writer.events() >= COUNTED_EVENTS && counting.take().is_some() {
                program_ns_per_event = program_ns(&probe, sinks.writer.events());
            }
            let left = length.saturating_sub(began.elapsed());
            thread::sleep(PERIOD.saturating_sub(turn.elapsed()).min(left));
        }
        if counting.take().is_some() {
            program_ns_per_event = program_ns(&probe, sinks.writer.events());
        }
        (probe, sinks, written)
    };
    let phases = [Phase {
        name: "recording",
        total: length.as_millis() as u64,
    }];
    let quiet = args.common.quiet || args.result.live;
    let (probe, sinks, written) = Progress::new(quiet).during(&phases, draw, drain);
    drop(screen);
    let took = began.elapsed();
    let cpu_share = OwnCost::now().cpu_share_since(&cost_before);
    let busy_after = CpuSample::take(roots).map_err(host)?;
    let server_cpus = busy_after.usage_since(&busy_before, watched);
    let end = match (written, gone) {
        (Err(error), _) => End::Unwritable(error),
        (_, Some(line)) => End::ServerGone(line),
        // q is how a recording without a length ends
        _ if interrupt.is_raised() || left && args.length().is_some() => End::Interrupted,
        _ => End::TimeUp,
    };
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
            program_ns_per_event,
            written_bytes_per_s: bytes as f64 / took.as_secs_f64().max(1e-9),
            peak_memory_bytes: OwnCost::peak_memory_bytes(roots),
        },
        server_cpus,
    })
}

/// What the probe's programs took for each event so far; `None` where the kernel does not say.
fn program_ns(probe: &Probe, events: u64) -> Option<f64> {
    let costs = probe.costs().ok()?;
    let ns: u64 = costs.iter().map(|program| program.run_time_ns).sum();
    (events > 0).then(|| ns as f64 / events as f64)
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
    let known = Identification::of(server, args.server.protocol);
    RecordingContext {
        server: server.to_string(),
        transport: server.endpoint.transport.to_string().to_lowercase(),
        port: server.endpoint.port,
        kernel: environment.kernel.release.clone().unwrap_or_default(),
        hypervisor: hypervisor(environment),
        server_cpus: probing::numbers(watched),
        hooks: probe.hooks(),
        service_time_ns: args.analysis.service_time,
        workers: args.analysis.workers.map(std::num::NonZeroU32::get),
        timeout_ns: Some(args.recording.timeout),
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
    skipped: u64,
    out: SyncSender<Window>,
}

impl Live {
    /// Length of a window.
    const WINDOW: Nanos = Nanos::from_secs(1);
    /// More events of one window than this are not shown, so that memory stays bounded.
    const MOST: usize = 4 << 20;

    fn new(base: Monotonic, out: SyncSender<Window>) -> Self {
        Self {
            order: EventOrder::new(base),
            window: Vec::new(),
            skipped: 0,
            out,
        }
    }

    fn pass_on(&mut self) {
        while let Some(event) = self.order.next_settled() {
            let full = (self.window.first())
                .is_some_and(|first| event.at.saturating_since(first.at) >= Self::WINDOW);
            if full {
                let window = Window {
                    events: std::mem::take(&mut self.window),
                    skipped: self.skipped,
                };
                // a screen that is behind leaves it out; the recording has it
                self.skipped += u64::from(self.out.try_send(window).is_err());
            }
            if self.window.len() < Self::MOST {
                self.window.push(event);
            }
        }
    }
}
