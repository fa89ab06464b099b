//! `taillab tune`: plan, apply, verify and revert changes of the machine.

#[cfg(test)]
mod docs;
mod rows;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use taillab_console::args::Output;
use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::messages::{self, Messages};
use taillab_console::print::{print_result, style};
use taillab_host::tune::{Applied, MITIGATIONS, Plan, Point, RevertSelection, Scope, Tuner};
use taillab_host::{Interrupt, Roots};
use taillab_model::tune::{Action, ApplyRow, SCHEMA_VERSION, TuneResult};
use taillab_report::terminal;

use crate::cli::{ApplyArgs, PlanArgs, TuneArgs, TuneCommand};

/// How often a held apply checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a subcommand.
pub fn run(args: TuneArgs) -> Result<Exit, Failure> {
    match args.command {
        TuneCommand::List { common } => {
            let mut result = result(Action::List);
            result.mitigations = MITIGATIONS
                .iter()
                .map(|row| rows::mitigation(row))
                .collect();
            show(common, &result)?;
            Ok(Exit::Ok)
        }
        TuneCommand::Plan(args) => plan(&args),
        TuneCommand::Apply(args) => apply(&args),
        TuneCommand::Status { common } => status(common, Action::Status),
        TuneCommand::Verify { common } => status(common, Action::Verify),
        TuneCommand::Revert { number, common } => revert(number, common),
    }
}

fn tuner() -> Result<Tuner, Failure> {
    Tuner::of_this_user().map_err(host)
}

fn result(action: Action) -> TuneResult {
    TuneResult {
        schema_version: SCHEMA_VERSION,
        command: "tune".into(),
        taillab_version: env!("CARGO_PKG_VERSION").into(),
        action,
        mitigations: Vec::new(),
        conflicts: Vec::new(),
        applies: Vec::new(),
    }
}

fn show(output: Output, result: &TuneResult) -> Result<(), Failure> {
    print_result(output, result, || {
        terminal::render_tune(result, output.verbose > 0, style())
    })
}

fn planned(tuner: &Tuner, names: &[String], scope: &Scope) -> Result<(Plan, TuneResult), Failure> {
    let plan = tuner.plan(names, scope).map_err(host)?;
    let mut result = result(Action::Plan);
    let roots = Roots::default();
    result.mitigations = (plan.parts.iter())
        .map(|part| rows::part(part, &roots))
        .collect();
    result.conflicts = plan.conflicts.iter().map(rows::conflict).collect();
    Ok((plan, result))
}

fn plan(args: &PlanArgs) -> Result<Exit, Failure> {
    let all = || {
        MITIGATIONS
            .iter()
            .map(|row| row.is.name.to_owned())
            .collect()
    };
    let names = match args.names.is_empty() {
        true => all(),
        false => args.names.clone(),
    };
    let (_, result) = planned(&tuner()?, &names, &args.scope.scope())?;
    show(args.common, &result)?;
    Ok(Exit::Ok)
}

fn apply(args: &ApplyArgs) -> Result<Exit, Failure> {
    let (tuner, messages) = (tuner()?, Messages::of(args.common));
    let (plan, mut result) = planned(&tuner, &args.names, &args.scope.scope())?;
    if args.dry_run {
        // a dry run always shows each write
        let verbose = args.common.verbose.max(1);
        show(
            Output {
                verbose,
                ..args.common
            },
            &result,
        )?;
    }
    plan.check(args.force).map_err(host)?;
    if args.dry_run {
        return Ok(Exit::Ok);
    }
    if let Some(hold) = plan.holds().next()
        && !args.hold
    {
        return Err(Failure::usage(format!(
            "{} ends with the process that holds it: add --hold to stay until Ctrl-C",
            hold.label()
        )));
    }
    if !args.yes && !is_wanted(&plan, &result)? {
        messages.note(&"nothing is changed");
        return Ok(Exit::Ok);
    }
    // register before anything is changed, so that Ctrl-C puts everything back
    let interrupt = Interrupt::register().map_err(host)?;
    let applied = tuner
        .apply(&plan, args.hold, &mut |point| tell(messages, point))
        .map_err(host)?;
    result.action = Action::Apply;
    rows::note_applied(&mut result, &applied);
    show(args.common, &result)?;
    match args.hold {
        true => hold(&tuner, applied, &interrupt, messages),
        false => Ok(Exit::Ok),
    }
}

/// Stays until it is interrupted, and puts everything back.
fn hold(
    tuner: &Tuner,
    applied: Applied,
    interrupt: &Interrupt,
    messages: Messages,
) -> Result<Exit, Failure> {
    messages.note(&"held until Ctrl-C");
    while !interrupt.is_raised() {
        thread::sleep(LOOK);
    }
    let id = applied.id;
    drop(applied);
    let Some(id) = id else {
        return Ok(Exit::Interrupted);
    };
    let reverted = tuner
        .revert(RevertSelection::One(id), &mut |point| tell(messages, point))
        .map_err(host)?;
    let applies: Vec<ApplyRow> = reverted.iter().map(rows::reverted).collect();
    if is_all_back(&applies) {
        return Ok(Exit::Interrupted);
    }
    let changes = applies.iter().flat_map(|apply| &apply.changes);
    let left: Vec<String> = changes
        .filter(|change| !change.state.is_good())
        .map(|change| {
            let why = change.problem.as_deref().unwrap_or("not put back");
            format!("{}: {why}", change.setting)
        })
        .collect();
    let again = match applies.iter().all(|apply| apply.good) {
        true => "",
        false => "; `taillab tune revert` tries again",
    };
    let text = format!("not all was put back: {}{again}", left.join("; "));
    Err(Failure::new(Exit::Missed, text))
}

/// Whether every setting has its old value again, or is gone.
fn is_all_back(applies: &[ApplyRow]) -> bool {
    applies.iter().all(|apply| {
        let mut changes = apply.changes.iter();
        apply.good && changes.all(|change| change.state.is_good())
    })
}

/// Reports each write with -v.
fn tell(messages: Messages, point: Point<'_>) {
    match point {
        Point::Write { change, old } => {
            messages.step(&format!(
                "{}: \"{old}\" → \"{}\"",
                change.setting, change.new
            ));
        }
        Point::Undo { change, old } => {
            messages.step(&format!(
                "{}: \"{}\" → \"{old}\"",
                change.setting, change.new
            ));
        }
        Point::Skipped { change, reason } => {
            messages.step(&format!("{}: skipped, {reason}", change.setting));
        }
        _ => {}
    }
}

/// Shows the plan and asks.
fn is_wanted(plan: &Plan, result: &TuneResult) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(
            "there is no terminal to ask on: look at the changes with --dry-run, then apply them with --yes",
        ));
    }
    let text = terminal::render_tune(result, false, style());
    let changes = match plan.changes().count() {
        1 => "1 setting".to_owned(),
        n => format!("{n} settings"),
    };
    messages::ask(&text, &[format!("Change {changes}? [y/N]")])
}

fn status(output: Output, action: Action) -> Result<Exit, Failure> {
    let applies = tuner()?.status().map_err(host)?;
    let mut result = result(action);
    result.applies = applies.iter().map(rows::apply).collect();
    show(output, &result)?;
    let all_hold = result.applies.iter().all(|apply| apply.good);
    Ok(match action == Action::Verify && !all_hold {
        true => Exit::Missed,
        false => Exit::Ok,
    })
}

fn revert(number: Option<u32>, output: Output) -> Result<Exit, Failure> {
    let messages = Messages::of(output);
    let which = number.map_or(RevertSelection::All, RevertSelection::One);
    let reverted = tuner()?
        .revert(which, &mut |point| tell(messages, point))
        .map_err(host)?;
    let mut result = result(Action::Revert);
    result.applies = reverted.iter().map(rows::reverted).collect();
    show(output, &result)?;
    Ok(match is_all_back(&result.applies) {
        true => Exit::Ok,
        false => Exit::Missed,
    })
}
