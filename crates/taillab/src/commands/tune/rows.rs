//! What the library found, as it is printed.

use taillab_host::Roots;
use taillab_host::tune::{
    Applied, ApplyStatus, Change, ChangeResult, ChangeState as Made, Conflict, Mitigation, Part,
    Reverted,
};
use taillab_model::tune::{
    ApplyRow, ChangeRow, ChangeState, ConflictRow, MitigationRow, TuneResult,
};

/// A row of the list.
pub fn mitigation(row: &Mitigation) -> MitigationRow {
    MitigationRow {
        name: row.is.name.into(),
        description: row.is.description.into(),
        treats: row.is.treats.to_vec(),
        needs: row.needs.into(),
        interface: row.interface.into(),
        undo: row.undo.into(),
        proof: row.proof.into(),
        risk: row.is.cost.into(),
        reference: row.reference.into(),
        unavailable: None,
        notes: Vec::new(),
        holds: Vec::new(),
        changes: Vec::new(),
    }
}

/// A part of a plan, with the values that hold now.
pub fn part(part: &Part, roots: &Roots) -> MitigationRow {
    let row = mitigation(part.mitigation);
    match &part.proposal {
        Err(unavailable) => MitigationRow {
            unavailable: Some(unavailable.0.clone()),
            ..row
        },
        Ok(proposal) => MitigationRow {
            notes: proposal.notes.clone(),
            holds: (proposal.holds.iter())
                .map(|hold| hold.label().to_owned())
                .collect(),
            changes: (proposal.changes.iter())
                .map(|change| planned(change, roots))
                .collect(),
            ..row
        },
    }
}

fn planned(change: &Change, roots: &Roots) -> ChangeRow {
    let old = change.setting.read(roots).ok();
    let is_so = |old: &String| change.setting.same(old, &change.new);
    ChangeRow {
        state: match old.as_ref().is_some_and(is_so) {
            true => ChangeState::AlreadySo,
            false => ChangeState::Planned,
        },
        mitigation: change.mitigation.clone(),
        setting: change.setting.to_string(),
        old,
        new: change.new.clone(),
        now: None,
        why: change.why.clone(),
        problem: None,
    }
}

/// What gets in the way.
pub fn conflict(conflict: &Conflict) -> ConflictRow {
    ConflictRow {
        who: conflict.who.clone(),
        effect: conflict.effect.clone(),
        remedy: conflict.remedy.clone(),
        harmful: conflict.is_harmful,
    }
}

/// A change, with what has become of it.
fn changed(made: &ChangeResult) -> ChangeRow {
    let (state, now, problem) = match made.state.clone() {
        Made::Changed => (ChangeState::Changed, None, None),
        Made::AlreadySo => (ChangeState::AlreadySo, None, None),
        Made::Skipped(reason) => (ChangeState::Skipped, None, Some(reason)),
        Made::Holds => (ChangeState::Holds, None, None),
        Made::AsBefore => (ChangeState::AsBefore, None, None),
        Made::ChangedByOthers(now) => (ChangeState::ChangedByOthers, Some(now), None),
        Made::Gone => (ChangeState::Gone, None, None),
        Made::Unknown(reason) => (ChangeState::Unknown, None, Some(reason)),
        Made::Restored => (ChangeState::Restored, None, None),
        Made::Covered { by } => {
            let text = format!("number {by} has changed it since: revert that one first");
            (ChangeState::Covered, None, Some(text))
        }
        Made::Failed(reason) => (ChangeState::Failed, None, Some(reason)),
    };
    ChangeRow {
        mitigation: made.change.mitigation.clone(),
        setting: made.change.setting.to_string(),
        old: Some(made.old.clone()),
        new: made.change.new.clone(),
        now,
        why: made.change.why.clone(),
        state,
        problem,
    }
}

/// Replaces the planned changes by their outcomes.
pub fn note_applied(result: &mut TuneResult, applied: &Applied) {
    let rows: Vec<ChangeRow> = applied.changes.iter().map(changed).collect();
    for mitigation in &mut result.mitigations {
        let of_it = rows.iter().filter(|row| row.mitigation == mitigation.name);
        mitigation.changes = of_it.cloned().collect();
    }
    if let Some(id) = applied.id {
        result.applies.push(ApplyRow {
            id,
            mitigations: (result.mitigations.iter())
                .map(|row| row.name.clone())
                .collect(),
            began_unix_s: None,
            complete: true,
            held_by: None,
            good: true,
            changes: rows,
        });
    }
}

/// An apply as it is now.
pub fn apply(status: &ApplyStatus) -> ApplyRow {
    ApplyRow {
        id: status.id,
        mitigations: status.mitigations.clone(),
        began_unix_s: Some(status.began_unix_s),
        complete: status.is_complete,
        held_by: status.holder,
        good: status.holds(),
        changes: status.entries.iter().map(changed).collect(),
    }
}

/// An apply that was put back.
pub fn reverted(reverted: &Reverted) -> ApplyRow {
    let stays = "somebody else has changed it, so it stays";
    let changes = reverted.changes.iter().map(changed).map(|row| ChangeRow {
        why: String::new(),
        problem: match row.state {
            ChangeState::ChangedByOthers => Some(stays.to_owned()),
            _ => row.problem,
        },
        ..row
    });
    ApplyRow {
        id: reverted.id,
        mitigations: reverted.mitigations.clone(),
        began_unix_s: None,
        complete: true,
        held_by: None,
        good: reverted.is_done,
        changes: changes.collect(),
    }
}
