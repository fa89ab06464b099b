//! `taillab noise`: what takes time from a thread that wants to run.

mod below_kernel;
mod compare;
mod isolation;
mod plan;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::print::style;
use taillab_console::rendered::Rendered;
use taillab_console::rights::recover;
use taillab_console::rundir::{RunDir, with_files};
use taillab_experiment::noise::{Measuring, Phase};
use taillab_host::environment::{Virtualization, kernel_release};
use taillab_host::noise::tsc;
use taillab_host::{CpuQuota, Interrupt, Roots, clock, cpu_quota};
use taillab_model::noise::NoiseRow;
use taillab_report::json;

use self::isolation::Isolation;
use self::plan::NoisePlan;
use crate::args::NoiseArgs;
use crate::result::{NoiseQuota, NoiseResult, SCHEMA_VERSION};
use crate::{page, terminal};

/// Plans, measures phase by phase, and prints.
pub fn run(args: NoiseArgs) -> Result<Exit, Failure> {
    let roots = Roots::default();
    let messages = Messages::of(args.common);
    let plan = plan::plan(&args, &roots)?;
    recover(&roots, messages)?;
    let mut dir = RunDir::create_if_asked(args.output.clone(), 0)?;
    let interrupt = Interrupt::register().map_err(host)?;
    let started_unix_s = clock::unix_s();
    messages.step("measuring the time stamp counter");
    let counter = tsc::describe(&roots).map_err(host)?;
    let mut measuring = Measuring::new(
        &plan.usable,
        &counter,
        &interrupt,
        args.common.quiet,
        !args.no_causes,
    );
    let limit = cpu_quota(&roots);
    let mut held = plan.held.clone();
    let mut rows = measure(&plan, &mut measuring, &mut held, messages)?;
    below_kernel::mark(&mut rows);
    let quota = limit.map(|before| quota(before, &roots));
    let result = NoiseResult {
        schema_version: SCHEMA_VERSION,
        command: "noise".into(),
        taillab_version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s,
        partial: interrupt.is_raised(),
        kernel: kernel_release(&roots),
        hypervisor: Virtualization::read(&roots).hypervisor(),
        comparison: compare::sentences(&rows, quota),
        notes: plan.notes.iter().cloned().chain(measuring.notes).collect(),
        held,
        clock: counter,
        quota,
        rows,
    };
    show(&args, dir.as_mut(), &result)?;
    let exit = match result.partial {
        true => Exit::Interrupted,
        false => Exit::Ok,
    };
    with_files(Ok(exit), dir.map_or(Ok(()), RunDir::outcome))
}

/// Runs phase after phase, until Ctrl-C.
fn measure(
    plan: &NoisePlan,
    measuring: &mut Measuring<'_>,
    held: &mut Vec<String>,
    messages: Messages,
) -> Result<Vec<NoiseRow>, Failure> {
    let (mut rows, mut refused) = (Vec::new(), None);
    for phase in &plan.phases {
        if measuring.is_interrupted() {
            break;
        }
        messages.step(&describe(phase));
        let isolation = match &phase.cpus {
            Some(cpus) if phase.interrupts_away => {
                let isolation = Isolation::begin(cpus, &mut measuring.notes)?;
                held.extend(isolation.said(cpus));
                Some(isolation)
            }
            _ => None,
        };
        let found = measuring.phase(phase);
        // put everything back before we look at the result
        isolation.map_or(Ok(()), Isolation::end)?;
        match found {
            Ok(found) => rows.extend(found),
            // a loop that this kernel refuses does not spoil the others
            Err(failure) => {
                let name = match phase.step.as_str() {
                    "" => phase.kind.label(),
                    step => step,
                };
                let note = format!("the loop “{name}” is missing: {failure}");
                measuring.notes.push(note);
                refused = refused.or(Some(failure));
            }
        }
    }
    match refused {
        Some(failure) if rows.is_empty() => Err(failure),
        _ => Ok(rows),
    }
}

/// How often and how long the quota held the group back since `before`.
fn quota(before: CpuQuota, roots: &Roots) -> NoiseQuota {
    let now = cpu_quota(roots).and_then(|now| now.throttled);
    let ((times, length), (times_before, length_before)) =
        now.zip(before.throttled).unwrap_or_default();
    NoiseQuota {
        quota_ns: before.quota,
        period_ns: before.period,
        throttled: times.saturating_sub(times_before),
        throttled_ns: length.saturating_sub(length_before),
    }
}

fn describe(phase: &Phase) -> String {
    let place = (phase.cpus.as_ref()).map_or("any CPU".to_owned(), |cpus| format!("CPU {cpus}"));
    format!("{} on {place}, {}", phase.kind.label(), phase.policy)
}

fn show(args: &NoiseArgs, dir: Option<&mut RunDir>, result: &NoiseResult) -> Result<(), Failure> {
    let rendered = Rendered {
        name: "noise",
        json: json::of(result).or_exit(Exit::Failed)?,
        page: page::render(result),
        text: terminal::render(result, args.common.verbose > 0, style()),
    };
    rendered.save_and_print(dir, args.common)
}
