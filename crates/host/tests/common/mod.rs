//! Shared by the live tests: the gate, child roles, bounded waiting.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(unreachable_pub, reason = "every test binary includes this file")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Whether a live test can run. Without root it fails, unless the caller has said
/// that live tests may be skipped; then it says so on stderr, past libtest's capture.
pub fn live(test: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    if std::env::var_os("TAILLAB_SKIP_LIVE").is_some_and(|value| value == "1") {
        // written directly: libtest captures what eprintln! writes
        let line = format!("SKIPPED {test}: needs root (TAILLAB_SKIP_LIVE=1)\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return false;
    }
    panic!("{test} needs root: run it with sudo, or set TAILLAB_SKIP_LIVE=1 to skip it");
}

const ROLE: &str = "TAILLAB_TEST_CHILD";

/// Whether this process is the child that [`Helper::start`] made for this test.
pub fn is_helper() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// In the helper: hands a line to the test.
pub fn tell(line: impl std::fmt::Display) {
    let mut out = std::io::stdout();
    writeln!(out, "helper: {line}").unwrap();
    out.flush().unwrap();
}

/// In the helper: waits to be killed.
pub fn wait_for_death() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// A second process that runs the same test in the helper's role, to be killed.
pub struct Helper {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Helper {
    /// Runs the test called `test` of this binary again, as the helper. `argument`
    /// is what [`argument`] returns there.
    pub fn start(test: &str, argument: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads", "1"])
            .env(ROLE, argument)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line that it sends with [`tell`].
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "the helper ended without a word");
            // libtest writes "test … ... " in front, without a line break
            if let Some((_, text)) = line.split_once("helper: ") {
                return text.trim().to_owned();
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, as a crash.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Reads the rest of its output and returns how it ended, which may be by a signal.
    pub fn end(&mut self) -> std::process::ExitStatus {
        // a full pipe would hold it up
        std::io::copy(&mut self.lines, &mut std::io::sink()).unwrap();
        self.child.wait().unwrap()
    }

    /// Waits for its end without reading its output.
    pub fn wait(mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the helper: what [`Helper::start`] was given.
pub fn argument() -> String {
    std::env::var(ROLE).unwrap()
}

/// Asks until the answer is yes; fails after a time that no working system needs.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{what}: not within 30 s"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// No process has the number, or only a zombie that nobody has reaped.
pub fn is_gone(pid: u32) -> bool {
    taillab_host::ProcessIdentity::of(&taillab_host::Roots::default(), pid).is_none()
}

/// A process that is to survive its parent but not the test, even if the test fails.
pub struct Orphan(pub u32);

impl Drop for Orphan {
    fn drop(&mut self) {
        if !is_gone(self.0)
            && let Some(pid) = rustix::process::Pid::from_raw(self.0 as i32)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
