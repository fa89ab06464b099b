//! Runs of the command and what must hold for each of them.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use taillab_load::serve::{Architecture, Listen, Responder, Spec};

/// A load that takes a moment, as JSON, with the client's floor.
pub const SHORT: [&str; 6] = ["--json", "-d", "400ms", "--warmup", "50ms", "-q"];

/// The command under test.
pub fn taillab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taillab"));
    command.arg("load");
    command
}

/// What a run left.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs the command to its end; one that hangs is killed and fails the test.
pub fn run(target: &str, args: &[&str]) -> Ran {
    let mut command = taillab();
    command.arg(target).args(args);
    finish(&mut command)
}

/// The same for a prepared command.
pub fn finish(command: &mut Command) -> Ran {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    // read while it runs: a full pipe would stop it
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text).unwrap();
        text
    });
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(90) {
            child.kill().unwrap();
            panic!("{command:?} did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut output = child.wait_with_output().unwrap();
    output.stdout = reader.join().unwrap();
    output.into()
}

impl Ran {
    /// The result, which obeys the schema.
    pub fn json(&self) -> Value {
        assert!(!self.stdout.is_empty(), "{self:?}");
        crate::support::schema::valid("load", self.stdout.as_bytes())
    }

    /// The result of a run that worked: a noisy machine may spoil its percentiles, nothing may make it fail.
    pub fn measured(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        let value = self.json();
        assert_eq!(value["verdict"]["valid"], true, "{self:?}");
        value
    }

    /// One line on stderr, nothing on stdout, and this exit code.
    pub fn refused(&self, code: i32, part: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stdout.is_empty(), "{self:?}");
        assert!(self.stderr.contains(part), "no `{part}`: {self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
    }
}

/// What spoils an attempt: the generator was held up until not even the median holds. Then there is no file of percentiles.
pub fn lost_its_median(printed: &Value) -> Option<String> {
    let because = printed["verdict"]["claims"][0]["because"].as_array();
    let mut keys = because.into_iter().flatten().filter_map(Value::as_str);
    let key = keys.find(|key| ["rate_missed", "client_busy", "late_client"].contains(key))?;
    Some(format!("the generator was held up: {key}"))
}

/// The arguments of a short load without the floor, and more.
pub fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let quick = SHORT.iter().chain(&["--floor", "off"]);
    quick.chain(more).copied().collect()
}

/// A number of a result.
pub fn number(value: &Value, place: &str) -> u64 {
    value
        .pointer(place)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no number {place} in {value}"))
}

/// A responder in this process, and its target.
pub fn responder(transport: &str, listen: Listen) -> (Responder, String) {
    let architecture = match transport {
        "udp" => Architecture::UdpShared,
        _ => Architecture::EpollPerWorker,
    };
    let spec = Spec {
        listen,
        ..Spec::new(architecture)
    };
    let responder = Responder::start(&spec).unwrap();
    let target = match responder.address() {
        Listen::Inet(address) => format!("echo+{transport}://{address}"),
        Listen::Unix(path) => format!("echo+unix:{}", path.display()),
    };
    (responder, target)
}

/// Starts a load and waits for its first rolling line: then it is sending and gets answers.
pub fn in_mid_load(command: &mut Command) -> Child {
    let mut child = command
        .arg("-v")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // byte by byte, so that what follows the line is left for whoever waits for the child
    let mut stderr = child.stderr.take().unwrap();
    let mut said = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&said).contains("  p50 ") {
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "it ended early");
        said.push(byte[0]);
    }
    child.stderr = Some(stderr);
    child
}
