//! Clients on several hosts (`python -m taillab.cluster`): network namespaces of this machine, each with a clock of its
//! own, on which a stand-in for ssh starts MPI's daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Guarded, live, wait_for};

/// The first host leads, and has the server.
const HOSTS: u32 = 4;
const PORT: u16 = 7791;
/// The host N is this many seconds after the first one, N times.
const APART_S: i64 = 1_000;

/// Hosts that are joined by a bridge, until this is dropped.
struct Hosts {
    place: TempDir,
}

fn address(host: u32) -> String {
    format!("10.77.0.{host}")
}

fn name(host: u32) -> String {
    format!("tlcluster{host}")
}

/// Runs `ip` with these words.
fn ip(words: &str) -> bool {
    let ran = Command::new("ip")
        .args(words.split(' '))
        .stderr(Stdio::null())
        .status();
    ran.is_ok_and(|status| status.success())
}

impl Hosts {
    fn begin() -> Self {
        // what a killed test has left
        Self::clear();
        let hosts = Self {
            place: tempfile::tempdir().unwrap(),
        };
        let mut lines = vec![
            "link add tlcbridge type bridge".to_owned(),
            "link set tlcbridge up".to_owned(),
        ];
        for host in 1..=HOSTS {
            let (space, address) = (name(host), address(host));
            lines.extend([
                format!("netns add {space}"),
                format!("link add tlcveth{host} type veth peer name eth0 netns {space}"),
                format!("link set tlcveth{host} master tlcbridge up"),
                format!("-n {space} addr add {address}/24 dev eth0"),
                format!("-n {space} link set eth0 up"),
                format!("-n {space} link set lo up"),
            ]);
        }
        for line in lines {
            assert!(ip(&line), "ip {line}");
        }
        let ssh = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=${{1##*.}}; shift\n\
             exec ip netns exec tlcluster$host unshare --time --fork --monotonic $((host * {APART_S})) /bin/sh -c \"$*\"\n"
        );
        fs::write(hosts.ssh(), ssh).unwrap();
        fs::set_permissions(hosts.ssh(), fs::Permissions::from_mode(0o755)).unwrap();
        hosts
    }

    fn clear() {
        for host in 1..=HOSTS {
            // at once: a namespace takes its devices away some time after it is deleted
            ip(&format!("link del tlcveth{host}"));
            ip(&format!("netns del {}", name(host)));
        }
        ip("link del tlcbridge");
    }

    fn ssh(&self) -> PathBuf {
        self.place.path().join("ssh")
    }

    /// A program on the first host.
    fn on_the_first(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name(1)]).arg(program);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        Self::clear();
    }
}

/// The Python of the tests' environment, with its Open MPI, beside the build.
fn python() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_BIN_EXE_taillab"));
    let python = built.ancestors().nth(2)?.join("python/tests/bin/python");
    python.with_file_name("mpirun").exists().then_some(python)
}

/// Whether the kernel has time namespaces, and `unshare` can make one.
fn has_time_namespaces() -> bool {
    let words = ["--time", "--fork", "--monotonic", "1", "true"];
    let made = Command::new("unshare")
        .args(words)
        .stderr(Stdio::null())
        .status();
    made.is_ok_and(|status| status.success())
}

fn integer(of: &Value, place: &str) -> i64 {
    let found = of.pointer(place).and_then(Value::as_i64);
    found.unwrap_or_else(|| panic!("no {place} in {of}"))
}

#[test]
fn clients_on_hosts_with_other_clocks_begin_together() {
    if !live("clients_on_hosts_with_other_clocks_begin_together") {
        return;
    }
    let Some(python) = python().filter(|_| has_time_namespaces()) else {
        println!(
            "SKIPPED it needs the Python environment of the tests with Open MPI (scripts/setup.sh test), and time namespaces"
        );
        return;
    };
    let hosts = Hosts::begin();
    let program = Path::new(env!("CARGO_BIN_EXE_taillab"));
    let listen = format!("{}:{PORT}", address(1));
    let mut server = hosts.on_the_first(program);
    let _server = Guarded::spawn(server.args(["serve", "epoll-shared", "-q", "--listen", &listen]));
    let out = hosts.place.path().join("out");
    let package = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../python")
        .canonicalize()
        .unwrap();
    let names: Vec<String> = (1..=HOSTS).map(address).collect();
    let mut mpi = hosts.on_the_first(&python.with_file_name("mpirun"));
    mpi.env("TAILLAB_BINARY", program)
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    mpi.args([
        "--with-ft",
        "ulfm",
        "--allow-run-as-root",
        "--prtemca",
        "plm_ssh_no_tree_spawn",
        "1",
    ]);
    mpi.args(["--prtemca", "plm_ssh_agent"])
        .arg(hosts.ssh())
        .args(["--host", &names.join(","), "-n", "4"]);
    mpi.args([
        "-x",
        "TAILLAB_BINARY",
        "-x",
        "PYTHONPATH",
        "-x",
        "PYTHONDONTWRITEBYTECODE",
        "-x",
        "PATH",
    ])
    .arg(&python);
    mpi.args([
        "-m",
        "taillab.cluster",
        "load",
        &format!("echo+tcp://{listen}"),
        "-R",
        "600",
        "-d",
        "500ms",
    ]);
    mpi.args(["--warmup", "100ms", "--lead", "4s", "-o"])
        .arg(&out)
        .args(["--", "--floor=off", "--wait=hybrid", "-c4"]);
    wait_for("the server", || {
        let mut asked = hosts.on_the_first(program);
        let load = [
            "load",
            &format!("echo+tcp://{listen}"),
            "--ping-pong",
            "-d",
            "10ms",
            "--warmup",
            "0",
            "--floor=off",
            "-q",
        ];
        asked
            .args(load)
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .code()
            .filter(|code| *code != 1)
    });
    let child = Guarded::spawn(
        mpi.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let ran = child.wait_with_output().unwrap();
    // 4: on a busy machine a client may not believe itself
    assert!(matches!(ran.status.code(), Some(0 | 4)), "{ran:?}");
    let found: Value =
        serde_json::from_slice(&fs::read(out.join("cluster.json")).unwrap()).unwrap();
    let clients = found["clients"].as_array().unwrap();
    assert_eq!(clients.len(), HOSTS as usize - 1);
    for (client, host) in clients.iter().zip(2_i64..) {
        // the true offset lies within the stated error
        let off = integer(client, "/clock/offset_ns") - host * APART_S * 1_000_000_000;
        assert!(
            off.abs() <= integer(client, "/clock/error_ns"),
            "host {host}: {off} ns, {client}"
        );
        // and where the start was, by the client's own records
        let planned = out.join(format!("client-{}", host - 2)).join("result.json");
        let planned: Value = serde_json::from_slice(&fs::read(planned).unwrap()).unwrap();
        let known =
            integer(&planned, "/generator/start/error_ns") + integer(client, "/start/error_ns");
        assert!(
            integer(client, "/start/off_plan_ns").abs() <= known,
            "{client}"
        );
        assert!(
            integer(client, "/requests") > 0 && client["failures"] == serde_json::json!([]),
            "{client}"
        );
    }
    let requests: i64 = clients
        .iter()
        .map(|client| integer(client, "/requests"))
        .sum();
    assert_eq!(integer(&found, "/response_time/count"), requests);
    assert_eq!(found["partial"], false);
}
