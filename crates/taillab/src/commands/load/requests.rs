//! What is asked of the server: the target's protocol with the workload of the arguments.

use taillab_load::protocol::echo::{EchoDatagrams, EchoStream, EchoWorkload};
use taillab_load::protocol::http::{Http, HttpWorkload};
use taillab_load::protocol::keys::KeyDistribution;
use taillab_load::protocol::memcached::{MemcachedStream, MemcachedUdp, MemcachedWorkload};
use taillab_load::protocol::redis::{Redis, RedisWorkload};
use taillab_load::protocol::{DatagramProtocol, MessageSizes, StreamProtocol};
use taillab_load::target::{Application, Dialect, Place};
use taillab_load::{AnyProtocol, LoadError, Target};

use crate::cli::LoadArgs;
use crate::exit::{Exit, Failure};

/// A checked workload of the target's protocol.
#[derive(Clone, Debug)]
pub struct Requests {
    kind: Kind,
    datagrams: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    Echo(EchoWorkload),
    Memcached(MemcachedWorkload),
    Http(HttpWorkload),
    Redis(RedisWorkload),
}

impl Requests {
    /// Joins the target with the options that belong to its protocol; others are refused.
    pub fn of(target: &Target, args: &LoadArgs) -> Result<Self, Failure> {
        let keyed = matches!(
            target.protocol,
            Application::Memcached(_) | Application::Redis
        );
        let echo = target.protocol == Application::Echo;
        let http = matches!(target.protocol, Application::Http { .. });
        for (given, belongs, option, to) in [
            (args.get_share.is_some(), keyed, "--get-share", KEYED),
            (args.keys.is_some(), keyed, "--keys", KEYED),
            (args.key_bytes.is_some(), keyed, "--key-bytes", KEYED),
            (args.value_bytes.is_some(), keyed, "--value-bytes", KEYED),
            (args.zipf.is_some(), keyed, "--zipf", KEYED),
            (args.no_prefill, keyed, "--no-prefill", KEYED),
            (
                args.request_bytes.is_some(),
                echo,
                "--request-bytes",
                "echo",
            ),
            (
                args.response_bytes.is_some(),
                echo,
                "--response-bytes",
                "echo",
            ),
            (!args.header.is_empty(), http, "-H", "http"),
        ] {
            if given && !belongs {
                return Err(Failure::new(
                    Exit::Usage,
                    format!("{option} belongs to {to}, and the target is {target}: leave it out"),
                ));
            }
        }
        let requests = Self {
            kind: kind(target, args)?,
            datagrams: matches!(target.place, Place::Udp(_)),
        };
        requests
            .spoken()
            .map_err(|error| Failure::new(Exit::Usage, error))?;
        Ok(requests)
    }

    /// The protocol for one more thread.
    pub fn spoken(&self) -> Result<AnyProtocol, LoadError> {
        Ok(match (self.kind.clone(), self.datagrams) {
            (Kind::Echo(w), true) => AnyProtocol::Datagrams(Box::new(EchoDatagrams::new(w)?)),
            (Kind::Echo(w), false) => AnyProtocol::Streams(Box::new(EchoStream::new(w)?)),
            (Kind::Memcached(w), true) => AnyProtocol::Datagrams(Box::new(MemcachedUdp::new(w)?)),
            (Kind::Memcached(w), false) => AnyProtocol::Streams(Box::new(MemcachedStream::new(w)?)),
            // the target's parser knows no datagrams of these
            (Kind::Http(w), _) => AnyProtocol::Streams(Box::new(Http::new(w)?)),
            (Kind::Redis(w), _) => AnyProtocol::Streams(Box::new(Redis::new(w)?)),
        })
    }

    /// An echo of the same sizes on the same kind of transport, for the null responder.
    pub fn imitated(&self) -> Result<(Self, MessageSizes), LoadError> {
        let sizes = match self.spoken()? {
            AnyProtocol::Streams(protocol) => protocol.sizes(),
            AnyProtocol::Datagrams(protocol) => protocol.sizes(),
        };
        let echo = Self {
            kind: Kind::Echo(EchoWorkload {
                request_bytes: sizes.request_bytes,
                response_bytes: sizes.response_bytes,
            }),
            datagrams: self.datagrams,
        };
        Ok((echo, sizes))
    }

    /// Whether the requests are datagrams.
    pub fn are_datagrams(&self) -> bool {
        self.datagrams
    }

    /// The protocol's name in results.
    pub fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Echo(_) => "echo",
            Kind::Memcached(workload) => match workload.dialect {
                Dialect::Ascii => "memcached-ascii",
                Dialect::Binary => "memcached-binary",
                Dialect::Meta => "memcached-meta",
            },
            Kind::Http(_) => "http",
            Kind::Redis(_) => "redis",
        }
    }
}

const KEYED: &str = "memcached and redis";

fn kind(target: &Target, args: &LoadArgs) -> Result<Kind, Failure> {
    let distribution = args
        .zipf
        .map_or(KeyDistribution::Uniform, KeyDistribution::Zipf);
    Ok(match &target.protocol {
        Application::Echo => {
            let usual = EchoWorkload::default();
            Kind::Echo(EchoWorkload {
                request_bytes: args.request_bytes.unwrap_or(usual.request_bytes),
                response_bytes: args.response_bytes.unwrap_or(usual.response_bytes),
            })
        }
        Application::Memcached(dialect) => {
            let usual = MemcachedWorkload::default();
            Kind::Memcached(MemcachedWorkload {
                keys: args.keys.unwrap_or(usual.keys),
                key_bytes: args.key_bytes.unwrap_or(usual.key_bytes),
                value_bytes: args.value_bytes.unwrap_or(usual.value_bytes),
                get_share: args.get_share.unwrap_or(usual.get_share),
                dialect: *dialect,
                distribution,
            })
        }
        Application::Redis => {
            let usual = RedisWorkload::default();
            Kind::Redis(RedisWorkload {
                keys: args.keys.unwrap_or(usual.keys),
                key_bytes: args.key_bytes.unwrap_or(usual.key_bytes),
                value_bytes: args.value_bytes.unwrap_or(usual.value_bytes),
                get_share: args.get_share.unwrap_or(usual.get_share),
                distribution,
            })
        }
        Application::Http { path } => Kind::Http(http(target, path, args)?),
    })
}

/// A GET of the path; a `Host` among the headers replaces the target's own.
fn http(target: &Target, path: &str, args: &LoadArgs) -> Result<HttpWorkload, Failure> {
    let mut workload = HttpWorkload::get(&host(target), path);
    for header in &args.header {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format!("`{header}` is not a header; write -H 'Name: value'"),
            )
        })?;
        let (name, value) = (name.trim(), value.trim());
        if name.eq_ignore_ascii_case("host") {
            workload.host = value.to_owned();
        } else {
            workload.headers.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(workload)
}

/// What the `Host` header says: the port only where it is not the usual one (RFC 9110, 7.2).
fn host(target: &Target) -> String {
    match &target.place {
        Place::Tcp(at) | Place::Udp(at) if at.port == 80 => at.host.to_string(),
        Place::Tcp(at) | Place::Udp(at) => at.to_string(),
        Place::Unix(_) => "localhost".to_owned(),
    }
}
