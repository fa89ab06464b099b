//! Who has a port.

use std::fmt;
use std::fs;
use std::path::Path;

/// A process that has a port.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder {
    name: String,
    pid: u32,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// The process that listens on a TCP port, or has bound a UDP port, in our network
/// namespace; `None` where it cannot be known, as with other users' processes.
pub fn of_port(proc: &Path, port: u16, datagram: bool) -> Option<Holder> {
    let tables = if datagram {
        ["net/udp", "net/udp6"]
    } else {
        ["net/tcp", "net/tcp6"]
    };
    let sockets: Vec<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(proc.join(table)).ok())
        .flat_map(|table| inodes(&table, port, datagram))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    fs::read_dir(proc)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .find(|pid| has_one(&proc.join(format!("{pid}/fd")), &sockets))
        .map(|pid| Holder {
            name: fs::read_to_string(proc.join(format!("{pid}/comm")))
                .map_or_else(|_| "a process".to_owned(), |name| name.trim().to_owned()),
            pid,
        })
}

fn has_one(files: &Path, sockets: &[String]) -> bool {
    // of a process that has ended, or is another user's, there is nothing to see
    let Ok(files) = fs::read_dir(files) else {
        return false;
    };
    files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .any(|target| {
            sockets
                .iter()
                .any(|socket| target.as_os_str() == socket.as_str())
        })
}

/// The inodes of listening sockets on `port` in a table of `/proc/net`, whose columns are
/// `sl local_address rem_address st … inode` (`get_tcp4_sock`, `udp4_format_sock`).
fn inodes(table: &str, port: u16, datagram: bool) -> Vec<u64> {
    // TCP_LISTEN; a bound UDP socket is in TCP_CLOSE
    let state = if datagram { "07" } else { "0A" };
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let (_, local) = columns.get(1)?.rsplit_once(':')?;
            let same = u16::from_str_radix(local, 16) == Ok(port) && *columns.get(3)? == state;
            same.then(|| columns.get(9)?.parse().ok()).flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1E61 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 0100007F:1E61 0100007F:D3A2 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1
   2: 0100007F:1E62 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0
";

    #[test]
    fn only_the_listener_counts() {
        assert_eq!(inodes(TCP, 0x1E61, false), [4711]);
        assert_eq!(inodes(TCP, 0x1E61, true), [0_u64; 0]);
        assert_eq!(inodes("header\nrubbish\n1: x", 1, false), [0_u64; 0]);
    }

    #[test]
    fn the_holder_is_named() {
        let proc = tempfile::tempdir().unwrap();
        let at = |path: &str| proc.path().join(path);
        for folder in ["net", "12/fd", "99/fd", "self"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("net/tcp"), TCP).unwrap();
        fs::write(at("99/comm"), "nginx\n").unwrap();
        symlink("socket:[4713]", at("12/fd/3")).unwrap();
        symlink("socket:[4711]", at("99/fd/6")).unwrap();
        let holder = of_port(proc.path(), 0x1E61, false).unwrap();
        assert_eq!(holder.to_string(), "nginx (process 99)");
        assert_eq!(of_port(proc.path(), 80, false), None);
        assert_eq!(of_port(proc.path(), 0x1E61, true), None);
    }
}
