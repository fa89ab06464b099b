//! The screen of `--live`, on a pseudo-terminal that `script` of util-linux makes.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use super::rig::{Running, free_port, load};
use crate::support::{live, wait_for};

/// What the terminal was sent, and the exit code.
struct Session {
    sent: String,
    code: Option<i32>,
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

impl Session {
    /// Traces `pid` on a terminal of `rows` and `columns`; presses `key` once `shows` stands
    /// there.
    fn of(
        pid: u32,
        (rows, columns): (usize, usize),
        colours: bool,
        shows: &str,
        key: &str,
    ) -> Self {
        let taillab = env!("CARGO_BIN_EXE_taillab");
        let line = format!(
            "trap : INT; stty rows {rows} cols {columns}; {taillab} trace --live -p {pid}; \
             code=$?; stty -a; exit $code"
        );
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("script");
        command.current_dir(place.path());
        command.args(["-q", "-f", "-e", "-c", &line, "/dev/null"]);
        match colours {
            true => command.env_remove("NO_COLOR"),
            false => command.env("NO_COLOR", "1"),
        };
        let mut child = (command.stdin(Stdio::piped()).stdout(Stdio::piped()))
            .spawn()
            .unwrap();
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
        let text = || String::from_utf8_lossy(&sent.lock().unwrap()).into_owned();
        wait_for(shows, || text().contains(shows).then_some(()));
        let mut keys = child.stdin.take().unwrap();
        keys.write_all(key.as_bytes()).unwrap();
        keys.flush().unwrap();
        let code = child.wait().unwrap().code();
        reader.join().unwrap();
        let saved = std::fs::read_dir(place.path()).unwrap().count();
        assert_eq!(saved, 0, "nobody asked for files");
        Self { sent: text(), code }
    }

    /// The rows of the last screen, without colours.
    fn screen(&self) -> Vec<String> {
        let shown = self.sent.split_once(ENTER).unwrap().1;
        let shown = shown.split_once(LEAVE).unwrap().0;
        let last = shown.rsplit("\x1b[H").next().unwrap();
        // the terminal's cursor goes, in its own way
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

    /// What came after the screen was given back.
    fn afterwards(&self) -> &str {
        self.sent.split_once(LEAVE).unwrap().1
    }

    /// The screen fits, the terminal is as it was, and the result stands where the shell is.
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
    let port = free_port();
    let server = Running::taillab(&format!("serve null-rpc --listen 127.0.0.1:{port}"))
        .listening(&format!("127.0.0.1:{port}"));
    let _clients = load(&format!("echo+tcp://127.0.0.1:{port}"), 1000);

    let size = (24, 80);
    let session = Session::of(server.pid(), size, true, "largest causes", "q");
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
    let session = Session::of(server.pid(), size, false, "matched", "\x03");
    assert_eq!(session.code, Some(130), "{}", session.sent);
    session.keeps_its_promises(size);
    assert!(session.afterwards().contains("PARTIAL"));
    assert!(!session.sent.contains("\x1b[1m") && !session.sent.contains("\x1b[3"));
}
