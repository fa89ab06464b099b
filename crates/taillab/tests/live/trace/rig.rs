//! A server, its clients, and a trace of it.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use taillab_model::{EventKind, Monotonic, Nanos, RecordingReader};

use crate::support::{bound, free_port, schema, taillab, wait_for};

/// A process that ends with the test.
pub struct Running(Child);

impl Running {
    /// Starts a program of the machine, whose words are split at spaces.
    pub fn program(line: &str) -> Self {
        let mut words = line.split(' ');
        Self::start(Command::new(words.next().unwrap()).args(words))
    }

    /// Starts `taillab` with these words.
    pub fn taillab(line: &str) -> Self {
        Self::start(taillab().args(line.split(' ')))
    }

    fn start(command: &mut Command) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(quiet.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it has its connections to a server, over which it then sends.
    pub fn connected(self, connections: usize) -> Self {
        let descriptors = format!("/proc/{}/fd", self.0.id());
        let is_socket = |file: &fs::DirEntry| {
            fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        };
        wait_for("the clients", || {
            let sockets = fs::read_dir(&descriptors)
                .unwrap()
                .flatten()
                .filter(is_socket);
            (sockets.count() >= connections).then_some(())
        });
        self
    }

    /// Waits until it accepts connections.
    pub fn listening(self, address: &str) -> Self {
        wait_for(address, || TcpStream::connect(address).ok());
        self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // nginx ends its workers when asked to, and not when killed
        let asked = Command::new("kill").arg(self.0.id().to_string()).status();
        let began = std::time::Instant::now();
        while asked.is_ok() && began.elapsed().as_secs() < 30 {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// memcached with one thread, which accepts connections and datagrams at the same port of loopback.
pub fn memcached() -> (Running, u16) {
    let port = free_port();
    let line = format!("memcached -u root -l 127.0.0.1 -p {port} -U {port} -t 1");
    let server = Running::program(&line).listening(&format!("127.0.0.1:{port}"));
    bound(port);
    (server, port)
}

/// The built-in server with a thread for each connection.
pub fn null_rpc() -> (Running, u16) {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let server = Running::taillab(&format!("serve null-rpc --listen {address}"));
    (server.listening(&address), port)
}

/// Starts clients of `target` that run as long as the test, and waits until they have begun.
pub fn load(target: &str, rate: u32) -> Running {
    load_over(CONNECTIONS, target, rate)
}

/// The same over this many connections.
pub fn load_over(connections: usize, target: &str, rate: u32) -> Running {
    let line = format!(
        "load {target} -R {rate} -d 600s -c {connections} --warmup 100ms --wait hybrid --json \
         -q --floor off"
    );
    Running::taillab(&line).connected(connections)
}

/// Traces to the end, as JSON.
pub fn trace(words: &[&str], dir: &Path) -> Output {
    taillab()
        .args(["trace", "--json", "-o"])
        .arg(dir)
        .args(words)
        .output()
        .unwrap()
}

/// Connections of the clients: enough that none carries two requests while other programs have the
/// server's CPU for a tenth of a second.
pub const CONNECTIONS: usize = 200;

/// The result on stdout, which obeys the schema.
pub fn result(output: &Output) -> Value {
    assert!(!output.stdout.is_empty(), "{output:?}");
    schema::valid("report", &output.stdout)
}

/// The longest time in which no request came in, or no response left.
fn longest_silence_s(dir: &Path) -> f64 {
    let recording = fs::read(dir.join("capture.tlc")).unwrap();
    let mut last: [Option<Monotonic>; 2] = [None; 2];
    let mut longest = Nanos::ZERO;
    for event in RecordingReader::open(&recording[..]).unwrap() {
        let way = match event.kind {
            EventKind::PacketIn { .. } | EventKind::SegmentIn { .. } => 0,
            EventKind::PacketOut { .. } | EventKind::SegmentOut { .. } => 1,
            _ => continue,
        };
        if let Some(before) = last[way].replace(event.at) {
            longest = longest.max(event.at.saturating_since(before));
        }
    }
    longest.get() as f64 / 1e9
}

/// What must hold for a trace of a server that was loaded all the time: requests are
/// matched, nothing is lost, and the files say the same as stdout.
pub fn keeps_its_promises(output: &Output, dir: &Path) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    // A noisy machine may spoil it (4), nothing may make it fail.
    assert!(matches!(output.status.code(), Some(0 | 4)), "{stderr}");
    let result = result(output);
    let mut matching = result["matching"].clone();
    matching["hooks"].take();
    let count = |name: &str| matching[name].as_u64().unwrap();
    assert!(count("matched") > 100, "{matching}");
    assert_eq!(count("lost_events"), 0, "{matching}");
    // requests that wait while the machine stops the server or the client stay ambiguous, and are counted: as
    // many as come in while the slowest of the others waits, and later ones on the same connections
    let slowest_s = result["measured"]["sojourn"]["max"].as_f64().unwrap() / 1e9;
    let longest_s = slowest_s.max(longest_silence_s(dir));
    let waiting = 2.0 * longest_s * result["arrival_rate_per_s"].as_f64().unwrap();
    let unmatched = count("responses") - count("matched");
    let most = count("responses") / 10 + waiting as u64;
    assert!(unmatched <= most, "{longest_s} s: {matching}");
    let hidden = count("blind_requests");
    assert!(unmatched <= count("ambiguous") + hidden, "{matching}");
    assert_eq!(result["command"], "trace");
    assert_eq!(result["partial"], false);
    assert!(result["service_time_ns"].as_u64().unwrap() > 0);
    assert!(result["observer"]["events_per_request"].as_f64().unwrap() >= 3.0);
    assert!(result["observer"]["peak_memory_bytes"].as_u64().unwrap() < 300 << 20);
    let saved = fs::read(dir.join("summary.json")).unwrap();
    let saved: Value = serde_json::from_slice(&saved).unwrap();
    assert_eq!(saved, result);
    for file in [
        "capture.tlc",
        "report.html",
        "requests.parquet",
        "latency.hlog",
    ] {
        assert!(fs::metadata(dir.join(file)).unwrap().len() > 100, "{file}");
    }
    result
}
