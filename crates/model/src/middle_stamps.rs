//! For which requests the stamps between T1 and T6 are recorded.

use std::fmt;
use std::num::NonZeroU8;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::RequestKey;

/// Shares from 1/2 to this one.
const MOST_DOUBLINGS: u8 = 10;

/// For which requests T2 to T5 are recorded; T1 and T6 always are.
///
/// As text it is `all`, `sampled:1/16` (a power of two up to 1,024) or `ends`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MiddleStamps {
    /// For every request.
    #[default]
    All,
    /// For a share of them that their keys decide: one in 2 to the power of this number.
    Sampled(NonZeroU8),
    /// For none.
    Ends,
}

/// The text is not a valid choice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a choice of stamps: give all, sampled:1/N (N a power of two from 2 to 1024) or ends"
)]
pub struct ParseMiddleStampsError(String);

impl MiddleStamps {
    /// They are recorded for all requests.
    pub fn are_complete(&self) -> bool {
        *self == Self::All
    }

    /// One request in this many has them; `None` where none has.
    pub fn one_in(self) -> Option<u32> {
        match self {
            Self::All => Some(1),
            Self::Sampled(doublings) => Some(1 << doublings.get()),
            Self::Ends => None,
        }
    }

    /// Whether they are recorded for the request with this key.
    ///
    /// The eBPF programs compute the same: the key as 32 bits, with the address added, mixed so
    /// that keys that follow each other have nothing in common (the function is `lowbias32` of
    /// C. Wellons' hash prospector), and then the highest bits.
    #[inline]
    pub fn ask(self, key: RequestKey) -> bool {
        let doublings = match self {
            Self::All => return true,
            Self::Ends => return false,
            Self::Sampled(doublings) => doublings.get(),
        };
        let mut x = u32::from(key.port) << 16 | u32::from(key.id);
        x = x.wrapping_add(u32::from(key.address).wrapping_mul(0x9e37_79b1));
        x = (x ^ x >> 16).wrapping_mul(0x7feb_352d);
        x = (x ^ x >> 15).wrapping_mul(0x846c_a68b);
        (x ^ x >> 16) >> (32 - doublings) == 0
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

    #[test]
    fn a_sample_has_its_share_of_any_row_of_keys_and_no_pattern() {
        let stamps: MiddleStamps = "sampled:1/16".parse().unwrap();
        // ids that count, and sequence numbers of requests of one length
        for step in [1, 21, 24, 34, 64, 144, 233, 1_024] {
            let key = |n: u32| RequestKey {
                address: 7,
                port: 40_000 + (n >> 12) as u16,
                id: (n * step) as u16,
            };
            let asked: Vec<bool> = (0..65_536).map(|n| stamps.ask(key(n))).collect();
            let share = asked.iter().filter(|&&asked| asked).count();
            // 4,096 by chance ± 4 standard deviations, and the keys repeat
            let spread = if step % 64 == 0 { 600 } else { 260 };
            assert!(share.abs_diff(4_096) < spread, "step {step}: {share}");
            let pairs = asked.windows(2).filter(|pair| pair[0] && pair[1]).count();
            assert!(pairs.abs_diff(256) < spread, "step {step}: {pairs} pairs");
        }
        let key = RequestKey {
            address: 1,
            port: 2,
            id: 3,
        };
        assert!(MiddleStamps::All.ask(key) && !MiddleStamps::Ends.ask(key));
    }
}
