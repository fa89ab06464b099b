//! What a server's program says of itself.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::{programs, tail};

/// The first line that `program flag` prints, e.g. `memcached 1.6.18` for `-V`; `None`
/// if the program cannot be run, does not know the flag or prints nothing.
pub fn version(program: &Path, flag: &str) -> Option<String> {
    let output = Command::new(programs::find(program).ok()?)
        .arg(flag)
        .stdin(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    // nginx prints it on stderr
    let said = [output.stdout, output.stderr];
    let text = said.iter().find(|bytes| !bytes.is_empty())?;
    tail::last_line(String::from_utf8_lossy(text).lines().next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_about_the_flag_is_no_version() {
        let said = version(Path::new("echo"), "server 1.2");
        assert_eq!(said.as_deref(), Some("server 1.2"));
        assert_eq!(version(Path::new("ls"), "--no-such-option"), None);
    }
}
