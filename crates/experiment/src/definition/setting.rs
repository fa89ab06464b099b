//! How a setting is declared: once. Its type, what it is usually, its text and its option of `taillab run` are one entry of a
//! [`section`]; the experiment file, the defaults, the option and its help, and the page of all keys come from there.

use std::fmt::Display;

use clap::builder::{TypedValueParser, ValueParser};
use taillab_model::Nanos;

/// A setting of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its key in the experiment file: `client.timeout`.
    pub key: &'static str,
    /// The lines that say what it is, as they stand in the code.
    pub(super) lines: &'static str,
    /// Its option; `None` where only a file has it.
    pub(super) option: Option<RunOption>,
}

/// The option of `taillab run` that is a setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunOption {
    pub(super) long: &'static str,
    pub(super) value_name: &'static str,
    /// Reads the value as the experiment file has it.
    pub(super) reader: fn() -> ValueParser,
    pub(super) heading: Heading,
    pub(super) short: Option<char>,
    pub(super) alias: Option<&'static str>,
    /// The help shows it behind this one; otherwise in the order of the settings.
    pub(super) after: Option<&'static str>,
    /// The option without which it says nothing.
    pub(super) needs: Option<&'static str>,
    /// The text on the command line, where that of the file does not fit there.
    pub(super) help: Option<fn() -> String>,
    /// `-h` has it too.
    pub(super) is_usual: bool,
    /// It may be given several times, and the setting is a list.
    pub(super) is_list: bool,
    pub(super) hyphens: Hyphens,
}

/// What else than options may begin with a hyphen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hyphens {
    /// Nothing.
    None,
    /// A negative number, so that the reader says what is wrong with it.
    Numbers,
    /// Any value.
    All,
}

/// Part of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heading {
    Load,
    Server,
    Calibration,
}

impl Heading {
    /// In the order of the help.
    pub(super) const ALL: [Self; 3] = [Self::Load, Self::Server, Self::Calibration];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Load => "Load",
            Self::Server => "Server and testbed",
            Self::Calibration => "Calibration and probe",
        }
    }
}

impl Setting {
    /// What it is, in one line.
    pub fn text(&self) -> &'static str {
        self.lines.trim()
    }

    /// Its option, as `--timeout`; `None` where only a file has it.
    pub fn option(&self) -> Option<String> {
        self.option.map(|option| format!("--{}", option.long))
    }

    /// What the help of its option says.
    pub fn help(&self) -> String {
        let own = self.option.and_then(|option| option.help);
        own.map_or_else(|| self.text().to_owned(), |help| help())
    }
}

impl RunOption {
    /// One that only the whole help shows.
    pub(super) const fn new(
        heading: Heading,
        long: &'static str,
        value_name: &'static str,
        reader: fn() -> ValueParser,
    ) -> Self {
        Self {
            long,
            value_name,
            reader,
            heading,
            short: None,
            alias: None,
            after: None,
            needs: None,
            help: None,
            is_usual: false,
            is_list: false,
            hyphens: Hyphens::None,
        }
    }

    /// One that `-h` shows too.
    pub(super) const fn usual(mut self) -> Self {
        self.is_usual = true;
        self
    }

    pub(super) const fn short(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }

    pub(super) const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    pub(super) const fn after(mut self, other: &'static str) -> Self {
        self.after = Some(other);
        self
    }

    pub(super) const fn needs(mut self, other: &'static str) -> Self {
        self.needs = Some(other);
        self
    }

    pub(super) const fn help(mut self, help: fn() -> String) -> Self {
        self.help = Some(help);
        self
    }

    pub(super) const fn list(mut self) -> Self {
        self.is_list = true;
        self
    }

    pub(super) const fn hyphens(mut self, hyphens: Hyphens) -> Self {
        self.hyphens = hyphens;
        self
    }
}

/// Reads an option with `read`; `write` makes of it what the experiment file has.
pub(super) fn reader<T, E>(
    read: fn(&str) -> Result<T, E>,
    write: fn(T) -> toml::Value,
) -> ValueParser
where
    T: Clone + Send + Sync + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync + 'static>> + 'static,
{
    read.map(write).into()
}

/// A value that is written as it is displayed.
pub(super) fn text<T: Display>(value: T) -> toml::Value {
    toml::Value::String(value.to_string())
}

/// A length of time, without rounding.
pub(super) fn length(value: Nanos) -> toml::Value {
    text(value.to_exact_string())
}

/// A whole number.
pub(super) fn whole<T: Into<i64>>(value: T) -> toml::Value {
    toml::Value::Integer(value.into())
}

/// A section of the experiment file: a type with a field for each setting. An entry is the setting's text, its key and
/// type, what it usually is (an expression of the [`Choice`](super::defaults::Choice)), and its option, if it has one:
///
/// ```text
/// /// How long to wait for a response [default: 1s]
/// #[serde(with = "length")]
/// timeout: Nanos = Nanos::from_secs(1), RunOption::new(Heading::Load, "timeout", "TIME", || …);
/// ```
macro_rules! section {
    (
        $(#[$about:meta])*
        $name:ident in $section:literal, usually of $choice:ident {
            $(
                $(#[doc = $line:literal])*
                $(#[serde $serde:tt])*
                $key:ident: $kind:ty = $usual:expr $(, $option:expr)?;
            )*
        }
    ) => {
        $crate::definition::setting::section! {
            $(#[$about])*
            $name in $section {
                $(
                    $(#[doc = $line])*
                    $(#[serde $serde])*
                    $key: $kind $(, $option)?;
                )*
            }
        }

        impl $name {
            /// What the settings are where nothing else is said.
            pub(super) fn usual($choice: $crate::definition::defaults::Choice) -> Self {
                Self { $($key: $usual,)* }
            }
        }
    };
    (
        $(#[$about:meta])*
        $name:ident in $section:literal {
            $(
                $(#[doc = $line:literal])*
                $(#[serde $serde:tt])*
                $key:ident: $kind:ty $(, $option:expr)?;
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[doc = $line])*
                $(#[serde $serde])*
                pub $key: $kind,
            )*
        }

        impl $name {
            /// All settings of the section, in the order of the file.
            pub(super) const SETTINGS: &'static [$crate::definition::setting::Setting] = &[$(
                $crate::definition::setting::Setting {
                    key: concat!($section, ".", stringify!($key)),
                    lines: concat!($($line),*),
                    option: $crate::definition::setting::section!(@option $($option)?),
                },
            )*];
        }
    };
    (@option) => { None };
    (@option $option:expr) => { Some($option) };
}

pub(super) use section;
