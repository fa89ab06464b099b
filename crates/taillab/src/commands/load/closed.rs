//! `-R max` and `--ping-pong`: no schedule, each answer triggers the next request.

use taillab_analysis::load::of_closed_loop;
use taillab_analysis::verdict::LoadEvidence;
use taillab_console::exit::Failure;
use taillab_load::{FleetRun, Outcome, Saturation, StopReason};
use taillab_model::Nanos;
use taillab_model::load_result::{ClosedLoop, Floor, Mode};
use taillab_model::summary::ClientCost;

use super::context::Context;
use super::floor::{self, FloorResult};
use super::outcome::{Ending, Figures, LoadOutcome};
use super::plan::{Closed, LoadPlan};
use super::session::Session;

/// Warm-up before the floor is measured.
const FLOOR_WARM_UP: Nanos = Nanos::from_millis(200);

/// Runs the closed loop.
pub fn run(context: &mut Context<'_>, work: &Closed) -> Result<LoadOutcome, Failure> {
    if let Some(appointment) = context.appointment {
        appointment.wait(Nanos::ZERO, context.interrupt)?;
    }
    let (session, plan) = (&mut context.session, context.plan);
    let found = PeakFound::measure(session, plan, work, work.warmup, work.duration)?;
    Ok(LoadOutcome {
        mode: match work.outstanding {
            Some(_) => Mode::ClosedLoop,
            None => Mode::PingPong,
        },
        started_unix_s: found.started_unix_s,
        partial: found.stopped.is_some(),
        ending: Ending {
            stopped: found.stopped,
            failure: None,
        },
        figures: Figures::ClosedLoop {
            closed_loop: Box::new(found.closed_loop),
            evidence: found.evidence,
        },
        schedule: None,
    })
}

/// Runs the same closed loop with the responder.
pub fn measure_floor(context: &Context<'_>, work: &Closed) -> FloorResult<Floor> {
    let plan = context.plan;
    floor::against_responder(context, |session, length, responder| {
        let found = PeakFound::measure(session, plan, work, FLOOR_WARM_UP, length)?;
        Ok(found.stopped.is_none().then_some(Floor {
            responder,
            load: None,
            closed_loop: Some(found.closed_loop),
        }))
    })
}

/// One measurement: the result, why it ended early if it did, and when it began.
struct PeakFound {
    closed_loop: ClosedLoop,
    evidence: LoadEvidence,
    stopped: Option<StopReason>,
    started_unix_s: u64,
}

impl PeakFound {
    fn measure(
        session: &mut Session<'_>,
        plan: &LoadPlan,
        work: &Closed,
        warm_up: Nanos,
        length: Nanos,
    ) -> Result<Self, Failure> {
        Ok(match work.outstanding {
            Some(outstanding) => {
                let (found, started_unix_s) =
                    session.closed_loop(outstanding, warm_up, length, plan.seed)?;
                let (closed_loop, evidence) = of_saturation(&found, outstanding);
                Self {
                    closed_loop,
                    evidence,
                    stopped: found.stopped,
                    started_unix_s,
                }
            }
            None => {
                let (run, started_unix_s) = session.ping_pong(warm_up, length, plan.seed)?;
                let (closed_loop, evidence) = of_ping_pong(&run, plan.client.connections);
                Self {
                    closed_loop,
                    evidence,
                    stopped: run.stopped,
                    started_unix_s,
                }
            }
        })
    }
}

fn of_saturation(found: &Saturation, outstanding: usize) -> (ClosedLoop, LoadEvidence) {
    let busy_share = 1.0 - found.idle_share;
    let busy_ns = found.elapsed.get() as f64 * busy_share;
    let answers = found.responses;
    // an error of the server is an answer
    let unanswered = found.errors.failed_requests() - found.errors.server_errors;
    // the times of a long run are not all kept, so its unanswered requests count in proportion
    let in_proportion = (unanswered * found.times.len() as u64).div_ceil(answers.max(1));
    let (service_time, evidence) = of_closed_loop(&found.times, in_proportion);
    let closed_loop = ClosedLoop {
        outstanding: u32::try_from(outstanding).unwrap_or(u32::MAX),
        requests: answers + unanswered,
        duration_ns: found.elapsed,
        answered_rate_per_s: per_s(answers, found.elapsed),
        service_time,
        client: ClientCost {
            cpu_ns_per_request: Nanos::new((busy_ns / answers.max(1) as f64) as u64),
            busy_share,
        },
        errors: found.errors,
    };
    (closed_loop, evidence)
}

fn of_ping_pong(run: &FleetRun, connections: usize) -> (ClosedLoop, LoadEvidence) {
    let answered = || {
        run.iter_measured()
            .filter(|entry| entry.outcome != Outcome::TimedOut)
    };
    let service_times: Vec<Nanos> = answered()
        // a connection of its own is opened first
        .filter_map(|entry| Some(entry.service_time()? + entry.connecting_took()))
        .collect();
    let sends = || run.measured_turns();
    // to the last answer: between the sends of a few slow requests, less time passes than they take
    let last_answer = answered().filter_map(|entry| entry.times.received).max();
    let elapsed = match (sends().next(), sends().last().max(last_answer)) {
        (Some(first), Some(last)) => last.saturating_since(first),
        _ => Nanos::ZERO,
    };
    let (requests, answers) = (sends().count() as u64, service_times.len() as u64);
    let (service_time, evidence) = of_closed_loop(&service_times, requests - answers);
    let closed_loop = ClosedLoop {
        outstanding: u32::try_from(connections).unwrap_or(u32::MAX),
        requests,
        duration_ns: elapsed,
        answered_rate_per_s: per_s(answers, elapsed),
        service_time,
        client: run.cpu().cost(),
        errors: run.errors(),
    };
    (closed_loop, evidence)
}

fn per_s(answers: u64, elapsed: Nanos) -> f64 {
    answers as f64 / elapsed.as_secs_f64().max(1e-9)
}
