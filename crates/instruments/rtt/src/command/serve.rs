//! `taillab rtt --serve`: the server of RDMA for a client on another host.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_experiment::round_trips::failure;
use taillab_host::{Interrupt, cpus};
use taillab_load::rtt::{LEAST_BYTES, Mode, Peer, PeerSpec, Proto};

use crate::args::RttArgs;

/// Between two checks for Ctrl-C.
const PERIOD: Duration = Duration::from_millis(200);

/// Serves until SIGINT or SIGTERM, which is how a server ends.
pub fn run(address: SocketAddr, args: &RttArgs) -> Result<Exit, Failure> {
    let interrupt = Interrupt::register().map_err(host)?;
    let spec = PeerSpec {
        // the client announces its operation and the length of its messages
        proto: Proto::RdmaSend,
        mode: args.mode.first().copied().unwrap_or(Mode::Nonblocking),
        size: LEAST_BYTES,
        conns: 1,
        threads: 1,
        address: address.ip(),
        port: address.port(),
        xdp: None,
        path: std::env::temp_dir(),
    };
    (spec.proto.check(spec.mode, spec.size)).map_err(|error| failure(&error))?;
    let own = args.server_cpus.clone();
    let prepare = move |_| match &own {
        Some(own) => cpus::pin_current_thread(own).map_err(|error| error.to_string()),
        None => Ok(()),
    };
    let peer = Peer::start(&spec, prepare).map_err(|error| failure(&error))?;
    Messages::of(args.common).note(&format_args!("{} serves until Ctrl-C", peer.name()));
    while !interrupt.is_raised() {
        thread::sleep(PERIOD);
    }
    Ok(Exit::Ok)
}
