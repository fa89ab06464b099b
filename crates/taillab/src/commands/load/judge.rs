//! From what was measured to the result: its verdict, and what is left of its figures.

use taillab_analysis::load::{LoadAnalysis, LoadCurves};
use taillab_analysis::verdict::{LoadEvidence, Supported};
use taillab_experiment::pipeline::ClientMeasured;
use taillab_load::FleetRun;
use taillab_model::Nanos;
use taillab_model::load_result::{Floor, Generator, LoadReport};
use taillab_report::load::{LoadCurve, LoadDocument, LoadSeries};

use super::context::Context;
use super::floor::FloorResult;
use super::outcome::{Ending, Figures, LoadOutcome};
use super::session::LoadMeasurement;

/// A judged result, and what is shown with it.
pub struct Judged {
    pub report: LoadReport,
    /// The requests of a single load.
    pub run: Option<FleetRun>,
    pub ending: Ending,
    /// What of a single load holds.
    pub supported: Option<Supported>,
    curves: Vec<LoadCurve>,
    needs: Vec<(f64, u64)>,
}

impl Judged {
    /// What the outputs for people show.
    pub fn document(&self) -> LoadDocument<'_> {
        LoadDocument {
            report: &self.report,
            curves: &self.curves,
            needs: &self.needs,
        }
    }

    /// A result of which only the report is shown.
    fn of(report: LoadReport, ending: Ending) -> Self {
        Self {
            report,
            run: None,
            ending,
            supported: None,
            curves: Vec::new(),
            needs: Vec::new(),
        }
    }
}

/// Judges what was measured, with the client's own floor.
pub fn judge(
    context: &Context<'_>,
    outcome: LoadOutcome,
    floor: FloorResult<(Floor, Option<LoadCurves>)>,
) -> Judged {
    let floor_absent_because = floor.as_ref().err().cloned();
    let (floor, floor_curves) = floor.ok().unzip();
    let mut client = ClientMeasured {
        target: context.target(),
        started_unix_s: outcome.started_unix_s,
        partial: outcome.partial,
        load: None,
        generator: Generator {
            floor,
            floor_absent_because,
            ..context.generator(outcome.mode)
        },
    };
    let ending = outcome.ending;
    match outcome.figures {
        Figures::Load(measurement) => {
            client.generator.start = context.started(&measurement.run);
            of_load(client, *measurement, floor_curves.flatten(), ending)
        }
        Figures::Steps { steps, found } => {
            (client.generator.steps, client.generator.found) = (steps, found);
            Judged::of(client.conclude(&LoadEvidence::default()).0, ending)
        }
        Figures::ClosedLoop {
            closed_loop,
            evidence,
        } => {
            client.generator.closed_loop = Some(*closed_loop);
            Judged::of(client.conclude(&evidence).0, ending)
        }
    }
}

fn of_load(
    mut client: ClientMeasured,
    measurement: LoadMeasurement,
    floor: Option<LoadCurves>,
    ending: Ending,
) -> Judged {
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
    Judged {
        curves: drawn(curves, floor),
        needs: unsupported
            .map(|lacking| (lacking.q, lacking.needs))
            .collect(),
        run: Some(measurement.run),
        supported: Some(supported),
        ..Judged::of(report, ending)
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
