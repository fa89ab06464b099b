//! From a target's name to an address that answers.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use taillab_load::Endpoint;
use taillab_load::target::{Host, HostPort, Place};

use crate::exit::Failure;

/// How long each of several addresses of a name may take to accept.
const ACCEPT_WITHIN: Duration = Duration::from_secs(2);

/// The place with its name resolved.
///
/// Of several addresses of a name the first one that accepts a connection is taken; over
/// UDP, where nothing accepts, the first IPv4 one or else the first.
pub fn endpoint(place: &Place) -> Result<Endpoint, Failure> {
    match place {
        Place::Unix(path) => Ok(Endpoint::Unix(path.clone())),
        Place::Udp(at) => {
            let addresses = addresses(at)?;
            let v4 = addresses.iter().find(|address| address.is_ipv4());
            Ok(Endpoint::Udp(*v4.unwrap_or(&addresses[0])))
        }
        Place::Tcp(at) => {
            let addresses = addresses(at)?;
            let accepts =
                |address: &&SocketAddr| TcpStream::connect_timeout(address, ACCEPT_WITHIN).is_ok();
            // the client itself tries a single address and reports its refusal
            let found = match addresses.as_slice() {
                [_] => None,
                several => several.iter().find(accepts),
            };
            Ok(Endpoint::Tcp(*found.unwrap_or(&addresses[0])))
        }
    }
}

/// All addresses of a host, at least one.
fn addresses(at: &HostPort) -> Result<Vec<SocketAddr>, Failure> {
    let name = match &at.host {
        Host::Address(address) => return Ok(vec![SocketAddr::new(*address, at.port)]),
        Host::Name(name) => name,
    };
    let unknown = |why: String| {
        Failure::failed(format!(
            "the name `{name}` cannot be resolved: {why}; check its spelling, or give the address"
        ))
    };
    let mut found: Vec<SocketAddr> = (name.as_str(), at.port)
        .to_socket_addrs()
        .map_err(|error| unknown(reason(&error)))?
        .collect();
    found.dedup();
    if found.is_empty() {
        return Err(unknown("it has no address".to_owned()));
    }
    Ok(found)
}

/// What the resolver said, without the library's own words before it.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.rsplit(": ").next().unwrap_or(&text).to_owned()
}
