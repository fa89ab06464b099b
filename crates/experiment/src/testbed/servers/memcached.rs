//! memcached, over UDP or TCP.

use std::ffi::OsString;
use std::net::SocketAddr;

use crate::definition::{Experiment, Transport};

/// Connections that it allows besides those of its clients, with one thread.
const SPARE: u32 = 64;
/// The same for each further thread. It counts five descriptors of a thread as connections, and opens a
/// datagram socket for it.
const OF_THREAD: u32 = 8;

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
        ("-c", most_connections(experiment).to_string()),
    ];
    args.into_iter()
        .flat_map(|(flag, value)| [OsString::from(flag), value.into()])
        .collect()
}

fn most_connections(experiment: &Experiment) -> u32 {
    let further_threads = experiment.workers().saturating_sub(1);
    experiment.client.all_connections() + SPARE + OF_THREAD * further_threads
}

/// Memory for twice the size of all items, and at least 64 MB: an eviction would turn gets into misses.
fn megabytes(experiment: &Experiment) -> usize {
    let store = experiment.requests().store;
    let item = store.key_bytes + store.value_bytes + 64;
    (2 * item * store.keys as usize / 1_000_000).max(64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::ServerKind;

    #[test]
    fn the_descriptors_of_threads_take_no_connection_from_the_clients() {
        let spare = |workers: u32| {
            let flags = vec![("server.workers", toml::Value::Integer(workers.into()))];
            let experiment = Experiment::resolve(Some(ServerKind::Memcached), None, flags).unwrap();
            most_connections(&experiment) - experiment.client.all_connections()
        };
        assert_eq!(spare(1), 64);
        assert!(spare(16) > 6 * 16 && spare(64) > 6 * 64);
    }
}
