//! A UDP echo server and a client, each in a network namespace of its own, joined by
//! veth; or both on one loopback device.
//!
//! The namespaces are anonymous: they belong to two threads of this process and go
//! with them, even when the process is killed.
#![allow(dead_code, reason = "each user takes its part")]

pub(crate) mod streams;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{UnshareFlags, gettid};
use taillab_probe::{DeviceId, Disturbances, ProbeSpec, ServerProcesses, Transport};

pub(crate) const SERVER_PORT: u16 = 11_211;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// A running echo server and its client's sockets.
pub(crate) struct Testbed {
    pub(crate) spec: ProbeSpec,
    pub(crate) server_tid: u32,
    pub(crate) server: SocketAddr,
    pub(crate) client: UdpSocket,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What a thread with a namespace of its own is asked to do there.
type Job = Box<dyn FnOnce() + Send>;

/// A thread in a new network namespace.
pub(crate) struct Namespace {
    tid: u32,
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Namespace {
    fn new() -> Self {
        let (jobs, queue): (Sender<Job>, Receiver<Job>) = channel();
        let (ready, tid) = channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: a network namespace has no influence on memory or descriptors.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
                .expect("root can make a network namespace");
            ready
                .send(gettid().as_raw_nonzero().get() as u32)
                .expect("the creator waits");
            for job in queue {
                job();
            }
        });
        let tid = tid.recv().expect("the namespace's thread runs");
        Self { tid, jobs, thread }
    }

    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        self.jobs
            .send(Box::new(move || {
                let _ = done.send(job());
            }))
            .expect("the namespace's thread runs");
        result.recv().expect("the job in the namespace succeeds")
    }
}

fn ip(args: &str) {
    let output = Command::new("ip")
        .args(args.split(' '))
        .output()
        .expect("iproute2 is installed");
    assert!(
        output.status.success(),
        "ip {args}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn device(name: &str) -> DeviceId {
    // any socket of the namespace will do to ask for the index
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    DeviceId {
        ifindex: rustix::net::netdevice::name_to_index(&socket, name).expect("the device exists"),
        netns_inode: std::fs::metadata("/proc/thread-self/ns/net")
            .expect("/proc is mounted")
            .ino(),
    }
}

fn client_socket(address: Ipv4Addr) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).expect("the client's address is up");
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a time-out can be set");
    socket
}

/// The namespaces of a server and of a client joined by veth, and the server's device.
fn joined() -> (Namespace, Namespace, DeviceId) {
    let (server, client) = (Namespace::new(), Namespace::new());
    let peer = client.tid;
    let device = server.run(move || {
        ip(&format!(
            "link add server type veth peer name client netns {peer}"
        ));
        ip(&format!("address add {SERVER}/24 dev server"));
        ip("link set server up");
        device("server")
    });
    client.run(|| {
        ip(&format!("address add {CLIENT}/24 dev client"));
        ip("link set client up");
    });
    (server, client, device)
}

impl Testbed {
    /// Server and client in two namespaces joined by veth.
    pub(crate) fn veth() -> Self {
        let (server, client, device) = joined();
        let socket = client.run(|| client_socket(CLIENT));
        drop(client.jobs);
        Self::start(server, SERVER, device, socket, vec![client.thread])
    }

    /// Server and client on one loopback device.
    pub(crate) fn loopback() -> Self {
        let both = Namespace::new();
        let (device, socket) = both.run(|| {
            ip("link set lo up");
            (device("lo"), client_socket(Ipv4Addr::LOCALHOST))
        });
        Self::start(both, Ipv4Addr::LOCALHOST, device, socket, Vec::new())
    }

    fn start(
        namespace: Namespace,
        address: Ipv4Addr,
        device: DeviceId,
        client: UdpSocket,
        mut threads: Vec<JoinHandle<()>>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let socket = namespace.run(move || {
            let socket = UdpSocket::bind((address, SERVER_PORT)).expect("the port is free");
            socket
                .set_read_timeout(Some(Duration::from_millis(50)))
                .expect("a time-out can be set");
            socket
        });
        let serve: Job = Box::new(move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((n, from)) = socket.recv_from(&mut buffer) {
                    socket
                        .send_to(&buffer[..n], from)
                        .expect("the client is reachable");
                }
            }
        });
        namespace
            .jobs
            .send(serve)
            .expect("the server's thread runs");
        threads.push(namespace.thread);
        let cpus = std::thread::available_parallelism().expect("CPUs can be counted");
        Self {
            spec: ProbeSpec {
                devices: device.into(),
                transport: Transport::Udp,
                server_port: SERVER_PORT,
                server: ServerProcesses::These(vec![std::process::id()]),
                server_cpus: (0..cpus.get() as u16).collect(),
                disturbances: Disturbances::NONE,
                payload_bytes: 0,
                ring_bytes_per_cpu: 1 << 20,
            },
            server_tid: namespace.tid,
            server: (address, SERVER_PORT).into(),
            client,
            stop,
            threads,
        }
    }

    /// One request and its response.
    pub(crate) fn round_trip(&self, request: &[u8]) {
        self.client.send_to(request, self.server).expect("a send");
        let mut response = [0; 2048];
        let n = self.client.recv(&mut response).expect("a response");
        assert_eq!(&response[..n], request);
    }

    pub(crate) fn client_address(&self) -> IpAddr {
        self.client.local_addr().expect("it is bound").ip()
    }

    pub(crate) fn client_port(&self) -> u16 {
        self.client.local_addr().expect("it is bound").port()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
