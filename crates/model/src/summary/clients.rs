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

/// How long a connection lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Connect {
    /// Connections are opened once, before the load, and kept.
    #[default]
    Once,
    /// Each request has a connection of its own: it is opened when the request is due, and closed after the answer.
    Each,
}

impl Connect {
    /// As it is written in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Each => "each",
        }
    }
}

impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Connect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Once, Self::Each]
            .into_iter()
            .find(|connect| connect.name() == text)
            .ok_or_else(|| "write once or each".to_owned())
    }
}

/// Who closes the connection that a request had to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// The server, as the request asks (HTTP's `Connection: close`). It keeps the connection in TIME_WAIT.
    Server,
    /// The client. Its port is in TIME_WAIT for a minute, which limits the rate to what the ports allow.
    Client,
    /// The client, with a reset (SO_LINGER of 0), because the rate needs more ports than there are: no port is in
    /// TIME_WAIT.
    Reset,
}

/// The connections of a load in which each request has one of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectingSummary {
    /// Connections that came up, and on which a request was sent.
    pub connected: u64,
    /// Connections that the server's host refused: nothing listened there. Their requests are among the send errors.
    pub refused: u64,
    /// Connections that were not up within the time-out. Their requests are among the time-outs.
    pub timed_out: u64,
    /// Connections that the kernel could not open: no port, no route. Their requests are among the send errors.
    pub failed: u64,
    /// Who closes them.
    pub closing: Closing,
    /// From the SYN until the connection was up and the request was sent: a part of the response time, between the
    /// wait for a connection and the service time. Connections that never came up count as longer than all others.
    pub time: Distribution,
}

/// The clients of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientsSummary {
    /// Who the requests come from.
    pub kind: ClientKind,
    /// Connections, or ports of the clients; with a reserve, this included. If each request has a connection of its
    /// own, the most that are open at once.
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
    /// The connections, where each request has one of its own; absent where connections are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connecting: Option<ConnectingSummary>,
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
        for connect in [Connect::Once, Connect::Each] {
            assert_eq!(connect.to_string().parse(), Ok(connect));
            let json = serde_json::to_string(&connect).unwrap();
            assert_eq!(json, format!("\"{connect}\""));
        }
        assert!("never".parse::<Connect>().is_err());
    }
}
