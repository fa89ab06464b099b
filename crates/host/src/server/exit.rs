//! How a server ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;
use signal_hook::low_level::signal_name;

/// How a server ended, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerExit {
    /// The program.
    pub program: String,
    /// Exit status or signal.
    pub status: ExitStatus,
    /// The last lines that it wrote, at most three, with ` | ` between them.
    pub last_lines: Option<String>,
}

impl ServerExit {
    /// What the user can do, where its last lines (or silence and success) tells.
    pub fn remedy(&self) -> Option<&'static str> {
        let Some(lines) = self.last_lines.as_deref() else {
            return self.status.success().then_some(
                "if it goes into the background by itself, give it the option that keeps it in the \
                 foreground",
            );
        };
        let any = |words: &[&str]| words.iter().any(|word| lines.contains(word));
        if any(&["Address already in use", "failed to listen"]) {
            Some("stop the process that holds the port (ss -lntup shows it) or choose another port")
        } else if any(&["set rlimit"]) {
            Some("raise the limit of open files (ulimit -n)")
        } else if any(&["Permission denied", "not permitted"]) {
            Some("let the user that it runs as (--server-user) do this, or run as root (sudo)")
        } else if any(&["Cannot allocate memory", "Failed to allocate"]) {
            Some("free memory, or give the server less")
        } else {
            None
        }
    }
}

impl fmt::Display for ServerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.program)?;
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "exited with status {code}")?,
            (None, Some(signal)) => {
                write!(f, "was killed by signal {signal}")?;
                if let Some(name) = signal_name(signal) {
                    write!(f, " ({name})")?;
                }
                if signal == Signal::KILL.as_raw() {
                    write!(
                        f,
                        "; if you did not, see dmesg for the out-of-memory killer"
                    )?;
                }
            }
            (None, None) => write!(f, "ended")?,
        }
        if let Some(lines) = &self.last_lines {
            write!(f, ": {lines}")?;
        }
        if let Some(remedy) = self.remedy() {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}
