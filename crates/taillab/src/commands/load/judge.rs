//! From what was measured to the result: its verdict, what is left of its figures, and how the command ends.

use taillab_analysis::load::{LoadAnalysis, LoadCurves};
use taillab_analysis::verdict::{LoadEvidence, Supported};
use taillab_console::exit::{Exit, Failure};
use taillab_experiment::pipeline::{ClientMeasured, limits};
use taillab_load::target::{Host, Place};
use taillab_load::{Endpoint, FleetRun};
use taillab_model::Nanos;
use taillab_model::load_result::{CommonStart, Floor, Generator, LoadReport, Mode};
use taillab_model::threshold::Threshold;
use taillab_report::load::{LoadCurve, LoadDocument, LoadSeries};

use super::appointment::Appointment;
use super::context::Context;
use super::floor::FloorResult;
use super::outcome::{Ending, Figures, LoadOutcome};
use super::session::LoadMeasurement;

/// A judged result, and what is shown with it.
pub struct JudgedLoad {
    pub report: LoadReport,
    /// The requests of a single load.
    pub run: Option<FleetRun>,
    /// How the command ends, once the result is out.
    pub exit: Result<Exit, Failure>,
    /// What of a single load holds.
    pub supported: Option<Supported>,
    curves: Vec<LoadCurve>,
    needs: Vec<(f64, u64)>,
}

impl JudgedLoad {
    /// What the outputs for people show.
    pub fn document(&self) -> LoadDocument<'_> {
        LoadDocument {
            report: &self.report,
            curves: &self.curves,
            needs: &self.needs,
        }
    }

    /// A result of which only the report is shown.
    fn of(report: LoadReport, context: &Context<'_>, ending: Ending) -> Self {
        Self {
            exit: exit(context, ending, &report),
            report,
            run: None,
            supported: None,
            curves: Vec::new(),
            needs: Vec::new(),
        }
    }
}

/// Judges what was measured, with the client's own floor, and holds the limits against it.
pub fn judge(
    context: &Context<'_>,
    outcome: LoadOutcome,
    floor: FloorResult<(Floor, Option<LoadCurves>)>,
    limits: &[Threshold],
) -> JudgedLoad {
    let floor_absent_because = floor.as_ref().err().cloned();
    let (floor, floor_curves) = floor.ok().unzip();
    let mut client = ClientMeasured {
        target: target(context),
        started_unix_s: outcome.started_unix_s,
        partial: outcome.partial,
        load: None,
        generator: Generator {
            floor,
            floor_absent_because,
            ..generator(context, outcome.mode)
        },
        limits: limits.to_vec(),
    };
    let ending = outcome.ending;
    match outcome.figures {
        Figures::Load(measurement) => {
            client.generator.start = started(context, &measurement.run);
            of_load(
                client,
                *measurement,
                floor_curves.flatten(),
                (context, ending),
            )
        }
        Figures::Steps { steps, found } => {
            (client.generator.steps, client.generator.found) = (steps, found);
            JudgedLoad::of(client.conclude(&LoadEvidence::default()).0, context, ending)
        }
        Figures::ClosedLoop {
            closed_loop,
            evidence,
        } => {
            client.generator.closed_loop = Some(*closed_loop);
            JudgedLoad::of(client.conclude(&evidence).0, context, ending)
        }
    }
}

fn of_load(
    mut client: ClientMeasured,
    measurement: LoadMeasurement,
    floor: Option<LoadCurves>,
    (context, ending): (&Context<'_>, Ending),
) -> JudgedLoad {
    let LoadAnalysis {
        summary,
        wire,
        curves,
        evidence,
    } = measurement.analysis;
    client.load = Some(summary);
    client.generator.wire = wire;
    let (report, supported) = client.conclude(&evidence);
    let curves = LoadCurves {
        response_time: supported.curve(curves.response_time),
        service_time: supported.curve(curves.service_time),
        ..curves
    };
    let unsupported = evidence.unsupported.iter();
    JudgedLoad {
        curves: drawn(curves, floor),
        needs: unsupported
            .map(|lacking| (lacking.q, lacking.needs))
            .collect(),
        run: Some(measurement.run),
        supported: Some(supported),
        ..JudgedLoad::of(report, context, ending)
    }
}

/// The curves of a figure.
fn drawn(load: LoadCurves, floor: Option<LoadCurves>) -> Vec<LoadCurve> {
    let curve = |series, points: Vec<(Nanos, f64)>| LoadCurve { series, points };
    let mut curves = vec![
        curve(LoadSeries::ResponseTime, load.response_time),
        curve(LoadSeries::ServiceTime, load.service_time),
        curve(LoadSeries::Lateness, load.lateness),
    ];
    curves.extend(floor.map(|floor| curve(LoadSeries::Floor, floor.response_time)));
    curves
}

/// How the command ends, once its result is out.
fn exit(context: &Context<'_>, ending: Ending, report: &LoadReport) -> Result<Exit, Failure> {
    // also when only the floor was cut short
    if context.session.interrupted() {
        return Ok(Exit::Interrupted);
    }
    if let Some(failure) = ending.failure {
        return Err(failure);
    }
    if ending.stopped.is_some() {
        let when = "during the load; what came before is in the result";
        return Err(context.session.gone(when));
    }
    if !report.verdict.valid {
        return Ok(Exit::Invalid);
    }
    let found_none = report.generator().found.is_some_and(|found| !found.held);
    Ok(match limits::exit(&report.assertions) {
        Exit::Ok if found_none => Exit::Missed,
        exit => exit,
    })
}

/// The target as it was given, with the address that a name stands for.
fn target(context: &Context<'_>) -> String {
    let target = &context.plan.target;
    let named = match &target.place {
        Place::Tcp(at) | Place::Udp(at) => matches!(at.host, Host::Name(_)),
        Place::Unix(_) => false,
    };
    match context.session.endpoint() {
        Endpoint::Tcp(address) | Endpoint::Udp(address) if named => {
            format!("{target} ({address})")
        }
        _ => target.to_string(),
    }
}

/// The generator as it was set up; the caller adds what it measured.
fn generator(context: &Context<'_>, mode: Mode) -> Generator {
    let client = &context.plan.client;
    Generator {
        mode,
        protocol: context.plan.requests.label().to_owned(),
        transport: match context.session.endpoint() {
            Endpoint::Udp(_) => "udp",
            Endpoint::Tcp(_) => "tcp",
            Endpoint::Unix(_) => "unix",
        }
        .to_owned(),
        connections: u32::try_from(client.connections).unwrap_or(u32::MAX),
        threads: u32::try_from(client.threads()).unwrap_or(u32::MAX),
        kept_awake: client.keep_awake,
        capacity: context.capacity,
        start: context.appointment.map(Appointment::start),
        wrong_answer: wrong_answer(context),
        ..Generator::default()
    }
}

/// The first wrong answer; with it the protocol that the server speaks, if that is another one than
/// the load's.
fn wrong_answer(context: &Context<'_>) -> Option<String> {
    let first = context.session.wrong_answer()?;
    let label = context.plan.requests.label();
    let asked = label.split('-').next().unwrap_or(label);
    let other = first
        .speaks()
        .filter(|name| !name.to_lowercase().contains(asked));
    Some(match other {
        Some(protocol) => format!("{first} (this port speaks {protocol})"),
        None => first.to_string(),
    })
}

/// When this client of several began, and how late it sent its first request.
fn started(context: &Context<'_>, run: &FleetRun) -> Option<CommonStart> {
    let first = run.iter().next();
    let late = first.map(|first| first.times.sent.saturating_since(first.times.intended));
    context.appointment.map(|appointment| CommonStart {
        first_send_late_ns: late,
        ..appointment.start()
    })
}
