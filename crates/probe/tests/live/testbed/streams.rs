//! Servers of streams in one network namespace, their clients in another.

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use taillab_model::Monotonic;
use taillab_probe::{ProbeSpec, ServerProcesses, Transport};

use super::{
    Namespace, PATIENCE, SERVER, SERVER_PORT, await_sleep, eventually, is_in_state, joined, now,
    shape, spec, threads_of,
};

/// Two joined namespaces, the server's still empty.
pub(crate) struct StreamBed {
    pub(crate) spec: ProbeSpec,
    pub(super) server: Namespace,
    pub(super) client: Namespace,
}

/// A process; it is asked to stop when this is dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts one in the namespace of the calling thread.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().expect("the program is installed"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // not killed: nginx stops its workers only when it is asked to stop
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// How nginx is to work.
#[derive(Clone, Copy, Default)]
pub(crate) struct Nginx {
    /// Files go straight to sockets.
    pub(crate) sendfile: bool,
    /// Each worker has a listening socket of its own.
    pub(crate) reuseport: bool,
    /// It refuses bodies of more than 1,024 bytes, and all that is sent to `/refused`.
    pub(crate) refuses: bool,
}

/// What a client sends, and how.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) connections: usize,
    pub(crate) rounds: usize,
    /// Requests sent on a connection before the first response is awaited.
    pub(crate) in_flight: usize,
    pub(crate) request: Vec<u8>,
}

/// One request as its client saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// The client's port.
    pub(crate) port: u16,
    pub(crate) sent: Monotonic,
    /// When it had its response, and those to all others of its round on that connection.
    pub(crate) received: Monotonic,
}

impl StreamBed {
    pub(crate) fn new() -> Self {
        let (server, client, device) = joined();
        Self {
            spec: ProbeSpec {
                ring_bytes_per_cpu: 8 << 20,
                ..spec(device, Transport::Tcp, ServerProcesses::InNamespace)
            },
            server,
            client,
        }
    }

    /// As [`StreamBed::new`], but responses wait in a queue of the server's device: see [`shape`].
    pub(crate) fn with_queue(rate: &'static str, bytes_at_once: usize) -> Self {
        let mut bed = Self::new();
        bed.server.run(move || shape("server", rate, bytes_at_once));
        bed.spec.queues = true;
        bed
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (SERVER, SERVER_PORT).into()
    }

    /// A connection from the client's namespace.
    pub(crate) fn connect(&self) -> TcpStream {
        let address = self.address();
        self.client.run(move || {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nodelay(true).expect("an option of TCP");
            stream
        })
    }

    /// The same with so small a receive buffer, for windows that soon are full.
    pub(crate) fn connect_with_buffer(&self, bytes: usize) -> TcpStream {
        let address = self.address();
        self.client.run(move || {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
            // before the handshake, which tells how windows are scaled
            set_socket_recv_buffer_size(&socket, bytes).expect("an option of sockets");
            connect(&socket, &address).expect("the server listens");
            TcpStream::from(socket)
        })
    }

    /// Makes calls one after the other on one connection, each as soon as every thread of the
    /// server's process sleeps: so each call wakes the server.
    pub(crate) fn make_asleep(&self, server: u32, calls: usize, request: &[u8]) -> Vec<Call> {
        let (address, request) = (self.address(), request.to_vec());
        self.client.run(move || {
            let mut stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nodelay(true).expect("an option of TCP");
            let mut all = Vec::new();
            let threads = threads_of(server);
            // it was awake to accept the connection
            await_sleep(&threads);
            let length = response_length(&mut stream, &request, &mut all);
            let mut response = vec![0; length];
            for _ in 0..calls {
                await_sleep(&threads);
                let sent = now();
                stream.write_all(&request).expect("the server reads");
                stream.read_exact(&mut response).expect("a response");
                all.push(Call {
                    port: all[0].port,
                    sent,
                    received: now(),
                });
            }
            await_sleep(&threads);
            all
        })
    }

    /// Runs this in the client's namespace.
    pub(crate) fn in_clients<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.client.run(job)
    }

    /// Runs this in the server's namespace.
    pub(crate) fn in_servers<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.server.run(job)
    }

    /// Starts a server in its namespace.
    pub(crate) fn start(&self, command: Command) -> Process {
        self.server.run(move || Process::start(command))
    }

    fn spawn(&self, command: Command) -> Process {
        let process = self.start(command);
        self.await_server();
        process
    }

    /// Waits until a server listens.
    pub(crate) fn await_server(&self) {
        self.await_server_at(&SERVER.to_string());
    }

    /// Waits until a server of datagrams has its port.
    pub(crate) fn await_datagram_server(&self) {
        self.server.run(|| {
            eventually("the server has its port", || {
                let table = std::fs::read_to_string("/proc/thread-self/net/udp");
                let port = format!(":{SERVER_PORT:04X} ");
                table.expect("/proc is mounted").contains(&port)
            });
        });
    }

    /// Waits until a server listens at this address.
    pub(crate) fn await_server_at(&self, address: &str) {
        let address: IpAddr = address.parse().expect("an address");
        let address = SocketAddr::from((address, SERVER_PORT));
        self.client.run(move || {
            let give_up = Instant::now() + PATIENCE;
            while TcpStream::connect(address).is_err() {
                assert!(Instant::now() < give_up, "nobody listens on {address}");
                std::thread::sleep(Duration::from_millis(10));
            }
        });
    }

    /// A process that has nothing to do with the server.
    pub(crate) fn sleeping() -> Process {
        let sleep = Command::new("sleep").arg("600").spawn();
        Process(sleep.expect("sleep is there"))
    }

    pub(crate) fn memcached(&self, threads: usize) -> Process {
        let mut command = Command::new("memcached");
        let threads = threads.to_string();
        command.args(["-u", "root", "-U", "0", "-l", &SERVER.to_string()]);
        command.args(["-p", &SERVER_PORT.to_string(), "-t", &threads]);
        self.spawn(command)
    }

    pub(crate) fn redis(&self) -> Process {
        let mut command = Command::new("redis-server");
        command.args(["--bind", &SERVER.to_string(), "--save", ""]);
        command.args(["--port", &SERVER_PORT.to_string(), "--protected-mode", "no"]);
        self.spawn(command)
    }

    /// nginx with two workers and one file of 600 bytes, `/file`, all of it in `folder`.
    pub(crate) fn nginx(&self, folder: &Path, how: Nginx) -> Process {
        let path = folder.display();
        let sendfile = if how.sendfile { "on" } else { "off" };
        let reuseport = if how.reuseport { "reuseport" } else { "" };
        let refuses = match how.refuses {
            true => "client_max_body_size 1k; location /refused { return 403; }",
            false => "",
        };
        std::fs::write(folder.join("file"), [b'x'; 600]).expect("the folder can be written");
        let config = format!(
            "worker_processes 2; daemon off; user root; pid {path}/pid; error_log /dev/null;
             events {{ worker_connections 512; }}
             http {{
               access_log off; keepalive_requests 1000000; root {path}; sendfile {sendfile};
               client_body_temp_path {path}/a; proxy_temp_path {path}/b;
               fastcgi_temp_path {path}/c; uwsgi_temp_path {path}/d; scgi_temp_path {path}/e;
               server {{ listen {SERVER}:{SERVER_PORT} {reuseport}; {refuses} }}
             }}"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, config).expect("the folder can be written");
        let mut command = Command::new("/usr/sbin/nginx");
        command
            .args(["-e", "stderr", "-p"])
            .arg(folder)
            .arg("-c")
            .arg(file);
        self.spawn(command)
    }

    /// A server with a thread for each of `connections` connections, which answers each request
    /// of `bytes` bytes with itself, in blocking reads and writes. It ends with them.
    pub(crate) fn thread_per_connection(&self, connections: usize, bytes: usize) {
        let address = self.address();
        self.server.run(move || {
            let listener = TcpListener::bind(address).expect("the port is free");
            std::thread::spawn(move || {
                for _ in 0..connections {
                    let (mut stream, _) = listener.accept().expect("a connection");
                    stream.set_nodelay(true).expect("an option of TCP");
                    std::thread::spawn(move || {
                        let mut request = vec![0; bytes];
                        while stream.read_exact(&mut request).is_ok() {
                            stream.write_all(&request).expect("the client is there");
                        }
                    });
                }
            });
        });
    }

    /// A server on a thread of its own: it takes `connections` connections at once, and as many
    /// again when those end, `times` times in all.
    pub(crate) fn serve(&self, connections: usize, times: usize, serve: fn(Vec<TcpStream>)) {
        let address = self.address();
        self.server.run(move || {
            let listener = TcpListener::bind(address).expect("the port is free");
            std::thread::spawn(move || {
                for _ in 0..times {
                    let accept = |_| {
                        let (stream, _) = listener.accept().expect("a connection");
                        stream.set_nodelay(true).expect("an option of TCP");
                        stream
                    };
                    serve((0..connections).map(accept).collect());
                }
            });
        });
    }

    /// Makes the calls, one after the other or `in_flight` at a time on each connection, after
    /// `warm_up` rounds. Returns when the warm-up ended, and all calls.
    pub(crate) fn make(&self, calls: Calls, warm_up: usize) -> (Monotonic, Vec<Call>) {
        let address = self.address();
        self.client.run(move || {
            let (mut streams, length, mut all) = greeted(address, &calls);
            let mut from = now();
            for n in 0..warm_up + calls.rounds {
                if n == warm_up {
                    from = now();
                }
                let sent = send(&mut streams, &calls);
                receive(&mut streams, &sent, &calls, length, &mut all);
            }
            (from, all)
        })
    }

    /// Makes the calls, each round while the server is stopped: it finds them all when it goes on.
    pub(crate) fn make_while_stopped(&self, server: &Process, calls: Calls) -> Vec<Call> {
        let (address, id, pid) = (self.address(), server.id(), Pid::from_child(&server.0));
        self.client.run(move || {
            let (mut streams, length, mut all) = greeted(address, &calls);
            for _ in 0..calls.rounds {
                kill_process(pid, Signal::STOP).expect("it runs");
                eventually("the server is stopped", || {
                    threads_of(id).iter().all(|thread| is_in_state(thread, 'T'))
                });
                let sent = send(&mut streams, &calls);
                kill_process(pid, Signal::CONT).expect("it is there");
                receive(&mut streams, &sent, &calls, length, &mut all);
            }
            all
        })
    }
}

/// Makes a first call, and returns how long its response is.
fn response_length(stream: &mut TcpStream, request: &[u8], all: &mut Vec<Call>) -> usize {
    let port = stream.local_addr().expect("it is connected").port();
    let sent = now();
    stream.write_all(request).expect("the server reads");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    let (mut response, mut some) = (Vec::new(), vec![0; 1 << 20]);
    let length = loop {
        let n = stream.read(&mut some).expect("a response");
        assert!(n > 0, "the server closed the connection");
        response.extend(&some[..n]);
        let whole = whole_length(request, &response);
        if let Some(length) = whole.filter(|&length| response.len() >= length) {
            break length;
        }
    };
    assert_eq!(response.len(), length, "more than was asked for");
    let received = now();
    all.push(Call {
        port,
        sent,
        received,
    });
    length
}

/// How long a response is, once its beginning tells: one of nginx, one of memcached to a request for what it
/// does not have, or one of a server that sends back what comes.
fn whole_length(request: &[u8], response: &[u8]) -> Option<usize> {
    if request.starts_with(b"GET ") {
        let head = response.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let lines = std::str::from_utf8(&response[..head]).expect("a head is text");
        let mut lines = lines.lines();
        let length = lines.find_map(|line| line.strip_prefix("Content-Length: "));
        let body: usize = length.expect("it is told").parse().expect("a number");
        return Some(head + body);
    }
    match request.starts_with(b"get ") {
        true => Some(b"END\r\n".len()),
        false => Some(request.len()),
    }
}

/// Connections over each of which a first call was made, how long a response is, and these calls.
fn greeted(address: SocketAddr, calls: &Calls) -> (Vec<TcpStream>, usize, Vec<Call>) {
    let mut streams: Vec<TcpStream> = (0..calls.connections)
        .map(|_| {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nodelay(true).expect("an option of TCP");
            stream
        })
        .collect();
    let mut all = Vec::new();
    let length = response_length(&mut streams[0], &calls.request, &mut all);
    let one = Calls {
        in_flight: 1,
        ..calls.clone()
    };
    let sent = send(&mut streams[1..], &one);
    receive(&mut streams[1..], &sent, &one, length, &mut all);
    (streams, length, all)
}

/// Sends the requests of a round; returns when it sent each.
fn send(streams: &mut [TcpStream], calls: &Calls) -> Vec<Monotonic> {
    let mut sent = Vec::new();
    for stream in streams {
        for _ in 0..calls.in_flight {
            sent.push(now());
            stream.write_all(&calls.request).expect("the server reads");
        }
    }
    sent
}

/// Receives their responses.
fn receive(
    streams: &mut [TcpStream],
    sent: &[Monotonic],
    calls: &Calls,
    length: usize,
    all: &mut Vec<Call>,
) {
    let mut response = vec![0; length * calls.in_flight];
    for (stream, sent) in streams.iter_mut().zip(sent.chunks(calls.in_flight)) {
        stream.read_exact(&mut response).expect("a response");
        let (port, received) = (stream.local_addr().expect("connected").port(), now());
        all.extend(sent.iter().map(|&sent| Call {
            port,
            sent,
            received,
        }));
    }
}
