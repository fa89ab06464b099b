//! How many requests per second the built-in servers answer, and how fast an idle one answers. The
//! client thread runs on one CPU, the server's threads on another.
//!
//! `serve_rates [SERVER_CPU CLIENT_CPU [SECONDS]]`, by default 0 1 2. Each line: the server,
//! requests per second with 16 outstanding, the median of single round trips.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use taillab_load::serve::{Architecture, Responder, Spec};

const BYTES: usize = 128;
const OUTSTANDING: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let server_cpu = args.next().transpose()?.unwrap_or(0);
    let client_cpu = args.next().transpose()?.unwrap_or(1);
    let length = Duration::from_secs(args.next().transpose()?.unwrap_or(2) as u64);
    pin(client_cpu)?;
    for architecture in Architecture::ALL {
        for busy in [false, true] {
            if busy && architecture == Architecture::NullRpc {
                continue;
            }
            let spec = Spec {
                busy,
                ..Spec::new(architecture)
            };
            let server = Responder::start_with(&spec, move |_| pin(server_cpu))?;
            let (rate, median) = if architecture.is_datagram() {
                datagrams(&server, length)?
            } else {
                streams(&server, length)?
            };
            let name = architecture.name();
            let how = if busy { "busy" } else { "" };
            println!("{name:<17} {how:<5} {rate:>9.0}/s  median {median:?}");
        }
    }
    Ok(())
}

fn pin(cpu: usize) -> rustix::io::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus)
}

/// A client that polls without sleeping and sends as soon as it has an answer.
fn datagrams(server: &Responder, length: Duration) -> Result<(f64, Duration), Box<dyn Error>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server.socket_address().ok_or("no address")?)?;
    socket.set_nonblocking(true)?;
    let mut buffer = [0; BYTES];
    let mut run = |outstanding: usize, length: Duration| -> std::io::Result<Vec<Duration>> {
        let mut trips = Vec::with_capacity(1 << 22);
        for _ in 0..outstanding {
            socket.send(&buffer)?;
        }
        let (began, mut sent) = (Instant::now(), Instant::now());
        while began.elapsed() < length {
            match socket.recv(&mut buffer) {
                Ok(_) => {
                    let now = Instant::now();
                    trips.push(now - sent);
                    sent = now;
                    socket.send(&buffer)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        // the last answers, which are not counted
        std::thread::sleep(Duration::from_millis(5));
        while socket.recv(&mut buffer).is_ok() {}
        Ok(trips)
    };
    let many = run(OUTSTANDING, length)?;
    let single = run(1, length / 2)?;
    Ok((many.len() as f64 / length.as_secs_f64(), median(single)))
}

/// A client that writes on all connections, then reads from all.
fn streams(server: &Responder, length: Duration) -> Result<(f64, Duration), Box<dyn Error>> {
    let address = server.socket_address().ok_or("no address")?;
    let mut connections = (0..OUTSTANDING)
        .map(|_| {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
        .collect::<std::io::Result<Vec<_>>>()?;
    let mut buffer = [0; BYTES];
    let began = Instant::now();
    let mut answers = 0_u32;
    while began.elapsed() < length {
        for connection in &mut connections {
            connection.write_all(&buffer)?;
        }
        for connection in &mut connections {
            connection.read_exact(&mut buffer)?;
            answers += 1;
        }
    }
    let rate = f64::from(answers) / began.elapsed().as_secs_f64();
    let mut trips = Vec::new();
    let began = Instant::now();
    connections[0].set_nonblocking(true)?;
    while began.elapsed() < length / 2 {
        let sent = Instant::now();
        connections[0].write_all(&buffer)?;
        let mut got = 0;
        while got < BYTES {
            match connections[0].read(&mut buffer[got..]) {
                Ok(0) => return Err("the server closed the connection".into()),
                Ok(bytes) => got += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        trips.push(sent.elapsed());
    }
    Ok((rate, median(trips)))
}

fn median(mut trips: Vec<Duration>) -> Duration {
    trips.sort_unstable();
    trips.get(trips.len() / 2).copied().unwrap_or_default()
}
