//! The dialects of memcached.

use super::{ascii, binary, meta};
use crate::protocol::StoreWorkload;
use crate::protocol::store::Messages;

/// memcached's limit (`KEY_MAX_LENGTH`).
pub const MAX_KEY_BYTES: usize = 250;

/// The largest value on a stream; the server's own limit (`-I`) is 1 MiB by default.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// A form of memcached's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `get`, `set`: the text protocol.
    Ascii,
    /// The binary protocol; a response names its request (opaque).
    Binary,
    /// `mg`, `ms`: the meta commands, with opaque.
    Meta,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 3] = [Self::Ascii, Self::Binary, Self::Meta];

    /// Its prepared requests.
    pub(super) fn messages(self, workload: &StoreWorkload) -> Messages {
        let (key_bytes, value_bytes) = (workload.key_bytes, workload.value_bytes);
        match self {
            Self::Ascii => ascii::messages(key_bytes, value_bytes),
            Self::Binary => binary::messages(key_bytes, value_bytes),
            Self::Meta => meta::messages(key_bytes, value_bytes),
        }
    }
}
