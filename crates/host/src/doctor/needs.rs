//! Which privileges a command needs.

use taillab_model::doctor::{Check, CheckState, Group};

use super::privilege::Privileges;
use super::privilege::capability::{
    BPF, Capability, DAC_OVERRIDE, DAC_READ_SEARCH, NET_ADMIN, PERFMON, SYS_ADMIN, SYS_NICE,
    SYS_PTRACE,
};

/// What a command needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// It is refused if one of these is missing.
    pub least: &'static [Capability],
    /// What it can do in addition with others.
    pub more: &'static [(&'static str, &'static [Capability])],
}

/// What `taillab run` needs.
pub const RUN: Needs = Needs {
    // namespaces and the probe; the testbed's devices; the steering of their receive work
    least: &[SYS_ADMIN, NET_ADMIN, DAC_OVERRIDE],
    more: &[],
};

/// What `taillab trace` needs.
pub const TRACE: Needs = Needs {
    // BPF and PERFMON: the probe; the others: to see which process has which socket
    least: &[BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH],
    more: &[],
};

/// What the injections and measurements of `taillab-testkit` need.
pub const TESTKIT: Needs = Needs {
    least: &[SYS_ADMIN, NET_ADMIN, DAC_OVERRIDE, SYS_NICE],
    more: &[],
};

fn names(capabilities: &[Capability]) -> String {
    let names: Vec<&str> = capabilities.iter().map(|one| one.name).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

impl Needs {
    /// No privilege.
    pub const NOTHING: Self = Self {
        least: &[],
        more: &[],
    };

    /// As the help of the command says it.
    pub fn said(&self) -> String {
        let least = match self.least {
            [] => "none".to_owned(),
            least => format!("root, or {}", names(least)),
        };
        let more: String = (self.more.iter())
            .map(|(what, with)| format!("; {what} as root, or with {}", names(with)))
            .collect();
        format!("Privileges: {least}{more}.")
    }
}

/// Which of these commands, given by their names, lack what they need.
pub(super) fn check(privileges: &Privileges, commands: &[(&str, Needs)]) -> Check {
    const NAME: &str = "commands";
    let lacks = |(command, needs): &(&str, Needs)| {
        let missing: Vec<Capability> = (needs.least.iter())
            .filter(|one| !privileges.holds(**one))
            .copied()
            .collect();
        (!missing.is_empty()).then(|| format!("{command} ({})", names(&missing)))
    };
    let mut wanted = commands.iter().flat_map(|(_, needs)| needs.least);
    let Some(first) = wanted.find(|one| !privileges.holds(**one)) else {
        return Check::ok(
            Group::Privilege,
            NAME,
            "each has the capabilities that it needs",
        );
    };
    let lacking: Vec<String> = commands.iter().filter_map(lacks).collect();
    let found = format!("without what they need: {}", lacking.join(", "));
    let remedy = privileges.how_to_get(*first);
    Check::not_ok(Group::Privilege, NAME, CheckState::Warning, found, remedy)
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn root_without_capabilities_is_not_told_to_become_root() {
        let status = "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000000000\n";
        let (_folder, roots) = tree(&[("proc/self/status", status)]);
        let check = check(&Privileges::read(&roots), &[("run", RUN)]);
        let remedy = check.remedy.unwrap();
        assert!(remedy.contains("--cap-add SYS_ADMIN"), "{remedy}");
        assert!(
            check.found.contains("run (CAP_SYS_ADMIN, "),
            "{}",
            check.found
        );
    }

    #[test]
    fn help_names_what_is_needed_and_what_for() {
        assert_eq!(Needs::NOTHING.said(), "Privileges: none.");
        assert_eq!(
            TRACE.said(),
            "Privileges: root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH."
        );
        let with_more = Needs {
            least: &[],
            more: &[
                ("names causes", &[BPF, PERFMON]),
                ("runs in real time", &[SYS_NICE]),
            ],
        };
        assert_eq!(
            with_more.said(),
            "Privileges: none; names causes as root, or with CAP_BPF and CAP_PERFMON; \
             runs in real time as root, or with CAP_SYS_NICE."
        );
    }
}
