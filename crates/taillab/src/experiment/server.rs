//! The server of an experiment: which one, and what it speaks.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use taillab_load::serve::{Architecture, ServiceTime};

/// The server under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Which server.
    pub kind: ServerKind,
    /// The program to start, a name on PATH or a path.
    pub program: PathBuf,
    /// Its arguments: all of a custom server's, with `{address}` and `{port}` for where it is
    /// to listen; of the others further ones, after ours.
    pub args: Vec<String>,
    /// The user that it runs as.
    pub user: String,
    /// CPUs that it is pinned to, e.g. `0` or `0-2`.
    pub cpus: String,
    /// Worker threads or processes: how many requests it serves at once, if it has the CPUs.
    /// The null RPC server has no number of its own: a thread for each connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// What carries its requests.
    pub transport: Transport,
    /// What they are.
    pub protocol: Protocol,
    /// Its port.
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

/// What carries requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Transport {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What requests and responses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Requests and responses of fixed sizes, a response beginning as its request does.
    Echo,
    /// memcached's text protocol.
    Memcached,
    /// HTTP/1.1 GET on connections that stay open.
    Http,
    /// Redis GET and SET.
    Redis,
}

impl Protocol {
    /// The name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Memcached => "memcached",
            Self::Http => "http",
            Self::Redis => "redis",
        }
    }

    /// Whether it stores values under keys.
    pub const fn has_keys(self) -> bool {
        matches!(self, Self::Memcached | Self::Redis)
    }

    /// Whether taillab speaks it over UDP.
    pub const fn has_udp(self) -> bool {
        matches!(self, Self::Echo | Self::Memcached)
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

    /// What was measured, in one line: `memcached over UDP`.
    pub fn title(&self) -> String {
        let transport = match self.transport {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        };
        let with = match (self.kind, self.architecture) {
            (ServerKind::NullRpc, Some(architecture)) if architecture != Architecture::NullRpc => {
                format!(" ({architecture})")
            }
            (ServerKind::Custom, _) => format!(" ({})", self.protocol.name()),
            _ => String::new(),
        };
        format!("{}{with} over {transport}", self.name())
    }
}

/// Values that have a name of their own, as text.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => s.collect_str(value),
            None => s.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, T, D>(d: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        Option::<String>::deserialize(d)?
            .map(|text| text.parse().map_err(D::Error::custom))
            .transpose()
    }
}
