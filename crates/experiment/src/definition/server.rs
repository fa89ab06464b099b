//! The server of an experiment: which one, and what it speaks.

use std::ops::Deref;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use taillab_load::protocol::{echo, http, memcached};
use taillab_load::serve::{Architecture, ServiceTime};
use taillab_model::Transport;

use super::text::by_name;

/// The server under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Which server.
    pub kind: ServerKind,
    /// The program to start, a name on PATH or a path.
    pub program: PathBuf,
    /// For a custom server: all of its arguments, with `{address}` and `{port}` where it should listen. For
    /// other servers: additional arguments after ours.
    pub args: Vec<String>,
    /// The user that it runs as.
    pub user: String,
    /// CPUs that it is pinned to, e.g. `0` or `0-2`.
    pub cpus: String,
    /// Worker threads or processes: how many requests it serves at once, if it has the CPUs.
    /// The null RPC server has no number of its own: a thread for each connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// The transport of its requests.
    pub transport: Transport,
    /// The protocol of its requests.
    pub protocol: Protocol,
    /// The port where it listens.
    pub port: u16,
    /// Receive buffer of its UDP sockets, so that a stall of some milliseconds drops no request;
    /// 0 leaves the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u32>,
    /// How a built-in server divides requests among its threads.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "by_name")]
    pub architecture: Option<Architecture>,
    /// What a worker of a built-in server does for a request.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "by_name")]
    pub service: Option<ServiceTime>,
}

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

impl Server {
    /// What messages and results call it: `memcached`, or a custom server's program.
    pub fn name(&self) -> String {
        match self.kind {
            ServerKind::Custom => self.program.file_name().map_or_else(
                || "server".into(),
                |name| name.to_string_lossy().into_owned(),
            ),
            kind => kind.name().to_owned(),
        }
    }

    /// Whether it is known to answer everything it has read from a connection before it reads more. The
    /// servers that we start ourselves do: our own client speaks to them in plain text, with nothing
    /// between.
    pub const fn is_sequential(&self) -> bool {
        !matches!(self.kind, ServerKind::Custom)
    }

    /// What was measured, in one line: `memcached over UDP`.
    pub fn title(&self) -> String {
        let transport = self.transport;
        let with = match (self.kind, self.architecture) {
            (ServerKind::NullRpc, Some(architecture)) if architecture != Architecture::NullRpc => {
                format!(" ({architecture})")
            }
            (ServerKind::Custom, _) => format!(" ({})", self.protocol.name),
            _ => String::new(),
        };
        format!("{}{with} over {transport}", self.name())
    }
}
