//! What `taillab tune` says, as text.

use taillab_model::tune::{
    Action, ApplyRow, ChangeRow, ChangeState, ConflictRow, MitigationRow, TuneResult,
};

use super::page::Page;
use crate::text::{INDENT, Ink, Style, by_reason, columns};

/// Changes of one mitigation that a short plan shows.
const SHOWN: usize = 8;
/// A plan of more mitigations than this is shown as an overview, unless all details are requested.
const SPELLED_OUT: usize = 4;

/// The whole result. With `all`, a list shows everything about each mitigation and a plan shows
/// each change.
pub fn render(result: &TuneResult, all: bool, style: Style) -> String {
    let mut page = Page::new(style);
    match result.action {
        Action::List => page.list(&result.mitigations, all),
        Action::Plan | Action::Apply => page.planned(result, all),
        Action::Status | Action::Verify | Action::Revert => page.applies(result),
    }
    page.text = page.text.trim_start_matches('\n').to_owned();
    page.text
}

impl Page {
    fn list(&mut self, rows: &[MitigationRow], all: bool) {
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0) + 2;
        for row in rows {
            if !all {
                let lead = format!("{:INDENT$}{:width$}", "", row.name);
                self.hanging(&lead, INDENT + width, Ink::Plain, &row.description);
                continue;
            }
            let causes: Vec<&str> = row.treats.iter().map(|cause| cause.label()).collect();
            self.heading(&row.name, "");
            self.paragraph(Ink::Plain, &row.description);
            self.fact("treats", &causes.join(", "));
            self.fact("needs", &row.needs);
            self.fact("changes", &row.interface);
            self.fact("undo", &row.undo);
            self.fact("proof", &row.proof);
            self.fact("risk", &row.risk);
            self.fact("see", &row.reference);
        }
        if !all {
            self.line("");
            self.paragraph(Ink::Quiet, "-v says what each needs, changes and risks; docs/advice.md has what may help and is done by hand");
        }
    }

    fn planned(&mut self, result: &TuneResult, all: bool) {
        if !all && result.mitigations.len() > SPELLED_OUT {
            return self.overview(result);
        }
        for row in &result.mitigations {
            self.heading(&row.name, &row.description);
            if let Some(reason) = &row.unavailable {
                self.marked(Ink::Notable, "–", &format!("not here: {reason}"));
                continue;
            }
            for held in &row.holds {
                self.marked(Ink::Good, "→", &format!("held by this process: {held}"));
            }
            let shown = if all { row.changes.len() } else { SHOWN };
            for change in row.changes.iter().take(shown) {
                self.change(change);
            }
            let more = row.changes.len().saturating_sub(shown);
            if more > 0 {
                let text = format!("and {more} more like these: -v shows them");
                self.paragraph(Ink::Quiet, &text);
            }
            for note in &row.notes {
                self.marked(Ink::Notable, "!", note);
            }
            self.fact("risk", &row.risk);
        }
        self.conflicts(&result.conflicts);
        if result.action == Action::Apply {
            self.applied(&result.applies);
        }
    }

    /// Many mitigations on one screen: a line for each that is possible, the others grouped by the
    /// obstacle.
    fn overview(&mut self, result: &TuneResult) {
        let (here, elsewhere): (Vec<&MitigationRow>, Vec<&MitigationRow>) =
            (result.mitigations.iter()).partition(|row| row.unavailable.is_none());
        let width = here.iter().map(|row| columns(&row.name)).max().unwrap_or(0) + 2;
        self.heading(
            "Possible here",
            "what it is, and how many settings it would change",
        );
        for row in here {
            let new = (row.changes.iter())
                .filter(|change| change.state == ChangeState::Planned)
                .count();
            let does = match (new, row.holds.is_empty()) {
                (0, true) => "already so".to_owned(),
                (0, false) => "held while it runs".to_owned(),
                (n, _) => n.to_string(),
            };
            let lead = format!("{:INDENT$}{:width$}", "", row.name);
            // the text in parentheses says how it is done, which the plan of this mitigation shows
            let what = row.description.split(" (").next().unwrap_or_default();
            let text = format!("{what}: {does}");
            self.hanging(&lead, INDENT + width, Ink::Plain, &text);
        }
        if !elsewhere.is_empty() {
            self.heading("Not here", "");
        }
        let refused = elsewhere.iter().map(|row| {
            let reason = row.unavailable.as_deref().unwrap_or_default();
            (reason, row.name.as_str())
        });
        for (reason, names) in by_reason(refused) {
            let text = format!("{}: {reason}", names.join(", "));
            self.marked(Ink::Notable, "–", &text);
        }
        self.conflicts(&result.conflicts);
        self.line("");
        let more =
            "taillab tune plan NAME shows each setting with its old and new value; -v all of them";
        self.paragraph(Ink::Quiet, more);
    }

    /// What gets in the way of a plan.
    fn conflicts(&mut self, conflicts: &[ConflictRow]) {
        if !conflicts.is_empty() {
            self.heading("Conflicts", "");
        }
        for conflict in conflicts {
            let (ink, mark) = match conflict.harmful {
                true => (Ink::Bad, "✗"),
                false => (Ink::Notable, "!"),
            };
            let text = format!("{} {}: {}", conflict.who, conflict.effect, conflict.remedy);
            self.marked(ink, mark, &text);
        }
    }

    fn applied(&mut self, applies: &[ApplyRow]) {
        self.line("");
        match applies.first() {
            Some(apply) => {
                let text = format!(
                    "applied as number {0}; `taillab tune revert {0}` puts it back",
                    apply.id
                );
                self.marked(Ink::Good, "✓", &text);
            }
            None => self.marked(Ink::Good, "✓", "nothing had to be changed"),
        }
    }

    fn applies(&mut self, result: &TuneResult) {
        if result.applies.is_empty() {
            self.paragraph(Ink::Plain, "taillab has changed nothing");
        }
        for apply in &result.applies {
            let state = match (result.action, apply.good, apply.complete) {
                (Action::Revert, true, _) => "put back",
                (Action::Revert, false, _) => "not all of it could be put back",
                (_, true, _) => "holds",
                (_, false, true) => "does not hold as a whole",
                (_, false, false) => "was interrupted: taillab tune revert puts it back",
            };
            let mut remark = state.to_owned();
            if let Some(pid) = apply.held_by {
                remark += &format!("; held by pid {pid}");
            }
            self.heading(
                &format!("{}  {}", apply.id, apply.mitigations.join(", ")),
                &remark,
            );
            for change in &apply.changes {
                self.change(change);
            }
        }
    }

    fn change(&mut self, change: &ChangeRow) {
        let state = change.state;
        let (ink, mark) = match state {
            ChangeState::Skipped | ChangeState::Gone => (Ink::Notable, "–"),
            _ if !state.is_good() => (Ink::Bad, "✗"),
            ChangeState::Planned => (Ink::Good, "→"),
            _ => (Ink::Good, "✓"),
        };
        let old = change.old.as_deref().unwrap_or("?");
        let values = match state {
            ChangeState::Restored | ChangeState::AsBefore => format!("{} → {old}", change.new),
            ChangeState::AlreadySo => change.new.clone(),
            _ => format!("{old} → {}", change.new),
        };
        let mut text = format!("{}  {values}", change.setting);
        if !matches!(state, ChangeState::Planned | ChangeState::Changed) {
            text += &format!("  ({})", state.label());
        }
        if let Some(now) = &change.now {
            text += &format!(", now {now}");
        }
        self.marked(ink, mark, &text);
        let why = change.problem.as_deref().unwrap_or(&change.why);
        if !why.is_empty() {
            let width = INDENT + 4;
            self.hanging(&" ".repeat(width), width, Ink::Quiet, why);
        }
    }
}
