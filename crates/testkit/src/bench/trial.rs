//! One measurement of a disturbed server, with the truth of what disturbed it.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::SocketAddr;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::progress::Progress;
use taillab_experiment::definition::Experiment;
use taillab_experiment::testbed::measure::Rate;
use taillab_experiment::testbed::servers::FAULT_LOG;
use taillab_experiment::testbed::{self, Calibrated, Recorded, Rig, context, measure};
use taillab_host::{Interrupt, Roots};
use taillab_load::ground_truth::GroundTruth;
use taillab_load::protocol::MessageSizes;
use taillab_model::explanation::Culprit;
use taillab_model::{ClientTimes, Monotonic, Nanos, Recording, Tid};
use taillab_testkit::causes::{
    BenchOptions, BlockTruth, ClientBlock, Disturbance, DisturbedServer, Disturbers, Setup,
};
use taillab_testkit::injection::{InjectionError, ReadsFrom};

use super::setup::experiment;

/// The result of one measurement.
pub struct Trial {
    /// What was asked for.
    pub experiment: Experiment,
    /// The record of the client and of the kernel.
    pub recorded: Recorded,
    /// What was really done, and what the client saw.
    pub truth: BlockTruth,
}

impl Trial {
    /// Its recording, as it is saved.
    ///
    /// # Errors
    /// It cannot be read, or there is no memory for it.
    pub fn recording(&self) -> Result<Recording, Failure> {
        let mut file = Vec::new();
        (self.recorded.spool)
            .write_to(&mut file)
            .or_exit(Exit::Failed)?;
        Recording::read(file.as_slice()).or_exit(Exit::Failed)
    }
}

/// A request that is sent later than this after its due time is late. Reading a batch of answers takes
/// much less.
const LATE: Nanos = Nanos::from_micros(200);

/// Finds t of the undisturbed server, from the fastest block: other activity of the machine only makes
/// blocks slower, and a t that is too long would hide delays in the ideal queue.
///
/// # Errors
/// As `taillab run`.
pub fn calibrate(
    setup: &Setup,
    asked: &BenchOptions,
    progress: Progress,
    interrupt: &Interrupt,
) -> Result<Calibrated, Failure> {
    let experiment = experiment(&setup.undisturbed(), asked)?;
    let mut rig = Rig::start(&experiment, progress, interrupt.clone())?;
    let mut found = || {
        rig.step_aside()?;
        let mut probe = rig.load_probe(&experiment)?;
        let mut client = rig.connect(&experiment)?;
        // other programs must not make t longer
        disturb((&rig, &experiment), &[Disturbance::RealTime], asked)?
            .stop()
            .map_err(injection)?;
        testbed::calibrate(&mut rig, &mut client, &mut probe, &experiment)
    };
    let found = found();
    rig.take_down()?;
    let mut found = found?;
    let fastest = found.calibration.peak_hi_per_s;
    if let Some(service_time) = found.capacity.service_time(fastest) {
        let faster = service_time.as_secs_f64() / found.service_time.as_secs_f64();
        let with_probe = found.service_time_with_probe.as_secs_f64() * faster;
        found.service_time = service_time;
        found.service_time_with_probe =
            Nanos::try_from_secs_f64(with_probe).unwrap_or(service_time);
    }
    Ok(found)
}

fn disturb(
    (rig, experiment): (&Rig, &Experiment),
    disturbances: &[Disturbance],
    asked: &BenchOptions,
) -> Result<Disturbers, Failure> {
    let usual = MessageSizes::default();
    let length = |bytes: Option<u32>, usual| bytes.map_or(usual, |bytes| bytes as usize);
    let workload = &experiment.workload;
    let target = DisturbedServer {
        testbed: rig.testbed(),
        server: rig.server(),
        roots: rig.roots(),
        speaks: ReadsFrom {
            address: SocketAddr::new(rig.testbed().server_address(), experiment.server.port),
            request_bytes: length(workload.request_bytes, usual.request_bytes),
            response_bytes: length(workload.response_bytes, usual.response_bytes),
        },
    };
    Disturbers::start(&target, disturbances, asked).map_err(injection)
}

/// Measures a server while it is disturbed.
///
/// # Errors
/// As `taillab run`; [`Exit::Unsupported`] where this disturbance is impossible on this machine.
pub fn measure(
    setup: &Setup,
    asked: &BenchOptions,
    calibrated: &Calibrated,
    progress: Progress,
    interrupt: &Interrupt,
) -> Result<Trial, Failure> {
    let experiment = experiment(setup, asked)?;
    let mut rig = Rig::start(&experiment, progress, interrupt.clone())?;
    let mut measured = || {
        rig.step_aside()?;
        let probe = rig.load_probe(&experiment)?;
        let mut client = rig.connect(&experiment)?;
        let rate_per_s = measure::rate(&experiment, calibrated);
        let disturbers = disturb((&rig, &experiment), &setup.disturbances, asked)?;
        let context = context::before(&rig, &probe, &experiment, calibrated);
        let recorded = measure::measure(
            &mut rig,
            &mut client,
            probe,
            &experiment,
            context,
            Rate::Repeatable(rate_per_s),
        );
        let log = disturbers.stop().map_err(injection);
        Ok::<_, Failure>((recorded?, log?))
    };
    let measured = measured();
    let names = thread_names(rig.roots(), rig.server().pid());
    let failure = rig.server_failure();
    let fault_log = rig.take_down_and(|folder| {
        let folder = folder?;
        Some(fs::read(folder.path().join(FAULT_LOG)))
    });
    let (recorded, mut log) = match (measured, failure) {
        // the client's error is only a consequence
        (Err(error), Some(ended)) if error.exit == Exit::Failed => return Err(ended),
        (Ok(_), Some(ended)) => return Err(ended),
        (measured, _) => measured?,
    };
    if let Some(fault_log) = fault_log? {
        log.injected.extend(faults(&fault_log, &names)?);
    }
    let client = seen_by_client(setup, &recorded, experiment.workload.duration);
    Ok(Trial {
        experiment,
        recorded,
        truth: BlockTruth {
            injected: log.injected,
            client,
            backend: log.backend,
        },
    })
}

/// What the client saw, without the probe.
fn seen_by_client(setup: &Setup, recorded: &Recorded, length: Nanos) -> ClientBlock {
    let entries = || recorded.load.iter_measured();
    let times: Vec<ClientTimes> = entries().map(|entry| entry.times).collect();
    let is_judged = |connection: Option<usize>| match setup.delayed_connections() {
        Some((one_in, place)) => connection.is_some_and(|connection| connection % one_in == place),
        None => true,
    };
    let some_are_not = setup.delayed_connections().is_some();
    let of_some = entries().filter(|entry| some_are_not && is_judged(entry.connection));
    let ports: BTreeSet<u16> = of_some.filter_map(|entry| entry.port).collect();
    let late = late(entries().map(|entry| (entry.times.intended, entry.turn())));
    ClientBlock {
        sojourns_ns: (times.iter())
            .map(|times| times.received?.checked_since(times.sent))
            .collect(),
        judged: (entries().map(|entry| is_judged(entry.connection))).collect(),
        ports: ports.into_iter().collect(),
        stolen_share: recorded.server_cpus.map_or(0.0, |used| used.steal_share),
        late_share: late.as_secs_f64() / length.as_secs_f64(),
    }
}

/// For how long at least one request was overdue, from pairs of (due, sent) in order of due times.
fn late(requests: impl Iterator<Item = (Monotonic, Monotonic)>) -> Nanos {
    let mut until = Monotonic::from_nanos_since_boot(0);
    let mut sum = Nanos::ZERO;
    for (due, sent) in requests {
        if sent.saturating_since(due) > LATE {
            sum += sent.saturating_since(due.max(until));
            until = until.max(sent);
        }
    }
    sum
}

/// The server's own record of its faults, with the numbers of its threads on the host.
fn faults(
    log: &std::io::Result<Vec<u8>>,
    threads: &HashMap<Tid, Tid>,
) -> Result<GroundTruth, Failure> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "the server left no record of its faults ({why}): it was killed, or ended before \
                 it could write; try again"
        ))
    };
    let text = match log {
        Ok(text) => text,
        Err(error) => return Err(unreadable(error)),
    };
    let mut truth: GroundTruth =
        serde_json::from_slice(text).map_err(|error| unreadable(&error))?;
    let outer = |tid: &mut Option<Tid>| {
        if let Some(known) = tid.and_then(|tid| threads.get(&tid)) {
            *tid = Some(*known);
        }
    };
    for interval in &mut truth.intervals {
        outer(&mut interval.held);
    }
    for source in &mut truth.sources {
        match &mut source.culprit {
            Some(Culprit::Thread { tid, .. } | Culprit::Chain { tid, .. }) => outer(tid),
            Some(Culprit::Worker { tid, .. }) => *tid = threads.get(tid).copied().unwrap_or(*tid),
            _ => {}
        }
    }
    Ok(truth)
}

/// The threads of a process by their numbers in its own pid namespace (`NSpid`).
fn thread_names(roots: &Roots, process: u32) -> HashMap<Tid, Tid> {
    let folder = roots.proc.join(format!("{process}/task"));
    let Ok(threads) = fs::read_dir(folder) else {
        return HashMap::new();
    };
    threads
        .filter_map(|thread| {
            let status = fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
            let mut numbers = status
                .lines()
                .find_map(|line| line.strip_prefix("NSpid:"))?
                .split_whitespace()
                .map(str::parse::<Tid>);
            let outer = numbers.next()?.ok()?;
            let inner = numbers.next_back().unwrap_or(Ok(outer)).ok()?;
            Some((inner, outer))
        })
        .collect()
}

/// A disturbance that cannot be made. That the machine does not allow it is no failure of ours.
fn injection(error: InjectionError) -> Failure {
    match error {
        InjectionError::Journal(error) => host(error),
        error => Failure::new(Exit::Unsupported, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_for_which_several_requests_are_late_counts_once() {
        let at = |us: u64| Monotonic::from_nanos_since_boot(1_000 * us);
        let requests = [(10, 20), (1_000, 3_000), (2_000, 3_010), (5_000, 5_300)];
        let sum = late(requests.into_iter().map(|(due, sent)| (at(due), at(sent))));
        assert_eq!(sum, Nanos::from_micros(2_310));
    }

    #[test]
    fn threads_are_known_by_their_numbers_inside_and_outside() {
        let place = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: place.path().to_owned(),
            ..Roots::default()
        };
        for (tid, line) in [(70, "NSpid:\t70\t1\n"), (71, "Name:\tx\nNSpid:\t71\t5\n")] {
            let folder = place.path().join(format!("70/task/{tid}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("status"), line).unwrap();
        }
        let names = thread_names(&roots, 70);
        assert_eq!(names, HashMap::from([(1, 70), (5, 71)]));

        let log = br#"{"sources":[{"injected":"lock","cause":"blocked_lock","culprit":
            {"kind":"thread","name":"lock-holder","pid":null,"tid":5}}],
            "intervals":[{"source":0,"cpu":null,"held":1,"from_ns":10,"to_ns":20}],"unrecorded":0}"#;
        let truth = faults(&Ok(log.to_vec()), &names).unwrap();
        assert_eq!(truth.intervals[0].held, Some(70));
        assert!(matches!(
            truth.sources[0].culprit,
            Some(Culprit::Thread { tid: Some(71), .. })
        ));
        assert!(faults(&Ok(b"{".to_vec()), &names).is_err());
    }
}
