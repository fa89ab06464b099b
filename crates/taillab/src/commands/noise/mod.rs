//! `taillab noise`: what takes time from a thread that wants to run.

mod compare;
mod plan;

use taillab_host::environment::{Virtualization, kernel_release};
use taillab_host::noise::tsc;
use taillab_host::{Interrupt, Roots, clock};
use taillab_model::noise::{NoiseResult, SCHEMA_VERSION};
use taillab_report::{html, noise, terminal};

use crate::cli::NoiseArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::fail::host;
use crate::noise::{Measuring, Phase};
use crate::pipeline::{Rendered, RunDir, style};
use crate::say::Say;

/// Plans, measures phase by phase, and prints.
pub fn run(args: NoiseArgs) -> Result<Exit, Failure> {
    let roots = Roots::default();
    let say = Say::of(args.common);
    let plan = plan::plan(&args, &roots)?;
    let dir = args.output.clone().map(|path| RunDir::create(path, 0));
    let mut dir = dir.transpose()?;
    let interrupt = Interrupt::register().map_err(host)?;
    let started_unix_s = clock::unix_s();
    say.step("measuring the time stamp counter");
    let counter = tsc::describe(&roots).map_err(host)?;
    let mut measuring = Measuring::new(
        &plan,
        &counter,
        &interrupt,
        args.common.quiet,
        !args.no_causes,
    );
    let mut rows = Vec::new();
    for phase in &plan.phases {
        if interrupt.is_raised() {
            break;
        }
        say.step(&describe(phase));
        match measuring.phase(phase) {
            Ok(found) => rows.extend(found),
            // a loop that this kernel refuses spoils no other
            Err(failure) if plan.phases.len() > 1 => measuring.notes.push(format!(
                "the loop “{}” is missing: {failure}",
                phase.kind.label()
            )),
            Err(failure) => return Err(failure),
        }
    }
    let result = NoiseResult {
        schema_version: SCHEMA_VERSION,
        command: "noise".into(),
        taillab_version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s,
        partial: interrupt.is_raised(),
        kernel: kernel_release(&roots),
        hypervisor: Virtualization::read(&roots).hypervisor(),
        comparison: compare::sentences(&rows),
        notes: plan.notes.iter().cloned().chain(measuring.notes).collect(),
        held: plan.held,
        clock: counter,
        rows,
    };
    show(&args, dir.as_mut(), &result)?;
    Ok(match result.partial {
        true => Exit::Interrupted,
        false => Exit::Ok,
    })
}

fn describe(phase: &Phase) -> String {
    let place = (phase.cpus.as_ref()).map_or("any CPU".to_owned(), |cpus| format!("CPU {cpus}"));
    format!("{} on {place}, {}", phase.kind.label(), phase.policy)
}

fn show(args: &NoiseArgs, dir: Option<&mut RunDir>, result: &NoiseResult) -> Result<(), Failure> {
    let rendered = Rendered {
        name: "noise",
        json: noise::json(result).or_exit(Exit::Failed)?,
        page: html::render_noise(result),
        text: terminal::render_noise(result, args.common.verbose > 0, style()),
    };
    rendered.save_and_print(dir, args.common)
}
