//! The servers that are known by name, and what they speak.

use std::ops::Deref;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use taillab_load::protocol::{echo, http, memcached};

/// Servers that `taillab run` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// The built-in echo server: a thread for each TCP connection, as in the paper.
    NullRpc,
    /// memcached over UDP or TCP.
    Memcached,
    /// nginx with one static file.
    Nginx,
    /// The user's own.
    #[value(skip)]
    Custom,
}

impl ServerKind {
    /// What a server of this kind speaks; `None` for the user's own.
    pub const fn protocol(self) -> Option<Protocol> {
        match self {
            Self::NullRpc => Some(Protocol(&echo::PROTOCOL)),
            Self::Memcached => Some(Protocol(&memcached::ASCII)),
            Self::Nginx => Some(Protocol(&http::PROTOCOL)),
            Self::Custom => None,
        }
    }

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NullRpc => "null-rpc",
            Self::Memcached => "memcached",
            Self::Nginx => "nginx",
            Self::Custom => "custom",
        }
    }
}

/// What requests and responses are: a protocol of the generator, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Protocol(&'static taillab_load::Protocol);

impl Default for Protocol {
    /// The echo.
    fn default() -> Self {
        Self(&echo::PROTOCOL)
    }
}

impl Deref for Protocol {
    type Target = taillab_load::Protocol;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || taillab_load::Protocol::names().join(", ");
        taillab_load::Protocol::named(name)
            .map(Self)
            .ok_or_else(|| format!("`{name}` is not a protocol; choose one of {}", known()))
    }
}

impl TryFrom<String> for Protocol {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<Protocol> for String {
    fn from(protocol: Protocol) -> Self {
        protocol.name.to_owned()
    }
}
