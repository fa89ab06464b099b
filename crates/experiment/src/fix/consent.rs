//! A question before each change of a live server.

use std::io::{self, IsTerminal};

use taillab_console::exit::Failure;
use taillab_console::messages;
use taillab_host::Roots;
use taillab_host::tune::{Mitigation, Plan};

/// The most lines of a change, each for one process, that stand before the question.
const LISTED: usize = 8;

/// Who decides whether a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// The user agreed to all changes in advance (`--yes`).
    Given,
    /// The user is asked before each.
    Ask,
}

impl Consent {
    /// Given with `--yes`, asked for otherwise.
    ///
    /// # Errors
    /// [`Exit::Usage`]: there is no terminal to ask on.
    pub fn of(is_given: bool) -> Result<Self, Failure> {
        match is_given {
            true => Ok(Self::Given),
            false if io::stdin().is_terminal() && io::stderr().is_terminal() => Ok(Self::Ask),
            false => Err(Failure::usage(
                "--fix makes brief changes to this machine, and there is no terminal to ask on: see what it would \
                 change with `taillab tune plan -p PID`, then add --yes",
            )),
        }
    }

    /// Whether this change may be made repeatedly during a trial.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn is_given_for(self, mitigation: &Mitigation, plan: &Plan) -> Result<bool, Failure> {
        if self == Self::Given {
            return Ok(true);
        }
        messages::ask("", &question(mitigation, plan))
    }
}

/// What would be changed, and the question, line by line.
fn question(mitigation: &Mitigation, plan: &Plan) -> Vec<String> {
    let mitigation = &mitigation.is;
    let mut lines = vec![format!("{}: {}", mitigation.name, mitigation.description)];
    let changes = plan.by_process(&Roots::default());
    let more = changes.len().saturating_sub(LISTED);
    let listed = changes.into_iter().take(LISTED);
    lines.extend(listed.map(|change| format!("  {change}")));
    if more > 0 {
        lines.push(format!("  and {more} more like these"));
    }
    lines.push(
        "Try it, in blocks of a second or more, and undo it after each one? [y/N]".to_owned(),
    );
    lines
}
