//! `taillab serve` from the outside: ready, serving, stopped, and what it refuses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server under test; killed if the test fails.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The line that says it is ready.
    ready: String,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        Self::spawn(
            Command::new(env!("CARGO_BIN_EXE_taillab"))
                .arg("serve")
                .args(args),
        )
    }

    fn spawn(command: &mut Command) -> Self {
        Self::spawn_saying(command, Stdio::piped())
    }

    fn spawn_saying(command: &mut Command, stderr: Stdio) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        Self {
            child,
            stdout,
            ready,
        }
    }

    /// The address after "listening on".
    fn address(&self) -> &str {
        let rest = self.ready.strip_prefix("listening on ").unwrap();
        rest.split(' ').next().unwrap()
    }

    fn signal(&self, name: &str) {
        support::signal(self.child.id(), name);
    }

    /// Ends it with a signal: exit code, the rest of stdout, stderr.
    fn stop(mut self, signal: &str) -> (Option<i32>, String, String) {
        self.signal(signal);
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let mut stderr = String::new();
        if let Some(said) = &mut self.child.stderr {
            said.read_to_string(&mut stderr).unwrap();
        }
        (self.child.wait().unwrap().code(), stdout, stderr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // after `stop` there is nothing left to kill
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a server that cannot start. It ends at once; the time limit is for one that does start.
fn refused(args: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("taillab")
        .unwrap()
        .arg("serve")
        .args(args)
        .timeout(PATIENCE)
        .output()
        .unwrap()
}

fn assert_refused(args: &[&str], exit: i32, says: &[&str]) {
    let output = refused(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{args:?}: {stderr}");
    for part in says {
        assert!(stderr.contains(part), "{args:?}: {stderr}");
    }
    assert!(output.stdout.is_empty());
}

fn call(stream: &mut (impl Read + Write), bytes: usize) {
    let request: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
    stream.write_all(&request).unwrap();
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, request);
}

fn tcp(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn it_serves_until_a_signal_and_says_what_it_served() {
    for signal in ["TERM", "INT"] {
        let server = Server::start(&["null-rpc", "--listen", "127.0.0.1:0"]);
        let (mut first, mut second) = (tcp(server.address()), tcp(server.address()));
        call(&mut first, 128);
        for _ in 0..3 {
            call(&mut second, 128);
        }
        let (exit, stdout, stderr) = server.stop(signal);
        assert_eq!(exit, Some(0), "{stderr}");
        assert_eq!(
            stdout,
            "served 4 requests on 2 connections\n  connection 0: 1\n  connection 1: 3\n"
        );
        assert!(
            stderr.contains("taillab load echo+tcp://127.0.0.1:"),
            "{stderr}"
        );
    }
}

#[test]
fn json_is_two_lines_that_obey_the_schema() {
    let valid = |line: &str| support::schema::valid("serve", line.as_bytes());
    for (architecture, target) in [
        ("null-rpc", "echo+tcp"),
        ("epoll-shared", "echo+tcp"),
        ("epoll-per-worker", "echo+tcp"),
        ("udp-shared", "echo+udp"),
        ("udp-reuseport", "echo+udp"),
    ] {
        let mut args = vec![
            architecture,
            "--json",
            "--listen",
            "0",
            "--request-bytes",
            "16",
        ];
        args.extend([
            "--response-bytes",
            "16",
            "--service",
            "spin:exponential:5us",
        ]);
        if architecture != "null-rpc" {
            args.extend(["--workers", "2"]);
        }
        let server = Server::start(&args);
        let ready = valid(&server.ready);
        assert_eq!(ready["event"], "listening");
        assert_eq!(ready["service"], "spin:exponential:5us");
        assert_eq!(ready["pid"], server.child.id());
        let address = ready["address"].as_str().unwrap();
        assert_eq!(ready["target"], format!("{target}://{address}"));
        if target == "echo+udp" {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(&[7; 16], address).unwrap();
            assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 16);
        } else {
            call(&mut tcp(address), 16);
        }
        let (exit, stdout, stderr) = server.stop("TERM");
        assert_eq!((exit, stderr.as_str()), (Some(0), ""));
        let end = valid(stdout.trim_end());
        assert_eq!(end["event"], "stopped");
        assert_eq!(end["requests"], 1);
        let by_worker = end["requests_by_worker"].as_array().unwrap();
        assert_eq!(
            by_worker.len(),
            if architecture == "null-rpc" { 1 } else { 2 }
        );
    }
}

#[test]
fn a_unix_socket_is_private_and_removed_at_the_end() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("echo.sock");
    let listen = format!("unix:{}", path.display());
    // what a killed server leaves behind
    drop(UnixListener::bind(&path).unwrap());
    let server = Server::start(&["epoll-shared", "--listen", &listen, "--workers", "2"]);
    assert_eq!(server.address(), listen);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    call(&mut stream, 128);
    assert_refused(
        &["null-rpc", "--listen", &listen],
        1,
        &["another server listens", "choose another path"],
    );
    let (exit, stdout, stderr) = server.stop("TERM");
    assert_eq!(exit, Some(0), "{stderr}");
    // The refused server's check of the socket counts as a connection if it was accepted in time.
    assert!(stdout.starts_with("served 1 request on "), "{stdout}");
    assert!(!path.exists());

    std::fs::write(&path, "precious").unwrap();
    assert_refused(&["null-rpc", "--listen", &listen], 1, &["is not a socket"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_taken_port_is_refused_and_its_holder_named() {
    let holder = format!("in use by pid {} (", std::process::id());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for architecture in ["null-rpc", "epoll-shared", "epoll-per-worker"] {
        assert_refused(
            &[architecture, "--listen", &address],
            1,
            &[&holder, "--listen"],
        );
    }
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for architecture in ["udp-shared", "udp-reuseport"] {
        assert_refused(
            &[architecture, "--listen", &address],
            1,
            &[&holder, "--listen"],
        );
    }
}

#[test]
fn wrong_command_lines_name_the_remedy() {
    for (args, says) in [
        (&["apache"][..], &["null-rpc", "udp-reuseport"][..]),
        (&["null-rpc", "--listen", "here"], &["127.0.0.1:7777"]),
        (&["null-rpc", "--workers", "2"], &["leave --workers out"]),
        (&["epoll-shared", "--workers", "0"], &["at least 1"]),
        (&["udp-shared", "--workers", "100000"], &["between 1 and"]),
        (
            &["udp-shared", "--service", "exponential:50us"],
            &["spin:DIST"],
        ),
        (
            &["udp-shared", "--service", "spin:exponential"],
            &["exponential:50us"],
        ),
        (
            &["udp-shared", "--service", "wait:normal:1ms"],
            &["lognormal"],
        ),
        (
            &["udp-shared", "--request-bytes", "1"],
            &["between 2 and 65507"],
        ),
        (&["null-rpc", "--response-bytes", "0"], &["between 1 and"]),
        (
            &["udp-shared", "--listen", "unix:/tmp/x"],
            &["cannot listen on a Unix socket"],
        ),
        (&["null-rpc", "--busy"], &["epoll-per-worker"]),
        (&["null-rpc", "--cpus", "zero"], &["CPU list"]),
        (&["null-rpc", "--fault", "slow:0,1ms"], &["slow:1000,500us"]),
        (&["null-rpc", "--fault-log", "x"], &["--fault"]),
    ] {
        assert_refused(args, 2, says);
    }
}

#[test]
fn a_server_for_all_hosts_says_so() {
    let server = Server::start(&["epoll-per-worker", "--listen", "0.0.0.0:0"]);
    let port = server.address().rsplit(':').next().unwrap();
    call(&mut tcp(&format!("127.0.0.1:{port}")), 128);
    let (exit, _, stderr) = server.stop("INT");
    assert_eq!(exit, Some(0));
    assert!(stderr.contains("other hosts can reach"), "{stderr}");
}

#[test]
fn rubbish_is_counted_and_said() {
    let server = Server::start(&["udp-shared", "--listen", "0"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(server.address()).unwrap();
    socket.send(b"short").unwrap();
    socket.send(&[1; 128]).unwrap();
    assert_eq!(socket.recv(&mut [0; 256]).unwrap(), 128);
    let (exit, stdout, stderr) = server.stop("TERM");
    assert_eq!(exit, Some(0));
    assert_eq!(stdout, "served 1 request\n");
    assert!(stderr.contains("1 datagram not 128 bytes long"), "{stderr}");
    assert!(stderr.contains("--request-bytes"), "{stderr}");
}

/// With more clients than the process may open files, the excess is refused at once and the others
/// are served.
#[test]
fn clients_beyond_the_limit_on_files_are_refused() {
    let mut command = Command::new("prlimit");
    command
        .args(["--nofile=24:24", env!("CARGO_BIN_EXE_taillab"), "serve"])
        .args(["epoll-shared", "--listen", "0"]);
    let server = Server::spawn(&mut command);
    let mut served = 0;
    let mut refused = 0;
    let mut streams: Vec<TcpStream> = Vec::new();
    for _ in 0..40 {
        let mut stream = tcp(server.address());
        let mut answer = [0; 128];
        // a reset may come before or after the request is sent
        let answered =
            stream.write_all(&[3; 128]).is_ok() && stream.read_exact(&mut answer).is_ok();
        if answered {
            served += 1;
            streams.push(stream);
        } else {
            refused += 1;
        }
    }
    assert!(
        served > 0 && refused > 0,
        "{served} served, {refused} refused"
    );
    call(&mut streams[0], 128);
    let (exit, stdout, stderr) = server.stop("TERM");
    assert_eq!(exit, Some(0));
    assert!(
        stdout.starts_with(&format!("served {} requests", served + 1)),
        "{stdout}"
    );
    assert!(
        stderr.contains(&format!("{refused} connections refused")),
        "{stderr}"
    );
    assert!(stderr.contains("ulimit -n"), "{stderr}");
}

#[test]
fn a_quiet_server_says_nothing() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_taillab"))
        .args(["serve", "null-rpc", "-q", "--listen", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Signals are handled before the port is open: wait for the port.
    let pid = child.id();
    let listening = || {
        let inodes = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
        std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
            .filter_map(|to| {
                to.to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')
                    .map(str::to_owned)
            })
            .any(|inode| {
                inodes
                    .lines()
                    .any(|line| line.contains(&inode) && line.contains(" 0A "))
            })
    };
    let began = std::time::Instant::now();
    while !listening() {
        assert!(began.elapsed() < PATIENCE, "does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    support::signal(pid, "TERM");
    let mut said = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(said, "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn measured_service_times_are_read_from_a_file() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("times.csv");
    std::fs::write(&file, "time_us\n10\n20\n30\n").unwrap();
    let service = format!("spin:empirical:{},column=time_us", file.display());
    let server = Server::start(&["epoll-shared", "--listen", "0", "--service", &service]);
    assert!(
        server.ready.contains("service spin:empirical (3 values)"),
        "{}",
        server.ready
    );
    call(&mut tcp(server.address()), 128);
    assert_eq!(server.stop("TERM").0, Some(0));
    assert_refused(
        &["epoll-shared", "--service", "wait:empirical:/no/such/file"],
        2,
        &["/no/such/file"],
    );
}

#[test]
fn faults_happen_and_are_written_down() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("truth.json");
    let server = Server::start(&[
        "null-rpc",
        "--listen",
        "127.0.0.1:0",
        "--fault",
        "slow:3,2ms",
        "--fault",
        "fault:4,10",
        "--fault-log",
        log.to_str().unwrap(),
    ]);
    let mut stream = tcp(server.address());
    for _ in 0..12 {
        call(&mut stream, 128);
    }
    assert_eq!(server.stop("TERM").0, Some(0));
    let truth: Value = serde_json::from_slice(&std::fs::read(&log).unwrap()).unwrap();
    assert_eq!(truth["sources"][0]["injected"], "slow:3,2ms");
    assert_eq!(truth["sources"][0]["cause"], "slow_service");
    let intervals = truth["intervals"].as_array().unwrap();
    let of = |source: u64| intervals.iter().filter(move |i| i["source"] == source);
    // one interval each, or several if others had the CPU meanwhile
    assert!(of(0).count() >= 4);
    assert_eq!(of(1).count(), 3);
    let burnt: u64 = of(0)
        .map(|slow| slow["to_ns"].as_u64().unwrap() - slow["from_ns"].as_u64().unwrap())
        .sum();
    assert!(burnt >= 4 * 2_000_000, "{burnt}");
    assert_refused(
        &[
            "null-rpc",
            "--listen",
            "127.0.0.1:0",
            "--fault",
            "slow:3,2ms",
            "--fault-log",
            "/no/such/place",
        ],
        1,
        &["--fault-log"],
    );
}

#[test]
fn help_shows_examples_and_the_exit_codes() {
    let output = refused(&["--help-all"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        "taillab serve null-rpc\n",
        "stopped by Ctrl-C or SIGTERM",
        "wait:DIST",
        "one queue",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_terminal_that_has_gone_ends_no_server() {
    let (nobody_reads, stderr) = std::io::pipe().unwrap();
    drop(nobody_reads);
    let mut command = Command::new(env!("CARGO_BIN_EXE_taillab"));
    command.args(["serve", "null-rpc", "--listen", "127.0.0.1:0"]);
    let server = Server::spawn_saying(&mut command, stderr.into());
    let mut client = tcp(server.address());
    call(&mut client, 128);
    drop(client);
    let (code, _, _) = server.stop("INT");
    assert_eq!(code, Some(0));
}
