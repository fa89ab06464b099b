//! Real servers where they are installed: memcached, Redis, nginx.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::support::{in_mid_load, number, run, short, taillab};
use crate::support::{bound, free_port, reachable, wait_for};

/// A server's process, killed at the end of the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // it may have been killed by the test
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the program is there; says loudly why not and fails unless told to skip.
fn installed(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
            || Path::new("/usr/sbin").join(program).is_file()
    });
    if !found {
        assert!(
            std::env::var_os("TAILLAB_SKIP_LIVE").is_some_and(|value| value == "1"),
            "{program} is not installed; run `scripts/setup.sh test`, or set TAILLAB_SKIP_LIVE=1 to skip it"
        );
        println!("SKIPPED: {program} is not installed");
    }
    found
}

fn start(program: &str, args: &[String]) -> Server {
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let child = Command::new(program)
        .args(args)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Server(child.unwrap_or_else(|error| panic!("{program}: {error}")))
}

fn wait_for_port(port: u16) {
    wait_for("the server's port", || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
}

/// memcached on a port for TCP and another for UDP, 0 for none.
fn memcached(port: u16, udp_port: u16) -> Server {
    let mut args = strings(&["-u", "nobody", "-t", "1", "-l", "127.0.0.1"]);
    args.extend(strings(&[
        "-p",
        &port.to_string(),
        "-U",
        &udp_port.to_string(),
    ]));
    let server = start("memcached", &args);
    wait_for_port(port);
    if udp_port > 0 {
        // it binds this one once it listens on the other
        bound(udp_port);
    }
    server
}

fn wait_for_socket(path: &Path) {
    wait_for("the server's socket", || UnixStream::connect(path).ok());
}

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

/// A short load: all answered as they should be.
fn all_well(target: &str, args: &[&str]) -> Value {
    let mut args = short(args);
    // so slow that a pause of the server fills no buffer of a socket
    args.extend(["-R", "500"]);
    let result = run(target, &args).measured();
    for (kind, count) in result["load"]["errors"].as_object().unwrap() {
        assert_eq!(count, 0, "{target}: {kind} in {result}");
    }
    assert_eq!(
        number(&result, "/load/response_time/count"),
        number(&result, "/load/requests"),
        "{target}"
    );
    result
}

#[test]
fn memcached_is_spoken_to_in_all_dialects_on_all_transports() {
    if !installed("memcached") {
        return;
    }
    let port = free_port();
    let server = memcached(port, port);
    let keys = ["--keys", "500", "--value-bytes", "200"];
    for (scheme, protocol) in [
        ("memcached+udp", "memcached-ascii"),
        ("memcached+tcp", "memcached-ascii"),
        ("memcached-binary+tcp", "memcached-binary"),
        ("memcached-meta+tcp", "memcached-meta"),
    ] {
        let result = all_well(&format!("{scheme}://127.0.0.1:{port}"), &keys);
        assert_eq!(result["generator"]["protocol"], protocol);
    }
    let target = format!("memcached+tcp://localhost:{port}");
    let more = [
        "--dialect",
        "meta",
        "--zipf",
        "0.99",
        "--get-share",
        "50%",
        "--no-prefill",
    ];
    let more: Vec<&str> = keys.iter().chain(&more).copied().collect();
    assert_eq!(
        all_well(&target, &more)["generator"]["protocol"],
        "memcached-meta"
    );
    drop(server);

    // the server drops its privileges before it makes the socket
    let place = reachable();
    std::fs::set_permissions(
        place.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let socket = place.path().join("m.sock");
    let args = strings(&["-u", "nobody", "-t", "1", "-s", socket.to_str().unwrap()]);
    let _server = start("memcached", &args);
    wait_for_socket(&socket);
    let target = format!("memcached+unix:{}", socket.display());
    assert_eq!(all_well(&target, &keys)["generator"]["transport"], "unix");
}

#[test]
fn gets_of_keys_that_nobody_stored_are_counted_as_misses() {
    if !installed("memcached") {
        return;
    }
    let port = free_port();
    let _server = memcached(port, 0);
    let args = short(&["-R", "1000", "--no-prefill", "--get-share", "100%"]);
    let result = run(&format!("memcached+tcp://127.0.0.1:{port}"), &args).json();
    assert_eq!(
        number(&result, "/load/errors/misses"),
        number(&result, "/load/requests")
    );
    assert!(
        result["verdict"].to_string().contains("found nothing"),
        "{result}"
    );
}

#[test]
fn redis_is_spoken_to_over_tcp_and_a_unix_socket() {
    if !installed("redis-server") {
        return;
    }
    let port = free_port();
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("r.sock");
    let args = strings(&[
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--unixsocket",
        socket.to_str().unwrap(),
        "--dir",
        place.path().to_str().unwrap(),
    ]);
    let _server = start("redis-server", &args);
    wait_for_port(port);
    wait_for_socket(&socket);
    let keys = ["--keys", "500", "--value-bytes", "200"];
    let result = all_well(&format!("redis://127.0.0.1:{port}"), &keys);
    assert_eq!(
        (
            &result["generator"]["protocol"],
            &result["generator"]["transport"]
        ),
        (&"redis".into(), &"tcp".into())
    );
    all_well(&format!("redis+unix:{}", socket.display()), &keys);
}

#[test]
fn nginx_is_spoken_to_over_tcp_and_a_unix_socket() {
    if !installed("nginx") {
        return;
    }
    let port = free_port();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let socket = dir.join("n.sock");
    std::fs::write(dir.join("index.html"), "x".repeat(600)).unwrap();
    let root = dir.display();
    let config = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n\
         fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         server {{ listen 127.0.0.1:{port}; listen unix:{}; root {root};\n\
         location = /named {{ if ($host != \"example.org\") {{ return 404; }} return 200 yes; }} }} }}\n",
        socket.display()
    );
    std::fs::write(dir.join("nginx.conf"), config).unwrap();
    let config = dir.join("nginx.conf");
    let args = strings(&["-c", config.to_str().unwrap(), "-p", dir.to_str().unwrap()]);
    let _server = start("nginx", &args);
    wait_for_port(port);
    wait_for_socket(&socket);
    let base = format!("http://127.0.0.1:{port}");
    assert_eq!(
        all_well(&format!("{base}/index.html"), &[])["generator"]["protocol"],
        "http"
    );
    all_well(&format!("http+unix:{}:/index.html", socket.display()), &[]);
    all_well(
        &format!("{base}/named"),
        &["-H", "Host: example.org", "-H", "X-Test: 1"],
    );
    let args = short(&["-R", "500"]);
    let missing = run(&format!("{base}/missing"), &args).json();
    assert_eq!(
        number(&missing, "/load/errors/server_errors"),
        number(&missing, "/load/requests")
    );
    assert_eq!(missing["verdict"]["valid"], false);
}

#[test]
fn a_server_that_dies_ends_the_run_with_a_report() {
    if !installed("memcached") {
        return;
    }
    for transport in ["tcp", "udp"] {
        let port = free_port();
        let mut server = memcached(port, port);
        let target = format!("memcached+{transport}://127.0.0.1:{port}");
        let mut command = taillab();
        command
            .args([
                &target, "-R", "1000", "-d", "60s", "--warmup", "0", "--json",
            ])
            .args(["--timeout", "300ms", "--keys", "100", "--floor", "off"]);
        let child = in_mid_load(&mut command);
        server.0.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{transport}: {stderr}");
        assert!(
            stderr.contains("stopped answering"),
            "{transport}: {stderr}"
        );
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["partial"], true);
        assert!(number(&result, "/load/response_time/count") > 0);
    }
}
