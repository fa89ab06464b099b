//! The generator's clients: what they ask, over what, and on which CPUs.

use std::net::SocketAddr;

use taillab_host::{CpuSet, NetNamespace, cpus};
use taillab_load::protocol::echo::{EchoDatagrams, EchoStream, EchoWorkload};
use taillab_load::protocol::http::{Http, HttpWorkload};
use taillab_load::protocol::keys::KeyDistribution;
use taillab_load::protocol::memcached::{
    Dialect, MemcachedStream, MemcachedUdp, MemcachedWorkload,
};
use taillab_load::protocol::redis::{Redis, RedisWorkload};
use taillab_load::{AnyClient, AnyProtocol, Endpoint, Fleet, LoadError};

use crate::exit::{Exit, Failure, OrExit};
use crate::experiment::{Experiment, Protocol, Requests, Transport};
use crate::fail::host;

/// One client for each CPU of the generator, whose sockets live in the testbed's client
/// namespace.
pub type LoadClient = Fleet<AnyClient>;

/// Where the server listens.
pub fn endpoint(experiment: &Experiment, address: SocketAddr) -> Endpoint {
    match experiment.server.transport {
        Transport::Tcp => Endpoint::Tcp(address),
        Transport::Udp => Endpoint::Udp(address),
    }
}

/// Sees that the protocol allows what is asked, before there is a server.
///
/// # Errors
/// A usage failure that says what it does not.
pub fn check(experiment: &Experiment, address: SocketAddr) -> Result<(), Failure> {
    protocol(experiment, address).map(drop).or_exit(Exit::Usage)
}

/// Opens the connections, each thread's from its own CPU and inside `namespace`.
///
/// # Errors
/// What the kernel or the server refuses.
pub fn connect(
    experiment: &Experiment,
    address: SocketAddr,
    cpus: &CpuSet,
    namespace: Option<&NetNamespace>,
) -> Result<LoadClient, Failure> {
    let threads = cpus.len();
    let places: Vec<CpuSet> = cpus.iter().map(CpuSet::single).collect();
    let namespace = namespace
        .map(NetNamespace::try_clone)
        .transpose()
        .map_err(host)?;
    let prepare = move |thread: usize| {
        if let Some(namespace) = &namespace {
            namespace.enter()?;
        }
        cpus::pin_current_thread(&places[thread])?;
        Ok(())
    };
    let endpoint = endpoint(experiment, address);
    let all = usize::from(experiment.client.connections);
    let spare = usize::from(experiment.client.reserve);
    let connect = |thread: usize| {
        let connections = all / threads + usize::from(thread < all % threads);
        let reserve = spare / threads + usize::from(thread < spare % threads);
        let protocol = protocol(experiment, address)?;
        let mut client = AnyClient::connect(&endpoint, connections + reserve, protocol)?;
        client.hold_back(reserve);
        Ok(client)
    };
    Ok(Fleet::connect(threads, prepare, connect)?)
}

/// What is asked of the server at `address`.
fn protocol(experiment: &Experiment, address: SocketAddr) -> Result<AnyProtocol, LoadError> {
    let udp = experiment.server.transport == Transport::Udp;
    Ok(match experiment.requests() {
        Requests::KeyValue {
            get_share,
            keys,
            key_bytes,
            value_bytes,
        } => {
            let (key_bytes, value_bytes) = (key_bytes.into(), value_bytes as usize);
            let distribution = KeyDistribution::Uniform;
            if experiment.server.protocol == Protocol::Redis {
                let workload = RedisWorkload {
                    keys,
                    key_bytes,
                    value_bytes,
                    get_share,
                    distribution,
                };
                return Ok(AnyProtocol::Streams(Box::new(Redis::new(workload)?)));
            }
            let workload = MemcachedWorkload {
                keys,
                key_bytes,
                value_bytes,
                get_share,
                dialect: Dialect::Ascii,
                distribution,
            };
            match udp {
                true => AnyProtocol::Datagrams(Box::new(MemcachedUdp::new(workload)?)),
                false => AnyProtocol::Streams(Box::new(MemcachedStream::new(workload)?)),
            }
        }
        Requests::Http {
            path,
            request_bytes,
        } => {
            let workload = HttpWorkload {
                request_bytes: request_bytes.map(|bytes| bytes as usize),
                ..HttpWorkload::get(&address.to_string(), &path)
            };
            AnyProtocol::Streams(Box::new(Http::new(workload)?))
        }
        Requests::Echo {
            request_bytes,
            response_bytes,
        } => {
            let workload = EchoWorkload {
                request_bytes: request_bytes as usize,
                response_bytes: response_bytes as usize,
            };
            match udp {
                true => AnyProtocol::Datagrams(Box::new(EchoDatagrams::new(workload)?)),
                false => AnyProtocol::Streams(Box::new(EchoStream::new(workload)?)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use taillab_load::protocol::{Planned, StreamProtocol};

    use super::*;
    use crate::experiment::ServerKind;

    /// The paper's request, whatever the testbed's addresses.
    #[test]
    fn a_request_to_nginx_has_85_bytes() {
        let experiment = Experiment::resolve(Some(ServerKind::Nginx), None, vec![]).unwrap();
        for address in ["127.0.0.1:8080", "10.254.0.100:65535"] {
            let protocol = protocol(&experiment, address.parse().unwrap()).unwrap();
            let AnyProtocol::Streams(mut http) = protocol else {
                panic!("HTTP is a stream")
            };
            let planned: Planned = http.plan(1, 1)[0];
            let mut request = Vec::new();
            http.encode(planned, 0, &mut request);
            let text = String::from_utf8(request).unwrap();
            assert_eq!(text.len(), 85, "{text}");
            assert!(text.starts_with("GET /index.html HTTP/1.1\r\n"), "{text}");
            assert!(text.contains(&format!("Host: {address}\r\n")), "{text}");
        }
    }

    #[test]
    fn each_protocol_is_spoken_over_its_transports() {
        let address = "127.0.0.1:9".parse().unwrap();
        let is_stream = |kind, flags: &[(&'static str, &str)]| {
            let flags = flags.iter().map(|(key, text)| (*key, (*text).into()));
            let experiment = Experiment::resolve(Some(kind), None, flags.collect()).unwrap();
            let protocol = protocol(&experiment, address).unwrap();
            matches!(protocol, AnyProtocol::Streams(_))
        };
        assert!(!is_stream(ServerKind::Memcached, &[]));
        assert!(is_stream(
            ServerKind::Memcached,
            &[("server.transport", "tcp")]
        ));
        assert!(is_stream(ServerKind::NullRpc, &[]));
        assert!(!is_stream(
            ServerKind::NullRpc,
            &[("server.transport", "udp")]
        ));
        assert!(is_stream(ServerKind::Nginx, &[]));
    }

    #[test]
    fn what_a_protocol_cannot_carry_is_a_usage_failure() {
        let flags = vec![("workload.value_bytes", toml::Value::Integer(5000))];
        let experiment = Experiment::resolve(Some(ServerKind::Memcached), None, flags).unwrap();
        let failure = check(&experiment, "127.0.0.1:9".parse().unwrap()).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("value"), "{failure}");
    }
}
