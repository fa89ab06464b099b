//! What is known about a server by its name.

use taillab_analysis::Framing;
use taillab_experiment::known_servers::KnownServer;
use taillab_host::target::{Server, Transport};

use crate::cli::ProtocolChoice;

/// How the requests of a server are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identification {
    /// It answers in order all that it has read, see [`KnownServer::sequential`].
    pub sequential: bool,
    /// By the first two bytes of a datagram, see [`KnownServer::datagram_ids`].
    pub datagram_ids: bool,
    /// By their content, in the words of a recording.
    pub framing: Option<String>,
    /// Bytes of each packet that must be recorded for it.
    pub payload_bytes: u16,
}

impl Identification {
    /// What the user says, otherwise what the server's name tells.
    pub fn of(server: &Server, asked: ProtocolChoice) -> Self {
        let framing = match (server.endpoint.transport, asked) {
            // a datagram is a request
            (Transport::Udp, _) | (Transport::Tcp, ProtocolChoice::Auto) => Framing::OneInTurn,
            (Transport::Tcp, ProtocolChoice::As(framing)) => framing,
        };
        let known = KnownServer::called(&server.comm);
        Self {
            sequential: asked == ProtocolChoice::Auto && known.sequential,
            datagram_ids: server.endpoint.transport == Transport::Udp && known.datagram_ids,
            payload_bytes: framing.payload_bytes(),
            framing: (framing != Framing::OneInTurn).then(|| framing.to_string()),
        }
    }
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
            taken_addresses: Vec::new(),
            others: Vec::new(),
            served_ports: Vec::new(),
            cpus: "0".parse().unwrap(),
            cgroup: None,
            has_connected_datagrams: false,
        }
    }

    #[test]
    fn a_known_name_says_how_requests_are_answered() {
        let known = Identification::of(&server("memcached", Transport::Tcp), ProtocolChoice::Auto);
        assert_eq!(
            (known.sequential, known.framing, known.payload_bytes),
            (true, None, 0)
        );
        // behind these there may be HTTP/2, TLS or another server
        for name in ["python3", "nginx", "haproxy", "lighttpd"] {
            let other = Identification::of(&server(name, Transport::Tcp), ProtocolChoice::Auto);
            assert!(!other.sequential, "{name}");
        }
    }

    #[test]
    fn a_known_name_says_whether_datagrams_have_ids() {
        let ids = |comm, transport| {
            Identification::of(&server(comm, transport), ProtocolChoice::Auto).datagram_ids
        };
        assert!(ids("memcached", Transport::Udp));
        assert!(!ids("memcached", Transport::Tcp));
        assert!(!ids("python3", Transport::Udp));
    }

    #[test]
    fn content_is_recorded_only_where_it_is_read() {
        let http = Identification::of(
            &server("x", Transport::Tcp),
            ProtocolChoice::As(Framing::Http1),
        );
        assert_eq!(http.framing.as_deref(), Some("http"));
        assert!(http.payload_bytes > 0);
        let udp = Identification::of(
            &server("x", Transport::Udp),
            ProtocolChoice::As(Framing::Http1),
        );
        assert_eq!((udp.framing, udp.payload_bytes), (None, 0));
    }
}
