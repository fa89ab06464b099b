//! A UDP echo server and a client, each in a network namespace of its own, joined by
//! veth; or both on one loopback device.
//!
//! The namespaces are anonymous: they belong to two threads of this process and go
//! with them, even when the process is killed.

pub(crate) mod datagrams;
pub(crate) mod echo;
pub(crate) mod pipeline;
pub(crate) mod recorded;
pub(crate) mod streams;
pub(crate) mod tap;
mod unspoiled;

use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, UnshareFlags, gettid, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};
use taillab_analysis::{BlindWindow, Matched};
use taillab_model::{Announcements, Event, EventKind, MiddleStamps, Monotonic, Recording, Stamps};
use taillab_probe::{
    Addresses, Devices, Disturbances, Probe, ProbeSpec, ServerProcesses, Transport,
};

#[allow(unused_imports, reason = "an example includes this file, too")]
pub(crate) use self::unspoiled::first_unspoiled;

pub(crate) const SERVER_PORT: u16 = 11_211;
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// One test at a time: they count events and descriptors of this process.
static ALONE: Mutex<()> = Mutex::new(());

/// The right to run live, or `None` where `TAILLAB_SKIP_LIVE=1` skips the test.
pub(crate) fn live(test: &str) -> Option<MutexGuard<'static, ()>> {
    let lacks = if !rustix::process::geteuid().is_root() {
        Some("root")
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        Some("a kernel with BTF")
    } else {
        None
    };
    let Some(lacks) = lacks else {
        return Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner));
    };
    assert!(
        std::env::var_os("TAILLAB_SKIP_LIVE").is_some_and(|v| v == "1"),
        "{test} needs {lacks}; set TAILLAB_SKIP_LIVE=1 to do without the live tests"
    );
    // not print: that is shown for failed tests only
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: it needs {lacks}");
    None
}

/// With `TAILLAB_BLESS=1` keeps a recording as a golden capture of the matcher's tests,
/// which then have to be blessed too.
pub(crate) fn keep(name: &str, record: impl FnOnce() -> Recording) {
    if std::env::var_os("TAILLAB_BLESS").is_none() {
        return;
    }
    let path = format!(
        "{}/../analysis/tests/golden/{name}.tlc",
        env!("CARGO_MANIFEST_DIR")
    );
    let file = std::fs::File::create(path).expect("the folder of golden captures is there");
    record().write(file).expect("there is room");
}

/// Longer than any working system needs, however busy it is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Asks again and again until the answer is yes.
pub(crate) fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    within(PATIENCE, what, is_so);
}

/// The same, with another patience.
pub(crate) fn within(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The folders of a process's threads.
pub(crate) fn threads_of(process: u32) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    folder.flatten().map(|thread| thread.path()).collect()
}

/// Whether a thread, given by its folder in /proc, is in this state (proc_pid_stat(5)).
fn is_in_state(thread: &Path, state: char) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    after_name.starts_with(state)
}

/// Waits until all of these threads sleep.
pub(crate) fn await_sleep(threads: &[PathBuf]) {
    let is_asleep = |thread: &PathBuf| {
        // a thread says that it sleeps a moment before it leaves its CPU; its call is known only then
        let call = std::fs::read_to_string(thread.join("syscall")).unwrap_or_default();
        is_in_state(thread, 'S') && !call.is_empty() && !call.starts_with("running")
    };
    eventually("the server sleeps", || threads.iter().all(is_asleep));
}

/// How often a thread has gone to sleep so far.
pub(crate) fn times_asleep(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let count = count.expect("every status has this line");
    count.trim().parse().expect("a number")
}

/// The most recordings that are made until one is not blind nearly all the time.
pub(crate) const ATTEMPTS: usize = 5;

/// Whether a blind window overlaps the request.
pub(crate) fn is_hidden(matched: &Matched, stamps: &Stamps) -> bool {
    let hides = |gap: &BlindWindow| gap.from <= stamps.t6 && stamps.t1 <= gap.to;
    matched.blind.iter().any(hides)
}

/// The requests that no blind window overlaps.
fn seen(matched: &Matched) -> impl Iterator<Item = Stamps> {
    let all = matched.requests.iter().map(|request| request.server);
    all.filter(|stamps| !is_hidden(matched, stamps))
}

/// What spoils a recording: blind windows overlap more than nine requests in ten.
pub(crate) fn was_blind(matched: &Matched) -> Option<String> {
    let (seen, all) = (seen(matched).count(), matched.requests.len());
    (10 * seen < all).then(|| format!("{seen} of {all} requests outside of blind windows"))
}

/// The share of all requests that no blind window explains and that lack what `is_such` asks for. It is a share
/// of all: where a switch is missed on a busy machine, the event that would show the blind window may be missing
/// too, so the requests between blind windows are the worst ones.
pub(crate) fn share_that_lacks(matched: &Matched, is_such: impl Fn(&Stamps) -> bool) -> f64 {
    let (seen_by_probe, all) = (seen(matched).count(), matched.requests.len());
    let lack = seen(matched).filter(|stamps| !is_such(stamps)).count();
    println!("{lack} of {seen_by_probe} outside of blind windows lack stamps, of {all} in all");
    lack as f64 / all as f64
}

pub(crate) fn now() -> Monotonic {
    let time = clock_gettime(ClockId::Monotonic);
    Monotonic::from_nanos_since_boot(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// What is watched at a server on [`SERVER_PORT`], wherever it runs: the stamps alone.
pub(crate) fn spec(
    devices: impl Into<Devices>,
    transport: Transport,
    server: ServerProcesses,
) -> ProbeSpec {
    let allowed = sched_getaffinity(None).expect("the affinity can be read");
    let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    ProbeSpec {
        devices: devices.into(),
        queues: false,
        others: Vec::new(),
        served_ports: Vec::new(),
        transport,
        server_port: SERVER_PORT,
        addresses: Addresses::All,
        server,
        server_cpus: cpus.map(|cpu| cpu as u16).collect(),
        generator_cpus: Vec::new(),
        stamps: MiddleStamps::All,
        disturbances: Disturbances::NONE,
        payload_bytes: 0,
        ring_bytes_per_cpu: 1 << 20,
    }
}

/// Attaches, and waits until the reads that began before have ended, since fexit does not see
/// their ends. They end by a time-out; `server` is the server's thread.
pub(crate) fn begin(probe: &mut Probe, server: u32) {
    probe.attach().expect("the hooks are there");
    let before = times_asleep(server);
    let mut hooks = probe.hooks().into_iter();
    if hooks.any(|hook| hook.hook.starts_with("fexit/")) {
        // once in a read that had begun, if it was not asleep then, and once in a later one
        eventually("the server reads anew", || {
            times_asleep(server) >= before + 2
        });
    }
}

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
    pub(crate) tid: u32,
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Namespace {
    pub(crate) fn new() -> Self {
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

pub(crate) fn ip(args: &str) {
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

/// Lets packets wait in a queue before the driver of this device of the calling thread's namespace takes them: it
/// passes on so much (`10mbit`), and at once no more than this many bytes.
pub(crate) fn shape(device: &str, rate: &str, bytes_at_once: usize) {
    let args = format!(
        "qdisc replace dev {device} root tbf rate {rate} burst {bytes_at_once} limit 4000000"
    );
    let output = Command::new("tc").args(args.split(' ')).output();
    let output = output.expect("iproute2 is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tc {args}: {said}");
}

/// Bytes that the client's device has received; for a thread in its namespace.
pub(crate) fn received_by_client() -> usize {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("/proc is mounted");
    let mut devices = text.lines().filter_map(|line| line.split_once(':'));
    let client = devices.find(|(name, _)| name.trim() == "client");
    let (_, counts) = client.expect("it has the device");
    let bytes = counts.split_whitespace().next().expect("it is counted");
    bytes.parse().expect("a number")
}

/// How many segments the namespace of the calling thread has sent again.
pub(crate) fn segments_sent_again() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("/proc is mounted");
    let mut rows = text.lines().filter(|line| line.starts_with("Tcp:"));
    let mut row = || rows.next().expect("names, then numbers").split(' ');
    let names = row().collect::<Vec<_>>();
    let place = names.iter().position(|name| *name == "RetransSegs");
    let number = row().nth(place.expect("it is counted")).expect("a number");
    number.parse().expect("a number")
}

/// A network device, unique on the host.
#[derive(Clone, Copy)]
pub(crate) struct DeviceId {
    pub(crate) ifindex: u32,
    /// The inode of its network namespace.
    pub(crate) netns_inode: u64,
}

impl From<DeviceId> for Devices {
    fn from(device: DeviceId) -> Self {
        Self {
            netns_inode: device.netns_inode,
            ifindexes: vec![device.ifindex],
        }
    }
}

pub(crate) fn device(name: &str) -> DeviceId {
    // any socket of the namespace can ask for the index
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    DeviceId {
        ifindex: rustix::net::netdevice::name_to_index(&socket, name).expect("the device exists"),
        netns_inode: std::fs::metadata("/proc/thread-self/ns/net")
            .expect("/proc is mounted")
            .ino(),
    }
}

fn client_socket(address: impl Into<IpAddr>) -> UdpSocket {
    let socket = UdpSocket::bind((address.into(), 0)).expect("the client's address is up");
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a time-out can be set");
    socket
}

/// The namespaces of a server and of a client joined by veth, and the server's device.
pub(crate) fn joined() -> (Namespace, Namespace, DeviceId) {
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

/// Whose the numbers of connections are in these events.
pub(crate) fn peers(events: &[Event]) -> HashMap<u32, SocketAddr> {
    let mut announcements = Announcements::default();
    let announced = events.iter().filter_map(|event| match event.kind {
        EventKind::Announced { connection, part } => {
            Some((connection, announcements.take(connection, part)?))
        }
        _ => None,
    });
    let mut peers = HashMap::new();
    for (connection, address) in announced {
        // nobody else has the number later
        assert_eq!(peers.insert(connection, address), None, "{connection}");
    }
    peers
}

/// One request of this client and its response.
pub(crate) fn round_trip(client: &UdpSocket, server: SocketAddr, request: &[u8]) {
    client.send_to(request, server).expect("a send");
    let mut response = [0; 2048];
    let n = client.recv(&mut response).expect("a response");
    assert_eq!(&response[..n], request);
}

impl Testbed {
    /// Server and client in two namespaces joined by veth.
    pub(crate) fn veth() -> Self {
        let (server, client, device) = joined();
        let socket = client.run(|| client_socket(CLIENT));
        drop(client.jobs);
        Self::start(
            server,
            SERVER.into(),
            device.into(),
            socket,
            vec![client.thread],
        )
    }

    /// As [`Testbed::veth`], but responses wait in a queue of the server's device, which lets 4 Mbit/s pass.
    pub(crate) fn veth_with_queue() -> Self {
        let (server, client, device) = joined();
        server.run(|| shape("server", "4mbit", 1_600));
        let socket = client.run(|| client_socket(CLIENT));
        drop(client.jobs);
        let threads = vec![client.thread];
        let mut bed = Self::start(server, SERVER.into(), device.into(), socket, threads);
        bed.spec.queues = true;
        bed
    }

    /// As [`Testbed::veth`], but the server's device receives through NAPI and GRO.
    pub(crate) fn veth_with_gro() -> Self {
        let (server, client, device) = joined();
        server.run(|| tap::switch_gro_on("server"));
        // veth bypasses GRO for what its peer might send in one piece
        client.run(|| tap::switch_segmentation_off("client"));
        let socket = client.run(|| client_socket(CLIENT));
        drop(client.jobs);
        Self::start(
            server,
            SERVER.into(),
            device.into(),
            socket,
            vec![client.thread],
        )
    }

    /// A server on every address of both families, and clients at its veth and at its
    /// loopback device, each with the address at which it reaches the server.
    pub(crate) fn everywhere() -> (Self, Vec<(UdpSocket, SocketAddr)>) {
        let (server, client, device) = joined();
        let near = server.run(|| {
            ip("link set lo up");
            ip("address add fd99::1/64 dev server nodad");
            [
                client_socket(Ipv4Addr::LOCALHOST),
                client_socket(Ipv6Addr::LOCALHOST),
            ]
        });
        let far = client.run(|| {
            ip("address add fd99::2/64 dev client nodad");
            [
                client_socket(CLIENT),
                client_socket(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2)),
                client_socket(CLIENT),
            ]
        });
        drop(client.jobs);
        let [far_v4, far_v6, unused] = far;
        let [near_v4, near_v6] = near;
        let at = |address: IpAddr| SocketAddr::from((address, SERVER_PORT));
        let clients = vec![
            (far_v4, at(SERVER.into())),
            (
                far_v6,
                at(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1).into()),
            ),
            (near_v4, at(Ipv4Addr::LOCALHOST.into())),
            (near_v6, at(Ipv6Addr::LOCALHOST.into())),
        ];
        let devices = Devices::all_in(device.netns_inode);
        let any = Ipv6Addr::UNSPECIFIED.into();
        let testbed = Self::start(server, any, devices, unused, vec![client.thread]);
        (testbed, clients)
    }

    /// Server and client on one loopback device.
    pub(crate) fn loopback() -> Self {
        let both = Namespace::new();
        let (device, socket) = both.run(|| {
            ip("link set lo up");
            (device("lo"), client_socket(Ipv4Addr::LOCALHOST))
        });
        let address = Ipv4Addr::LOCALHOST.into();
        Self::start(both, address, device.into(), socket, Vec::new())
    }

    fn start(
        namespace: Namespace,
        address: IpAddr,
        devices: Devices,
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
        Self {
            spec: spec(
                devices,
                Transport::Udp,
                ServerProcesses::These(vec![std::process::id()]),
            ),
            server_tid: namespace.tid,
            server: (address, SERVER_PORT).into(),
            client,
            stop,
            threads,
        }
    }

    /// One request and its response.
    pub(crate) fn round_trip(&self, request: &[u8]) {
        round_trip(&self.client, self.server, request);
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
