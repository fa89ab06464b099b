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
/// The steps are in the modules `plan`, `context` (connect and calibrate), `open`, `search` or `closed` (measure),
/// `floor`, `judge` and `outputs` (show), in this order. What comes more than once:
/// - `session`, from connecting to the verdict: it holds the connections, which every measurement uses. The floor's is
///   made from the load's, and `judge` asks it for the address, the first wrong answer and whether it was interrupted;
/// - `schedule`, at planning, measuring and the floor: a schedule can be drawn only when the capacity is known, while a
///   bad shape is refused before anything is opened;
/// - `requests`, at planning, connecting and the floor: each thread has its own codec, and the responder imitates them;
/// - `closed`, at measuring and the floor, which is the same loop with another server;
/// - `outputs`, first and last: it makes its directory before anything is measured that could not be saved.
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
    let limits = args.limits.limits.clone();
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
    let judged = judge::judge(&context, outcome, floor, &limits);
    outputs.show(&judged)?;
    judged.exit
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
