//! Experiments that come with the program: the effects of *Tales of the Tail*, one by one.

use crate::exit::Failure;

/// An experiment file that is part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name, as it is given on the command line.
    pub name: &'static str,
    /// The file, with its comments.
    pub text: &'static str,
}

/// All presets, which `taillab run` takes in place of a file.
pub const PRESETS: [Preset; 6] = [
    Preset {
        name: "preset:background",
        text: include_str!("../../presets/background.toml"),
    },
    Preset {
        name: "preset:order",
        text: include_str!("../../presets/order.toml"),
    },
    Preset {
        name: "preset:multicore",
        text: include_str!("../../presets/multicore.toml"),
    },
    Preset {
        name: "preset:interrupts",
        text: include_str!("../../presets/interrupts.toml"),
    },
    Preset {
        name: "preset:numa",
        text: include_str!("../../presets/numa.toml"),
    },
    Preset {
        name: "preset:power",
        text: include_str!("../../presets/power.toml"),
    },
];

impl Preset {
    /// Its settings.
    ///
    /// # Errors
    /// Never: a test reads all of them.
    pub(super) fn table(self) -> Result<toml::Table, Failure> {
        self.text
            .parse()
            .map_err(|error| Failure::usage(format!("{}: {error}", self.name)))
    }
}
