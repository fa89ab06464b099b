//! What the machine allows, as text in groups; each problem comes with its remedy.

use taillab_model::doctor::{
    Check, CheckState, CommandVerdict, Diagnosis, FoundHazard, Group, HazardGroup, HookTrial,
};

use super::page::Page;
use crate::text::{INDENT, Ink, Style, by_reason, clean, columns};

/// Everything, or only what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All that was looked at.
    All,
    /// One screen: which commands work, then what is wrong.
    Screen,
    /// Only the problems; an empty text if there are none.
    Wrong,
}

/// The whole diagnosis.
pub fn render(diagnosis: &Diagnosis, detail: Detail, style: Style) -> String {
    let mut page = Page::new(style);
    let all = detail == Detail::All;
    if detail != Detail::Wrong {
        let ready = diagnosis.commands.iter().all(|command| command.works);
        let word = if ready {
            (Ink::Good, "READY")
        } else {
            (Ink::Bad, "NOT READY")
        };
        page.title("taillab doctor", word);
    }
    if detail == Detail::Screen {
        page.working(&diagnosis.commands);
    }
    for (group, title) in [
        (Group::Privilege, "Privilege"),
        (Group::Kernel, "Kernel"),
        (Group::Network, "Network"),
        (Group::Machine, "Machine"),
        (Group::Probe, "Probe"),
    ] {
        let of_group = diagnosis.checks.iter().filter(|c| c.group == group);
        let checks: Vec<&Check> = of_group
            .filter(|check| all || check.state != CheckState::Ok)
            .collect();
        page.checks_of(title, &checks);
    }
    for (transport, title) in [("udp", "Hooks for UDP"), ("tcp", "Hooks for TCP")] {
        let trials: Vec<&HookTrial> = (diagnosis.hooks.iter())
            .filter(|trial| trial.transport == transport)
            .collect();
        page.hooks(title, &trials, all);
    }
    page.hazards(&diagnosis.hazards);
    page.commands(&diagnosis.commands, all);
    if detail != Detail::Wrong {
        page.line("");
        page.paragraph(Ink::Quiet, ADVICE);
        if !all {
            page.paragraph(Ink::Quiet, "-v shows everything that was tried");
        }
    }
    if detail == Detail::Wrong {
        page.text = page.text.trim_start_matches('\n').to_owned();
    }
    page.text
}

/// Where it says what to do about a tail.
const ADVICE: &str =
    "taillab tune plan says what can be changed, docs/advice.md what may help and is done by hand";

/// The name of the line that lists the capabilities that are held.
const CAPABILITIES: &str = "capabilities";

const fn mark(state: CheckState) -> (Ink, &'static str) {
    match state {
        CheckState::Ok => (Ink::Good, "✓"),
        CheckState::Warning => (Ink::Notable, "!"),
        CheckState::Missing => (Ink::Bad, "✗"),
        CheckState::Unknown => (Ink::Notable, "?"),
    }
}

const fn works(works: bool) -> (Ink, &'static str) {
    mark(if works {
        CheckState::Ok
    } else {
        CheckState::Missing
    })
}

impl Page {
    fn checks_of(&mut self, title: &str, checks: &[&Check]) {
        if checks.is_empty() {
            return;
        }
        self.heading(title, "");
        let held = |check: &Check| {
            check.state == CheckState::Ok
                && check.name.starts_with("CAP_")
                && check.found.starts_with("held")
        };
        let names: Vec<&str> = (checks.iter())
            .filter(|check| held(check))
            .map(|check| check.name.as_str())
            .collect();
        let shown = |check: &&&Check| !held(check);
        let others = checks.iter().filter(shown).map(|check| check.name.as_str());
        let width = self.name_width(others.chain((!names.is_empty()).then_some(CAPABILITIES)));
        let mut listed = false;
        for (at, check) in checks.iter().enumerate() {
            if held(check) {
                if !std::mem::replace(&mut listed, true) {
                    self.item(works(true), CAPABILITIES, width, &names.join(", "));
                }
                continue;
            }
            self.item(mark(check.state), &check.name, width, &check.found);
            // a remedy that several checks in sequence share is written once, after the last of them
            let next = checks.get(at + 1).and_then(|next| next.remedy.as_ref());
            if let Some(remedy) = check.remedy.as_ref().filter(|&r| next != Some(r)) {
                self.remedy(remedy);
            }
        }
    }

    /// One line for each stamp: what gives it, and what does not.
    fn hooks(&mut self, title: &str, trials: &[&HookTrial], all: bool) {
        let mut stamps: Vec<&str> = trials.iter().map(|trial| trial.stamp.as_str()).collect();
        stamps.dedup();
        let hooks_of = |stamp: &str| -> Vec<&HookTrial> {
            let of_stamp = trials.iter().filter(|trial| trial.stamp == stamp);
            of_stamp.copied().collect()
        };
        // a stamp is fine if its best hook works
        let well = |stamp: &str| hooks_of(stamp).first().is_some_and(|best| best.works);
        stamps.retain(|stamp| all || !well(stamp));
        if stamps.is_empty() {
            return;
        }
        self.heading(title, "each loaded and attached for a moment");
        let width = self.name_width(stamps.iter().copied());
        for stamp in stamps {
            let trials = hooks_of(stamp);
            let used = trials.iter().find(|trial| trial.used);
            let (state, text) = match used {
                Some(trial) if stamp == "all" => (works(trial.works), "these together".to_owned()),
                Some(trial) => (works(true), trial.hook.clone()),
                None => match trials.first().and_then(|trial| trial.without.as_ref()) {
                    Some(lost) => (mark(CheckState::Warning), format!("none: {lost}")),
                    None => (works(false), "none works".to_owned()),
                },
            };
            self.item(state, stamp, width, &text);
            if let Some(lost) = used.and_then(|trial| trial.lost_precision.as_ref()) {
                self.remark(width, lost);
            }
            self.refusals(&trials, width);
            let remedy = trials.iter().find_map(|trial| trial.remedy.as_ref());
            if let Some(remedy) = remedy {
                self.remedy(remedy);
            }
        }
    }

    /// The refused hooks; hooks with the same reason share a line.
    fn refusals(&mut self, trials: &[&HookTrial], width: usize) {
        let refused = trials
            .iter()
            .filter_map(|trial| Some((trial.refusal.as_deref()?, trial.hook.as_str())));
        let needed = trials.iter().any(|trial| trial.remedy.is_some());
        let lead = if needed { "" } else { "not needed: " };
        for (refusal, hooks) in by_reason(refused) {
            self.remark(width, &format!("{lead}{}: {refusal}", hooks.join(", ")));
        }
    }

    fn hazards(&mut self, hazards: &[FoundHazard]) {
        let mut last = None;
        for hazard in hazards {
            if last != Some(hazard.group) {
                let title = match hazard.group {
                    HazardGroup::Load => "Hazards: other loads",
                    HazardGroup::Hardware => "Hazards: hardware",
                    HazardGroup::Setting => "Hazards: settings",
                };
                self.heading(title, "");
                last = Some(hazard.group);
            }
            self.item(mark(CheckState::Warning), "", 0, &hazard.text);
            if let Some(remedy) = &hazard.remedy {
                self.remedy(remedy);
            }
        }
    }

    /// The commands that work, in one line; only the whole diagnosis says what each can do.
    fn working(&mut self, commands: &[CommandVerdict]) {
        let names: Vec<&str> = (commands.iter())
            .filter(|command| command.works)
            .map(|command| command.name.as_str())
            .collect();
        if !names.is_empty() {
            self.line("");
            self.item(works(true), "works", columns("works"), &names.join(", "));
        }
    }

    fn commands(&mut self, commands: &[CommandVerdict], all: bool) {
        let shown: Vec<&CommandVerdict> = (commands.iter())
            .filter(|command| all || !command.works)
            .collect();
        if shown.is_empty() {
            return;
        }
        let title = match all {
            true => "What works here",
            false => "What does not work here",
        };
        self.heading(title, "");
        let width = self.name_width(shown.iter().map(|command| command.name.as_str()));
        for command in shown {
            self.item(works(command.works), &command.name, width, &command.remark);
            if let Some(remedy) = &command.remedy {
                self.remedy(remedy);
            }
        }
    }

    /// As wide as the longest name, unless that would leave no room for the rest.
    fn name_width<'n>(&self, names: impl Iterator<Item = &'n str>) -> usize {
        let widest = names.map(columns).max().unwrap_or(0);
        widest.min(self.style.width / 3)
    }

    /// A mark, a name and a text, which may take several lines.
    fn item(&mut self, (ink, mark): (Ink, &str), name: &str, width: usize, text: &str) {
        let name = clean(name);
        let gap = if width == 0 { 0 } else { 2 };
        let free = width.saturating_sub(columns(&name));
        let mut lead = format!(
            "{:INDENT$}{} {name}{}",
            "",
            self.style.paint(ink, mark),
            " ".repeat(free + gap)
        );
        // a name that is wider than its column has its line to itself
        let text_at = INDENT + 2 + width + gap;
        if columns(&name) > width {
            self.line(&lead);
            lead = " ".repeat(text_at);
        }
        self.hanging(&lead, text_at, Ink::Plain, text);
    }

    fn remark(&mut self, width: usize, text: &str) {
        let at = INDENT + 2 + width + 2;
        self.hanging(&" ".repeat(at), at, Ink::Quiet, text);
    }

    /// What to do: a command on one line however narrow the terminal, so that it can be copied.
    fn remedy(&mut self, text: &str) {
        let arrow = self.style.paint(Ink::Ideal, "→");
        let lead = format!("{:1$}{arrow} ", "", INDENT + 2);
        let is_sentence = [", ", ": "].iter().any(|pause| text.contains(pause));
        match is_sentence {
            true => self.hanging(&lead, INDENT + 4, Ink::Plain, text),
            false => self.line(&(lead + &clean(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis() -> Diagnosis {
        let privilege = |name: &str, remedy: &str| {
            let found = "not held: something long is lost that takes more than a line";
            Check::not_ok(Group::Privilege, name, CheckState::Missing, found, remedy)
        };
        let hook = |hook: &str, works, used| HookTrial {
            transport: "udp".into(),
            stamp: "T2".into(),
            hook: hook.into(),
            works,
            used,
            lost_precision: None,
            without: Some("T2 is not known".into()),
            refusal: (!works).then(|| "the kernel forbids it".into()),
            remedy: None,
        };
        Diagnosis {
            schema_version: 1,
            command: "doctor".into(),
            taillab_version: "1".into(),
            checks: vec![
                Check::ok(Group::Privilege, "CAP_A", "held: a"),
                Check::ok(Group::Privilege, "CAP_B", "held: b"),
                privilege("CAP_C", "sudo c"),
                privilege("CAP_D", "sudo c"),
                privilege("CAP_E", "sudo e"),
            ],
            hooks: vec![
                hook("tp_btf/a", true, true),
                hook("fentry/b", false, false),
                hook("fexit/c", false, false),
            ],
            hazards: vec![FoundHazard {
                group: HazardGroup::Load,
                key: "x".into(),
                text: "someone\u{1b}[2J else is here".into(),
                remedy: Some("stop them".into()),
            }],
            commands: vec![CommandVerdict {
                name: "run".into(),
                works: false,
                remark: "CAP_C".into(),
                remedy: Some("sudo c".into()),
            }],
        }
    }

    fn text(detail: Detail, width: usize) -> String {
        let style = Style {
            colour: false,
            width,
        };
        render(&diagnosis(), detail, style)
    }

    #[test]
    fn what_is_alike_is_said_once() {
        let all = text(Detail::All, 80);
        assert!(all.contains("✓ capabilities  CAP_A, CAP_B\n"), "{all}");
        // after the second of the two that it helps, and for the command
        assert_eq!(all.matches("→ sudo c\n").count(), 2, "{all}");
        assert!(all.contains("not needed: fentry/b, fexit/c: the kernel forbids it"));
        assert!(all.lines().next().unwrap().ends_with("NOT READY"), "{all}");
    }

    #[test]
    fn quiet_shows_what_is_wrong_and_nothing_where_nothing_is() {
        let wrong = text(Detail::Wrong, 80);
        assert!(!wrong.contains('✓') && !wrong.contains("Hooks"), "{wrong}");
        assert!(wrong.starts_with("Privilege\n"), "{wrong}");
        let well = Diagnosis {
            checks: vec![Check::ok(Group::Kernel, "x", "there")],
            hazards: Vec::new(),
            commands: Vec::new(),
            ..diagnosis()
        };
        assert_eq!(render(&well, Detail::Wrong, Style::PLAIN), "");
    }

    #[test]
    fn a_screen_names_what_works_and_shows_what_does_not() {
        let works = CommandVerdict {
            name: "explain".into(),
            works: true,
            remark: "needs nothing of this machine".into(),
            remedy: None,
        };
        let mut diagnosis = diagnosis();
        diagnosis.commands.push(works);
        let screen = render(&diagnosis, Detail::Screen, Style::PLAIN);
        assert!(screen.contains("✓ works  explain\n"), "{screen}");
        assert!(
            screen.contains("✗ run") && screen.contains("✗ CAP_E"),
            "{screen}"
        );
        assert!(
            !screen.contains("CAP_A") && !screen.contains("tp_btf/a"),
            "{screen}"
        );
    }

    #[test]
    fn narrow_terminals_and_control_characters() {
        for width in [40, 60, 200] {
            let text = text(Detail::All, width);
            assert!(!text.contains('\u{1b}'), "{text}");
            for line in text.lines().filter(|line| !line.contains('→')) {
                assert!(columns(line) <= width, "{width}: {line}");
            }
        }
    }
}
