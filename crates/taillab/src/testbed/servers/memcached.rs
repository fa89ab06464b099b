//! memcached, over UDP or TCP.

use std::ffi::OsString;
use std::net::SocketAddr;

use crate::experiment::{Experiment, Transport};

/// The arguments, like `memcached -u nobody -t 1`, with only one transport enabled.
pub fn args(experiment: &Experiment, address: SocketAddr) -> Vec<OsString> {
    let server = &experiment.server;
    let (udp, tcp) = match server.transport {
        Transport::Udp => (address.port(), 0),
        Transport::Tcp => (0, address.port()),
    };
    let args = [
        ("-u", server.user.clone()),
        ("-t", experiment.workers().to_string()),
        ("-U", udp.to_string()),
        ("-p", tcp.to_string()),
        ("-l", address.ip().to_string()),
        ("-m", megabytes(experiment).to_string()),
        // memcached does not answer connections beyond this limit
        ("-c", (experiment.client.all_connections() + 64).to_string()),
    ];
    args.into_iter()
        .flat_map(|(flag, value)| [OsString::from(flag), value.into()])
        .collect()
}

/// Memory for twice the size of all items, and at least 64 MB: an eviction would turn gets into misses.
fn megabytes(experiment: &Experiment) -> usize {
    let store = experiment.requests().store;
    let item = store.key_bytes + store.value_bytes + 64;
    (2 * item * store.keys as usize / 1_000_000).max(64)
}
