//! What carries requests and responses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What carries a server's requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Requests and responses follow each other on connections.
    Tcp,
    /// Each request and each response is a datagram.
    Udp,
}

/// The text is not the name of a transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a transport: give tcp or udp")]
pub struct ParseTransportError(String);

impl Transport {
    /// Both, in the order in which they are listed.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// The name in options and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl FromStr for Transport {
    type Err = ParseTransportError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|transport| transport.name() == text)
            .ok_or_else(|| ParseTransportError(text.to_owned()))
    }
}

/// The name in sentences: `TCP`.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}
