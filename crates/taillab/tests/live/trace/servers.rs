//! Servers of every kind, over IPv4 and IPv6, TCP and UDP.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use taillab_model::{EventKind, Recording};

use super::rig::{
    Running, keeps_its_promises, load, load_over, memcached, null_rpc, result, trace,
};
use crate::support::{free_port, live, taillab, wait_for};

/// The least share of complete requests, even on a busy test machine.
pub const MOSTLY: f64 = 0.9;

/// The share of responses, of those that should have all six stamps, that have them or whose lack the
/// result explains: they were there while the probe was blind, are ambiguous, or left after their slice.
pub fn complete_share(result: &Value) -> f64 {
    let count = |name: &str| result["matching"][name].as_f64().unwrap();
    let told = count("blind_requests") + count("ambiguous") + count("left_late");
    let asked = match result["matching"]["stamps"].as_str() {
        Some("all") => count("responses"),
        _ => count("matched") - count("unasked"),
    };
    (count("complete") + told) / asked
}

#[test]
fn memcached_over_udp_and_tcp_and_its_recording_explained_again() {
    if !live("memcached_over_udp_and_tcp_and_its_recording_explained_again") {
        return;
    }
    let (server, port) = memcached();
    let place = tempfile::tempdir().unwrap();
    let pid = server.pid().to_string();
    for transport in ["udp", "tcp"] {
        let clients = load(&format!("memcached+{transport}://127.0.0.1:{port}"), 2000);
        let dir = place.path().join(transport);
        let flag = format!("--{transport}");
        let output = trace(&["-p", &pid, &flag, "-d", "1s"], &dir);
        drop(clients);
        let result = keeps_its_promises(&output, &dir);
        assert!(complete_share(&result) > MOSTLY, "{}", result["matching"]);
        let target = result["target"].as_str().unwrap();
        let expected = format!("port {port} over {}", transport.to_uppercase());
        assert!(
            target.contains("(memcached)") && target.ends_with(&expected),
            "{target}"
        );
        assert_eq!(result["ideal"]["workers"], 1);

        let again = taillab()
            .args(["explain", "--json"])
            .arg(&dir)
            .output()
            .unwrap();
        assert_eq!(again.status.code(), output.status.code(), "{again:?}");
        let again = super::rig::result(&again);
        for same in [
            "measured",
            "ideal",
            "stages",
            "service_time_ns",
            "causes",
            "explanation",
        ] {
            let of_trace = &result[same];
            match same {
                // the busy share of the CPUs is not in the recording
                "measured" => assert_eq!(of_trace["sojourn"], again[same]["sojourn"]),
                "explanation" => {
                    assert_eq!(without_advice(of_trace), without_advice(&again[same]));
                }
                _ => assert_eq!(*of_trace, again[same], "{same}"),
            }
        }
        assert_eq!(again["command"], "explain");
    }
}

/// An explanation without its advice, which names the server's process while that lives.
fn without_advice(explanation: &Value) -> Value {
    let mut explanation = explanation.clone();
    let findings = explanation["findings"].as_array_mut();
    for finding in findings.into_iter().flatten() {
        finding["advice"] = Value::Null;
    }
    explanation
}

#[test]
fn nginx_with_two_workers_over_ipv6_found_by_its_port() {
    if !live("nginx_with_two_workers_over_ipv6_found_by_its_port") {
        return;
    }
    let port = free_port();
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().display();
    let text = format!(
        "worker_processes 2; daemon off; error_log /dev/null; pid {folder}/pid;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 10000000;\n\
         client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;\n\
         uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n\
         server {{ listen [::1]:{port}; location / {{ return 200 \"hello\"; }} }} }}\n"
    );
    let config = place.path().join("nginx.conf");
    fs::write(&config, text).unwrap();
    let line = format!("nginx -c {}", config.display());
    let _server = Running::program(&line).listening(&format!("[::1]:{port}"));
    let _clients = load(&format!("http://[::1]:{port}/"), 1000);
    let dir = place.path().join("trace");
    let output = trace(&["--port", &port.to_string(), "-d", "1s"], &dir);
    let result = keeps_its_promises(&output, &dir);
    assert!(complete_share(&result) > MOSTLY, "{}", result["matching"]);
}

#[test]
fn redis_found_by_its_control_group() {
    if !live("redis_found_by_its_control_group") {
        return;
    }
    let port = free_port();
    let line = format!("redis-server --port {port} --bind 127.0.0.1 --save ");
    let server = Running::program(&line).listening(&format!("127.0.0.1:{port}"));
    let Some(group) = Group::with(server.pid()) else {
        panic!("no control group can be made on this machine");
    };
    let _clients = load(&format!("redis://127.0.0.1:{port}"), 1000);
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("trace");
    let output = trace(&["--cgroup", group.path(), "-d", "1s"], &dir);
    let result = keeps_its_promises(&output, &dir);
    assert!(result["target"].as_str().unwrap().contains("control group"));
    drop(server);
}

/// A control group of our own, removed at the end of the test.
pub struct Group(std::path::PathBuf);

impl Group {
    /// With one process in it.
    pub fn with(pid: u32) -> Option<Self> {
        let mount = std::path::Path::new("/sys/fs/cgroup");
        let name = format!("taillab-test-{pid}");
        let mounts = [mount.to_owned(), mount.join("unified"), mount.join("cpu")];
        mounts
            .into_iter()
            .map(|mount| mount.join(&name))
            .find_map(|folder| {
                // a folder of another file system has no such file
                folder
                    .parent()?
                    .join("cgroup.procs")
                    .exists()
                    .then_some(())?;
                fs::create_dir(&folder).ok()?;
                let group = Self(folder);
                fs::write(group.0.join("cgroup.procs"), pid.to_string()).ok()?;
                Some(group)
            })
    }

    /// Its folder.
    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // processes still in it go back to the group above
        let parent = self.0.parent().unwrap().join("cgroup.procs");
        let members = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(&parent, member);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_thread_for_each_connection_and_a_python_server() {
    if !live("a_thread_for_each_connection_and_a_python_server") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (server, port) = null_rpc();
    let clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 1000);
    let dir = place.path().join("null-rpc");
    let output = trace(&["-p", &server.pid().to_string(), "-d", "1s"], &dir);
    keeps_its_promises(&output, &dir);
    drop(clients);

    let port = free_port();
    let script = place.path().join("server.py");
    // one write for each response
    let text = format!(
        "import socketserver\n\
         class H(socketserver.StreamRequestHandler):\n    \
             def handle(self):\n        \
                 while self.rfile.readline():\n            \
                     while self.rfile.readline() not in (b'\\r\\n', b''): pass\n            \
                     self.wfile.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello')\n\
         class S(socketserver.ThreadingTCPServer):\n    \
             daemon_threads = True\n    \
             allow_reuse_address = True\n    \
             request_queue_size = 1024\n\
         S(('127.0.0.1', {port}), H).serve_forever()\n"
    );
    fs::write(&script, text).unwrap();
    let server = Running::program(&format!("python3 {}", script.display()))
        .listening(&format!("127.0.0.1:{port}"));
    let _clients = load(&format!("http://127.0.0.1:{port}/"), 300);
    let dir = place.path().join("python");
    let output = trace(&["-p", &server.pid().to_string(), "-d", "2s"], &dir);
    keeps_its_promises(&output, &dir);
}

/// Python's own server writes head and body separately. Nagle's algorithm holds the body back until the
/// client acknowledges the head, so it leaves in the context of the client.
#[test]
fn what_nagles_algorithm_holds_back_has_its_write() {
    if !live("what_nagles_algorithm_holds_back_has_its_write") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let port = free_port();
    let script = place.path().join("server.py");
    let text = format!(
        "import http.server\n\
         class H(http.server.BaseHTTPRequestHandler):\n    \
             protocol_version = 'HTTP/1.1'\n    \
             def do_GET(self):\n        \
                 self.send_response(200)\n        \
                 self.send_header('Content-Length', '5')\n        \
                 self.end_headers()\n        \
                 self.wfile.write(b'hello')\n    \
             def log_message(self, *arguments): pass\n\
         class S(http.server.ThreadingHTTPServer):\n    \
             request_queue_size = 1024\n\
         S(('127.0.0.1', {port}), H).serve_forever()\n"
    );
    fs::write(&script, text).unwrap();
    let server = Running::program(&format!("python3 {}", script.display()))
        .listening(&format!("127.0.0.1:{port}"));
    // Few connections, since the first response of each lacks T5: from it the probe learns the connection.
    // Yet enough that two requests are on one only if the machine stops for a tenth of a second.
    let _clients = load_over(32, &format!("http://127.0.0.1:{port}/"), 300);
    let dir = place.path().join("trace");
    let output = trace(&["-p", &server.pid().to_string(), "-d", "4s"], &dir);
    let result = keeps_its_promises(&output, &dir);
    let hooks = result["matching"]["hooks"].as_array().unwrap();
    let by_connection = |hook: &Value| {
        let name = hook["hook"].as_str().unwrap_or_default();
        hook["stamp"] == "T5" && name.contains("tcp_sendmsg")
    };
    // without such a hook, its write cannot be told from others
    if hooks.iter().any(by_connection) {
        assert!(complete_share(&result) > MOSTLY, "{}", result["matching"]);
    }
}

/// What clients and servers exchange is nobody's business but theirs.
#[test]
fn a_recording_keeps_no_content() {
    if !live("a_recording_keeps_no_content") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let port = free_port();
    fs::create_dir(place.path().join("files")).unwrap();
    fs::write(place.path().join("files/s3cr3t"), "s3cr3t s3cr3t").unwrap();
    let folder = place.path().join("files");
    // with a queue for all connections: else some are opened only after seconds
    let script = format!(
        "import functools, http.server as http\n\
         class Server(http.ThreadingHTTPServer): request_queue_size = 1024\n\
         http.SimpleHTTPRequestHandler.protocol_version = 'HTTP/1.1'\n\
         files = functools.partial(http.SimpleHTTPRequestHandler, directory={:?})\n\
         Server(('127.0.0.1', {port}), files).serve_forever()\n",
        folder.display().to_string()
    );
    fs::write(place.path().join("server.py"), script).unwrap();
    let line = format!("python3 {}", place.path().join("server.py").display());
    let server = Running::program(&line).listening(&format!("127.0.0.1:{port}"));
    let _clients = load_over(32, &format!("http://127.0.0.1:{port}/s3cr3t"), 300);
    let dir = place.path().join("trace");
    let pid = server.pid().to_string();
    let output = trace(&["-p", &pid, "-d", "2s", "--protocol", "http"], &dir);
    let matched = result(&output)["matching"]["matched"].as_u64();
    assert!(matched > Some(100), "{matched:?}");
    let recording = File::open(dir.join("capture.tlc")).unwrap();
    let mut content = Vec::new();
    for event in Recording::read(recording).unwrap().events() {
        if let EventKind::Payload {
            bytes, len: 1.., ..
        } = event.kind
        {
            content.extend(bytes);
        }
    }
    let has = |text: &str| {
        content
            .windows(text.len())
            .any(|bytes| bytes == text.as_bytes())
    };
    assert!(has("GET ") && has("Content-"), "nothing was recorded");
    assert!(!has("s3cr") && !has("cr3t"), "content was recorded");
}

#[test]
fn a_server_that_we_start_is_traced_and_ended() {
    if !live("a_server_that_we_start_is_traced_and_ended") {
        return;
    }
    let port = free_port();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("trace");
    let traced = thread::spawn({
        let dir = dir.clone();
        let listen = format!("127.0.0.1:{port}");
        let taillab = env!("CARGO_BIN_EXE_taillab");
        move || {
            trace(
                &[
                    "-d",
                    "3s",
                    "--",
                    taillab,
                    "serve",
                    "epoll-shared",
                    "--listen",
                    &listen,
                ],
                &dir,
            )
        }
    });
    let address = format!("127.0.0.1:{port}");
    wait_for(&address, || TcpStream::connect(&address).ok());
    let _clients = load(&format!("echo+tcp://{address}"), 1000);
    let output = traced.join().unwrap();
    keeps_its_promises(&output, &dir);
    assert!(TcpStream::connect(&address).is_err(), "the server lives on");
}

/// Bytes of a request of the built-in servers.
const BYTES: usize = 128;

/// Requests that a pipelining client sends at once.
const AT_ONCE: usize = 5;

#[test]
fn pipelined_requests_of_one_length_are_told_apart() {
    if !live("pipelined_requests_of_one_length_are_told_apart") {
        return;
    }
    let (server, port) = null_rpc();
    let address = format!("127.0.0.1:{port}");
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("trace");
    let stop = AtomicBool::new(false);
    let (asked, output) = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut stream = TcpStream::connect(&address).unwrap();
            let mut responses = [0; AT_ONCE * BYTES];
            let mut asked = 0;
            while !stop.load(Ordering::Relaxed) {
                stream.write_all(&[7; AT_ONCE * BYTES]).unwrap();
                stream.read_exact(&mut responses).unwrap();
                asked += AT_ONCE as u64;
                thread::sleep(Duration::from_millis(1));
            }
            asked
        });
        let (pid, protocol) = (server.pid().to_string(), format!("fixed:{BYTES}"));
        let output = trace(&["-p", &pid, "-d", "1s", "--protocol", &protocol], &dir);
        stop.store(true, Ordering::Relaxed);
        (client.join().unwrap(), output)
    });
    let result = keeps_its_promises(&output, &dir);
    let matching = &result["matching"];
    assert_eq!(matching["ambiguous"], 0, "{matching}");
    assert!(
        matching["responses"].as_u64().unwrap() <= asked,
        "{matching}"
    );
}
