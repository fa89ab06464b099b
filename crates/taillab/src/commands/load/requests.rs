//! The requests: the target's protocol with the workload of the arguments.

use taillab_console::exit::Failure;
use taillab_load::protocol::{MessageSizes, echo};
use taillab_load::target::Place;
use taillab_load::{
    Ask, Codec, EchoWorkload, KeyDistribution, LoadError, Protocol, Resource, StoreWorkload,
    Target, Workload,
};
use taillab_model::summary::Connect;

use crate::cli::{ClientArgs, RequestArgs, StoreArgs};

/// A checked workload of the target's protocol.
#[derive(Clone, Debug)]
pub struct Requests {
    protocol: &'static Protocol,
    workload: Workload,
    datagrams: bool,
}

impl Requests {
    /// Joins the target with the options that belong to its protocol; others are refused.
    pub fn of(target: &Target, args: &RequestArgs, client: &ClientArgs) -> Result<Self, Failure> {
        for (given, ask, option) in given(args) {
            if given && !target.protocol.asks(ask) {
                let to = Protocol::names_of(ask);
                return Err(Failure::usage(format!(
                    "{option} belongs to {to}, and the target is {target}: leave it out"
                )));
            }
        }
        let requests = Self {
            protocol: target.protocol,
            workload: workload(target, args, client)?,
            datagrams: matches!(target.place, Place::Udp(_)),
        };
        requests.codec().map_err(Failure::usage)?;
        Ok(requests)
    }

    /// The codec for one more thread.
    pub fn codec(&self) -> Result<Codec, LoadError> {
        self.protocol.codec(&self.workload, self.datagrams)
    }

    /// An echo of the same sizes on the same kind of transport, for the null responder.
    pub fn imitated(&self) -> Result<(Self, MessageSizes), LoadError> {
        let sizes = self.codec()?.planner().sizes();
        let echo = Self {
            protocol: &echo::PROTOCOL,
            workload: Workload {
                echo: EchoWorkload {
                    request_bytes: sizes.request_bytes,
                    response_bytes: sizes.response_bytes,
                },
                ..Workload::default()
            },
            datagrams: self.datagrams,
        };
        Ok((echo, sizes))
    }

    /// Whether the requests are datagrams.
    pub fn are_datagrams(&self) -> bool {
        self.datagrams
    }

    /// Whether the next request on a connection usually follows before the last one is answered.
    pub fn pipeline(&self) -> bool {
        self.datagrams || self.protocol.pipelines
    }

    /// The protocol's name in results.
    pub fn label(&self) -> &'static str {
        self.protocol.label
    }
}

/// Which options were given, and the part of a workload that each belongs to.
fn given(args: &RequestArgs) -> [(bool, Ask, &'static str); 9] {
    // taken apart in full, so that the compiler asks what a new option belongs to
    let RequestArgs {
        dialect: _,
        header,
        store:
            StoreArgs {
                get_share,
                keys,
                key_bytes,
                value_bytes,
            },
        zipf,
        no_prefill,
        request_bytes,
        response_bytes,
    } = args;
    [
        (get_share.is_some(), Ask::Keys, "--get-share"),
        (keys.is_some(), Ask::Keys, "--keys"),
        (key_bytes.is_some(), Ask::Keys, "--key-bytes"),
        (value_bytes.is_some(), Ask::Keys, "--value-bytes"),
        (zipf.is_some(), Ask::Keys, "--zipf"),
        (*no_prefill, Ask::Keys, "--no-prefill"),
        (
            request_bytes.is_some(),
            Ask::RequestBytes,
            "--request-bytes",
        ),
        (
            response_bytes.is_some(),
            Ask::ResponseBytes,
            "--response-bytes",
        ),
        (!header.is_empty(), Ask::Headers, "-H"),
    ]
}

/// As the arguments say, with defaults.
fn workload(target: &Target, args: &RequestArgs, client: &ClientArgs) -> Result<Workload, Failure> {
    let (usual, store) = (Workload::default(), args.store);
    let length = |bytes: Option<u32>, usual| bytes.map_or(usual, |bytes| bytes as usize);
    Ok(Workload {
        store: StoreWorkload {
            keys: store.keys.unwrap_or(usual.store.keys),
            key_bytes: length(store.key_bytes, usual.store.key_bytes),
            value_bytes: length(store.value_bytes, usual.store.value_bytes),
            get_share: store.get_share.unwrap_or(usual.store.get_share),
            distribution: args
                .zipf
                .map_or(KeyDistribution::Uniform, KeyDistribution::Zipf),
        },
        resource: Resource {
            closes: client.connect == Connect::Each,
            ..resource(target, args)?
        },
        echo: EchoWorkload {
            request_bytes: args.request_bytes.unwrap_or(usual.echo.request_bytes),
            response_bytes: args.response_bytes.unwrap_or(usual.echo.response_bytes),
        },
    })
}

/// A GET of the path; a `Host` among the headers replaces the target's own.
fn resource(target: &Target, args: &RequestArgs) -> Result<Resource, Failure> {
    let mut workload = Resource {
        request_bytes: args.request_bytes,
        ..Resource::at(&host(target), &target.path)
    };
    for header in &args.header {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Failure::usage(format!(
                "`{header}` is not a header; write -H 'Name: value'"
            ))
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

/// The `Host` header: with the port only if it is not the usual one (RFC 9110, 7.2), and without the zone of an
/// address, which has no meaning elsewhere (RFC 6874, 4).
fn host(target: &Target) -> String {
    let at = match &target.place {
        Place::Tcp(at) | Place::Udp(at) => at,
        Place::Unix(_) => return "localhost".to_owned(),
    };
    let host = at.host.to_string();
    let host = match host.split_once('%') {
        Some((address, _)) => format!("{address}]"),
        None => host,
    };
    match at.port {
        80 => host,
        port => format!("{host}:{port}"),
    }
}
