//! What is known about servers by their names.

/// How a server treats the requests of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownServer {
    /// The name of its process (`comm`).
    comm: &'static str,
    /// It answers the requests of a connection in order: everything that it has read before it reads
    /// more. Only for a server whose protocol has no other order, however it is configured. HTTP servers
    /// are none: with HTTP/2, TLS or another server behind them, a later response may leave first.
    pub sequential: bool,
    /// Its datagrams begin with two bytes that name the request: DNS, memcached's frame, and
    /// our own.
    pub datagram_ids: bool,
}

/// Every server that is known.
const SERVERS: [KnownServer; 11] = [
    known("taillab", true, true),
    known("memcached", true, true),
    known("redis-server", true, false),
    known("valkey-server", true, false),
    known("keydb-server", true, false),
    known("named", false, true),
    known("unbound", false, true),
    known("dnsmasq", false, true),
    known("pdns_server", false, true),
    known("knotd", false, true),
    known("coredns", false, true),
];

const fn known(comm: &'static str, sequential: bool, datagram_ids: bool) -> KnownServer {
    KnownServer {
        comm,
        sequential,
        datagram_ids,
    }
}

impl KnownServer {
    /// The server whose process has this name; nothing is assumed about an unknown one.
    pub fn called(comm: &str) -> Self {
        let found = SERVERS.iter().find(|server| server.comm == comm);
        found.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What their connections carry depends on their configuration, which the name does not tell.
    #[test]
    fn the_name_of_an_http_server_says_nothing_about_the_order_of_its_answers() {
        for name in [
            "nginx", "haproxy", "lighttpd", "apache2", "caddy", "varnishd", "envoy",
        ] {
            assert_eq!(KnownServer::called(name), KnownServer::default(), "{name}");
        }
        assert!(KnownServer::called("memcached").sequential);
    }
}
