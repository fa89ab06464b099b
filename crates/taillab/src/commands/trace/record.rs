//! The recording: a thread next to the server drains the probe.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use taillab_console::exit::Failure;
use taillab_console::fail::{host, probe as probe_failure};
use taillab_console::progress::{Phase, Progress};
use taillab_console::rights::give_up_root;
use taillab_experiment::pipeline::{Canary, RecordingCost, Spool};
use taillab_experiment::rings::cpu_numbers;
use taillab_host::clock::{now, unix_s};
use taillab_host::environment::Environment;
use taillab_host::observe::{self, Counters, OwnCost, ProgramTime};
use taillab_host::target::add_asked;
use taillab_host::{CpuSample, CpuSet, CpuUsage, Interrupt, Roots};
use taillab_model::summary::ServiceTimeSource;
use taillab_model::{Nanos, RecordingContext};
use taillab_probe::Probe;

use super::end::End;
use super::find::FoundServer;
use super::live::Screen;
use super::recorder::{Recorder, Shared, Sinks, unwritable};
use crate::cli::{LONGEST_RECORDING, TraceArgs};

/// The first requests are not measured: those that came in before the probe was attached lack T1.
const SETTLE: Nanos = Nanos::from_millis(100);
/// In a short recording only this part (1/N) of it is left out.
const SETTLE_PART: u64 = 10;

/// What a recording needs.
pub struct Work<'a> {
    pub args: &'a TraceArgs,
    pub found: &'a mut FoundServer,
    pub watched: &'a CpuSet,
    /// CPUs that are not watched, for our own threads.
    pub own_cpus: &'a CpuSet,
    pub probe: Probe,
    pub spool: Spool,
    pub roots: &'a Roots,
    pub interrupt: &'a Interrupt,
    pub environment: &'a Environment,
    /// Where the recording goes, if it is kept.
    pub place: Option<&'a Path>,
}

/// A finished recording.
pub struct Recorded {
    pub spool: Spool,
    pub end: End,
    pub cost: RecordingCost,
    /// What the server's CPUs did.
    pub server_cpus: Option<CpuUsage>,
    /// What is known besides the events.
    pub context: RecordingContext,
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
        own_cpus,
        mut probe,
        spool,
        roots,
        interrupt,
        environment,
        place,
    } = work;
    let mut context = first_context(args, found, watched, &probe, environment);
    observe::name(&mut context, roots, Vec::new(), &found.server.processes);
    let processes = found.server.processes.clone();
    let live = args.result.live;
    let mut screen = Screen::if_asked(&context, args, roots, &processes, place)?;
    let batches = screen.as_mut().map(Screen::batches);
    let counters = Counters::begin(roots, watched, &processes);
    // not every user is allowed to; the result then says that it is not known
    let counting = ProgramTime::count().ok();

    let busy_before = CpuSample::take(roots).map_err(host)?;
    let cost_before = OwnCost::now();
    probe.attach().map_err(probe_failure)?;
    let canary = begin_without_root(args, found, own_cpus, roots)?;
    let settle = settle(args.length());
    context.measure_from_ns = Some((now() + settle).nanos_since_boot());
    let sinks = Sinks::begin(spool, probe.base(), &context, batches).map_err(unwritable)?;
    let recorder = Recorder::new(probe, sinks, counters, canary, counting, settle);
    let length = with_settling(args.length(), settle);
    let (shared, began) = (Shared::default(), Instant::now());
    let (mut left, mut gone) = (false, None);
    let draw = || {
        gone = gone.take().or_else(|| found.ended());
        if let Some(screen) = &mut screen {
            left |= screen.is_left();
            screen.draw(began.elapsed(), shared.written());
        }
        if gone.is_some() || left || interrupt.is_raised() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        shared.elapsed_ms.load(Ordering::Relaxed)
    };
    let phase = Phase {
        name: "recording",
        total: u64::try_from(length.as_millis()).unwrap_or(u64::MAX),
    };
    let progress = Progress::new(args.common.quiet || live);
    let (recorder, end) = progress.during(&[phase], draw, || recorder.run(&shared, length));
    drop(screen);
    let took = began.elapsed();
    let cpu_share = OwnCost::now().cpu_share_since(&cost_before);
    let busy_after = CpuSample::take(roots).map_err(host)?;
    // q is how a recording without a length ends
    let interrupted = interrupt.is_raised() || left && args.length().is_some();
    let end = end.unwrap_or_else(|| End::of(gone, interrupted));
    context.observer_cpu_share = Some(cpu_share);
    let threads = recorder.probe.threads();
    observe::name(&mut context, roots, threads, &found.server.processes);
    let asked = recorder.probe.upstreams();
    let processes = &found.server.processes;
    add_asked(&mut context.upstreams, roots, processes, &asked);
    observe::name_own(&mut context, roots);
    let program_ns_per_event = recorder.program_ns_per_event;
    let (spool, written, end) = recorder.finish(&context, end)?;
    let saved_bytes = place.map_or(0, |_| written.bytes);
    Ok(Recorded {
        spool,
        end,
        cost: RecordingCost {
            events: written.events,
            cpu_share,
            program_ns_per_event,
            written_bytes_per_s: saved_bytes as f64 / took.as_secs_f64().max(1e-9),
            peak_memory_bytes: OwnCost::peak_memory_bytes(roots),
        },
        server_cpus: busy_after.usage_since(&busy_before, watched),
        context,
    })
}

/// Gives up root, unless fixes are to be tried: from now on we read what others wrote. Then starts the
/// canary, a thread without privilege like all later ones. There is no canary where the server may run on
/// every CPU, because it would disturb the server.
fn begin_without_root(
    args: &TraceArgs,
    found: &FoundServer,
    own_cpus: &CpuSet,
    roots: &Roots,
) -> Result<Option<Canary>, Failure> {
    if !args.fix.fix {
        give_up_root(roots, found.remaining(args))?;
    }
    Ok(Canary::start(own_cpus, roots).ok())
}

/// How long to record before the measurement begins, so that the measurement itself is as long as
/// asked for (`None`: until the user ends it).
fn settle(asked: Option<Nanos>) -> Nanos {
    asked.map_or(SETTLE, |asked| {
        SETTLE.min(Nanos::new(asked.get() / SETTLE_PART))
    })
}

/// How long to record in all for a measurement of the length asked for (`None`: until the user ends it).
fn with_settling(asked: Option<Nanos>, settle: Nanos) -> Duration {
    let length = asked.unwrap_or(LONGEST_RECORDING);
    Duration::from_nanos(length.get().saturating_add(settle.get()))
}

/// What is known when the recording begins.
fn first_context(
    args: &TraceArgs,
    found: &FoundServer,
    watched: &CpuSet,
    probe: &Probe,
    environment: &Environment,
) -> RecordingContext {
    let server = &found.server;
    let known = &found.identification;
    RecordingContext {
        started_unix_s: unix_s(),
        server: server.to_string(),
        transport: server.endpoint.transport.to_string().to_lowercase(),
        port: server.endpoint.port,
        kernel: environment.kernel.release.clone().unwrap_or_default(),
        hypervisor: environment.virtualization.hypervisor(),
        server_cpus: cpu_numbers(watched),
        hooks: probe.hooks(),
        service_time_ns: args.analysis.service_time,
        service_time_source: (args.analysis.service_time).map(|_| ServiceTimeSource::Given),
        workers: args.analysis.workers.map(std::num::NonZeroU32::get),
        timeout_ns: Some(args.recording.timeout),
        sequential: known.sequential,
        datagram_ids: known.datagram_ids,
        framing: known.framing.clone(),
        stamps: args.recording.stamps,
        ..RecordingContext::default()
    }
}
