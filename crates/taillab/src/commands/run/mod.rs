//! `taillab run`: one server, one load, measured against its ideal.
//!
//! The experiment is resolved, the rig started, the load calibrated and measured, the rig taken down, the recording
//! analysed, judged, saved and shown, in this order. What comes more than once:
//! - the directory of the result, first and last: nothing is measured that could not be saved;
//! - the machine before the load ([`environment`]): its conditions are judged, and it is a file of the result;
//! - with `--fix`, the testbed, the load and the analysis: each trial is a measurement of its own, with a fresh server,
//!   and what is tried follows from a first analysis, in a process without root's rights.

use std::path::Path;
use std::time::Duration;

use taillab_analysis::MatchOptions;
use taillab_analysis::verdict::VirtualWorkers;
use taillab_console::args::{AnalysisArgs, Output};
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::progress::Progress;
use taillab_console::rights::{Remaining, give_up_root, recover, without_root};
use taillab_console::rundir::{RECORDING, RunDir, with_files};
use taillab_experiment::definition::{Experiment, Transport};
use taillab_experiment::fix;
use taillab_experiment::pipeline::{
    self, Analysed, Attachments, BeforeLoad, Client, MeasurementFacts, OwnLoad, Presentation,
    Source, limits, next_steps,
};
use taillab_experiment::testbed::measure::Rate;
use taillab_experiment::testbed::{
    BackgroundLoad, Calibrated, Recorded, Rig, calibrate, context, measure, servers,
};
use taillab_host::environment::{CaptureSpec, Environment};
use taillab_host::{Interrupt, Roots, capture_environment, disk};
use taillab_load::{Ask, FleetRun, StopReason};
use taillab_model::doctor::FoundHazard;
use taillab_model::summary::{Reason, Report};
use taillab_model::{Distribution, Nanos};
use taillab_report::rate as per_second;
use taillab_simulator::simulation::Precision;

use crate::cli::RunArgs;

/// How long the machine is watched for other loads before the run.
const OBSERVE: Duration = Duration::from_millis(500);

/// Runs the experiment; the result is printed and saved.
pub fn run(args: RunArgs) -> Result<Exit, Failure> {
    let messages = Messages::of(args.common);
    let (common, save_capture, fix) = (args.common, args.save_capture, args.fix.clone());
    let asked = fix::FixRequest::of(&fix, &args.factorial.factorial, fix::Consent::Given)?;
    let (file, output, saves) = (args.experiment.clone(), args.output.clone(), !args.no_save);
    let asserted = args.limits.clone();
    let preset = args.preset();
    let (kind, settings) = args.into_request();
    let experiment = Experiment::resolve_on(preset, kind, file.as_deref(), settings)?;
    fix::ensure_followed(&fix, experiment.probe.stamps)?;
    warn_of_root(&experiment, file.as_deref(), messages);
    let roots = Roots::default();
    recover(&roots, messages)?;
    let interrupt = Interrupt::register().map_err(host)?;
    let directory = || {
        let bytes = expected_bytes(&experiment, save_capture);
        RunDir::create_or_name(output, &experiment.server.name(), bytes)
    };
    let mut rundir = saves.then(directory).transpose()?;

    let progress = Progress::new(messages.quiet);
    let mut rig = Rig::start(&experiment, progress, interrupt.clone())?;
    let environment = environment(&rig, &experiment);
    let session = take_measurements(&mut rig, &experiment, &environment, messages);
    let mut server_failure = rig.server_failure();
    // put the machine back before reporting what went wrong
    let torn_down = rig.take_down();
    let (calibrated, mut recorded) =
        session.map_err(|seen| root_cause(seen, &mut server_failure))?;
    torn_down?;
    if !fix.fix {
        give_up_root(&roots, Remaining::Files)?;
    }
    if save_capture && let Some(rundir) = &mut rundir {
        let written = rundir.write_large(RECORDING, |out| recorded.spool.write_to(out));
        rundir.note(written);
    }
    messages.step("analysing");
    let facts = |recorded: &Recorded| -> Result<_, Failure> {
        let (mut facts, options) =
            measurement_facts(recorded, calibrated.clone(), &experiment, &environment)?;
        facts.limits.clone_from(&asserted.limits);
        Ok((facts, options))
    };
    let stopped = recorded.load.stopped;
    let is_whole = stopped.is_none() && server_failure.is_none() && recorded.cut_short.is_none();
    let tried = (fix.fix && is_whole).then(|| -> Result<_, Failure> {
        let of_recorded = facts(&recorded)?;
        let report = forecast(&mut recorded, of_recorded)?;
        Ok(report.map(|report| {
            let setting = fix::Setting {
                report: &report,
                context: &recorded.context,
                seed: experiment.workload.seed,
                interrupt,
                messages,
            };
            fix::on_own_server(&asked, &setting, &experiment, recorded.rate_per_s)
        }))
    });
    if fix.fix {
        give_up_root(&roots, Remaining::Files)?;
    }
    let of_recorded = facts(&recorded)?;
    let mut analysed = analyse(&mut recorded, of_recorded, rundir.as_mut())?;
    let junit = limits::write(&asserted, &analysed.report);
    note_precision(&experiment, &analysed.report, messages);
    let fixed = match tried.transpose() {
        Ok(Some(Some(tried))) => tried.tell(&mut analysed.report, &fix, messages),
        Ok(_) => Ok(()),
        Err(failure) => Err(failure),
    };
    let attachments = Attachments {
        environment: Some(serde_json::to_value(&environment).or_exit(Exit::Failed)?),
        experiment_toml: Some(experiment.to_toml()?),
    };
    save_and_show(
        rundir.as_mut(),
        (common, save_capture),
        &analysed,
        &attachments,
    )?;
    let failure = server_failure.or_else(|| recorded.cut_short.as_deref().map(disk_full));
    let ended = ended((stopped, failure), fixed, &analysed);
    let written = rundir.map_or(Ok(()), RunDir::outcome).and(junit);
    with_files(ended, written)
}

/// How the command ends, apart from its files.
fn ended(
    (stopped, failure): (Option<StopReason>, Option<Failure>),
    fixed: Result<(), Failure>,
    analysed: &Analysed,
) -> Result<Exit, Failure> {
    match (stopped, failure) {
        (_, Some(failure)) => Err(failure),
        (Some(StopReason::Interrupted), None) => Ok(Exit::Interrupted),
        _ => fixed.map(|()| analysed.exit()),
    }
}

/// The recording ended early; what it has is shown.
fn disk_full(why: &str) -> Failure {
    Failure::failed(format!(
        "the measurement ended early, since its recording could not be written: {why}; name another folder in TMPDIR, \
         or send fewer requests"
    ))
}

/// Why the measurements failed: how the server ended says more than what its client saw of that.
fn root_cause(seen: Failure, server: &mut Option<Failure>) -> Failure {
    match seen.exit {
        Exit::Failed => server.take().unwrap_or(seen),
        _ => seen,
    }
}

/// Saves the result where there is a directory for it, which notes if a file cannot be written, and prints it.
fn save_and_show(
    mut rundir: Option<&mut RunDir>,
    (common, has_recording): (Output, bool),
    analysed: &Analysed,
    attachments: &Attachments,
) -> Result<(), Failure> {
    if let Some(rundir) = &mut rundir {
        pipeline::save(rundir, analysed, attachments);
    }
    let saved = rundir.as_ref().and_then(|rundir| rundir.whole());
    let next = saved.map(|folder| next_steps::of_run(folder, has_recording, analysed));
    let shown = Presentation {
        saved,
        common,
        slowest: false,
        next: next.unwrap_or_default(),
    };
    pipeline::show(analysed, attachments, &shown)
}

/// The machine, its placement and the server, before the load.
fn environment(rig: &Rig, experiment: &Experiment) -> Environment {
    capture_environment(&CaptureSpec {
        roots: rig.roots(),
        placement: rig.placement(),
        command_line: std::env::args().collect(),
        taillab_version: env!("CARGO_PKG_VERSION").to_owned(),
        server: Some(servers::facts(experiment)),
        loopback: rig.is_loopback(),
        observe: OBSERVE,
    })
}

/// Analyses the recording of this load; the files with a row for each request go to `rundir`.
fn analyse(
    recorded: &mut Recorded,
    (facts, options): (MeasurementFacts, MatchOptions),
    rundir: Option<&mut RunDir>,
) -> Result<Analysed, Failure> {
    let client = Client {
        load: &recorded.load,
        address: recorded.client,
    };
    let source = Source {
        spool: &mut recorded.spool,
        own: Some(OwnLoad { options, client }),
    };
    pipeline::analyse(source, &AnalysisArgs::default(), facts, rundir)
}

/// The report with the forecasts for the fixes, made by a process that has given up root: the trials need its rights.
/// `None` where the recording cannot be analysed: the analysis that follows says why.
fn forecast(
    recorded: &mut Recorded,
    facts: (MeasurementFacts, MatchOptions),
) -> Result<Option<Report>, Failure> {
    without_root(&Roots::default(), || {
        Some(analyse(recorded, facts, None).ok()?.report)
    })
}

/// Says how well the percentile of `--precision` is known, if that was given.
fn note_precision(experiment: &Experiment, report: &Report, messages: Messages) {
    if let Some(wanted) = experiment.workload.precision() {
        messages.note(&precision_reached(wanted, &report.server.measured.sojourn));
    }
}

/// How well the percentile of `--precision` is known.
fn precision_reached(wanted: Precision, sojourn: &Distribution) -> String {
    let name = format!("p{}", (wanted.quantile * 1e9).round() / 1e7);
    // to a tenth of a percent: half a percent is none, and 10.4 % is more than 10 %
    let percent = |share: f64| format!("±{} %", (1e3 * share).round() / 10.0);
    let asked = format!("{} was asked for", percent(wanted.relative));
    let mut known = sojourn.quantiles.iter();
    let Some(at) = known.find(|at| (at.q - wanted.quantile).abs() < 1e-12) else {
        return format!(
            "the result has no interval of {name}, and {asked}: ask for p50, p90, p99, p99.9, p99.99 \
             or p99.999"
        );
    };
    let width = || -> Option<f64> {
        let half = (at.hi?.as_secs_f64() - at.lo?.as_secs_f64()) / 2.0;
        Some(half / at.value?.as_secs_f64())
    };
    match width() {
        Some(width) if width <= wanted.relative => {
            format!("{name} is known to {}; {asked}", percent(width))
        }
        Some(width) => format!(
            "{name} is known only to {}; {asked}: raise --max-duration",
            percent(width)
        ),
        None => format!("the interval of {name} has no end; {asked}: raise --max-duration"),
    }
}

/// What is known about the run besides its recording, and how its requests are matched.
fn measurement_facts(
    recorded: &Recorded,
    calibrated: Calibrated,
    experiment: &Experiment,
    environment: &Environment,
) -> Result<(MeasurementFacts, MatchOptions), Failure> {
    let Recorded {
        load, rate_per_s, ..
    } = recorded;
    let capacity = calibrated.capacity;
    let cuts = &recorded.context.cuts;
    let from = recorded.measured_from();
    let unseen = pipeline::unseen_by_client(load, cuts, capacity.workers, from);
    let utilization = match recorded.segments.is_empty() {
        true => capacity.utilization(*rate_per_s, calibrated.service_time_with_probe),
        false => experiment.workload.utilization,
    };
    let asked = (*rate_per_s, Some(utilization));
    let arrivals = recorded.arrivals(calibrated.service_time)?;
    let at_worst = (!cuts.is_empty()).then(|| pipeline::response_times_at_worst(load));
    let mut client = pipeline::summarise_load(load, asked, arrivals, &unseen);
    client.summary.segments.clone_from(&recorded.segments);
    let facts = MeasurementFacts {
        command: "run",
        target: Some(experiment.server.title()),
        partial: load.stopped.is_some() || recorded.cut_short.is_some(),
        server_cpus: recorded.server_cpus,
        before_load: Some(BeforeLoad {
            calibration: calibrated.calibration,
            overhead: calibrated.overhead,
            interval: calibrated.interval,
            virtual_workers: capacity.waits.map(|wait| VirtualWorkers {
                workers: capacity.workers.get(),
                wait,
                cpus: environment.cpu.server.len(),
            }),
        }),
        load: Some((client.summary, client.curves.response_time)),
        at_worst,
        conditions: conditions(environment, recorded),
        ..MeasurementFacts::default()
    };
    let options = MatchOptions {
        answered: recorded.context.answered,
        ..match_options(load, experiment, *rate_per_s)
    };
    Ok((facts, options))
}

fn match_options(load: &FleetRun, experiment: &Experiment, rate_per_s: f64) -> MatchOptions {
    let timeout = experiment.client.timeout;
    let options = match experiment.server.transport {
        Transport::Udp => {
            // a thread's share of the keys equals its share of the rate
            let keys: f64 = load
                .runs
                .iter()
                .map(|run| run.record.key_period() as f64)
                .sum();
            let period = keys / rate_per_s;
            let period = Nanos::try_from_secs_f64(period).unwrap_or(Nanos::MAX);
            MatchOptions::for_client(timeout, period)
        }
        // the known servers answer everything they have read before they read more
        Transport::Tcp => MatchOptions::for_streams(timeout, experiment.server.is_sequential()),
    };
    MatchOptions {
        stamps: experiment.probe.stamps,
        ..options
    }
}

/// Disk space that the run may need.
fn expected_bytes(experiment: &Experiment, save_capture: bool) -> u64 {
    /// Upper bound of what one request takes on disk, in all files but the recording.
    const BYTES_PER_REQUEST: f64 = 120.0;
    /// The same for the recording: goldens without content take 11 to 38 bytes for each request.
    const RECORDED_PER_REQUEST: f64 = 60.0;
    /// What the other files take.
    const BYTES_FIXED: f64 = 8e6;
    /// A rate that a single-core server does not exceed; used before calibration.
    const RATE_BOUND_PER_S: f64 = 150_000.0;
    /// The most cores that are assumed to serve at that rate, next to the client on the same machine.
    const MOST_CORES: u32 = 8;
    let workload = &experiment.workload;
    let measured = match workload.precision {
        Some(_) => workload.longest(),
        None => workload.duration,
    };
    let seconds = (workload.warmup + measured).as_secs_f64();
    let rate = workload
        .rate_per_s
        .unwrap_or_else(|| RATE_BOUND_PER_S * f64::from(experiment.workers().min(MOST_CORES)));
    let recorded = if save_capture {
        RECORDED_PER_REQUEST
    } else {
        0.0
    };
    (seconds * rate * (BYTES_PER_REQUEST + recorded) + BYTES_FIXED) as u64
}

/// Conditions of the testbed and of the machine that affect this kind of run, whether its warm-up counts, whether its
/// recording was written to the disk, and whether that was full.
fn conditions(environment: &Environment, recorded: &Recorded) -> Vec<Reason> {
    let reason = |hazard: &FoundHazard| {
        let text = match &hazard.remedy {
            Some(remedy) => format!("{}; {remedy}", hazard.text),
            None => hazard.text.clone(),
        };
        Reason::new(&hazard.key, text)
    };
    let warm_up = recorded.with_warm_up.then(|| {
        let text = "nothing that was sent after the warm-up was answered in time, so the warm-up is a part \
                    of the measurement";
        Reason::new("warm_up_counts", text)
    });
    (environment.hazards.iter().map(reason))
        .chain(warm_up)
        .chain((recorded.spilled > 0).then(|| spilled(recorded.spilled)))
        .chain(recorded.cut_short.as_deref().map(cut_short))
        .collect()
}

/// The memory did not suffice for the recording.
fn spilled(bytes: u64) -> Reason {
    let bytes = disk::Bytes(bytes);
    let text = format!(
        "{bytes} of the recording did not fit into memory and were written to the disk while requests were sent; send \
         fewer of them, record less (--disturbances, --stamps), or free memory"
    );
    Reason::new("recording_on_disk", text)
}

/// The disk did not suffice for the recording either.
fn cut_short(why: &str) -> Reason {
    let text = format!(
        "the recording could not be written ({why}), so no more requests were sent, and the events that were still to \
         be written count as lost; name another folder in TMPDIR, send fewer requests, or record less \
         (--disturbances, --stamps)"
    );
    Reason::new("recording_cut_short", text)
}

/// Everything that needs the server: storing the keys, calibration, the load.
fn take_measurements(
    rig: &mut Rig,
    experiment: &Experiment,
    environment: &Environment,
    messages: Messages,
) -> Result<(Calibrated, Recorded), Failure> {
    rig.step_aside()?;
    messages.step("loading the probe");
    let mut probe = rig.load_probe(experiment)?;
    messages.step(match experiment.server.protocol.asks(Ask::Keys) {
        true => "connecting and storing the keys",
        false => "connecting",
    });
    let mut client = rig.connect(experiment)?;
    messages.step("calibrating");
    let calibrated = calibrate(rig, &mut client, &mut probe, experiment)?;
    let _background = BackgroundLoad::start(experiment, &rig.placement().server)?;
    let rate = measure::rate_or_following(rig, experiment, &calibrated);
    messages.step(&announced(rate, experiment, &calibrated));
    let length = experiment.workload.warmup + experiment.workload.longest();
    let requests = rate.first_per_s() * length.as_secs_f64();
    if let Some(lacking) = measure::lacking_room(rig.roots(), requests) {
        messages.note(&format_args!("warning: {lacking}"));
    }
    let mut context = context::before(rig, &probe, experiment, &calibrated);
    context.kernel = environment.kernel.release.clone().unwrap_or_default();
    context.hypervisor = environment.virtualization.hypervisor();
    let recorded = measure::measure(rig, &mut client, probe, experiment, context, rate)?;
    Ok((calibrated, recorded))
}

/// Says that the file has its server run as root, before it does.
fn warn_of_root(experiment: &Experiment, file: Option<&Path>, messages: Messages) {
    if let Some(warning) = experiment.root_by_file(file) {
        messages.note(&format_args!("warning: {warning}"));
    }
}

/// What is going to be sent, in words.
fn announced(rate: Rate, experiment: &Experiment, calibrated: &Calibrated) -> String {
    let mut text = match rate {
        Rate::Constant(per_s) | Rate::Repeatable(per_s) => {
            format!("measuring at {} requests per second", per_second(per_s))
        }
        Rate::Following(of) => format!(
            "measuring at about {} requests per second, {:.0} % of the capacity",
            per_second(of.first_per_s),
            100.0 * of.of_peak
        ),
    };
    if calibrated.by_cpu_time && experiment.workload.rate_per_s.is_none() {
        text.push_str(
            ", by the CPU time of a request: the calibration did not keep the server busy",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use taillab_experiment::definition::ServerKind;

    use super::*;

    #[test]
    fn a_precision_is_judged_only_by_an_interval_of_its_percentile() {
        let sojourn = Distribution::from_sorted(&[Nanos::from_micros(1); 100]);
        let said = |text: &str| precision_reached(text.parse().unwrap(), &sojourn);
        let other = said("p95=10%");
        assert!(other.contains("no interval of p95"), "{other}");
        let small = said("p99.999=0.5%");
        assert!(
            small.contains("p99.999 has no end; ±0.5 % was asked for"),
            "{small}"
        );
    }

    #[test]
    fn the_disk_has_room_for_the_longest_measurement_and_its_recording() {
        let mut experiment =
            Experiment::resolve(Some(ServerKind::Memcached), None, Vec::new()).unwrap();
        experiment.workload.warmup = Nanos::ZERO;
        experiment.workload.precision = Some("p99=10%".to_owned());
        let mut bytes = |longest, recording| {
            experiment.workload.max_duration = Some(longest);
            expected_bytes(&experiment, recording) as f64
        };
        let short = bytes(Nanos::from_secs(100), false);
        let long = bytes(Nanos::from_secs(300), false);
        assert!((2.9..=3.0).contains(&(long / short)), "{long} {short}");
        let recorded = bytes(Nanos::from_secs(300), true);
        assert!(recorded > 1.3 * long, "{recorded} {long}");
    }
}
