//! The winners as files for the machine on which the server will run.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_host::CpuSet;
use taillab_host::tune::{Change, Mitigation, Setting};
use taillab_host::user_files::{Readers, UserFolder};

/// A winner, what it changed, and for which CPUs.
pub struct Winner {
    /// The mitigation that won its trial.
    pub mitigation: &'static Mitigation,
    /// The settings that it changed, with their new values.
    pub changes: Vec<Change>,
    /// The server's CPUs.
    pub cpus: CpuSet,
    /// Whether it lasts only while a process holds it.
    pub needs_a_holder: bool,
}

impl Winner {
    /// Whether a systemd unit can apply it.
    pub fn is_for_a_unit(&self) -> bool {
        unit_lines(self).is_some()
    }
}

/// The names of the winners that last only while a process holds them.
pub fn held(winners: &[Winner]) -> Vec<&'static str> {
    let held = winners.iter().filter(|winner| winner.needs_a_holder);
    held.map(|winner| winner.mitigation.is.name).collect()
}

/// Names and contents of the files; empty files are left out.
type Files = Vec<(&'static str, String)>;

/// The lines for a systemd unit, if systemd supports this mitigation.
fn unit_lines(winner: &Winner) -> Option<String> {
    let cpus = &winner.cpus;
    Some(match winner.mitigation.is.name {
        "rt-priority" => {
            "CPUSchedulingPolicy=fifo\nCPUSchedulingPriority=49\nLimitRTPRIO=49\n".to_owned()
        }
        "nice" => "Nice=-20\n".to_owned(),
        "cpu-quota" => "CPUQuota=\n".to_owned(),
        "dedicated-cpus" | "others-affinity" => format!("CPUAffinity={cpus}\n"),
        _ => return None,
    })
}

/// The machine's file that a change writes. `None` for a file of a thread, of a control group, or of the
/// testbed's network, whose devices do not exist on another machine.
fn machine_file(change: &Change) -> Option<&str> {
    match &change.setting {
        Setting::File(file) if file.thread.is_none() && file.namespace.is_none() => {
            Some(file.path.as_str()).filter(|path| !path.starts_with("/sys/fs/cgroup/"))
        }
        _ => None,
    }
}

/// A systemd drop-in, a file for sysctl.d, and a shell script for the rest.
fn files(winners: &[Winner]) -> Files {
    let (mut unit, mut sysctl, mut script) = (String::new(), String::new(), String::new());
    for winner in winners {
        let mitigation = winner.mitigation.is;
        let head = format!("# {}: {}\n", mitigation.name, mitigation.description);
        let lines = unit_lines(winner);
        if let Some(lines) = &lines {
            unit.push_str(&format!("{head}{lines}"));
        }
        let mut writes = String::new();
        let mut kernel = String::new();
        let mut is_whole = true;
        for change in &winner.changes {
            match machine_file(change) {
                Some(path) => match path.strip_prefix("/proc/sys/") {
                    Some(key) => {
                        let key = key.replace('/', ".");
                        let _ = writeln!(kernel, "{key} = {}", change.new);
                    }
                    None => {
                        let _ = writeln!(writes, "echo '{}' > {path}", change.new);
                    }
                },
                None => is_whole = false,
            }
        }
        if !kernel.is_empty() {
            sysctl.push_str(&format!("{head}{kernel}"));
        }
        // threads come and go, and device names differ: let taillab find them
        let alone = matches!(mitigation.name, "dedicated-cpus" | "others-affinity");
        if !is_whole && (lines.is_none() || alone) {
            writes = format!(
                "taillab tune apply {} -p \"$pid\" -C {} --yes\n",
                mitigation.name, winner.cpus
            );
        }
        if !writes.is_empty() {
            script.push_str(&format!("{head}{writes}"));
        }
    }
    let held = held(winners);
    if !held.is_empty() {
        let names = held.join(" ");
        let _ = writeln!(
            script,
            "# {names}: in effect only while a process holds it, so this script runs until Ctrl-C\n\
             exec taillab tune apply {names} --hold --yes"
        );
    }
    let mut files = Files::new();
    let mut add = |name, head: &str, text: String| {
        if !text.is_empty() {
            files.push((name, format!("{head}{text}")));
        }
    };
    add(
        "taillab-fix.conf",
        "# for /etc/systemd/system/NAME.service.d/; then systemctl daemon-reload and restart\n[Service]\n",
        unit,
    );
    add(
        "90-taillab-fix.conf",
        "# for /etc/sysctl.d/; then sysctl --system\n",
        sysctl,
    );
    add(
        "taillab-fix.sh",
        "#!/bin/sh\n# run as root, with the server's process ID; a reboot undoes it\nset -eu\npid=${1:?the \
         server's process}\n",
        script,
    );
    files
}

/// Writes the files into `folder`, which may exist, as a result is written: root follows no link there. Returns
/// their names.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn write(folder: &Path, winners: &[Winner]) -> Result<Vec<&'static str>, Failure> {
    let files = files(winners);
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let folder = Arc::new(UserFolder::make(folder, Readers::Everybody).map_err(host)?);
    for (name, text) in &files {
        folder.put(name, text.as_bytes()).map_err(host)?;
    }
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

#[cfg(test)]
mod tests {
    use taillab_host::tune::{FileSetting, Form, MITIGATIONS};

    use super::*;

    fn winner(name: &str, changes: &[(&str, &str)]) -> Winner {
        let change = |(path, new): &(&str, &str)| {
            Change::new(Setting::File(FileSetting::new(*path, Form::Text)), *new, "")
        };
        Winner {
            mitigation: MITIGATIONS.iter().find(|row| row.is.name == name).unwrap(),
            changes: changes.iter().map(change).collect(),
            cpus: "2-3".parse().unwrap(),
            needs_a_holder: false,
        }
    }

    fn text(files: &Files, name: &str) -> String {
        let found = files.iter().find(|(other, _)| *other == name);
        found.map_or_else(String::new, |(_, text)| text.clone())
    }

    #[test]
    fn each_winner_goes_where_it_belongs() {
        let mut mixed = winner(
            "rt-priority",
            &[("/proc/sys/kernel/sched_rt_runtime_us", "-1")],
        );
        let mut of_thread = FileSetting::new("/proc/7/timerslack_ns", Form::Text);
        of_thread.namespace = Some(7);
        mixed
            .changes
            .push(Change::new(Setting::File(of_thread.clone()), "1", ""));
        let mut idle = winner("others-idle", &[]);
        idle.changes
            .push(Change::new(Setting::File(of_thread), "1", ""));
        let interrupt = winner("irq-affinity", &[("/proc/irq/30/smp_affinity_list", "1")]);
        let files = files(&[mixed, idle, interrupt]);
        let unit = text(&files, "taillab-fix.conf");
        assert!(unit.contains("[Service]\n# rt-priority"), "{unit}");
        assert!(unit.contains("CPUSchedulingPolicy=fifo\n"), "{unit}");
        let sysctl = text(&files, "90-taillab-fix.conf");
        assert!(
            sysctl.ends_with("kernel.sched_rt_runtime_us = -1\n"),
            "{sysctl}"
        );
        let script = text(&files, "taillab-fix.sh");
        assert!(script.contains("taillab tune apply others-idle -p \"$pid\" -C 2-3 --yes\n"));
        assert!(script.contains("echo '1' > /proc/irq/30/smp_affinity_list\n"));
        assert!(!script.contains("rt-priority"), "{script}");
    }

    #[test]
    fn the_script_holds_last_what_a_process_has_to_hold() {
        let mut held = winner("cpu-dma-latency", &[]);
        held.needs_a_holder = true;
        let interrupt = winner("irq-affinity", &[("/proc/irq/30/smp_affinity_list", "1")]);
        let script = text(&files(&[held, interrupt]), "taillab-fix.sh");
        let last = "\nexec taillab tune apply cpu-dma-latency --hold --yes\n";
        assert!(script.ends_with(last), "{script}");
        assert!(script.contains("echo '1' > /proc/irq/30/smp_affinity_list\n"));
    }

    #[test]
    fn without_a_winner_there_is_no_file() {
        assert!(files(&[]).is_empty());
    }

    #[test]
    fn a_link_that_waits_in_the_folder_is_replaced_and_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let folder = place.path().join("fix");
        std::fs::create_dir(&folder).unwrap();
        let script = folder.join("taillab-fix.sh");
        std::os::unix::fs::symlink(&victim, &script).unwrap();
        let interrupt = winner("irq-affinity", &[("/proc/irq/30/smp_affinity_list", "1")]);
        assert_eq!(write(&folder, &[interrupt]).unwrap(), ["taillab-fix.sh"]);
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        assert!(!script.is_symlink());
        let text = std::fs::read_to_string(&script).unwrap();
        assert!(text.contains("irq-affinity"), "{text}");
    }
}
