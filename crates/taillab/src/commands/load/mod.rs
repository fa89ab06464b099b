//! `taillab load`: a server under load, seen by a client that says whether it can be believed.

mod agent;
mod appointment;
mod closed;
mod context;
mod files;
mod find;
mod floor;
mod open;
mod outputs;
mod placing;
mod plan;
mod requests;
mod resolve;
mod schedule;
mod search;
mod session;
mod watch;

use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::say::Say;
use taillab_host::Interrupt;
use taillab_host::keep_awake::KeepAwake;
use taillab_report::rate;

use self::appointment::Appointment;
use self::context::Context;
use self::outputs::Wanted;
use self::plan::{LoadPlan, Work};
use self::session::Session;
use crate::cli::LoadArgs;

pub use self::agent::run as run_agent;

/// Loads the server as asked; the result is printed and saved.
pub fn run(args: LoadArgs) -> Result<Exit, Failure> {
    let plan = plan::plan(&args)?;
    measure(args, &plan, None)
}

/// Measures what is planned, from an instant on that other clients know too, if there is one.
fn measure(
    args: LoadArgs,
    plan: &LoadPlan,
    appointment: Option<&Appointment>,
) -> Result<Exit, Failure> {
    let say = Say::of(args.common);
    let interrupt = Interrupt::register().map_err(host)?;
    let mut wanted = Wanted::new(args.output, args.common, args.limits, plan)?;
    let _awake = plan
        .client
        .keep_awake
        .then(KeepAwake::hold)
        .transpose()
        .map_err(host)?;
    plan.client.placing.step_aside()?;
    say.step(&format!("connecting to {}", plan.target));
    let endpoint = resolve::endpoint(&plan.target.place)?;
    let session = Session::connect(endpoint, &plan.requests, &plan.client, &interrupt, say)?;
    let mut context = Context {
        plan,
        session,
        interrupt: &interrupt,
        say,
        capacity: None,
        appointment,
    };
    if plan.prefill {
        context.session.prefill()?;
    }
    if let Some(outstanding) = plan.work.calibration() {
        say.step("finding the capacity");
        let capacity = context.session.calibrate(outstanding, plan.seed)?;
        say.step(&format!(
            "the capacity is {} per second",
            rate(capacity.peak_per_s)
        ));
        context.capacity = Some(capacity);
    }
    match &plan.work {
        Work::Open(work) if work.levels.len() == 1 => open::single(context, work, &mut wanted),
        Work::Open(work) => open::sweep(context, work, &mut wanted),
        Work::Find(work) => search::run(context, work, &mut wanted),
        Work::Closed(work) => closed::run(context, work, &mut wanted),
    }
}
