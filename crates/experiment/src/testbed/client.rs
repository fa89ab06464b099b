//! The generator's clients: their requests, transports and CPUs.

use std::net::SocketAddr;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_host::{CpuSet, NetNamespace, cpus};
use taillab_load::{AnyClient, Codec, Endpoint, Fleet, KernelStamps, LoadError};
use taillab_model::summary::Connect;

use crate::definition::{Experiment, Transport};

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

/// Checks that the protocol allows these requests, before the server is started.
///
/// # Errors
/// A usage failure that says what is not allowed.
pub fn check(experiment: &Experiment, address: SocketAddr) -> Result<(), Failure> {
    codec(experiment, address).map(drop).or_exit(Exit::Usage)
}

/// Checks that each of the generator's threads gets a connection.
///
/// # Errors
/// A usage failure that says how many are needed.
pub fn check_threads(experiment: &Experiment, threads: usize) -> Result<(), Failure> {
    let client = &experiment.client;
    if usize::from(client.connections.max(client.reserve)) >= threads {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "client.connections must be at least {threads}: the thread on each of the CPUs {} \
         (client.cpus) has its own",
        client.cpus
    )))
}

/// Opens the connections of each thread, from its own CPU and inside `namespace`.
///
/// # Errors
/// The kernel or the server refuses a connection.
pub fn connect(
    experiment: &Experiment,
    address: SocketAddr,
    cpus: &CpuSet,
    namespace: Option<NetNamespace>,
) -> Result<LoadClient, Failure> {
    let threads = cpus.len();
    let places: Vec<CpuSet> = cpus.iter().map(CpuSet::single).collect();
    let is_each = experiment.client.connect == Connect::Each;
    let prepare = move |thread: usize| {
        if let Some(namespace) = &namespace {
            namespace.enter()?;
            if is_each {
                make_ports_last();
            }
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
        let codec = codec(experiment, address)?;
        let connections = connections + reserve;
        let stamps = KernelStamps::NONE;
        if is_each {
            // while it is calibrated, as many as the server takes
            let rate = None;
            return AnyClient::connect_each(&endpoint, connections, codec, stamps, rate);
        }
        let client = AnyClient::connect(&endpoint, connections, codec, stamps)?;
        Ok(client.with(experiment.client.habits(reserve)))
    };
    Ok(Fleet::connect(threads, prepare, connect)?)
}

/// Gives the calling thread's network namespace, which is the testbed's own, all ports, and uses one in TIME_WAIT again
/// after a second: so a connection for each request can be closed as clients close theirs, at any rate that a thread
/// reaches.
fn make_ports_last() {
    for (setting, value) in [("ip_local_port_range", "1024 65535"), ("tcp_tw_reuse", "1")] {
        // where that is not allowed, the client closes with a reset, and the result says so
        let _ = std::fs::write(format!("/proc/sys/net/ipv4/{setting}"), value);
    }
}

/// The requests to the server at `address`.
fn codec(experiment: &Experiment, address: SocketAddr) -> Result<Codec, LoadError> {
    let mut workload = experiment.requests();
    workload.resource.host = address.to_string();
    workload.resource.closes = experiment.client.connect == Connect::Each;
    let udp = experiment.server.transport == Transport::Udp;
    experiment.server.protocol.codec(&workload, udp)
}

#[cfg(test)]
mod tests {
    use taillab_load::protocol::StreamProtocol;

    use super::*;
    use crate::definition::{Override, ServerKind};

    /// The requests to nginx at this address, and the text of one.
    fn to_nginx(flags: Vec<Override>, address: &str) -> (Box<dyn StreamProtocol>, String) {
        let experiment = Experiment::resolve(Some(ServerKind::Nginx), None, flags).unwrap();
        let codec = codec(&experiment, address.parse().unwrap()).unwrap();
        let Codec::Streams(mut http) = codec else {
            panic!("HTTP is a stream")
        };
        let planned = http.plan(1, 1)[0];
        let mut request = Vec::new();
        http.encode(planned, 0, &mut request);
        (http, String::from_utf8(request).unwrap())
    }

    /// The paper's request, whatever the testbed's addresses.
    #[test]
    fn a_request_to_nginx_has_85_bytes() {
        for address in ["127.0.0.1:8080", "10.254.0.100:65535"] {
            let (_, text) = to_nginx(vec![], address);
            assert_eq!(text.len(), 85, "{text}");
            assert!(text.starts_with("GET /index.html HTTP/1.1\r\n"), "{text}");
            assert!(text.contains(&format!("Host: {address}\r\n")), "{text}");
        }
    }

    /// It has as many bytes, of which some ask the server to close.
    #[test]
    fn a_connection_for_each_request_to_nginx_is_closed_by_nginx() {
        let flags = vec![("client.connect", toml::Value::String("each".into()))];
        let (http, text) = to_nginx(flags, "10.254.0.100:65535");
        assert_eq!(text.len(), 85, "{text}");
        assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
        assert!(http.lets_server_close());
    }

    #[test]
    fn each_protocol_is_spoken_over_its_transports() {
        let address = "127.0.0.1:9".parse().unwrap();
        let is_stream = |kind, flags: &[(&'static str, &str)]| {
            let flags = flags.iter().map(|(key, text)| (*key, (*text).into()));
            let experiment = Experiment::resolve(Some(kind), None, flags.collect()).unwrap();
            let codec = codec(&experiment, address).unwrap();
            matches!(codec, Codec::Streams(_))
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
    fn a_thread_without_a_connection_is_a_usage_failure() {
        let datagrams = Experiment::resolve(Some(ServerKind::Memcached), None, vec![]).unwrap();
        assert!(check_threads(&datagrams, 16).is_ok());
        let failure = check_threads(&datagrams, 17).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("at least 17"), "{failure}");
        // a connection in reserve is one
        let flags = vec![
            ("client.kind", toml::Value::String("pooled".into())),
            ("client.connections", toml::Value::Integer(1)),
        ];
        let streams = Experiment::resolve(Some(ServerKind::Nginx), None, flags).unwrap();
        assert!(check_threads(&streams, 17).is_ok());
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
