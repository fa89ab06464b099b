//! Experiments that come with the program: the effects of *Tales of the Tail*, one by one. `taillab run` takes them by name, and
//! the figures of `taillab reproduce` begin with them.

use taillab_console::exit::Failure;

/// An experiment file that is part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name, as it is given on the command line.
    pub name: &'static str,
    /// The file, with its comments.
    pub text: &'static str,
}

/// The file with this name in `presets`.
macro_rules! preset {
    ($name:literal) => {
        Preset {
            name: concat!("preset:", $name),
            text: include_str!(concat!("../../presets/", $name, ".toml")),
        }
    };
}

/// All presets, which `taillab run` takes in place of a file.
pub const PRESETS: [Preset; 6] = [
    preset!("background"),
    preset!("order"),
    preset!("multicore"),
    preset!("interrupts"),
    preset!("numa"),
    preset!("power"),
];

impl Preset {
    /// The preset with this name, without `preset:`.
    pub fn named(name: &str) -> Option<Self> {
        let mut presets = PRESETS.into_iter();
        presets.find(|preset| preset.name.strip_prefix("preset:") == Some(name))
    }

    /// Its settings.
    ///
    /// # Errors
    /// Never: a test reads all of them.
    pub fn table(self) -> Result<toml::Table, Failure> {
        self.text
            .parse()
            .map_err(|error| Failure::usage(format!("{}: {error}", self.name)))
    }
}
