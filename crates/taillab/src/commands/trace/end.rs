//! Why a recording ended, and whether that is a failure.

use std::io;

use taillab_console::exit::Failure;
use taillab_host::disk;

/// Why a recording ended.
#[derive(Debug)]
pub enum End {
    /// The time is up.
    TimeUp,
    /// The user ended it.
    Interrupted,
    /// The server ended; the text says how.
    ServerGone(String),
    /// The disk is nearly full, with this many bytes left.
    DiskLow(u64),
    /// The file could not be written any more.
    Unwritable(io::Error),
}

impl End {
    /// Why a recording ended, if its file and its disk were not the reason.
    pub fn of(gone: Option<String>, interrupted: bool) -> Self {
        match (gone, interrupted) {
            (Some(line), _) => Self::ServerGone(line),
            (None, true) => Self::Interrupted,
            (None, false) => Self::TimeUp,
        }
    }

    /// The failure that it is, if it is one.
    pub fn failure(self) -> Option<Failure> {
        match self {
            Self::TimeUp | Self::Interrupted => None,
            Self::ServerGone(line) => Some(Failure::failed(line)),
            Self::DiskLow(free_bytes) => Some(Failure::failed(format!(
                "the recording was stopped because the disk has only {} free; what came \
                     before is kept: free \
                     some space, choose another place with -o, or record for a shorter time",
                disk::Bytes(free_bytes)
            ))),
            Self::Unwritable(error) => Some(Failure::failed(format!(
                "cannot write the recording: {error}; what came before is kept: free some \
                     space, or record fewer kinds of disturbance or for a shorter time"
            ))),
        }
    }
}
