//! Room for open files (every connection is one), and why a socket cannot be opened.

use std::io::ErrorKind;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Endpoint, LoadError};

/// Files that the rest of the process may open during the run.
const SPARE: usize = 64;

/// Makes sure that this process may open `connections` more files: if its soft limit is too low,
/// raises it to the hard limit.
///
/// The limit applies to the whole process and stays raised.
///
/// # Errors
/// [`LoadError::TooManyFiles`] when the hard limit is too low as well.
pub(crate) fn make_room(connections: usize) -> Result<(), LoadError> {
    let needed = needed(connections);
    let limit = getrlimit(Resource::Nofile);
    let allows = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed as u64);
    if allows(limit.current) {
        return Ok(());
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if allows(limit.maximum) && setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(());
    }
    Err(LoadError::TooManyFiles {
        connections,
        needed,
    })
}

/// How many files must be allowed for `connections` more than are open.
fn needed(connections: usize) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    connections + open + SPARE
}

/// The error of a socket that cannot be opened.
pub(crate) fn fault(server: &Endpoint, connections: usize, error: Errno) -> LoadError {
    match error {
        Errno::CONNREFUSED | Errno::NOENT => LoadError::Refused {
            server: server.clone(),
        },
        // from connecting a stream, and from binding a datagram socket
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => LoadError::TooManyPorts {
            server: server.clone(),
            connections,
        },
        Errno::MFILE | Errno::NFILE => LoadError::TooManyFiles {
            connections,
            needed: needed(connections),
        },
        error => LoadError::Socket {
            server: server.clone(),
            source: error.into(),
        },
    }
}

/// The kernel's error in an error of the standard library, or the one that comes nearest to an error
/// of its own.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(match error.kind() {
        ErrorKind::TimedOut => Errno::TIMEDOUT,
        ErrorKind::InvalidInput => Errno::INVAL,
        _ => Errno::IO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_of_the_standard_library_is_one_of_the_kernel() {
        let late = std::io::Error::from(ErrorKind::TimedOut);
        assert_eq!(errno(&late), Errno::TIMEDOUT);
        let refused = std::io::Error::from(Errno::CONNREFUSED);
        assert_eq!(errno(&refused), Errno::CONNREFUSED);
    }

    #[test]
    fn a_lack_of_ports_is_told_whichever_call_meets_it() {
        let server = Endpoint::Udp(([127, 0, 0, 1], 9).into());
        for error in [Errno::ADDRNOTAVAIL, Errno::ADDRINUSE] {
            let fault = fault(&server, 7, error);
            assert!(
                matches!(fault, LoadError::TooManyPorts { connections: 7, .. }),
                "{fault}"
            );
        }
    }
}
