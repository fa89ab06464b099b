//! Who would overwrite a setting, and which changes do harm.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::change::Change;
use super::proposal::{Conflict, Proposal};
use super::reach;
use super::scene::Scene;
use super::setting::Setting;

/// Daemons that set what we set.
struct Owner {
    names: &'static [&'static str],
    effect: &'static str,
    remedy: &'static str,
    is_harmful: bool,
    owns: fn(&Setting) -> bool,
}

fn file(setting: &Setting) -> &str {
    match setting {
        Setting::File(file) => &file.path,
        _ => "",
    }
}

const OWNERS: &[Owner] = &[
    Owner {
        names: &["irqbalance"],
        effect: "moves interrupts again every 10 s",
        remedy: "stop it for the time being (systemctl stop irqbalance), or ban them \
                 (IRQBALANCE_ARGS=--banirq=N)",
        is_harmful: true,
        owns: |setting| file(setting).starts_with("/proc/irq/"),
    },
    Owner {
        names: &["tuned"],
        effect: "writes its profile's values again, unconditionally, when it is restarted or \
                 switched",
        remedy: "leave its profile alone until this is reverted (tuned-adm off stops it)",
        is_harmful: false,
        owns: |setting| {
            matches!(
                setting,
                Setting::File(_)
                    | Setting::Governor(_)
                    | Setting::Affinity(_)
                    | Setting::Scheduling(_)
            )
        },
    },
    Owner {
        names: &[
            "power-profiles-",
            "tlp",
            "thermald",
            "cpufreqd",
            "auto-cpufreq",
        ],
        effect: "sets the governor by itself",
        remedy: "stop it for the time being",
        is_harmful: false,
        owns: |setting| matches!(setting, Setting::Governor(_)),
    },
    Owner {
        names: &["kubelet"],
        effect: "puts pods into cpusets and quotas of its own, and sets some sysctls again",
        remedy: "let its CPU manager do this (static policy), or drain the node",
        is_harmful: false,
        owns: |setting| {
            matches!(setting, Setting::Membership(_) | Setting::Group(_))
                || file(setting).contains("/cgroup/")
                || file(setting).starts_with("/proc/sys/")
        },
    },
    Owner {
        names: &["systemd"],
        effect: "owns the control groups and may write their limits again (daemon-reload, \
                 restart of the unit)",
        remedy: "set it in the unit to keep it (systemctl edit, CPUQuota=, AllowedCPUs=)",
        is_harmful: false,
        owns: |setting| {
            matches!(setting, Setting::Membership(_) | Setting::Group(_))
                || file(setting).contains("/cgroup/")
        },
    },
];

/// What gets in the way of these proposals.
pub(super) fn of<'p>(
    scene: &Scene,
    proposals: impl Iterator<Item = &'p Proposal>,
) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    let mut changes: Vec<&Change> = Vec::new();
    for proposal in proposals {
        changes.extend(&proposal.changes);
        conflicts.extend(proposal.harms.iter().cloned());
    }
    conflicts.extend(reach::of(scene, &changes));
    conflicts.extend(contradictions(&changes));
    let settings: Vec<&Setting> = changes.iter().map(|change| &change.setting).collect();
    for owner in OWNERS {
        if settings.iter().any(|setting| (owner.owns)(setting))
            && let Some((pid, name)) = scene.running(owner.names)
        {
            conflicts.push(Conflict {
                who: format!("{name} (pid {pid})"),
                effect: owner.effect.into(),
                remedy: owner.remedy.into(),
                is_harmful: owner.is_harmful,
            });
        }
    }
    let keys: Vec<String> = settings
        .iter()
        .filter_map(|setting| sysctl(setting))
        .collect();
    conflicts.extend(written_elsewhere(scene, &keys));
    conflicts
}

/// Mitigations that want different values of one setting, each pair once.
fn contradictions(changes: &[&Change]) -> Vec<Conflict> {
    let mut first: HashMap<&Setting, &Change> = HashMap::new();
    let mut pairs = HashSet::new();
    let mut found = Vec::new();
    for change in changes {
        let other = *first.entry(&change.setting).or_insert(change);
        let agree = change.setting.same(&other.new, &change.new);
        if !agree && pairs.insert((&other.mitigation, &change.mitigation)) {
            found.push(Conflict {
                who: format!("{} and {}", other.mitigation, change.mitigation),
                effect: format!("want different values of {}", change.setting),
                remedy: "apply one of them".into(),
                is_harmful: true,
            });
        }
    }
    found
}

/// The name of a sysctl: `net.core.busy_poll`.
fn sysctl(setting: &Setting) -> Option<String> {
    Some(file(setting).strip_prefix("/proc/sys/")?.replace('/', "."))
}

/// Where sysctl.d(5) and cron(8) keep their files, below the root of the file system.
const SYSCTL_FILES: [&str; 6] = [
    "etc/sysctl.conf",
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
];
const CRON_FILES: [&str; 6] = [
    "etc/crontab",
    "etc/cron.d",
    "etc/cron.hourly",
    "etc/cron.daily",
    "var/spool/cron",
    "var/spool/cron/crontabs",
];

fn written_elsewhere(scene: &Scene, keys: &[String]) -> Vec<Conflict> {
    let root = scene.roots.etc.parent().unwrap_or(Path::new("/"));
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for (place, is_cron) in (SYSCTL_FILES.iter().map(|place| (place, false)))
        .chain(CRON_FILES.iter().map(|place| (place, true)))
    {
        for path in files(&root.join(place)) {
            // one file under several names
            let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if seen.contains(&real) {
                continue;
            }
            seen.push(real);
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            let named: Vec<&str> = (keys.iter())
                .filter(|key| sets(&text, key, is_cron))
                .map(String::as_str)
                .collect();
            if named.is_empty() {
                continue;
            }
            let when = match is_cron {
                true => "may set it again when it runs",
                false => "sets it at boot and with sysctl --system",
            };
            found.push(Conflict {
                who: path.display().to_string(),
                effect: format!("names {}, and {when}", named.join(", ")),
                remedy: "change it there to keep the value".into(),
                is_harmful: false,
            });
        }
    }
    found
}

/// The file itself, or the files in the folder.
fn files(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// A line of sysctl.d(5) that sets `key`, or any line of a cron job that names it.
fn sets(text: &str, key: &str, is_cron: bool) -> bool {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']));
    let path = key.replace('.', "/");
    lines.into_iter().any(|line| match is_cron {
        true => line.contains(key) || line.contains(&path),
        false => line
            .trim_start_matches('-')
            .split_once('=')
            .is_some_and(|(name, _)| name.trim().replace('/', ".") == key),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_set_a_key_are_found_in_both_notations() {
        let text = "# vm.stat_interval = 1\nkernel/numa_balancing=1\n-net.core.busy_poll = 0\n";
        assert!(sets(text, "kernel.numa_balancing", false));
        assert!(sets(text, "net.core.busy_poll", false));
        assert!(!sets(text, "vm.stat_interval", false));
        assert!(sets(
            "5 * * * * root sysctl -w vm.stat_interval=1",
            "vm.stat_interval",
            true
        ));
        assert!(sets(
            "@daily root echo 1 > /proc/sys/vm/stat_interval",
            "vm.stat_interval",
            true
        ));
    }
}
