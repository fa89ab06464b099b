//! Names of the variants of an enum, as on the command line.

/// Implements `ALL`, `name`, `Display` and `FromStr` for an enum; `$unknown` is the error for any
/// other text. In brackets: further names that are read but not written.
macro_rules! named {
    (
        $type:ident, $unknown:ident, [$($alias:expr => $meant:ident),*]:
        $($variant:ident = $name:literal),+ $(,)?
    ) => {
        impl $type {
            /// All variants, in the order of the help.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name, as on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $unknown;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let further = [$(($alias, Self::$meant)),*];
                let names = Self::ALL.into_iter().map(|one| (one.name(), one));
                names
                    .chain(further)
                    .find(|(name, _)| *name == text.trim())
                    .map(|(_, one)| one)
                    .ok_or_else(|| $unknown(text.to_owned()))
            }
        }
    };
}

pub(crate) use named;
