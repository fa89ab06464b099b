//! Limits of open files. It is a test binary of its own because it changes them.

// the helpers: clippy allows it only inside tests
#![allow(clippy::unwrap_used)]

#[path = "support/streams.rs"]
mod streams;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use streams::{Server, client, serve};
use taillab_load::transport::stream::StreamSockets;
use taillab_load::transport::udp::UdpSockets;
use taillab_load::{Client, KernelStamps, LoadError};

#[test]
fn the_soft_limit_is_raised_and_the_hard_limit_is_named() {
    let server = Server::start(|_, stream| serve(stream));
    let before = getrlimit(Resource::Nofile);
    let limit = |current, maximum| {
        let limit = Rlimit {
            current: Some(current),
            maximum: Some(maximum),
        };
        setrlimit(Resource::Nofile, limit).unwrap();
    };
    let udp = ([127, 0, 0, 1], 9).into();
    limit(50, 900);
    UdpSockets::connect(udp, 200, KernelStamps::NONE).unwrap();
    assert_eq!(getrlimit(Resource::Nofile).current, Some(900));
    limit(50, 800);
    assert_eq!(client(&server.endpoint(), 200).traits().connections, 200);
    assert_eq!(getrlimit(Resource::Nofile).current, Some(800));
    let stamps = KernelStamps::NONE;
    let error = StreamSockets::connect(&server.endpoint(), 2000, stamps).unwrap_err();
    let LoadError::TooManyFiles {
        connections: 2000,
        needed,
    } = error
    else {
        panic!("{error}");
    };
    assert!(needed > 2000 && needed < 3000);
    assert!(error.to_string().contains(&format!("ulimit -n {needed}")));
    // back to what it was, where a process may raise its hard limit again
    let _ = setrlimit(Resource::Nofile, before);
}
