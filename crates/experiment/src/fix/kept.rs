//! Which winners `--keep` leaves applied, and why it cannot keep the others.

use taillab_console::exit::Failure;
use taillab_model::fix::{Fix, FixOutcome, NotKept};

use super::export::Winner;
use crate::changes::{Settings, what_is_left};

/// A winner that stays applied.
pub struct KeptMitigation {
    /// The mitigation's name.
    pub name: &'static str,
    /// The number of the apply, as `taillab tune status` shows it.
    pub id: u32,
}

/// Why `--keep` cannot keep a winner that lasts only while a process holds it.
pub fn needs_a_holder(name: &str) -> NotKept {
    NotKept {
        why: "it ends with the process that holds it".to_owned(),
        command: format!("sudo taillab tune apply {name} --hold"),
    }
}

/// Why `--keep` cannot keep a winner that could not be left applied after its trial.
pub fn not_applied(name: &str, failure: &Failure) -> NotKept {
    NotKept {
        why: failure.to_string(),
        command: format!("sudo taillab tune apply {name} -p PID"),
    }
}

/// Why a winner cannot be kept, or only in part: settings of a server end with it.
/// `None` if all of its settings stay.
fn ended(winner: &Winner, settings: Settings) -> Option<NotKept> {
    let Settings { all, ended } = settings;
    let which = match (ended, all) {
        (0, _) => return None,
        (ended, all) if ended == all => "it was applied".to_owned(),
        (ended, all) => format!("{ended} of its {all} settings were applied"),
    };
    let for_a_unit = match winner.is_for_a_unit() {
        true => "; --export writes it for a systemd unit",
        false => "",
    };
    Some(NotKept {
        why: format!("{which} to the server of this run, which has ended{for_a_unit}"),
        command: format!(
            "sudo taillab tune apply {} -p PID",
            winner.mitigation.is.name
        ),
    })
}

/// Notes why the winner with this name is not kept.
pub fn note(fixes: &mut [Fix], name: &str, not_kept: NotKept) {
    let is_it = |fix: &&mut Fix| fix.mitigation == name && fix.outcome == FixOutcome::Kept;
    if let Some(fix) = fixes.iter_mut().find(is_it) {
        fix.not_kept = Some(not_kept);
    }
}

/// Checks which settings of the winners have ended together with the server that they were tried on. A
/// winner is dropped from `left` if nothing of it remains.
///
/// # Errors
/// The journal cannot be read.
pub fn look_again(
    fixes: &mut [Fix],
    left: &mut Vec<KeptMitigation>,
    winners: &[Winner],
) -> Result<(), Failure> {
    for one in std::mem::take(left) {
        let settings = what_is_left(one.id)?;
        let winner = (winners.iter()).find(|winner| winner.mitigation.is.name == one.name);
        if let Some(not_kept) = winner.and_then(|winner| ended(winner, settings)) {
            note(fixes, one.name, not_kept);
        }
        if settings.ended < settings.all {
            left.push(one);
        }
    }
    Ok(())
}

/// A sentence about what stays applied; `None` if nothing does.
pub fn sentence(left: &[KeptMitigation]) -> Option<String> {
    let names: Vec<&str> = left.iter().map(|one| one.name).collect();
    let names = names.join(", ");
    (!names.is_empty()).then(|| format!("kept: {names}; `taillab tune revert` puts that back"))
}

#[cfg(test)]
mod tests {
    use taillab_host::tune::MITIGATIONS;

    use super::*;

    fn winner(name: &str) -> Winner {
        Winner {
            mitigation: MITIGATIONS.iter().find(|row| row.is.name == name).unwrap(),
            changes: Vec::new(),
            cpus: "1".parse().unwrap(),
            needs_a_holder: false,
        }
    }

    #[test]
    fn what_ended_with_the_server_is_named_with_the_command_that_applies_it_again() {
        let told = |name, all, ended_with_it| {
            let settings = Settings {
                all,
                ended: ended_with_it,
            };
            ended(&winner(name), settings)
        };
        assert_eq!(told("others-idle", 12, 0), None);
        let part = told("rt-priority", 6, 4).unwrap();
        assert_eq!(
            part.why,
            "4 of its 6 settings were applied to the server of this run, which has ended; --export \
             writes it for a systemd unit"
        );
        assert_eq!(part.command, "sudo taillab tune apply rt-priority -p PID");
        let all = told("softirq-cpu", 2, 2).unwrap();
        assert_eq!(
            all.why,
            "it was applied to the server of this run, which has ended"
        );
    }

    /// A winner that has ended in part is named too: the rest of it is still applied.
    #[test]
    fn what_stays_is_named_with_the_command_that_reverts_it() {
        let left = |name| KeptMitigation { name, id: 1 };
        assert_eq!(sentence(&[]), None);
        assert_eq!(
            sentence(&[left("rt-priority"), left("others-idle")]).unwrap(),
            "kept: rt-priority, others-idle; `taillab tune revert` puts that back"
        );
    }

    #[test]
    fn a_winner_that_could_not_be_left_applied_is_named_with_what_failed() {
        let not_kept = not_applied("nice", &Failure::failed("the disk is full"));
        assert_eq!(not_kept.why, "the disk is full");
        assert_eq!(not_kept.command, "sudo taillab tune apply nice -p PID");
    }

    #[test]
    fn a_held_winner_needs_a_process_that_stays() {
        let held = needs_a_holder("cpu-dma-latency");
        assert_eq!(
            held.command,
            "sudo taillab tune apply cpu-dma-latency --hold"
        );
    }
}
