//! A headless Chromium driven through its DevTools protocol over two pipes: enough of
//! a client to open a page, look at its DOM, use it, and see what it complains about.

pub(crate) mod page;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long an answer may take before the browser counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    events: Vec<Value>,
    session: Option<String>,
    next_id: u64,
    url: String,
    // removed when the browser has ended
    _profile: TempDir,
}

impl Browser {
    /// A browser, or `None` where there is none and the environment says to go on
    /// without (`TAILLAB_SKIP_LIVE=1`); then a line on standard error says so.
    ///
    /// # Panics
    /// When there is no Chromium, or it does not answer.
    pub(crate) fn launch(test: &str) -> Option<Self> {
        if Command::new("chromium").arg("--version").output().is_err() {
            assert!(
                std::env::var_os("TAILLAB_SKIP_LIVE").is_some_and(|value| value == "1"),
                "{test}: the program `chromium` is missing; install the package chromium, or \
                 set TAILLAB_SKIP_LIVE=1 to skip what needs it"
            );
            // not a macro: those are swallowed in tests that pass
            let line = format!("SKIPPED {test}: the program `chromium` is missing\n");
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        // the protocol speaks on descriptors 3 and 4; the shell joins them to our pipes
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 1>&2 </dev/null", "sh"])
            .args([
                "chromium",
                "--headless",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
                // otherwise a press before the first paint is dropped, and answered as if it had arrived
                "--allow-pre-commit-input",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            // its sockets go with the profile
            .env("TMPDIR", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = process.stdin.take().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else {
                    return;
                };
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            process,
            commands,
            messages,
            events: Vec::new(),
            session: None,
            next_id: 0,
            url: String::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({ "targetId": target["targetId"], "flatten": true }),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command of the protocol and returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.commands.write_all(&bytes).unwrap();
        self.commands.flush().unwrap();
        let answer = self.wait(method, |message| message["id"] == json!(id));
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// The next message that fits; events before it are kept.
    fn wait(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self
                .messages
                .recv_timeout(left)
                .unwrap_or_else(|e| panic!("no answer to {what}: {e}"));
            let found = fits(&message);
            if message["method"].is_string() {
                self.events.push(message.clone());
            }
            if found {
                return message;
            }
        }
    }

    /// Opens the file and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path) {
        self.url = format!("file://{}", file.display());
        self.events.clear();
        let url = self.url.clone();
        self.call("Page.navigate", json!({ "url": url }));
        let is_load = |message: &Value| message["method"] == json!("Page.loadEventFired");
        if !self.events.iter().any(is_load) {
            self.wait("the page's load", is_load);
        }
    }

    /// The value of a JavaScript expression in the page (also where the page's own
    /// scripts are disabled).
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true }),
        );
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    /// A mouse event at a place in the window.
    pub(crate) fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let buttons = u8::from(kind != "mouseReleased");
        self.call(
            "Input.dispatchMouseEvent",
            json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1 }),
        );
    }

    /// Saves what the window shows into `TAILLAB_SCREENSHOTS`, if that is set: to look at.
    pub(crate) fn screenshot(&mut self, name: &str) {
        let Some(directory) = std::env::var_os("TAILLAB_SCREENSHOTS") else {
            return;
        };
        use base64::Engine;
        let answer = self.call(
            "Page.captureScreenshot",
            json!({ "captureBeyondViewport": true }),
        );
        let image = base64::engine::general_purpose::STANDARD
            .decode(answer["data"].as_str().unwrap())
            .unwrap();
        std::fs::write(Path::new(&directory).join(format!("{name}.png")), image).unwrap();
    }

    /// What the page complained about and what it asked the network for since it was
    /// opened: errors and warnings on the console, uncaught exceptions, refusals by
    /// the security policy, requests.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // a full turn of the page's event loop, so that what is under way arrives
        self.call(
            "Runtime.evaluate",
            json!({
                "expression": "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))",
                "awaitPromise": true,
            }),
        );
        self.events
            .iter()
            .filter_map(|event| {
                let of = &event["params"];
                match event["method"].as_str()? {
                    "Runtime.exceptionThrown" => {
                        Some(format!("exception: {}", of["exceptionDetails"]))
                    }
                    "Runtime.consoleAPICalled" if of["type"] != json!("log") => {
                        Some(format!("console: {}", of["args"]))
                    }
                    "Log.entryAdded" => Some(format!("log: {}", of["entry"])),
                    "Network.requestWillBeSent" => {
                        let url = of["request"]["url"].as_str()?;
                        let own = url == self.url || url.starts_with("data:");
                        (!own).then(|| format!("request: {url}"))
                    }
                    _ => None,
                }
            })
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // asked to close, its processes end in order and write to the profile no more;
        // a browser that does not answer is killed. Nothing here may panic.
        let _ = self
            .commands
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
