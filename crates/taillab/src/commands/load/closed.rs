//! `-R max` and `--ping-pong`: no schedule, each answer triggers the next request.

use taillab_analysis::statistics::distribution_of;
use taillab_analysis::verdict::LoadEvidence;
use taillab_load::{FleetRun, Outcome, Saturation, StopReason};
use taillab_model::Nanos;
use taillab_model::load_result::{ClosedLoop, Floor, Generator, Mode};
use taillab_model::summary::ClientCost;
use taillab_report::load::LoadDocument;

use super::context::Context;
use super::floor;
use super::outputs::Wanted;
use super::plan::{Closed, LoadPlan};
use super::session::Session;
use crate::exit::{Exit, Failure};
use crate::pipeline::ClientMeasured;

/// Warm-up before the floor is measured.
const FLOOR_WARM_UP: Nanos = Nanos::from_millis(200);

/// Runs the closed loop.
pub fn run(mut context: Context<'_>, work: &Closed, wanted: &mut Wanted) -> Result<Exit, Failure> {
    let plan = context.plan;
    let mode = match work.outstanding {
        Some(_) => Mode::ClosedLoop,
        None => Mode::PingPong,
    };
    let lengths = (work.warmup, work.duration);
    let found = PeakFound::measure(&mut context.session, plan, work, lengths)?;
    let floor = floor::against_responder(&context, |session, length, responder| {
        let found = PeakFound::measure(session, plan, work, (FLOOR_WARM_UP, length))?;
        Ok(found.stopped.is_none().then_some(Floor {
            responder,
            load: None,
            closed_loop: Some(found.closed_loop),
        }))
    });
    let mut report = ClientMeasured {
        target: plan.target.to_string(),
        started_unix_s: found.started_unix_s,
        partial: found.stopped.is_some(),
        load: None,
        generator: Generator {
            closed_loop: Some(found.closed_loop),
            floor_absent_because: floor.as_ref().err().cloned(),
            floor: floor.ok(),
            ..context.generator(mode)
        },
    }
    .conclude(&LoadEvidence::default());
    wanted.hold(&mut report)?;
    wanted.write(&LoadDocument::of(&report), None)?;
    context.end(found.stopped, &report)
}

/// One measurement: the result, why it ended early if it did, and when it began.
struct PeakFound {
    closed_loop: ClosedLoop,
    stopped: Option<StopReason>,
    started_unix_s: u64,
}

impl PeakFound {
    fn measure(
        session: &mut Session<'_>,
        plan: &LoadPlan,
        work: &Closed,
        (warm_up, length): (Nanos, Nanos),
    ) -> Result<Self, Failure> {
        Ok(match work.outstanding {
            Some(outstanding) => {
                let (found, started_unix_s) =
                    session.closed_loop(outstanding, warm_up, length, plan.seed)?;
                Self {
                    closed_loop: of_saturation(&found, outstanding),
                    stopped: found.stopped,
                    started_unix_s,
                }
            }
            None => {
                let (run, started_unix_s) = session.ping_pong(warm_up, length, plan.seed)?;
                Self {
                    closed_loop: of_ping_pong(&run, plan.client.connections),
                    stopped: run.stopped,
                    started_unix_s,
                }
            }
        })
    }
}

fn of_saturation(found: &Saturation, outstanding: usize) -> ClosedLoop {
    let busy_share = 1.0 - found.idle_share;
    let busy_ns = found.elapsed.get() as f64 * busy_share;
    ClosedLoop {
        outstanding: u32::try_from(outstanding).unwrap_or(u32::MAX),
        requests: found.responses + found.errors.failed_requests(),
        duration_ns: found.elapsed,
        answered_rate_per_s: per_s(found.responses, found.elapsed),
        service_time: distribution_of(&found.times),
        client: ClientCost {
            cpu_ns_per_request: Nanos::new((busy_ns / found.responses.max(1) as f64) as u64),
            busy_share,
        },
        errors: found.errors,
    }
}

fn of_ping_pong(run: &FleetRun, connections: usize) -> ClosedLoop {
    let answered = || {
        run.iter_measured()
            .filter(|entry| entry.outcome != Outcome::TimedOut)
    };
    let service_times: Vec<Nanos> = answered()
        .filter_map(|entry| entry.service_time())
        .collect();
    let sends = || run.measured_sends();
    // to the last answer: between the sends of a few slow requests, less time passes than they take
    let last_answer = answered().filter_map(|entry| entry.times.received).max();
    let elapsed = match (sends().next(), sends().last().max(last_answer)) {
        (Some(first), Some(last)) => last.saturating_since(first),
        _ => Nanos::ZERO,
    };
    ClosedLoop {
        outstanding: u32::try_from(connections).unwrap_or(u32::MAX),
        requests: sends().count() as u64,
        duration_ns: elapsed,
        answered_rate_per_s: per_s(service_times.len() as u64, elapsed),
        service_time: distribution_of(&service_times),
        client: run.cpu().cost(),
        errors: run.errors(),
    }
}

fn per_s(answers: u64, elapsed: Nanos) -> f64 {
    answers as f64 / elapsed.as_secs_f64().max(1e-9)
}
