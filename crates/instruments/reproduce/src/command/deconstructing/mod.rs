//! Figures 4 to 12 of *Deconstructing the Tail at Scale Effect*.

mod figures;

use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::rundir::RunDir;
use taillab_experiment::round_trips::{Measured, Measurement, RttPlan, label};
use taillab_host::{Interrupt, RequestedCpus};
use taillab_load::rtt::has_rdma;
use taillab_model::rtt::{RttCurves, RttRow};
use taillab_report::chart::Axis;
use taillab_simulator::paper::Claim;

use super::{Made, PaperPage};

use self::figures::Measure;
pub use self::figures::Specification;
use crate::args::{DeconstructingArgs, RoundTripFigure};
use crate::result::{JudgedClaim, ReproducedCurve, ReproducedFigure, Verdict};

const PAPER: &str = "Deconstructing the Tail at Scale Effect Across Network Protocols (Sriraman et al., 2016), \
     section 5";

const STAND_IN: &str = "This machine has no RDMA device: the curves are of shared memory between two \
    CPUs, which bypasses the kernel as RDMA does, but has no network adapter. They show what remains \
    without a protocol stack; the paper's numbers for RDMA are not judged.";

/// Why the slowest round trip may be another one than in the paper.
const SLOWEST: &str = "the slowest is the longest stall of the machine meanwhile: it depends on what else runs there, and \
    on how many round trips there are";

/// Measures the figures, writes and prints them.
pub fn run(args: DeconstructingArgs) -> Result<Exit, Failure> {
    let interrupt = Interrupt::register().map_err(host)?;
    let dir = RunDir::create_if_asked(args.output.clone(), 0)?;
    let reproduction = super::reproduce(
        PaperPage {
            name: "deconstructing",
            paper: PAPER,
        },
        wanted(&args.figures),
        (dir, args.common),
        &interrupt,
        |specification| figure(specification, &args, &interrupt),
    )?;
    Ok(match reproduction.partial {
        true => Exit::Interrupted,
        false => Exit::Ok,
    })
}

/// The figures with these names.
pub fn wanted(names: &[RoundTripFigure]) -> Vec<Specification> {
    figures::wanted(names)
}

/// Measures one figure.
pub fn figure(
    specification: Specification,
    args: &DeconstructingArgs,
    interrupt: &Interrupt,
) -> Result<Made, Failure> {
    let messages = Messages::of(args.common);
    messages.note(&format!("{}: {}", specification.name, specification.title));
    let specification = match has_rdma() {
        true => specification.over_rdma(),
        false => specification,
    };
    let plan = RttPlan::own(
        specification.rows.clone(),
        args.count.get(),
        args.runs.get(),
        RequestedCpus {
            server: args.server_cpus.as_ref(),
            client: args.client_cpus.as_ref(),
        },
    )?;
    let measured = Measurement::new(&plan, interrupt, messages)?.rows(|_| Ok(()))?;
    if let Some(failure) = measured.failure {
        return Err(failure);
    }
    let partial =
        measured.rows.len() < plan.rows.len() || measured.rows.iter().any(|row| row.partial);
    Ok((reproduced(&specification, &measured), partial).into())
}

fn reproduced(specification: &Specification, measured: &Measured) -> ReproducedFigure {
    let curves = measured.rows.iter().zip(&measured.curves);
    let curve = |(row, curves): (&RttRow, &RttCurves)| ReproducedCurve {
        label: label(row),
        sojourn: row.rtt.clone(),
        points: match specification.is_series {
            true => (curves.around_slowest.iter())
                .map(|(n, rtt)| (*n as f64, rtt.get() as f64))
                .collect(),
            false => (curves.ccdf.iter())
                .map(|(rtt, share)| (rtt.get() as f64, *share))
                .collect(),
        },
    };
    let functional_only = measured
        .rows
        .iter()
        .find_map(|row| row.functional_only.as_ref());
    let stands_in = specification.rdma.is_some();
    let is_comparable = !stands_in && functional_only.is_none();
    let claims: Vec<JudgedClaim> = (specification.claims.iter())
        .map(|claim| {
            let claim = judged(claim, specification.rows.len(), &measured.rows);
            let verdict = match claim.ours {
                Some(_) if !is_comparable => Verdict::NotJudged,
                _ => claim.verdict,
            };
            JudgedClaim { verdict, ..claim }
        })
        .collect();
    ReproducedFigure {
        figure: specification.name.to_owned(),
        title: specification.title.to_owned(),
        curves: curves.map(curve).collect(),
        note: Some(match functional_only {
            _ if stands_in => STAND_IN.to_owned(),
            Some(why) => format!("Functional only: {why}; the paper's numbers are not judged."),
            None => agreement(&claims),
        }),
        claims,
        show: format!("taillab reproduce deconstructing {}", specification.name),
        took_s: 0.0,
        axes: match specification.is_series {
            true => (Axis::Number, Axis::Latency),
            false => (Axis::Latency, Axis::Slower),
        },
        drawn: Vec::new(),
        tabulated: false,
    }
}

/// What agrees, in one sentence.
fn agreement(claims: &[JudgedClaim]) -> String {
    let with = |verdict: Verdict| -> Vec<&str> {
        let claims = claims.iter().filter(|claim| claim.verdict == verdict);
        claims.map(|claim| claim.statement.as_str()).collect()
    };
    let (agrees, disagrees) = (with(Verdict::Agrees), with(Verdict::Disagrees));
    match (agrees.as_slice(), disagrees.as_slice()) {
        ([], []) => "Too few round trips to say what agrees.".to_owned(),
        (all, []) => format!("Here as in the paper: {}.", all.join("; ")),
        ([], all) => format!("Not so on this machine: {}.", all.join("; ")),
        (yes, no) => format!(
            "Here as in the paper: {}. Not so on this machine: {}.",
            yes.join("; "),
            no.join("; ")
        ),
    }
}

/// The claim next to the number from these rows, of which there should be `wanted`.
fn judged(claim: &Claim<Measure>, wanted: usize, rows: &[RttRow]) -> JudgedClaim {
    let unit = match claim.measure {
        Measure::QuantileUs(_) | Measure::WorstUs => "µs",
        _ => "×",
    };
    let is_measured = rows.len() == wanted && rows.iter().all(|row| row.rtt.count > 0);
    let missing = match is_measured {
        true => Verdict::Unsupported,
        false => Verdict::NotMeasured,
    };
    let judged = super::judged(claim, evaluated(claim.measure, rows), unit, missing);
    JudgedClaim {
        explanation: claim.measure.is_of_slowest().then(|| SLOWEST.to_owned()),
        ..judged
    }
}

/// Our number; `None` if a curve does not support it.
fn evaluated(measure: Measure, rows: &[RttRow]) -> Option<f64> {
    let us = |ns: taillab_model::Nanos| ns.as_micros_f64();
    let longest = |of: &dyn Fn(&RttRow) -> Option<f64>| {
        let values: Option<Vec<f64>> = rows.iter().map(of).collect();
        values?.into_iter().reduce(f64::max)
    };
    let ratio = |of: &dyn Fn(&RttRow) -> Option<f64>| {
        let (first, last) = (of(rows.first()?)?, of(rows.last()?)?);
        (first > 0.0).then_some(last / first)
    };
    match measure {
        Measure::QuantileUs(q) => longest(&|row| row.rtt.quantile(q).map(us)),
        Measure::WorstUs => longest(&|row| row.slowest().map(us)),
        Measure::WorstToMedian => longest(&|row| row.worst_to_median),
        Measure::LastToFirst(q) => ratio(&|row| row.rtt.quantile(q).map(us)),
        Measure::WorstLastToFirst => ratio(&|row| row.slowest().map(us)),
        Measure::InRuns => longest(&|row| Some(row.bursts.as_ref()?.clustering.in_runs_share)),
    }
}
