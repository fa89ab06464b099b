//! What is known of a server by its name.

use taillab_host::target::{Server, Transport};

use crate::cli::Framing;

/// Servers that answer each connection's requests in order, all that they have read of it
/// before they read more.
const SEQUENTIAL: [&str; 8] = [
    "memcached",
    "nginx",
    "redis-server",
    "valkey-server",
    "keydb-server",
    "taillab",
    "haproxy",
    "lighttpd",
];

/// How the requests of a server are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// In order and all of them, see [`SEQUENTIAL`].
    pub sequential: bool,
    /// By their content, in the words of a recording.
    pub framing: Option<String>,
    /// Bytes of each packet that must be recorded for it.
    pub payload_bytes: u16,
}

impl Known {
    /// What the user says, and else what the name tells.
    pub fn of(server: &Server, asked: Framing) -> Self {
        let comm = server.comm.as_str();
        let framing = match (server.endpoint.transport, asked) {
            // a datagram is a request
            (Transport::Udp, _) => None,
            (Transport::Tcp, asked) => asked.name(),
        };
        Self {
            sequential: asked == Framing::Auto && SEQUENTIAL.contains(&comm),
            payload_bytes: framing.as_deref().map_or(0, payload_bytes),
            framing,
        }
    }
}

/// How much of a packet a framer reads.
fn payload_bytes(_framing: &str) -> u16 {
    256
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_host::target::Endpoint;

    fn server(comm: &str, transport: Transport) -> Server {
        Server {
            pid: 7,
            comm: comm.into(),
            name: String::new(),
            namespace: 1,
            endpoint: Endpoint {
                port: 80,
                transport,
                addresses: Vec::new(),
            },
            processes: vec![7],
            cpus: "0".parse().unwrap(),
            cgroup: None,
        }
    }

    #[test]
    fn a_known_name_says_how_requests_are_answered() {
        let known = Known::of(&server("nginx", Transport::Tcp), Framing::Auto);
        assert_eq!(
            (known.sequential, known.framing, known.payload_bytes),
            (true, None, 0)
        );
        let other = Known::of(&server("python3", Transport::Tcp), Framing::Auto);
        assert!(!other.sequential);
    }

    #[test]
    fn content_is_recorded_only_where_it_is_read() {
        let http = Known::of(&server("x", Transport::Tcp), Framing::Http);
        assert_eq!(http.framing.as_deref(), Some("http"));
        assert!(http.payload_bytes > 0);
        let udp = Known::of(&server("x", Transport::Udp), Framing::Http);
        assert_eq!((udp.framing, udp.payload_bytes), (None, 0));
    }
}
