//! `taillab load`: a server under load, seen by a client that says whether it can be believed.

mod agent;
mod appointment;
mod closed;
mod context;
mod files;
mod find;
mod floor;
mod judge;
mod open;
mod outcome;
mod outputs;
mod placing;
mod plan;
mod requests;
mod resolve;
mod schedule;
mod search;
mod session;
mod watch;

use taillab_analysis::load::LoadCurves;
use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_host::Interrupt;
use taillab_host::keep_awake::KeepAwake;
use taillab_model::load_result::Floor;

use self::appointment::Appointment;
use self::context::Context;
use self::floor::FloorResult;
use self::outcome::LoadOutcome;
use self::outputs::Outputs;
use self::plan::{LoadPlan, Work};
use self::schedule::Schedule;
use crate::cli::LoadArgs;

pub use self::agent::run as run_agent;

/// Loads the server as asked; the result is printed and saved.
///
/// The steps are in the modules `plan`, `context` (connect and calibrate), `open`, `search` or `closed` (measure, all of
/// them by a `session`), `floor`, `judge` and `outputs`. Only `outputs` comes twice: it makes its directory first, so
/// that nothing is measured that cannot be saved.
pub fn run(args: LoadArgs) -> Result<Exit, Failure> {
    let plan = plan::plan(&args)?;
    carry_out(args, &plan, None)
}

/// Does what is planned, from an instant on that other clients know too, if there is one.
fn carry_out(
    args: LoadArgs,
    plan: &LoadPlan,
    appointment: Option<&Appointment>,
) -> Result<Exit, Failure> {
    let messages = Messages::of(args.common);
    let interrupt = Interrupt::register().map_err(host)?;
    let outputs = Outputs::new(args.output, args.common, args.limits, plan)?;
    let _awake = plan
        .client
        .keep_awake
        .then(KeepAwake::hold)
        .transpose()
        .map_err(host)?;
    plan.client.placing.step_aside()?;
    let mut context = Context::connect(plan, &interrupt, messages)?;
    context.appointment = appointment;
    context.calibrate()?;
    let mut outcome = measure(&mut context)?;
    let floor = measure_floor(&context, outcome.schedule.take());
    let mut judged = judge::judge(&context, outcome, floor);
    outputs.show(&mut judged)?;
    context.end(judged.ending, &judged.report)
}

fn measure(context: &mut Context<'_>) -> Result<LoadOutcome, Failure> {
    let plan = context.plan;
    match &plan.work {
        Work::Open(work) if work.levels.len() == 1 => open::single(context, work),
        Work::Open(work) => open::sweep(context, work),
        Work::Find(work) => search::run(context, work),
        Work::Closed(work) => closed::run(context, work),
    }
}

/// The client's own floor, in the same way as the load: with the beginning of its schedule, where it has one.
fn measure_floor(
    context: &Context<'_>,
    schedule: Option<Schedule>,
) -> FloorResult<(Floor, Option<LoadCurves>)> {
    let shape = match &context.plan.work {
        Work::Open(work) => &work.shape,
        Work::Find(work) => &work.shape,
        Work::Closed(work) => return Ok((closed::measure_floor(context, work)?, None)),
    };
    let schedule = schedule.ok_or("no load was measured")?;
    let (floor, curves) = floor::of_schedule(context, schedule, shape)?;
    Ok((floor, Some(curves)))
}
