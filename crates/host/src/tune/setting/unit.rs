//! A property of a systemd unit, until the next boot (systemctl(1), `set-property --runtime`). systemd
//! owns its control groups: what others write into them is lost when it changes them again.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::{Knob, SettingError};
use crate::cpus::CpuSet;
use crate::roots::Roots;

/// The CPUs that a systemd unit may use; empty: those of the unit above it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UnitCpus {
    /// The unit: `web.service`, `user.slice`.
    pub unit: String,
}

const PROPERTY: &str = "AllowedCPUs";

/// In a value: somebody has set it at run time already, so the file for that is theirs.
const AT_RUN_TIME: &str = "at-run-time";

impl UnitCpus {
    /// Runs systemctl, where the machine has it, and returns its output.
    fn systemctl(&self, roots: &Roots, args: &[&str]) -> io::Result<String> {
        let root = roots.etc.parent().map_or_else(PathBuf::new, PathBuf::from);
        let output = Command::new(root.join("usr/bin/systemctl"))
            .args(args)
            .stdin(Stdio::null())
            .env("LC_ALL", "C")
            .output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().last().unwrap_or_default().to_owned();
        Err(io::Error::other(said))
    }
}

impl UnitCpus {
    /// The files in which systemd keeps what was set at run time (systemd.unit(5)), the second for transient units.
    fn drop_ins(&self, roots: &Roots) -> [PathBuf; 2] {
        let root = roots.etc.parent().map_or_else(PathBuf::new, PathBuf::from);
        ["system.control", "transient"].map(|folder| {
            let folder = root.join("run/systemd").join(folder);
            folder.join(format!("{}.d/50-{PROPERTY}.conf", self.unit))
        })
    }

    /// Removes the file that `set-property` has made, and its folder unless it has others. systemd reads its files
    /// again when somebody tells it to; if we did, it would forget what is set at run time of other units.
    fn forget(&self, roots: &Roots) -> io::Result<()> {
        for file in self.drop_ins(roots) {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            if let Some(folder) = file.parent() {
                let _ = fs::remove_dir(folder);
            }
        }
        Ok(())
    }
}

/// A value without the remark where it comes from.
fn list(value: &str) -> Vec<&str> {
    let words = value.split_ascii_whitespace();
    words.filter(|word| *word != AT_RUN_TIME).collect()
}

/// systemd separates ranges by spaces.
fn cpus(text: &str) -> Option<CpuSet> {
    list(text).join(",").parse().ok()
}

impl Knob for UnitCpus {
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        let asked = ["show", "--property", PROPERTY, "--value", "--", &self.unit];
        match self.systemctl(roots, &asked) {
            Ok(value) if self.drop_ins(roots).iter().any(|file| file.exists()) => {
                Ok(format!("{value} {AT_RUN_TIME}").trim().to_owned())
            }
            Ok(value) => Ok(value),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.missing()),
            Err(error) => Err(self.unreadable(error)),
        }
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        let wanted = format!("{PROPERTY}={}", list(value).join(" "));
        let args = ["set-property", "--runtime", "--", &self.unit, &wanted];
        let written = self.systemctl(roots, &args);
        written
            .map(drop)
            .map_err(|error| self.refused(value, error))
    }

    /// The old value is in force at once, and from the next start of systemd's on it comes from the unit's own files, as it
    /// did before.
    fn put_back(&self, roots: &Roots, old: &str) -> Result<(), SettingError> {
        self.write(roots, old)?;
        if old.ends_with(AT_RUN_TIME) {
            return Ok(());
        }
        let forgotten = self.forget(roots);
        forgotten.map_err(|error| self.refused(old, error))
    }

    fn same(&self, left: &str, right: &str) -> bool {
        match (cpus(left), cpus(right)) {
            (Some(left), Some(right)) => left == right,
            _ => left == right,
        }
    }
}

impl fmt::Display for UnitCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PROPERTY} of {}", self.unit)
    }
}
