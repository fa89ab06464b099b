//! The governor of a frequency policy. A switch of governors loses the tunables of the old one, so
//! they are a part of the value: `ondemand up_threshold=80 …`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Knob, SettingError};
use crate::roots::{Roots, read_optional};

/// The governor of a frequency policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GovernorSetting {
    /// The policy's number.
    pub policy: u32,
}

impl GovernorSetting {
    fn folder(&self, roots: &Roots) -> PathBuf {
        let policy = format!("devices/system/cpu/cpufreq/policy{}", self.policy);
        roots.sys.join(policy)
    }

    /// Where a governor keeps its tunables: in a folder for each policy, or in one for all.
    fn tunables(&self, roots: &Roots, governor: &str) -> PathBuf {
        let own = self.folder(roots).join(governor);
        match own.is_dir() {
            true => own,
            false => roots.sys.join("devices/system/cpu/cpufreq").join(governor),
        }
    }
}

/// Splits the text of a value into the governor and its tunables.
fn parts(value: &str) -> (&str, BTreeMap<&str, &str>) {
    let mut words = value.split_ascii_whitespace();
    let governor = words.next().unwrap_or_default();
    (
        governor,
        words.filter_map(|word| word.split_once('=')).collect(),
    )
}

impl Knob for GovernorSetting {
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        let governor = read_optional(&self.folder(roots).join("scaling_governor"))
            .ok_or_else(|| self.missing())?;
        let entries = fs::read_dir(self.tunables(roots, &governor));
        let tunable = |entry: fs::DirEntry| {
            let value = read_optional(&entry.path())?;
            let is_one_word = value.split_ascii_whitespace().count() == 1;
            is_one_word.then_some((entry.file_name().into_string().ok()?, value))
        };
        let tunables: BTreeMap<String, String> = (entries.into_iter().flatten().flatten())
            .filter_map(tunable)
            .collect();
        let words = tunables
            .iter()
            .map(|(name, value)| format!(" {name}={value}"));
        Ok(governor + &words.collect::<String>())
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        let (governor, tunables) = parts(value);
        fs::write(self.folder(roots).join("scaling_governor"), governor)
            .map_err(|e| self.refused(value, e))?;
        let folder = self.tunables(roots, governor);
        for (name, tunable) in tunables {
            let path = folder.join(name);
            // some are read-only, so one that has its value is not written
            if read_optional(&path).is_some_and(|now| now != tunable) {
                fs::write(&path, tunable).map_err(|e| self.refused(value, e))?;
            }
        }
        Ok(())
    }

    /// The same governor, and the same value of each tunable that both name.
    fn same(&self, left: &str, right: &str) -> bool {
        let ((left, of_left), (right, of_right)) = (parts(left), parts(right));
        let mut both = of_left
            .iter()
            .filter_map(|(name, value)| Some((value, of_right.get(name)?)));
        left == right && both.all(|(left, right)| left == right)
    }
}

impl fmt::Display for GovernorSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "/sys/devices/system/cpu/cpufreq/policy{}/scaling_governor",
            self.policy
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn a_governor_comes_back_with_its_tunables() {
        let (_folder, roots) = tree(&[
            (
                "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
                "ondemand\n",
            ),
            (
                "sys/devices/system/cpu/cpufreq/policy0/ondemand/up_threshold",
                "80\n",
            ),
        ]);
        let governor = GovernorSetting { policy: 0 };
        let old = governor.read(&roots).unwrap();
        assert_eq!(old, "ondemand up_threshold=80");
        governor.write(&roots, "performance").unwrap();
        assert!(governor.same(&governor.read(&roots).unwrap(), "performance"));
        // the kernel has forgotten it meanwhile
        let tunable = governor.folder(&roots).join("ondemand/up_threshold");
        fs::write(&tunable, "95\n").unwrap();
        governor.write(&roots, &old).unwrap();
        assert_eq!(fs::read_to_string(&tunable).unwrap(), "80");
        assert!(!governor.same(&old, "ondemand up_threshold=95"));
    }
}
