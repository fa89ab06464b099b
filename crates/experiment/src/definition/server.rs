//! The server of an experiment: which one, and what it speaks.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::value_parser;
use taillab_console::args::size;
use taillab_load::serve::{Architecture, ServiceTime};
use taillab_model::Transport;

use super::kind::{Protocol, ServerKind};
use super::setting::Heading::Server as IN_SERVER;
use super::setting::{Hyphens, RunOption, reader, section, text, whole};
use super::text::by_name;

section! {
    /// The server under test.
    Server in "server", usually of choice {
        /// Which server: null-rpc, memcached, nginx, or custom
        kind: ServerKind = choice.kind;
        /// CPUs of the server, e.g. 0 or 0-2 [default: the first one, or one beside the generator's]
        cpus: String = "0".to_owned(), RunOption::new(IN_SERVER, "server-cpus", "CPUS", || {
            StringValueParser::new().map(text).into()
        }).usual().short('C');
        /// The transport of the requests [default: tcp, memcached udp]
        transport: Transport = choice.transport, RunOption::new(IN_SERVER, "transport", "NAME", || {
            PossibleValuesParser::new(Transport::ALL.map(Transport::name)).map(text).into()
        }).usual();
        /// The protocol of your own server
        protocol: Protocol = choice.protocol, RunOption::new(IN_SERVER, "protocol", "NAME", || {
            PossibleValuesParser::new(taillab_load::Protocol::names()).map(text).into()
        }).usual();
        /// Worker threads or processes of the server; for your own server, how many requests it serves at once
        /// [default: 1]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workers: Option<u32> = choice.workers(), RunOption::new(IN_SERVER, "workers", "N", || {
            value_parser!(u32).map(whole).into()
        }).usual().short('w');
        /// How null-rpc divides requests among its threads: null-rpc (a thread for each
        /// connection), epoll-shared, epoll-per-worker, udp-shared or udp-reuseport
        /// [default: null-rpc]
        #[serde(default, skip_serializing_if = "Option::is_none", with = "by_name")]
        architecture: Option<Architecture> = choice.built_in(), RunOption::new(IN_SERVER, "architecture", "NAME", || {
            reader(str::parse::<Architecture>, text)
        });
        /// The work of null-rpc for a request: none, spin:DIST (keeps its CPU busy) or wait:DIST (sleeps), e.g.
        /// wait:exponential:1ms [default: none]
        #[serde(default, skip_serializing_if = "Option::is_none", with = "by_name")]
        service: Option<ServiceTime> = choice.built_in().map(|_| ServiceTime::None),
            RunOption::new(IN_SERVER, "service", "WHAT", || {
                reader(str::parse::<ServiceTime>, text)
            });
        /// Port of the server [default: memcached 11211, nginx 8080, null-rpc 7777]
        port: u16 = choice.port(), RunOption::new(IN_SERVER, "port", "PORT", || {
            value_parser!(u16).map(whole).into()
        }).usual();
        /// Receive buffer of the server's UDP sockets, so that a stall drops no requests; 0 keeps the
        /// server's own [default: 8388608]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receive_buffer_bytes: Option<u32> = choice.receive_buffer_bytes(),
            RunOption::new(IN_SERVER, "receive-buffer", "BYTES", || {
                reader(size::<u32>, whole)
            });
        /// User that the server runs as [default: nobody]
        user: String = "nobody".to_owned(), RunOption::new(IN_SERVER, "server-user", "NAME", || {
            StringValueParser::new().map(text).into()
        });
        /// The server's program, by name or path [default: memcached or nginx]
        program: PathBuf = PathBuf::from(choice.program()), RunOption::new(IN_SERVER, "server-program", "PATH", || {
            StringValueParser::new().map(text).into()
        });
        /// For a custom server: all of its arguments, with {address} and {port} where it should listen. For other
        /// servers: additional arguments after ours
        args: Vec<String> = Vec::new(), RunOption::new(IN_SERVER, "server-arg", "ARG", || {
            StringValueParser::new().map(text).into()
        }).list().hyphens(Hyphens::All).help(|| {
            "An additional argument of the server; may be repeated".to_owned()
        });
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
