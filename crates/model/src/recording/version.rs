//! The versions of the file format, and what earlier ones mean in the latest.
//!
//! Version 1 has no numbers of connections, and says of a client 8 bits of a hash of its address, and its port. Both
//! together take the place of the number, where they stay: its events are those of version 2, except that none announces
//! whose a number is.

use super::packed::kind;
use super::{RecordingContext, VERSION};

/// The version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u32);

impl Version {
    /// The version with this number, if it can be read.
    pub(super) fn of(number: u32) -> Option<Self> {
        (1..=VERSION).contains(&number).then_some(Self(number))
    }

    /// The last kind of event that a file may have.
    pub(super) const fn last_kind(self) -> u8 {
        match self.0 {
            1 => kind::LAST_OF_VERSION_1,
            _ => kind::LAST,
        }
    }

    /// A context as the latest version has it.
    pub(super) fn migrate(self, mut context: RecordingContext) -> RecordingContext {
        context.hashed_clients |= self.0 == 1;
        context
    }
}
