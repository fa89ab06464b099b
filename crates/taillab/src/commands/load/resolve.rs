//! From a target's name to an address that answers.

use std::net::SocketAddr;

use taillab_console::exit::Failure;
use taillab_experiment::addresses;
use taillab_load::Endpoint;
use taillab_load::target::{Host, HostPort, Place};

/// The place with its name resolved: of several addresses of a name, one that answers.
pub fn endpoint(place: &Place) -> Result<Endpoint, Failure> {
    match place {
        Place::Unix(path) => Ok(Endpoint::Unix(path.clone())),
        Place::Udp(at) => address(at, addresses::taking_datagrams).map(Endpoint::Udp),
        Place::Tcp(at) => address(at, addresses::accepting).map(Endpoint::Tcp),
    }
}

fn address(
    at: &HostPort,
    choose: fn(&[SocketAddr]) -> Option<SocketAddr>,
) -> Result<SocketAddr, Failure> {
    let name = match &at.host {
        Host::Address(address) => return Ok(SocketAddr::new(*address, at.port)),
        Host::Name(name) => name,
    };
    let unknown = |why: String| {
        Failure::failed(format!(
            "the name `{name}` cannot be resolved: {why}; check its spelling, or give the address"
        ))
    };
    let found = addresses::of_host(name, at.port).map_err(unknown)?;
    choose(&found).ok_or_else(|| unknown("it has no address".to_owned()))
}
