//! Who sent the requests of a load, and how long these waited for their connections.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Distribution;

/// Whether more than this share of the requests waits in the client for a connection is worth a remark.
pub const NOTABLE_WAITING_SHARE: f64 = 0.01;

/// Who the requests come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientKind {
    /// Each connection is a client that sends at random times of its own, whatever the others do.
    #[default]
    Independent,
    /// All connections are the pool of one client: a request takes the one that has been idle for longest. That
    /// deals the requests out evenly over a server's workers.
    Pooled,
}

impl ClientKind {
    /// As it is written in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Pooled => "pooled",
        }
    }
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ClientKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Independent, Self::Pooled]
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| "write independent or pooled".to_owned())
    }
}

/// The clients of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientsSummary {
    /// Who the requests come from.
    pub kind: ClientKind,
    /// Connections, or ports of the clients; with a reserve, this included.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// The most requests under way on a connection at once; absent where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pipeline: Option<u32>,
    /// Requests that waited in their client, because their connection was busy or being opened.
    pub waited: u64,
    /// Their share of all requests.
    #[schemars(range(min = 0, max = 1))]
    pub waited_share: f64,
    /// How long the requests waited for their connections: a part of the response time, between the lateness and the
    /// service time. Zero for those that did not wait; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Distribution>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written() {
        for kind in [ClientKind::Independent, ClientKind::Pooled] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
        }
        assert!("alone".parse::<ClientKind>().is_err());
    }
}
