//! What the kernel has, as its files say.

use std::fs;

use taillab_model::doctor::{Check, CheckState, Group};

use crate::environment::kernel_release;
use crate::roots::Roots;

const GROUP: Group = Group::Kernel;

pub(super) fn checks(roots: &Roots, architecture: &str) -> Vec<Check> {
    let mounts = fs::read_to_string(roots.proc.join("self/mounts")).unwrap_or_default();
    let is_mounted = |kind: &str| {
        let mut kinds = mounts.lines().map(|line| line.split(' ').nth(2));
        kinds.any(|mounted| mounted == Some(kind))
    };
    vec![
        version(roots),
        processor(architecture),
        btf(roots),
        tracefs(is_mounted("tracefs")),
        cgroups(is_mounted("cgroup"), is_mounted("cgroup2")),
    ]
}

fn version(roots: &Roots) -> Check {
    match kernel_release(roots) {
        Some(release) => Check::ok(GROUP, "version", format!("Linux {release}")),
        None => Check::not_ok(
            GROUP,
            "version",
            CheckState::Unknown,
            "/proc is not mounted",
            "sudo mount -t proc proc /proc",
        ),
    }
}

fn processor(architecture: &str) -> Check {
    match architecture {
        "x86_64" => Check::ok(GROUP, "architecture", architecture),
        other => Check::not_ok(
            GROUP,
            "architecture",
            CheckState::Missing,
            format!("{other}: the probe knows the system calls of x86_64 only"),
            "use an x86_64 machine",
        ),
    }
}

fn btf(roots: &Roots) -> Check {
    let missing =
        |found: &str, remedy: &str| Check::not_ok(GROUP, "BTF", CheckState::Missing, found, remedy);
    if roots.sys.join("kernel/btf/vmlinux").exists() {
        Check::ok(GROUP, "BTF", "the kernel describes its types")
    } else if roots.sys.join("kernel").exists() {
        missing(
            "no /sys/kernel/btf/vmlinux: the probe cannot find the kernel’s fields",
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y (Debian 12’s and Ubuntu 24.04’s are)",
        )
    } else {
        missing(
            "/sys is not mounted: the probe cannot find the kernel’s fields",
            "sudo mount -t sysfs sysfs /sys (container: --privileged)",
        )
    }
}

fn tracefs(is_mounted: bool) -> Check {
    let found = if is_mounted {
        "mounted; taillab does not need it"
    } else {
        "not mounted; taillab does not need it"
    };
    Check::ok(GROUP, "tracefs", found)
}

fn cgroups(has_version_1: bool, has_version_2: bool) -> Check {
    let found = match (has_version_1, has_version_2) {
        (true, true) => "versions 1 and 2",
        (true, false) => "version 1",
        (false, true) => "version 2",
        (false, false) => {
            return Check::not_ok(
                GROUP,
                "control groups",
                CheckState::Warning,
                "not mounted: limits on CPU time would not be noticed",
                "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup",
            );
        }
    };
    Check::ok(GROUP, "control groups", found)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{of, tree};
    use super::*;

    #[test]
    fn a_kernel_that_tells_all_is_well() {
        let (_folder, roots) = tree(&[
            ("proc/sys/kernel/osrelease", "6.18.1\n"),
            (
                "proc/self/mounts",
                "none /sys/kernel/tracing tracefs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            ),
            ("sys/kernel/btf/vmlinux", ""),
        ]);
        let found = checks(&roots, "x86_64");
        assert!(found.iter().all(|check| check.state == CheckState::Ok));
        assert_eq!(of(&found, "version").found, "Linux 6.18.1");
        assert_eq!(of(&found, "control groups").found, "version 2");
    }

    #[test]
    fn what_is_missing_has_its_own_remedy() {
        let (_folder, nothing) = tree(&[]);
        let bare = checks(&nothing, "aarch64");
        assert!(of(&bare, "BTF").remedy.as_ref().unwrap().contains("sysfs"));
        assert_eq!(of(&bare, "architecture").state, CheckState::Missing);
        assert_eq!(of(&bare, "version").state, CheckState::Unknown);
        let groups = of(&bare, "control groups");
        assert!(groups.remedy.as_ref().unwrap().contains("cgroup2"));
        let (_folder, untyped) = tree(&[("sys/kernel/uevent_seqnum", "1")]);
        let untyped = checks(&untyped, "x86_64");
        let btf = of(&untyped, "BTF").remedy.as_ref().unwrap();
        assert!(btf.contains("CONFIG_DEBUG_INFO_BTF"), "{btf}");
    }
}
