//! `-R max` and `--ping-pong`: no schedule, the next request goes when an answer is there.

use taillab_analysis::load::{LoadContext, judge_closed_loop};
use taillab_analysis::statistics::distribution_of;
use taillab_load::Saturation;
use taillab_model::load_result::{COMMAND, ClosedFloor, ClosedLoopResult, Mode, SCHEMA_VERSION};
use taillab_model::summary::{ClientCost, Verdict};
use taillab_model::{Distribution, Nanos};

use super::floor;
use super::outputs::Wanted;
use super::plan::Closed;
use super::session::setup;
use super::{Context, hypervisor};
use crate::exit::{Exit, Failure};

/// Before the floor is counted.
const FLOOR_WARM_UP: Nanos = Nanos::from_millis(200);

/// Runs the closed loop.
pub fn run(mut context: Context<'_>, work: &Closed, wanted: &mut Wanted) -> Result<Exit, Failure> {
    let plan = context.plan;
    let (mode, outstanding) = match work.outstanding {
        Some(outstanding) => (Mode::ClosedLoop, outstanding),
        None => (Mode::PingPong, plan.client.connections),
    };
    let (found, started_unix_s) =
        context
            .session
            .closed_loop(outstanding, work.warmup, work.duration, plan.seed)?;
    let numbers = Numbers::of(&found);
    let floor = floor::against_responder(&context, |session, length, responder| {
        let (found, _) = session.closed_loop(outstanding, FLOOR_WARM_UP, length, plan.seed)?;
        if found.stopped.is_some() {
            return Ok(None);
        }
        let numbers = Numbers::of(&found);
        Ok(Some(ClosedFloor {
            responder,
            requests: numbers.requests,
            duration_ns: found.elapsed,
            answered_rate_per_s: found.rate_per_s(),
            service_time: numbers.service_time,
            client: numbers.client,
        }))
    });
    let (floor, floor_absent_because) = floor.into_parts();
    let Numbers {
        requests,
        service_time,
        client,
    } = numbers;
    let context_of = LoadContext {
        partial: found.stopped.is_some(),
        floor: None,
        hypervisor: hypervisor(),
    };
    let judgement = judge_closed_loop(requests, &service_time, &client, &found.errors, &context_of);
    let result = ClosedLoopResult {
        schema_version: SCHEMA_VERSION,
        command: COMMAND.to_owned(),
        setup: setup(plan, context.session.endpoint()),
        mode,
        started_unix_s,
        partial: found.stopped.is_some(),
        outstanding: u32::try_from(outstanding).unwrap_or(u32::MAX),
        requests,
        duration_ns: found.elapsed,
        answered_rate_per_s: found.rate_per_s(),
        service_time,
        client,
        errors: found.errors,
        floor,
        floor_absent_because,
        verdict: Verdict::from(&judgement),
    };
    wanted.closed(&result)?;
    context.end(found.stopped, &result.verdict)
}

/// What a closed loop's distribution and costs are.
struct Numbers {
    requests: u64,
    service_time: Distribution,
    client: ClientCost,
}

impl Numbers {
    fn of(found: &Saturation) -> Self {
        let busy = found.elapsed.get() as f64 * (1.0 - found.idle_share);
        Self {
            requests: found.responses + found.errors.failed_requests(),
            service_time: distribution_of(&found.times),
            client: ClientCost {
                cpu_ns_per_request: Nanos::new((busy / found.responses.max(1) as f64) as u64),
                busy_share: 1.0 - found.idle_share,
            },
        }
    }
}
