//! When the stamps between T1 and T6 are recorded.

use std::fmt;
use std::num::NonZeroU8;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// log2 of the largest N in `sampled:1/N`.
const MOST_DOUBLINGS: u8 = 10;

/// When T2 to T5 and disturbances are recorded; T1 and T6 always are.
///
/// As text it is `all`, `sampled:1/16` (a power of two up to 1,024) or `ends`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MiddleStamps {
    /// All the time.
    #[default]
    All,
    /// In slices, which take a share of the time: 1 over 2 to the power of this number.
    Sampled(NonZeroU8),
    /// Never.
    Ends,
}

/// The text is not a valid choice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a choice of stamps: give all, sampled:1/N (N a power of two from 2 to 1024) or ends"
)]
pub struct ParseMiddleStampsError(String);

impl MiddleStamps {
    /// Whether they are recorded all the time.
    pub fn are_complete(&self) -> bool {
        *self == Self::All
    }

    /// N, where slices take 1/N of the time (1 for all the time); `None` where there are no slices.
    pub fn one_in(self) -> Option<u32> {
        match self {
            Self::All => Some(1),
            Self::Sampled(doublings) => Some(1 << doublings.get()),
            Self::Ends => None,
        }
    }
}

impl FromStr for MiddleStamps {
    type Err = ParseMiddleStampsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseMiddleStampsError(text.to_owned());
        match text.trim() {
            "all" => Ok(Self::All),
            "ends" => Ok(Self::Ends),
            other => {
                let share = other.strip_prefix("sampled:1/").ok_or_else(wrong)?;
                let one_in: u32 = share.parse().map_err(|_| wrong())?;
                let doublings = one_in.checked_ilog2().filter(|_| one_in.is_power_of_two());
                doublings
                    .and_then(|doublings| NonZeroU8::new(doublings as u8))
                    .filter(|doublings| doublings.get() <= MOST_DOUBLINGS)
                    .map(Self::Sampled)
                    .ok_or_else(wrong)
            }
        }
    }
}

impl fmt::Display for MiddleStamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Sampled(doublings) => write!(f, "sampled:1/{}", 1_u32 << doublings.get()),
            Self::Ends => f.write_str("ends"),
        }
    }
}

impl TryFrom<String> for MiddleStamps {
    type Error = ParseMiddleStampsError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MiddleStamps> for String {
    fn from(stamps: MiddleStamps) -> Self {
        stamps.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_survives_its_text() {
        for text in [
            "all",
            "sampled:1/2",
            "sampled:1/16",
            "sampled:1/1024",
            "ends",
        ] {
            let stamps: MiddleStamps = text.parse().unwrap();
            assert_eq!(stamps.to_string(), text);
        }
        for wrong in [
            "",
            "sampled",
            "sampled:1/1",
            "sampled:1/12",
            "sampled:1/2048",
            "none",
        ] {
            let error = wrong.parse::<MiddleStamps>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }
}
