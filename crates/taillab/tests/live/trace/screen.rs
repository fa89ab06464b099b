//! The screen of `--live`, on a pseudo-terminal that `script` of util-linux makes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tempfile::TempDir;

use super::rig::{load, null_rpc};
use crate::support::{Guarded, children, free_port, live, signal, taillab, wait_for};

/// What the terminal was sent, and the exit code.
struct Session {
    sent: String,
    code: Option<i32>,
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// A live view that goes on.
struct Watching {
    child: Guarded,
    sent: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    place: TempDir,
}

impl Watching {
    /// Traces `pid` on a terminal of `rows` and `columns`, as sudo starts it for `user` if there is one, and
    /// waits until `shows` appears.
    fn begin(
        pid: u32,
        (rows, columns): (usize, usize),
        colours: bool,
        user: Option<u32>,
        shows: &str,
    ) -> Self {
        let taillab = env!("CARGO_BIN_EXE_taillab");
        let line = format!(
            "trap : INT; stty rows {rows} cols {columns}; {taillab} trace --live -p {pid}; \
             code=$?; stty -a; exit $code"
        );
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("script");
        command.current_dir(place.path()).env("SHELL", "/bin/sh");
        command.args(["-q", "-f", "-e", "-c", &line, "/dev/null"]);
        match colours {
            true => command.env_remove("NO_COLOR"),
            false => command.env("NO_COLOR", "1"),
        };
        for name in ["SUDO_UID", "SUDO_GID"] {
            match user {
                Some(user) => command.env(name, user.to_string()),
                None => command.env_remove(name),
            };
        }
        let mut child = Guarded::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut terminal = child.stdout.take().unwrap();
        let reader = std::thread::spawn({
            let sent = Arc::clone(&sent);
            move || {
                let mut bytes = [0; 4096];
                while let Ok(n @ 1..) = terminal.read(&mut bytes) {
                    sent.lock().unwrap().extend_from_slice(&bytes[..n]);
                }
            }
        });
        let watching = Self {
            child,
            sent,
            reader,
            place,
        };
        wait_for(shows, || watching.text().contains(shows).then_some(()));
        watching
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }

    /// Ends it with this key.
    fn press(mut self, key: &str) -> Session {
        let mut keys = self.child.stdin.take().unwrap();
        keys.write_all(key.as_bytes()).unwrap();
        keys.flush().unwrap();
        let code = self.child.wait().unwrap().code();
        let saved = std::fs::read_dir(self.place.path()).unwrap().count();
        assert_eq!(saved, 0, "nobody asked for files");
        let Self { sent, reader, .. } = self;
        reader.join().unwrap();
        let sent = String::from_utf8_lossy(&sent.lock().unwrap()).into_owned();
        Session { sent, code }
    }
}

impl Session {
    /// The rows of the last screen, without colours.
    fn screen(&self) -> Vec<String> {
        let shown = self.sent.split_once(ENTER).unwrap().1;
        let shown = shown.split_once(LEAVE).unwrap().0;
        let last = shown.rsplit("\x1b[H").next().unwrap();
        // not part of the picture: the sequence that shows the cursor again
        let last = last.replace("\x1b[?25h", "");
        (last.split('\n'))
            .map(|row| {
                let mut parts = row.split('\x1b');
                let first = parts.next().unwrap_or_default().to_owned();
                // a sequence ends with its first letter
                let rest = parts.map(|part| part.split_once(char::is_alphabetic).unwrap().1);
                let row = rest.fold(first, |row, part| row + part);
                row.trim_matches('\r').to_owned()
            })
            .collect()
    }

    /// What followed once the terminal was given back.
    fn afterwards(&self) -> &str {
        self.sent.split_once(LEAVE).unwrap().1
    }

    /// The screen fits, the terminal is as it was, and the result is printed on its normal screen.
    fn keeps_its_promises(&self, (rows, columns): (usize, usize)) {
        let screen = self.screen();
        assert_eq!(screen.len(), rows, "{screen:#?}");
        for row in &screen {
            assert!(row.chars().count() <= columns, "{row}");
        }
        assert!(self.sent.contains("\x1b[?25h"), "the cursor stays hidden");
        let after = self.afterwards();
        assert!(after.contains("Latency in µs"), "no result: {after}");
        for set in [" icanon", " echo ", "susp = ^Z"] {
            assert!(after.contains(set), "no `{set}`: {after}");
        }
    }
}

#[test]
fn the_screen_says_what_is_going_on_and_q_or_ctrl_c_give_the_terminal_back() {
    if !live("the_screen_says_what_is_going_on_and_q_or_ctrl_c_give_the_terminal_back") {
        return;
    }
    let (server, port) = null_rpc();
    let _clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 1000);

    let size = (24, 80);
    let session = Watching::begin(server.pid(), size, true, None, "largest causes").press("q");
    // a noisy machine may spoil the measurement (4)
    assert!(matches!(session.code, Some(0 | 4)), "{}", session.sent);
    session.keeps_its_promises(size);
    let screen = session.screen().join("\n");
    for part in [
        "taillab trace pid ",
        "requests/s",
        "p99.9",
        "last second",
        "since start",
        " µs",
        "largest causes of the excess",
        " %",
        "application",
        "responses",
        "matched",
        "q or Ctrl-C ends",
    ] {
        assert!(screen.contains(part), "no `{part}`:\n{screen}");
    }
    assert!(!session.afterwards().contains("PARTIAL"));

    // small, and without colours
    let size = (8, 50);
    let session = Watching::begin(server.pid(), size, false, None, "matched").press("\x03");
    assert_eq!(session.code, Some(130), "{}", session.sent);
    session.keeps_its_promises(size);
    assert!(session.afterwards().contains("PARTIAL"));
    assert!(!session.sent.contains("\x1b[1m") && !session.sent.contains("\x1b[3"));
}

/// What a server answers to a request for its figures, once it answers.
fn figures(address: (&str, u16)) -> Option<String> {
    let mut asking = TcpStream::connect(address).ok()?;
    asking
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .ok()?;
    let mut answer = String::new();
    asking.read_to_string(&mut answer).ok()?;
    answer.ends_with("# EOF\n").then_some(answer)
}

/// A figure without labels.
fn figure(answer: &str, name: &str) -> f64 {
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name}: {answer}"))
}

#[test]
fn figures_are_served_without_a_terminal_and_only_grow() {
    if !live("figures_are_served_without_a_terminal_and_only_grow") {
        return;
    }
    let (server, port) = null_rpc();
    let _clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 1000);
    let at = ("127.0.0.1", free_port());
    let mut command = taillab();
    command.args(["trace", "--live", "-p", &server.pid().to_string()]);
    command.arg(format!("--metrics={}:{}", at.0, at.1));
    let mut child = Guarded::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let counts = [
        "taillab_responses_total",
        "taillab_sojourn_seconds_count",
        "taillab_sojourn_seconds_sum",
    ];
    let counted = |least: f64, parts: &[&str]| {
        wait_for("figures that grow", || {
            let answer = figures(at)?;
            let has_all = parts.iter().all(|part| answer.contains(part));
            (has_all && figure(&answer, counts[0]) > least).then_some(answer)
        })
    };
    let first = counted(0.0, &[]);
    // a second whose ideal is withdrawn has no cause
    let parts = [
        "taillab_stage_seconds_sum{stage=\"t4_t5\"} ",
        "taillab_excess_seconds_total{cause=",
        "server=\"pid ",
    ];
    let second = counted(figure(&first, counts[0]), &parts);
    for name in counts {
        assert!(
            figure(&second, name) > figure(&first, name),
            "{name}: {first}\n{second}"
        );
    }
    // there is nothing on standard output but the result
    signal(child.id(), "INT");
    let mut said = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(
        said.contains("Latency in µs") && !said.contains(ENTER),
        "{said}"
    );
}

/// Each thread's users and capabilities, and whether it can gain any.
fn rights(pid: u32) -> Vec<(Vec<String>, Vec<String>, String)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let rights = threads.flatten().filter_map(|thread| {
        // one that has ended meanwhile has none
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            let words = line.split_whitespace().skip(1).map(str::to_owned);
            words.collect::<Vec<_>>()
        };
        let capabilities = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"];
        let capabilities = capabilities.iter().flat_map(|name| field(name)).collect();
        Some((field("Uid:"), capabilities, field("NoNewPrivs:").concat()))
    });
    rights.collect()
}

#[test]
fn the_live_view_has_no_privilege() {
    if !live("the_live_view_has_no_privilege") {
        return;
    }
    let (server, port) = null_rpc();
    let _clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 1000);
    // root becomes nobody, and under sudo it is the user who called it
    for (behind_sudo, user) in [(None, "65534"), (Some(12345), "12345")] {
        let size = (24, 80);
        let watching = Watching::begin(server.pid(), size, true, behind_sudo, "matched");
        let shell = children(watching.child.id(), "sh");
        let view = children(shell[0], "taillab");
        let rights = rights(view[0]);
        // one draws, one records
        assert!(rights.len() >= 2, "{rights:?}");
        for (users, capabilities, no_new) in rights {
            assert!(users.iter().all(|one| one == user), "{users:?}");
            let none = |set: &String| set.chars().all(|digit| digit == '0');
            assert!(capabilities.iter().all(none), "{capabilities:?}");
            assert_eq!(no_new, "1");
        }
        let session = watching.press("q");
        assert!(matches!(session.code, Some(0 | 4)), "{}", session.sent);
        session.keeps_its_promises(size);
    }
}
