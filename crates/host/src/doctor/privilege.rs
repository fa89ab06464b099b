//! Who we are and what the kernel lets us do.

pub mod capability;

use std::fs;

use taillab_model::doctor::{Check, CheckState, Group};

use crate::roots::{Roots, chosen, read_optional, status};
use crate::user::User;
use capability::{
    BPF, Capability, NET_ADMIN, PERFMON, SETGID, SETUID, SYS_ADMIN, SYS_NICE, SYS_RESOURCE,
};

/// What a reader without privilege does first.
pub(super) const SUDO: &str = "run it as root: sudo taillab …";

/// Resource limits that the process inherited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes it may lock; `None`: no limit.
    pub(super) memlock: Option<u64>,
    /// Files it may open, at most; `None`: no limit.
    pub(super) files: Option<u64>,
}

/// What the process may do by its credentials (`capabilities(7)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Privileges {
    /// Effective user id.
    uid: Option<u32>,
    /// The user's login name; `None` if `/etc/passwd` does not list the id.
    user: Option<String>,
    /// Effective capabilities.
    effective: Option<u64>,
    /// The user namespace is the initial one; elsewhere capabilities count only inside.
    initial_namespace: bool,
}

/// The 10,000 connections that `taillab load` is made for, and some more files.
const ENOUGH_FILES: u64 = 10_100;

impl Privileges {
    pub(super) fn read(roots: &Roots) -> Self {
        let field = |name: &str| status(roots, "self", name);
        let uid = field("Uid").and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
        let user = uid.and_then(|uid: u32| User::first(roots, |user| user.uid == uid));
        // "0 0 4294967295": every id maps to itself
        let map = read_optional(&roots.proc.join("self/uid_map"));
        let initial_namespace =
            map.is_none_or(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
        Self {
            uid,
            user: user.map(|user| user.name),
            effective: field("CapEff").and_then(|hex| u64::from_str_radix(&hex, 16).ok()),
            initial_namespace,
        }
    }

    fn has(&self, capability: Capability) -> bool {
        self.effective
            .is_some_and(|set| set >> capability.number & 1 == 1)
    }

    /// Holds it only as a part of CAP_SYS_ADMIN, from which CAP_BPF and CAP_PERFMON were split off.
    fn has_by_admin(&self, capability: Capability) -> bool {
        [BPF, PERFMON].contains(&capability) && self.has(SYS_ADMIN)
    }

    /// May do what the capability allows.
    pub(super) fn holds(&self, capability: Capability) -> bool {
        self.initial_namespace && (self.has(capability) || self.has_by_admin(capability))
    }

    pub(super) fn is_root(&self) -> bool {
        self.uid == Some(0)
    }

    /// How to get a capability that is missing.
    pub(super) fn how_to_get(&self, capability: Capability) -> String {
        match self.uid {
            Some(0) if !self.initial_namespace => {
                "leave the user namespace: run it as root on the host".into()
            }
            // root without it: a container, or a service with a bounding set
            Some(0) => format!(
                "start the container with --cap-add {} or --privileged",
                capability.name.trim_start_matches("CAP_")
            ),
            _ => SUDO.into(),
        }
    }
}

pub(super) fn checks(roots: &Roots, privileges: &Privileges, limits: Limits) -> Vec<Check> {
    let mut checks = vec![user(privileges)];
    if !privileges.initial_namespace {
        checks.push(Check::not_ok(
            Group::Privilege,
            "user namespace",
            CheckState::Missing,
            "not the initial one: capabilities count only inside it",
            "leave the user namespace: run it as root on the host",
        ));
    }
    checks.extend(ROWS.map(|row| capability(privileges, row)));
    checks.push(open_files(privileges, limits));
    checks.push(unprivileged_bpf(roots));
    checks.push(paranoid(roots));
    checks.push(lockdown(roots));
    checks.push(Check::ok(
        Group::Privilege,
        "memlock",
        match limits.memlock {
            None => "no limit".to_owned(),
            Some(bytes) => format!(
                "{} KiB; kernels from 5.11 do not count eBPF’s memory",
                bytes / 1024
            ),
        },
    ));
    checks
}

fn user(privileges: &Privileges) -> Check {
    match (privileges.uid, &privileges.user) {
        (Some(uid), Some(name)) => {
            Check::ok(Group::Privilege, "user", format!("{name} (uid {uid})"))
        }
        (Some(uid), None) => Check::ok(Group::Privilege, "user", format!("uid {uid}")),
        (None, _) => Check::not_ok(
            Group::Privilege,
            "user",
            CheckState::Unknown,
            "/proc/self/status cannot be read",
            "sudo mount -t proc proc /proc",
        ),
    }
}

/// Capabilities that belong together, shown under the name of the first; the state if one is missing;
/// what works with them; what does not work without them.
type CapabilityRow = (
    &'static [Capability],
    CheckState,
    &'static str,
    &'static str,
);

const ROWS: [CapabilityRow; 6] = [
    (
        &[BPF],
        CheckState::Missing,
        "the probe can be loaded",
        "the probe cannot be loaded",
    ),
    (
        &[PERFMON],
        CheckState::Missing,
        "the probe can be attached",
        "the probe cannot be attached",
    ),
    (
        &[NET_ADMIN],
        CheckState::Missing,
        "the testbed’s network can be made",
        "the testbed’s network cannot be made",
    ),
    (
        &[SYS_ADMIN],
        CheckState::Missing,
        "the testbed’s namespaces can be made",
        "the testbed’s namespaces cannot be made",
    ),
    (
        &[SETUID, SETGID],
        CheckState::Warning,
        "the server runs as another user",
        "the server cannot run as another user (it needs CAP_SETGID too)",
    ),
    (
        &[SYS_NICE],
        CheckState::Warning,
        "real-time priorities can be given",
        "no real-time priorities",
    ),
];

fn capability(privileges: &Privileges, (needed, state, with, without): CapabilityRow) -> Check {
    let first = needed[0];
    let name = first.name;
    if privileges.effective.is_none() {
        let remedy = "sudo mount -t proc proc /proc";
        let found = "/proc/self/status does not say";
        return Check::not_ok(Group::Privilege, name, CheckState::Unknown, found, remedy);
    }
    if needed.iter().all(|one| privileges.has(*one)) {
        Check::ok(Group::Privilege, name, format!("held: {with}"))
    } else if needed.iter().all(|one| privileges.has_by_admin(*one)) {
        Check::ok(Group::Privilege, name, "held through CAP_SYS_ADMIN")
    } else {
        let found = format!("not held: {without}");
        let remedy = privileges.how_to_get(first);
        Check::not_ok(Group::Privilege, name, state, found, remedy)
    }
}

/// Whether 10,000 connections can be opened.
fn open_files(privileges: &Privileges, limits: Limits) -> Check {
    const NAME: &str = "CAP_SYS_RESOURCE";
    match (privileges.has(SYS_RESOURCE), limits.files) {
        (false, Some(files)) if files >= ENOUGH_FILES => Check::ok(
            Group::Privilege,
            NAME,
            format!("not held, not needed: {files} files are enough for 10,000 connections"),
        ),
        (false, Some(files)) => Check::not_ok(
            Group::Privilege,
            NAME,
            match privileges.effective {
                Some(_) => CheckState::Warning,
                None => CheckState::Unknown,
            },
            format!("not held: no more than {files} files, so fewer than 10,000 connections"),
            "raise the limit as root where this shell starts: `ulimit -Hn 65536` (systemd: LimitNOFILE=)",
        ),
        _ => Check::ok(Group::Privilege, NAME, "held: limits can be raised"),
    }
}

fn unprivileged_bpf(roots: &Roots) -> Check {
    let value = read_optional(&roots.proc.join("sys/kernel/unprivileged_bpf_disabled"));
    let words = match value.as_deref() {
        Some("0") => "0: anyone may load some eBPF, though never a probe",
        Some("1") => "1: eBPF only with CAP_BPF, until the next boot",
        Some("2") => "2: eBPF only with CAP_BPF",
        Some(other) => other,
        None => "not there: this kernel has no such switch, or /proc is hidden",
    };
    Check::ok(Group::Privilege, "unprivileged_bpf_disabled", words)
}

/// The probe's perf events (one for each CPU, for major page faults) need root or `CAP_PERFMON`
/// like the probe itself; the level limits neither.
fn paranoid(roots: &Roots) -> Check {
    let value = read_optional(&roots.proc.join("sys/kernel/perf_event_paranoid"));
    let found = value.unwrap_or_else(|| "not there".to_owned());
    let found =
        format!("{found}: limits neither root nor CAP_PERFMON, which the probe needs anyway");
    Check::ok(Group::Privilege, "perf_event_paranoid", found)
}

/// `kernel_lockdown(7)`: `confidentiality` keeps eBPF from reading kernel memory.
fn lockdown(roots: &Roots) -> Check {
    let check = |state, found: &str, remedy: &str| {
        Check::not_ok(Group::Privilege, "lockdown", state, found, remedy)
    };
    let security = roots.sys.join("kernel/security");
    match chosen(&security.join("lockdown")).as_deref() {
        Some("confidentiality") => check(
            CheckState::Missing,
            "confidentiality: eBPF may not read kernel memory",
            "remove lockdown=confidentiality from the kernel’s command line and reboot",
        ),
        Some(mode) => Check::ok(Group::Privilege, "lockdown", mode),
        // securityfs is there and has no such file
        None if fs::read_dir(&security).is_ok_and(|mut files| files.next().is_some()) => {
            Check::ok(Group::Privilege, "lockdown", "not in this kernel")
        }
        None if !roots.sys.join("kernel").exists() => check(
            CheckState::Unknown,
            "/sys is not mounted",
            "sudo mount -t sysfs sysfs /sys (container: --privileged)",
        ),
        None => check(
            CheckState::Unknown,
            "securityfs is not mounted",
            "sudo mount -t securityfs securityfs /sys/kernel/security",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{of, tree};
    use super::*;

    const LIMITS: Limits = Limits {
        memlock: Some(8 << 20),
        files: Some(1 << 20),
    };

    fn with(uid: u32, effective: u64, files: &[(&str, &str)]) -> Vec<Check> {
        let status =
            format!("Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{effective:016x}\n");
        let mut all = vec![
            ("proc/self/status", status.as_str()),
            ("etc/passwd", "root:x:0:0::/:/x\nann:x:1000:1000::/:/x\n"),
        ];
        all.extend_from_slice(files);
        let (_folder, roots) = tree(&all);
        checks(&roots, &Privileges::read(&roots), LIMITS)
    }

    const ALL: u64 = (1 << 41) - 1;

    #[test]
    fn root_lacks_nothing() {
        let found = with(
            0,
            ALL,
            &[("sys/kernel/security/lockdown", "[none] integrity")],
        );
        assert!(found.iter().all(|c| c.state == CheckState::Ok), "{found:?}");
        assert_eq!(of(&found, "user").found, "root (uid 0)");
        assert_eq!(of(&found, "lockdown").found, "none");
    }

    #[test]
    fn each_missing_capability_is_named_with_its_remedy() {
        for (name, bits, state) in [
            ("CAP_NET_ADMIN", vec![NET_ADMIN], CheckState::Missing),
            ("CAP_SYS_ADMIN", vec![SYS_ADMIN], CheckState::Missing),
            ("CAP_BPF", vec![BPF, SYS_ADMIN], CheckState::Missing),
            ("CAP_PERFMON", vec![PERFMON, SYS_ADMIN], CheckState::Missing),
            ("CAP_SETUID", vec![SETGID], CheckState::Warning),
            ("CAP_SYS_NICE", vec![SYS_NICE], CheckState::Warning),
        ] {
            let effective = bits.iter().fold(ALL, |set, bit| set & !(1 << bit.number));
            for (uid, expected) in [(1000, "sudo"), (0, "--cap-add")] {
                let found = with(uid, effective, &[]);
                let check = of(&found, name);
                assert_eq!(check.state, state, "{check:?}");
                assert!(
                    check.remedy.as_ref().unwrap().contains(expected),
                    "{check:?}"
                );
            }
        }
        let bpf = with(0, ALL & !(1 << BPF.number), &[]);
        assert_eq!(of(&bpf, "CAP_BPF").found, "held through CAP_SYS_ADMIN");
    }

    #[test]
    fn few_files_matter_only_where_the_limit_cannot_be_raised() {
        let (_folder, roots) = tree(&[(
            "proc/self/status",
            "Uid:\t1\t1\t1\t1\nCapEff:\t0000000000000000\n",
        )]);
        let few = Limits {
            files: Some(1024),
            ..LIMITS
        };
        let found = checks(&roots, &Privileges::read(&roots), few);
        let check = of(&found, "CAP_SYS_RESOURCE");
        assert_eq!(check.state, CheckState::Warning);
        assert!(check.remedy.as_ref().unwrap().contains("ulimit -Hn"));
    }

    #[test]
    fn capabilities_of_a_user_namespace_do_not_count() {
        let found = with(0, ALL, &[("proc/self/uid_map", "0 1000 1\n")]);
        let check = of(&found, "user namespace");
        assert_eq!(check.state, CheckState::Missing);
        assert!(check.remedy.as_ref().unwrap().contains("on the host"));
        let initial = with(0, ALL, &[("proc/self/uid_map", "   0   0 4294967295\n")]);
        assert!(initial.iter().all(|check| check.name != "user namespace"));
    }

    #[test]
    fn lockdown_is_told_from_a_file_system_that_is_not_mounted() {
        let of_files = |files: &[(&str, &str)]| {
            let found = with(0, ALL, files);
            of(&found, "lockdown").clone()
        };
        let strict = of_files(&[(
            "sys/kernel/security/lockdown",
            "none integrity [confidentiality]\n",
        )]);
        assert_eq!(strict.state, CheckState::Missing);
        assert!(strict.remedy.unwrap().contains("lockdown=confidentiality"));
        assert!(of_files(&[]).remedy.unwrap().contains("mount -t sysfs"));
        let unmounted = of_files(&[("sys/kernel/uevent_seqnum", "1")]);
        assert_eq!(unmounted.state, CheckState::Unknown);
        assert!(unmounted.remedy.unwrap().contains("mount -t securityfs"));
        let without = of_files(&[("sys/kernel/security/lsm", "yama")]);
        assert_eq!(without.found, "not in this kernel");
    }
}
