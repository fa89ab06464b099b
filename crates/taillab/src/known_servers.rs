//! What is known about servers by their names.

/// How a server treats the requests of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownServer {
    /// The name of its process (`comm`).
    comm: &'static str,
    /// It answers the requests of a connection in order: everything that it has read before it reads
    /// more.
    pub sequential: bool,
    /// Its datagrams begin with two bytes that name the request: DNS, memcached's frame, and
    /// our own.
    pub datagram_ids: bool,
}

/// Every server that is known.
const SERVERS: [KnownServer; 14] = [
    known("taillab", true, true),
    known("memcached", true, true),
    known("nginx", true, false),
    known("redis-server", true, false),
    known("valkey-server", true, false),
    known("keydb-server", true, false),
    known("haproxy", true, false),
    known("lighttpd", true, false),
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
