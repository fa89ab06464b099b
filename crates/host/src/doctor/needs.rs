//! Which privileges each command needs.

use taillab_model::doctor::{Check, CheckState, Group};

use super::privilege::{
    BPF, Capability, DAC_OVERRIDE, DAC_READ_SEARCH, NET_ADMIN, NET_RAW, PERFMON, Privileges,
    SYS_ADMIN, SYS_NICE, SYS_PTRACE,
};

/// What a command needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// The command.
    pub command: &'static str,
    /// It is refused if one of these is missing.
    pub least: &'static [Capability],
    /// What it can do in addition with others.
    pub more: &'static [(&'static str, &'static [Capability])],
}

/// Every command that needs or can use capabilities; the others need none.
pub const COMMANDS: [Needs; 5] = [
    Needs {
        command: "run",
        // namespaces and the probe; the testbed's devices; the steering of their receive work
        least: &[SYS_ADMIN, NET_ADMIN, DAC_OVERRIDE],
        more: &[],
    },
    Needs {
        command: "trace",
        // BPF and PERFMON: the probe; the others: to see which process has which socket
        least: &[BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH],
        more: &[],
    },
    Needs {
        command: "noise",
        least: &[],
        more: &[
            ("names causes", &[BPF, PERFMON]),
            ("runs in real time", &[SYS_NICE]),
        ],
    },
    Needs {
        command: "rtt",
        least: &[],
        more: &[
            (
                "joins two namespaces",
                &[SYS_ADMIN, NET_ADMIN, DAC_OVERRIDE],
            ),
            (
                "measures xdp",
                &[SYS_ADMIN, NET_ADMIN, NET_RAW, DAC_OVERRIDE],
            ),
            ("explains the tail", &[BPF, PERFMON, DAC_READ_SEARCH]),
        ],
    },
    Needs {
        command: "budget",
        least: &[],
        more: &[(
            "measures every row",
            &[SYS_ADMIN, NET_ADMIN, NET_RAW, DAC_OVERRIDE],
        )],
    },
];

/// What the injections and measurements of `taillab-testkit` need.
pub const TESTKIT: Needs = Needs {
    command: "causes",
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

/// Which privileges a command needs, as its help says it.
pub fn privileges_of(command: &str) -> String {
    let needs = COMMANDS.iter().find(|needs| needs.command == command);
    needs.map_or_else(|| "Privileges: none.".to_owned(), Needs::said)
}

/// Which commands lack what they need.
pub(super) fn check(privileges: &Privileges) -> Check {
    const NAME: &str = "commands";
    let lacks = |needs: &Needs| {
        let missing: Vec<Capability> = (needs.least.iter())
            .filter(|one| !privileges.holds(**one))
            .copied()
            .collect();
        (!missing.is_empty()).then(|| format!("{} ({})", needs.command, names(&missing)))
    };
    let mut wanted = COMMANDS.iter().flat_map(|needs| needs.least);
    let Some(first) = wanted.find(|one| !privileges.holds(**one)) else {
        return Check::ok(
            Group::Privilege,
            NAME,
            "each has the capabilities that it needs",
        );
    };
    let lacking: Vec<String> = COMMANDS.iter().filter_map(lacks).collect();
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
        let remedy = check(&Privileges::read(&roots)).remedy.unwrap();
        assert!(remedy.contains("--cap-add SYS_ADMIN"), "{remedy}");
    }

    #[test]
    fn help_names_what_is_needed_and_what_for() {
        assert_eq!(privileges_of("sim"), "Privileges: none.");
        assert_eq!(
            privileges_of("trace"),
            "Privileges: root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH."
        );
        assert_eq!(
            privileges_of("noise"),
            "Privileges: none; names causes as root, or with CAP_BPF and CAP_PERFMON; \
             runs in real time as root, or with CAP_SYS_NICE."
        );
    }
}
