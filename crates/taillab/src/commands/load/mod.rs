//! `taillab load`: a server under load, seen by a client that says whether it can be believed.

mod closed;
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

use taillab_host::Interrupt;
use taillab_host::keep_awake::KeepAwake;
use taillab_load::StopReason;
use taillab_model::load_result::Capacity;
use taillab_model::summary::Verdict;

use self::outputs::Wanted;
use self::plan::{Plan, Work};
use self::session::Session;
use crate::cli::LoadArgs;
use crate::exit::{Exit, Failure};
use crate::fail::host;
use crate::say::Say;

/// Loads the server as asked; the result is printed and saved.
pub fn run(args: LoadArgs) -> Result<Exit, Failure> {
    let plan = plan::plan(&args)?;
    let say = Say::of(args.common);
    let interrupt = Interrupt::register().map_err(host)?;
    let mut wanted = Wanted::new(args.output, args.common.json, &plan)?;
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
        plan: &plan,
        session,
        interrupt: &interrupt,
        say,
        capacity: None,
    };
    if plan.prefill {
        context.session.prefill()?;
    }
    if let Some(outstanding) = plan.work.calibration() {
        say.step("finding the capacity");
        let capacity = context.session.calibrate(outstanding, plan.seed)?;
        say.step(&format!(
            "the capacity is {:.0} per second",
            capacity.peak_per_s
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

/// What every kind of load has at hand.
struct Context<'a> {
    plan: &'a Plan,
    session: Session<'a>,
    interrupt: &'a Interrupt,
    say: Say,
    /// Where the load is a share of it.
    capacity: Option<Capacity>,
}

impl Context<'_> {
    /// How the command ends, once its result is out.
    fn end(&self, stopped: Option<StopReason>, verdict: &Verdict) -> Result<Exit, Failure> {
        match stopped {
            // also when only the floor was cut short
            _ if self.session.interrupted() => Ok(Exit::Interrupted),
            Some(StopReason::Refused | StopReason::Hook | StopReason::Interrupted) => Err(self
                .session
                .gone("during the load; what came before is in the result")),
            None if !verdict.valid => Ok(Exit::Invalid),
            None => Ok(Exit::Ok),
        }
    }
}

/// The hypervisor's name on a virtual machine, as far as the kernel tells it.
fn hypervisor() -> Option<String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = cpus.lines().find(|line| line.starts_with("flags"))?;
    flags
        .split_whitespace()
        .find(|flag| *flag == "hypervisor")?;
    let product = std::fs::read_to_string("/sys/class/dmi/id/product_name").ok();
    let product = product.map(|name| name.trim().to_owned());
    Some(
        product
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "a hypervisor".to_owned()),
    )
}
