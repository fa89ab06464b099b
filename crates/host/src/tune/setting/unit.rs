//! A property of a systemd unit, until the next boot (systemctl(1), `set-property --runtime`). systemd
//! owns its control groups: what others write into them is lost when it changes them again.

use std::fmt;
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

/// systemd separates ranges by spaces.
fn cpus(text: &str) -> Option<CpuSet> {
    let list: Vec<&str> = text.split_ascii_whitespace().collect();
    list.join(",").parse().ok()
}

impl Knob for UnitCpus {
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        let asked = ["show", "--property", PROPERTY, "--value", "--", &self.unit];
        match self.systemctl(roots, &asked) {
            Ok(value) => Ok(value),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.missing()),
            Err(error) => Err(self.unreadable(error)),
        }
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        let wanted = format!("{PROPERTY}={value}");
        let args = ["set-property", "--runtime", "--", &self.unit, &wanted];
        let written = self.systemctl(roots, &args);
        written
            .map(drop)
            .map_err(|error| self.refused(value, error))
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
