//! Room for open files: every connection is one.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::LoadError;

/// Files that the rest of the process may open meanwhile.
const SPARE: usize = 64;

/// Makes sure that this process may open `connections` more files: raises its soft
/// limit as far as the hard limit allows when it is too low.
///
/// The limit is the whole process's and stays raised.
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

/// How many files must be allowed for `connections` beside those that are open.
pub(crate) fn needed(connections: usize) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    connections + open + SPARE
}

/// The kernel said that there may be no more files.
pub(crate) fn is_full(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE)
}
