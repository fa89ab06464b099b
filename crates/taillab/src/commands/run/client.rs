//! The generator's client: what it asks, and over what.

use std::net::SocketAddr;

use taillab_load::{DatagramClient, Endpoint, Memcached, MemcachedWorkload};

use crate::exit::{Exit, Failure, OrExit};
use crate::experiment::{Experiment, Requests, Transport};

/// The generator's client, whose sockets live in the testbed's client namespace.
pub type LoadClient = DatagramClient<Memcached>;

/// Where the server listens.
pub fn endpoint(experiment: &Experiment, address: SocketAddr) -> Endpoint {
    match experiment.server.transport {
        Transport::Tcp => Endpoint::Tcp(address),
        Transport::Udp => Endpoint::Udp(address),
    }
}

/// Whether the protocol allows what is asked.
///
/// # Errors
/// A usage failure that says what it does not.
pub fn check(experiment: &Experiment) -> Result<(), Failure> {
    let _ = workload(experiment);
    Ok(())
}

/// Opens the connections in the calling thread's namespace.
pub fn connect(experiment: &Experiment, endpoint: &Endpoint) -> Result<LoadClient, Failure> {
    let protocol = Memcached::new(workload(experiment)?).or_exit(Exit::Usage)?;
    let Endpoint::Udp(address) = endpoint else {
        return Err(Failure::new(Exit::Failed, "tcp: later"));
    };
    Ok(DatagramClient::connect(
        *address,
        experiment.client.connections.into(),
        protocol,
    )?)
}

fn workload(experiment: &Experiment) -> Result<MemcachedWorkload, Failure> {
    let Requests::KeyValue {
        get_share,
        keys,
        key_bytes,
        value_bytes,
    } = experiment.requests()
    else {
        return Err(Failure::new(Exit::Failed, "later"));
    };
    let workload = MemcachedWorkload {
        keys,
        key_bytes: key_bytes.into(),
        value_bytes: value_bytes as usize,
        get_share,
        ..MemcachedWorkload::default()
    };
    workload.validate_datagrams().or_exit(Exit::Usage)?;
    Ok(workload)
}
