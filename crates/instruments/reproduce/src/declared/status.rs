//! Whether a row can be had on this machine, and what it lacks.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use taillab_host::{Roots, cpus, programs};
use taillab_load::rtt::has_rdma;

use super::file::DeclaredRow;
use super::hardware::Hardware;

/// What this machine has of what rows need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThisMachine {
    /// CPUs that are online.
    pub cpus: usize,
    /// The hardware that is there.
    pub hardware: Vec<Hardware>,
    /// The programs that are installed, of those that rows name.
    pub programs: Vec<String>,
}

impl ThisMachine {
    /// Looks at what `rows` need.
    pub fn look<'r>(roots: &Roots, rows: impl Iterator<Item = &'r DeclaredRow>) -> Self {
        let exists = |path: &str| roots.sys.join(path).exists();
        let nodes = folders(&roots.sys.join("devices/system/node"), "node");
        let found = [
            (Hardware::Numa, nodes > 1),
            (Hardware::Rdma, has_rdma()),
            (
                Hardware::IdleStates,
                exists("devices/system/cpu/cpu0/cpuidle/state1"),
            ),
            (
                Hardware::Frequency,
                exists("devices/system/cpu/cpu0/cpufreq"),
            ),
            (Hardware::NicStamps, exists("class/ptp/ptp0")),
        ];
        let is_installed = |name: &&String| programs::find(Path::new(name.as_str())).is_ok();
        let mut programs: Vec<String> = rows
            .flat_map(|row| &row.programs)
            .filter(is_installed)
            .cloned()
            .collect();
        programs.sort();
        programs.dedup();
        Self {
            cpus: cpus::online(roots).map_or(1, |cpus| cpus.len()),
            hardware: found
                .iter()
                .filter(|(_, is_there)| *is_there)
                .map(|(of, _)| *of)
                .collect(),
            programs,
        }
    }

    /// Whether the row can be had here, and what it needs or lacks, with what stands in.
    pub fn judge(&self, row: &DeclaredRow) -> (RowStatus, String) {
        if row.simulated {
            return (RowStatus::ModelOnly, String::new());
        }
        let instead = |lack: String| match &row.substitute {
            Some(substitute) => format!("{lack}; instead: {substitute}"),
            None => lack,
        };
        if let Some(hardware) = row
            .hardware
            .filter(|needed| !self.hardware.contains(needed))
        {
            return (
                RowStatus::NeedsHardware,
                instead(hardware.text().to_owned()),
            );
        }
        if row.cpus > self.cpus {
            let lack = format!("{} CPUs, and {} are here", row.cpus, self.cpus);
            return (RowStatus::NeedsCpus, instead(lack));
        }
        let missing = row
            .programs
            .iter()
            .find(|name| !self.programs.contains(name));
        if let Some(missing) = missing {
            let remedy = programs::find(Path::new(missing)).err();
            let remedy = remedy.map_or_else(|| missing.clone(), |missing| missing.to_string());
            return (RowStatus::NeedsProgram, remedy);
        }
        let root = if row.command.starts_with("sudo ") {
            "root"
        } else {
            ""
        };
        (RowStatus::RunsHere, root.to_owned())
    }
}

/// How many folders there begin with this name and end with a number.
fn folders(folder: &Path, name: &str) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |entry: &fs::DirEntry| {
        let file = entry.file_name();
        let number = file.to_str().and_then(|file| file.strip_prefix(name));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    entries.filter(is_one).count()
}

/// Whether a row can be had on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowStatus {
    /// It runs here as it is in the paper.
    RunsHere,
    /// It is a model, simulated the same everywhere.
    ModelOnly,
    /// It needs more CPUs than this machine has.
    NeedsCpus,
    /// It needs hardware that this machine lacks.
    NeedsHardware,
    /// It needs a program that is not installed.
    NeedsProgram,
    /// It is a command of an instrument that this program was built without.
    NotBuiltIn,
}

impl RowStatus {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::RunsHere,
        Self::ModelOnly,
        Self::NeedsCpus,
        Self::NeedsHardware,
        Self::NeedsProgram,
        Self::NotBuiltIn,
    ];

    /// What a person reads.
    pub const fn text(self) -> &'static str {
        match self {
            Self::RunsHere => "runs here",
            Self::ModelOnly => "model only",
            Self::NeedsCpus => "needs more CPUs",
            Self::NeedsHardware => "needs hardware",
            Self::NeedsProgram => "needs a program",
            Self::NotBuiltIn => "not built in",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> DeclaredRow {
        let text = format!(
            "figure = \"fig5\"\nwhat = \"w\"\ncommand = \"sudo taillab run x\"\nseconds = 1\n{text}"
        );
        toml::from_str(&text).unwrap()
    }

    fn machine() -> ThisMachine {
        ThisMachine {
            cpus: 2,
            hardware: vec![Hardware::Rdma],
            programs: vec!["nginx".into()],
        }
    }

    #[test]
    fn a_row_says_what_it_lacks_and_what_stands_in() {
        let judge = |text: &str| machine().judge(&row(text));
        assert_eq!(judge(""), (RowStatus::RunsHere, "root".into()));
        assert_eq!(
            judge("simulated = true"),
            (RowStatus::ModelOnly, String::new())
        );
        let (standing, needs) = judge("cpus = 6\nsubstitute = \"virtual workers\"");
        assert_eq!(standing, RowStatus::NeedsCpus);
        assert_eq!(needs, "6 CPUs, and 2 are here; instead: virtual workers");
        let (standing, needs) = judge("hardware = \"numa\"\nsubstitute = \"a guest\"");
        assert_eq!(standing, RowStatus::NeedsHardware);
        assert_eq!(needs, "a machine with two NUMA nodes; instead: a guest");
        assert_eq!(judge("hardware = \"rdma\"").0, RowStatus::RunsHere);
        assert_eq!(judge("programs = [\"nginx\"]").0, RowStatus::RunsHere);
        let (standing, needs) = judge("programs = [\"no-such-program\"]");
        assert_eq!(standing, RowStatus::NeedsProgram);
        assert!(
            needs.starts_with("no-such-program is not installed"),
            "{needs}"
        );
    }

    #[test]
    fn the_machine_is_read_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let put = |path: &str, text: &str| {
            let path = folder.path().join("sys").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("devices/system/cpu/online", "0-15");
        put("devices/system/node/node0/cpulist", "0-7");
        put("devices/system/node/node1/cpulist", "8-15");
        put("devices/system/node/online", "0-1");
        put("devices/system/cpu/cpu0/cpuidle/state1/name", "C1");
        let found = ThisMachine::look(&roots, [row("programs = [\"no-such-program\"]")].iter());
        assert_eq!(found.cpus, 16);
        assert!(found.hardware.contains(&Hardware::Numa), "{found:?}");
        assert!(found.hardware.contains(&Hardware::IdleStates), "{found:?}");
        assert!(!found.hardware.contains(&Hardware::Frequency), "{found:?}");
        assert!(found.programs.is_empty());
    }
}
