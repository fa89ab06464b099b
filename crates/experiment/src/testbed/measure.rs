//! The measurement: one continuous open-loop load with the probe attached.

use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use taillab_analysis::cut::Occupancy;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::{host, probe as probe_failure};
use taillab_console::progress::Phase;
use taillab_host::observe::{self, Counters};
use taillab_host::target::add_asked;
use taillab_host::{CpuSample, CpuSet, CpuUsage, Roots, clock, disk};
use taillab_load::{FleetRun, OpenFleet, Pace, Waiting, arrivals_verdict};
use taillab_model::summary::{ArrivalsVerdict, LoadSegment};
use taillab_model::{EventSink, Monotonic, Nanos, PackedEvent, RecordingContext, RecordingWriter};
use taillab_probe::Probe;
use taillab_queueing::arrivals::ArrivalProcess;

use super::calibrate::Calibrated;
use super::client::LoadClient;
use super::drain::{RecordingProbe, draining, reserve};
use super::pacing::{Follower, Following};
use super::rig::Rig;
use crate::definition::Experiment;
use crate::pipeline::{Spool, cuts, late_sends, stalls};

/// If others use more of the server's CPUs than this, CPU use says nothing about the server's capacity.
const MAX_BUSY_BEFORE: f64 = 0.3;

/// At a higher utilisation CPU use no longer says how far the load is from the capacity.
const MOST_FOLLOWED: f64 = 0.97;

/// How long we watch the CPUs for other programs.
const WATCHED: Duration = Duration::from_millis(300);

/// What the measurement recorded.
pub struct Recorded {
    /// The client's record.
    pub load: FleetRun,
    /// The client's address, as the server sees it.
    pub client: IpAddr,
    /// The kernel's events, and those of the generator's own record.
    pub spool: Spool,
    /// What the recording says besides them.
    pub context: RecordingContext,
    /// Requests per second of the measurement's schedule, on average.
    pub rate_per_s: f64,
    /// Rate, CPU use and capacity in each segment; empty unless the rate followed the capacity.
    pub segments: Vec<LoadSegment>,
    /// The speed of the schedule during the run.
    pace: Pace,
    /// When the schedule began.
    began: Monotonic,
    /// The rate, in requests per second, for which the schedule was drawn.
    drawn_per_s: f64,
    /// Use of the server's CPUs, including the warm-up.
    pub server_cpus: Option<CpuUsage>,
    /// Bytes of the recording that were written to the disk while requests were sent: the memory did not suffice.
    pub spilled: u64,
    /// Why the recording ends early, where the disk was full.
    pub cut_short: Option<String>,
    /// The warm-up is a part of the measurement: nothing that was sent after it was answered.
    pub with_warm_up: bool,
}

impl Recorded {
    /// When the measurement began; boot if the recording does not say.
    pub fn measured_from(&self) -> Monotonic {
        let from = self.context.measure_from_ns.unwrap_or(0);
        Monotonic::from_nanos_since_boot(from)
    }

    /// Whether the sends follow the arrival process. They are judged on the time axis of the schedule, on
    /// which the rate is constant, and without the parts in which the generator was held up; their bursts from
    /// the `service_time` on.
    pub fn arrivals(&self, service_time: Nanos) -> Result<ArrivalsVerdict, Failure> {
        let since_begin = |at: Monotonic| at.saturating_since(self.began);
        let in_schedule = |at: Monotonic| self.began + self.pace.planned(since_begin(at));
        let late = late_sends(&self.context.cuts, in_schedule);
        let sends = self.load.measured_turns().map(since_begin);
        let sends = self.pace.planned_all(sends).map(|at| self.began + at);
        let sends = late.spliced(sends);
        Ok(arrivals_verdict(sends, self.drawn_per_s, service_time)?)
    }
}

/// The rate of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Requests per second.
    Constant(f64),
    /// Requests per second, without making up for stalls: each run sends the same requests at the same
    /// times.
    Repeatable(f64),
    /// The rate that keeps the server's CPUs at a given utilisation.
    Following(Following),
}

impl Rate {
    /// The rate at the beginning, in requests per second.
    pub const fn first_per_s(self) -> f64 {
        match self {
            Self::Constant(per_s) | Self::Repeatable(per_s) => per_s,
            Self::Following(following) => following.first_per_s,
        }
    }

    const fn following(self) -> Option<Following> {
        match self {
            Self::Constant(_) | Self::Repeatable(_) => None,
            Self::Following(following) => Some(following),
        }
    }
}

/// Sends the scheduled requests and records what the kernel does with them.
///
/// Except with [`Rate::Repeatable`], the end is put off to make up for time in which something held the
/// generator up, at most until the workload's longest duration.
pub fn measure(
    rig: &mut Rig,
    client: &mut LoadClient,
    mut probe: Probe,
    experiment: &Experiment,
    mut context: RecordingContext,
    rate: Rate,
) -> Result<Recorded, Failure> {
    let (pace, schedules) = planned(experiment, rate, client.threads())?;
    let (warm_up, drawn_per_s) = (pace.warm_up(), rate.first_per_s());
    let phases = phases(&schedules, warm_up, pace.end());
    let (server_cpus, free_cpus) = (rig.placement().server.clone(), rig.free_cpus());
    let mut recording = begun(rig, probe.base(), &context)?;
    attach(&mut probe, &phases, &free_cpus)?;
    let stop = rig.interrupt().shared_flag();
    let roots = rig.roots().clone();
    let gone = rig.server_gone();
    let progress = client.progress();
    progress.restart();
    let started_unix_s = clock::unix_s();
    let mut counters = Counters::begin(&roots, &server_cpus, &rig.server_processes());
    let mut counted = Vec::new();
    let wanted = (rate.following(), experiment.workload.precision());
    let server = (&roots, &server_cpus, rig.server_processes());
    let mut follower = Follower::new(wanted, &pace, server);
    let open = OpenFleet {
        schedules,
        warm_up,
        seed: experiment.workload.seed,
        timeout: experiment.client.timeout,
        waiting: Waiting::Spin,
        start: None,
        stop: &stop,
    };
    let (before, load, after) = rig.on_client_cpu(
        &phases,
        || {
            counters.look(clock::now(), |event| counted.push(event));
            follower.look(clock::now(), &progress);
            progress.sent()
        },
        || {
            let before = CpuSample::take(&roots);
            let recorder = RecordingProbe {
                probe: &mut probe,
                sink: &mut recording,
            };
            let load = draining(Some(recorder), &free_cpus, &gone, |hooks| {
                client.open_loop_at(open, Some(&pace), hooks)
            });
            (before, load, CpuSample::take(&roots))
        },
    )?;
    probe.detach();
    // what is on the disk by now was written while requests were sent
    let spilled = recording.writer.out().written_to_disk();
    let (threads, processes) = (probe.threads(), rig.server_processes());
    observe::name(&mut context, &roots, threads, &processes);
    add_asked(
        &mut context.upstreams,
        &roots,
        &processes,
        &probe.upstreams(),
    );
    observe::name_own(&mut context, &roots);
    let mut load = load?;
    recording.is_over = true;
    probe.finish_into(&mut recording).map_err(unwritable)?;
    let mut lost = probe.lost().map_err(probe_failure)?;
    lost.ring_full += recording.dropped;
    let with_warm_up = counts_warm_up(&mut load);
    let began = load
        .start()
        .ok_or_else(|| Failure::failed("no thread of the generator ran"))?;
    let server_cpus = after
        .map_err(host)?
        .usage_since(&before.map_err(host)?, &server_cpus);
    context.started_unix_s = started_unix_s;
    let from = if with_warm_up { began } else { began + warm_up };
    context.measure_from_ns = Some(from.nanos_since_boot());
    let is_whole = recording.dropped == 0 && recording.writer.out().failure().is_none();
    context.answered = is_whole && load.is_answered();
    let LoadSink {
        writer, occupancy, ..
    } = recording;
    let generator = &rig.placement().client;
    context.cuts = cuts(&load, generator, &occupancy.occupants(&context.threads));
    let mut spool = writer.finish(&context, lost).map_err(unwritable)?;
    let cut_short = spool.failure().map(str::to_owned);
    spool.add(counted);
    spool.add(stalls(&load, generator));
    Ok(Recorded {
        client: rig.client_address(),
        rate_per_s: average_per_s(&load).unwrap_or(drawn_per_s),
        load,
        spool,
        context,
        spilled,
        cut_short,
        segments: follower.segments(),
        pace,
        began,
        drawn_per_s,
        server_cpus,
        with_warm_up,
    })
}

/// Makes the warm-up a part of the measurement where nothing else was answered; says whether.
fn counts_warm_up(load: &mut FleetRun) -> bool {
    let alone = load.is_answered_in_its_warm_up_alone();
    if alone {
        load.count_warm_up();
    }
    alone
}

/// Where the events of a load go: into its recording, and who comes onto the generator's CPUs is noted. Where the disk
/// is full, the load ends, and the recording is what was written until then.
struct LoadSink {
    writer: RecordingWriter<Spool>,
    occupancy: Occupancy,
    /// Events that there was no room for.
    dropped: u64,
    /// The load is over: what is still to come is taken or counted.
    is_over: bool,
}

impl EventSink for LoadSink {
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
        self.occupancy.take(cpu, events)?;
        let Some(why) = self.writer.out().failure() else {
            return self.writer.take(cpu, events);
        };
        self.dropped += events.len() as u64;
        match self.is_over {
            true => Ok(()),
            false => Err(io::Error::other(why)),
        }
    }

    fn settle(&mut self, before: Nanos) -> io::Result<()> {
        self.writer.settle(before)
    }
}

/// What is lacking for the recording of so many requests; `None` if there is enough room, or that is not known.
pub fn lacking_room(roots: &Roots, requests: f64) -> Option<String> {
    /// Upper bound of what a request takes: goldens without content take 11 to 38 bytes for each.
    const RECORDED_PER_REQUEST: f64 = 60.0;
    let spool = Spool::of_load(roots);
    let bytes = (requests * RECORDED_PER_REQUEST) as u64;
    let lacking = spool.lacks(bytes).filter(|lacking| *lacking > 0)?;
    Some(format!(
        "the recording may take {}, and {} of that fit neither into memory nor into {}: it may end early; name \
         another folder in TMPDIR, or send fewer requests",
        disk::Bytes(bytes),
        disk::Bytes(lacking),
        spool.folder().display(),
    ))
}

/// Begins the recording of a load.
fn begun(rig: &Rig, base: Monotonic, context: &RecordingContext) -> Result<LoadSink, Failure> {
    let spool = Spool::of_load(rig.roots());
    let writer = RecordingWriter::new(spool, base, context).map_err(unwritable)?;
    let generator = rig.placement().client.iter();
    Ok(LoadSink {
        writer,
        occupancy: Occupancy::new(base, generator, context.stamps),
        dropped: 0,
        is_over: false,
    })
}

/// Attaches the probe, with room for the events of all phases.
fn attach(probe: &mut Probe, phases: &[Phase], free: &CpuSet) -> Result<(), Failure> {
    let requests: u64 = phases.iter().map(|phase| phase.total).sum();
    reserve(probe, requests as f64, free).map_err(probe_failure)?;
    probe.attach().map_err(probe_failure)
}

fn unwritable(error: io::Error) -> Failure {
    Failure::failed(format!(
        "cannot keep the recording: {error}; free some space there, or send fewer requests"
    ))
}

/// The pace of the sends, and the send times of each thread.
fn planned(
    experiment: &Experiment,
    rate: Rate,
    threads: usize,
) -> Result<(Pace, Vec<Vec<Nanos>>), Failure> {
    let workload = &experiment.workload;
    let warm_up = workload.warmup;
    let end = warm_up + workload.duration;
    let latest_end = match rate {
        Rate::Repeatable(_) => end,
        Rate::Constant(_) | Rate::Following(_) => warm_up + workload.longest(),
    };
    let pace = Pace::new(warm_up, end, latest_end);
    let first_per_s = rate.first_per_s();
    let schedules = schedules(first_per_s, pace.longest(), workload.seed, threads)?;
    Ok((pace, schedules))
}

/// The rate at which the measurement's requests were due; `None` if there are fewer than two.
fn average_per_s(load: &FleetRun) -> Option<f64> {
    let mut due = load.iter_measured().map(|entry| entry.times.intended);
    let first = due.next()?;
    let (gaps, last) = due.fold((0_u64, first), |(gaps, _), at| (gaps + 1, at));
    let length = last.checked_since(first)?.as_secs_f64();
    (gaps > 0 && length > 0.0).then(|| gaps as f64 / length)
}

/// The requests due in the warm-up, and those of the measurement, if the pace does not change.
fn phases(schedules: &[Vec<Nanos>], warm_up: Nanos, end: Nanos) -> [Phase; 2] {
    let count = |of: &dyn Fn(&[Nanos]) -> usize| schedules.iter().map(|part| of(part) as u64).sum();
    let before = |part: &[Nanos], at: Nanos| part.partition_point(|due| *due < at);
    [
        Phase {
            name: "warming up",
            total: count(&|part| before(part, warm_up)),
        },
        Phase {
            name: "measuring",
            total: count(&|part| before(part, end) - before(part, warm_up)),
        },
    ]
}

/// A Poisson process for each thread; together they are a Poisson process of the whole rate.
pub fn schedules(
    rate_per_s: f64,
    length: Nanos,
    seed: u64,
    threads: usize,
) -> Result<Vec<Vec<Nanos>>, Failure> {
    // far apart, so that no thread has the seed of another experiment or block
    let seed = |thread: usize| seed ^ (thread as u64) << 48;
    (0..threads)
        .map(|thread| {
            ArrivalProcess::Poisson
                .schedule(rate_per_s / threads as f64, length, seed(thread))
                .or_exit(Exit::Usage)
        })
        .collect()
}

/// The rate for the load that was asked for, given the capacity found by the calibration with the probe.
pub fn rate(experiment: &Experiment, calibrated: &Calibrated) -> f64 {
    let workload = &experiment.workload;
    workload.rate_per_s.unwrap_or_else(|| {
        (calibrated.capacity).rate_per_s(workload.utilization, calibrated.service_time_with_probe)
    })
}

/// [`rate`], but following the capacity where that is possible: the load must be given as utilisation, and
/// the server's CPUs must work for the server alone, which is checked by watching them for a moment.
pub fn rate_or_following(rig: &Rig, experiment: &Experiment, calibrated: &Calibrated) -> Rate {
    let first_per_s = rate(experiment, calibrated);
    let workload = &experiment.workload;
    let is_asked_for = workload.rate_per_s.is_some()
        || experiment.background.is_some()
        || experiment.calibration.service_time.is_some()
        || calibrated.capacity.waits.is_some()
        || workload.utilization > MOST_FOLLOWED;
    let cpus = &rig.placement().server;
    if is_asked_for || busy_share(rig.roots(), cpus).is_none_or(|busy| busy > MAX_BUSY_BEFORE) {
        return Rate::Constant(first_per_s);
    }
    Rate::Following(Following {
        first_per_s,
        of_peak: workload.utilization,
        busy_share: workload.utilization * calibrated.capacity.usable_share(cpus.len()),
    })
}

/// The busy share of these CPUs, measured over [`WATCHED`].
fn busy_share(roots: &Roots, cpus: &CpuSet) -> Option<f64> {
    let before = CpuSample::take(roots).ok()?;
    thread::sleep(WATCHED);
    let after = CpuSample::take(roots).ok()?;
    Some(after.usage_since(&before, cpus)?.busy_share)
}
