//! Why a file cannot be read as a recording, or not completely.

use std::fmt;
use std::io;

use thiserror::Error;

use super::VERSION;
use crate::Monotonic;

/// Why a file cannot be read as a recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// Reading failed.
    #[error("cannot read the recorded stream: {0}")]
    Io(#[from] io::Error),
    /// It does not begin as a recording does.
    #[error("not a taillab recording (it does not begin with `taillabE`): check the path")]
    NotARecording,
    /// It has another format version.
    #[error(
        "the recorded stream has format version {found}, this taillab reads versions up to {VERSION}: \
         use the taillab that recorded it, or record again"
    )]
    OtherVersion {
        /// The file's version.
        found: u32,
    },
    /// It ends within its first bytes.
    #[error(
        "the recorded stream is cut off: no event could be read; copy it again, or record again"
    )]
    Truncated,
    /// A part of it cannot be read; [`super::Recording::recover`] gives the rest.
    #[error("{0}")]
    Incomplete(Damage),
}

/// What could not be read of a recording, and what that means for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What was wrong first.
    pub what: &'static str,
    /// Where that was, in bytes from the file's beginning.
    pub at_byte: u64,
    /// The file's end is missing: nothing is known of what came after the last event.
    pub cut_off: bool,
    /// Events that could be read.
    pub read: u64,
    /// Stretches of time whose events are gone, in the order in which they were found.
    pub gaps: Vec<Gap>,
}

/// A stretch of time of one CPU whose events could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The CPU.
    pub cpu: u16,
    /// The last event before, or the recording's base.
    pub after: Monotonic,
    /// The first event after; `None` where none follows.
    pub until: Option<Monotonic>,
    /// How many events are gone.
    pub events: u64,
}

impl Damage {
    /// Events that are known to be gone.
    pub fn lost(&self) -> u64 {
        Gap::events_of(&self.gaps)
    }
}

impl Gap {
    /// The number of events in all these gaps, saturating: a damaged file may claim anything.
    pub(super) fn events_of(gaps: &[Self]) -> u64 {
        gaps.iter()
            .fold(0, |sum, gap| gap.events.saturating_add(sum))
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            at_byte,
            read,
            ..
        } = self;
        if self.cut_off {
            write!(f, "the recorded stream is cut off: ")?;
        } else {
            write!(
                f,
                "the recorded stream is damaged at byte {at_byte} ({what}): "
            )?;
        }
        match (read, self.lost()) {
            (_, 0) => write!(f, "{read} events could be read")?,
            (_, lost) => write!(f, "{read} events could be read, {lost} are lost")?,
        }
        let longest = |gap: &Gap| Some(gap.until?.saturating_since(gap.after));
        if let Some(longest) = self.gaps.iter().filter_map(longest).max() {
            write!(f, ", the longest gap is {longest}")?;
        }
        write!(f, "; copy it again, or record again")
    }
}
