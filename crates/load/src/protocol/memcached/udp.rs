//! memcached over UDP, in any dialect.
//!
//! Every datagram begins with a frame header of four big-endian 16-bit numbers:
//! request id, sequence number, datagrams in the message, reserved (memcached,
//! `doc/protocol.txt`, "UDP protocol"). A request must be one datagram. The first byte after
//! the frame tells memcached whether it is the binary protocol or text
//! (`try_read_command_udp`), so all dialects can be sent this way.

use taillab_model::{Operation, Outcome};

use super::dialect::{Dialect, MAX_KEY_BYTES};
use super::{ascii, binary, meta};
use crate::LoadError;
use crate::protocol::store::{Limits, Messages, Store, Stored};
use crate::protocol::{
    Body, DatagramProtocol, MAX_DATAGRAM_BYTES, Malformed, Planned, Response, StoreWorkload,
};

/// Bytes of the frame header.
pub const FRAME_BYTES: usize = 8;

/// memcached in datagrams.
#[derive(Clone, Debug)]
pub struct MemcachedUdp {
    dialect: Dialect,
    store: Store,
}

impl MemcachedUdp {
    /// Prepares the requests of a workload.
    ///
    /// # Errors
    /// As [`super::MemcachedStream::new`], and [`LoadError::ValueTooLarge`] when a set would
    /// not fit one datagram.
    pub fn new(dialect: Dialect, workload: StoreWorkload) -> Result<Self, LoadError> {
        let limit = Self::value_limit(dialect, workload.key_bytes);
        if workload.key_bytes <= MAX_KEY_BYTES && workload.value_bytes > limit {
            return Err(LoadError::ValueTooLarge {
                value_bytes: workload.value_bytes,
                limit,
            });
        }
        let limits = Limits {
            key_bytes: MAX_KEY_BYTES,
            value_bytes: limit,
        };
        // request id (written later), sequence 0, one datagram, reserved
        let frame = [0, 0, 0, 0, 0, 1, 0, 0];
        let store = Store::new(workload, limits, |w| {
            let stream = dialect.messages(w);
            Messages {
                get: stream.get.behind(&frame),
                set: stream.set.behind(&frame),
                hit_bytes: FRAME_BYTES + stream.hit_bytes,
                stored_bytes: FRAME_BYTES + stream.stored_bytes,
            }
        })?;
        Ok(Self { dialect, store })
    }

    /// The largest value that fits one datagram together with a key of this size, or with the
    /// longest key if this one is longer.
    pub fn value_limit(dialect: Dialect, key_bytes: usize) -> usize {
        // four digits, like the largest size
        let workload = StoreWorkload {
            // a longer key is refused later, and must not take its memory here
            key_bytes: key_bytes.min(MAX_KEY_BYTES),
            value_bytes: 1000,
            ..StoreWorkload::default()
        };
        let set = FRAME_BYTES + dialect.messages(&workload).set.bytes.len();
        MAX_DATAGRAM_BYTES.saturating_sub(set - workload.value_bytes)
    }
}

impl Stored for MemcachedUdp {
    fn store(&self) -> &Store {
        &self.store
    }
}

impl DatagramProtocol for MemcachedUdp {
    #[inline]
    fn encode(&mut self, what: Planned, id: u16) -> &[u8] {
        let datagram = self.store.request(what, what.key());
        datagram[..2].copy_from_slice(&id.to_be_bytes());
        datagram
    }

    #[inline]
    fn decode<'a>(&self, datagram: &'a [u8]) -> Result<Response<'a>, Malformed> {
        decode(self.dialect, datagram)
    }

    fn text<'a>(&self, datagram: &'a [u8]) -> &'a [u8] {
        match datagram.split_first_chunk() {
            Some((frame, text)) if place(frame).is_some() => text,
            _ => datagram,
        }
    }

    #[inline]
    fn judge(&self, what: Planned, body: &Body<'_>) -> Option<Outcome> {
        match (what.operation(), body) {
            (_, Body::Error) => Some(Outcome::ServerError),
            (Operation::Get, Body::Miss) => Some(Outcome::Miss),
            (Operation::Get, Body::Value { key, bytes }) => {
                let asked = self.store.asked(what, what.key());
                let named = match self.dialect {
                    Dialect::Binary => *key == asked.tag.to_be_bytes(),
                    Dialect::Ascii | Dialect::Meta => asked.key.is(key),
                };
                (named && *bytes == asked.value_bytes).then_some(Outcome::Hit)
            }
            (Operation::Set, Body::Stored) => Some(Outcome::Stored),
            _ => None,
        }
    }
}

/// Id, sequence and number of datagrams, if this can be a frame header.
#[inline]
fn place(frame: &[u8; FRAME_BYTES]) -> Option<(u16, u16, u16)> {
    let number = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (id, sequence, datagrams) = (number(0), number(2), number(4));
    (sequence < datagrams).then_some((id, sequence, datagrams))
}

/// Decodes one datagram of a response.
///
/// # Errors
/// [`Malformed`] for anything that memcached does not send.
fn decode(dialect: Dialect, datagram: &[u8]) -> Result<Response<'_>, Malformed> {
    let (frame, rest) = datagram
        .split_first_chunk::<FRAME_BYTES>()
        .ok_or(Malformed)?;
    let (id, sequence, datagrams) = place(frame).ok_or(Malformed)?;
    let body = if sequence == 0 {
        let whole = datagrams == 1;
        match dialect {
            Dialect::Ascii => ascii::body(rest, whole)?,
            Dialect::Binary => binary::body(rest, whole)?,
            Dialect::Meta => meta::body(rest, whole)?,
        }
    } else {
        Body::Continuation
    };
    Ok(Response {
        id,
        sequence,
        datagrams,
        body,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::{datagram as answer, in_dialect, protocol};

    #[test]
    fn requests_are_what_memcached_expects() {
        let mut m = protocol().unwrap();
        let get = m.encode(Planned::new(Operation::Get, 42), 0x1234);
        assert_eq!(get, b"\x12\x34\0\0\0\x01\0\0get 0042\r\n");
        let set = m.encode(Planned::new(Operation::Set, 7), 0xffff);
        assert_eq!(set, b"\xff\xff\0\0\0\x01\0\0set 0007 0 0 3\r\nvvv\r\n");
    }

    #[test]
    fn the_largest_value_fits_one_datagram_and_the_next_is_refused() {
        for (key_bytes, dialect) in [16, 64, 250]
            .into_iter()
            .flat_map(|k| Dialect::ALL.map(|d| (k, d)))
        {
            let limit = MemcachedUdp::value_limit(dialect, key_bytes);
            let mut workload = StoreWorkload {
                key_bytes,
                value_bytes: limit,
                ..Default::default()
            };
            let mut m = MemcachedUdp::new(dialect, workload.clone()).unwrap();
            let set = m.encode(Planned::new(Operation::Set, 0), 0);
            assert_eq!(set.len(), MAX_DATAGRAM_BYTES);
            workload.value_bytes = limit + 1;
            let error = MemcachedUdp::new(dialect, workload).unwrap_err();
            assert!(error.to_string().contains(&limit.to_string()), "{error}");
        }
    }

    #[test]
    fn a_key_that_is_too_long_is_what_is_refused() {
        for (key_bytes, dialect) in [251, 2000, usize::MAX]
            .into_iter()
            .flat_map(|k| Dialect::ALL.map(|d| (k, d)))
        {
            let workload = StoreWorkload {
                key_bytes,
                ..StoreWorkload::default()
            };
            let error = MemcachedUdp::new(dialect, workload).unwrap_err();
            assert!(matches!(error, LoadError::KeySize { .. }), "{error}");
        }
    }

    /// The opaque names the key, since the frame's id names the request.
    #[test]
    fn the_other_dialects_name_the_key_too() {
        let (get, set) = (
            Planned::new(Operation::Get, 42),
            Planned::new(Operation::Set, 42),
        );
        let mut meta = in_dialect(Dialect::Meta).unwrap();
        let asked = meta.encode(get, 0x1234);
        assert_eq!(asked, b"\x12\x34\0\0\0\x01\0\0mg 0042 O0000002a k v\r\n");
        let judge = |m: &MemcachedUdp, what, text: &[u8]| {
            let d = answer(9, 0, 1, text);
            m.decode(&d).map(|r| m.judge(what, &r.body))
        };
        let hit = Ok(Some(Outcome::Hit));
        assert_eq!(judge(&meta, get, b"VA 3 O0000002a k0042\r\nvvv\r\n"), hit);
        assert_eq!(
            judge(&meta, get, b"VA 3 O0000002a k0041\r\nvvv\r\n"),
            Ok(None)
        );
        assert_eq!(
            judge(&meta, get, b"EN O0000002a k0042\r\n"),
            Ok(Some(Outcome::Miss))
        );
        assert_eq!(
            judge(&meta, set, b"HD O0000002a\r\n"),
            Ok(Some(Outcome::Stored))
        );
        assert_eq!(
            judge(&meta, get, b"VA 3 O0000002a k0042\r\nvvvv\r\n"),
            Err(Malformed)
        );

        let mut binary = in_dialect(Dialect::Binary).unwrap();
        assert_eq!(binary.encode(get, 7)[8 + 12..8 + 16], [0, 0, 0, 42]);
        let value = |opaque: u8, value: &[u8]| {
            let mut bytes = vec![0x81, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 4 + value.len() as u8];
            bytes.extend_from_slice(&[0, 0, 0, opaque, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend_from_slice(value);
            bytes
        };
        assert_eq!(judge(&binary, get, &value(42, b"vvv")), hit);
        assert_eq!(judge(&binary, get, &value(41, b"vvv")), Ok(None));
        assert_eq!(judge(&binary, get, &value(42, b"vvvv")), Ok(None));
        assert_eq!(
            judge(&binary, get, &value(42, b"vvv")[..27]),
            Err(Malformed)
        );
    }

    #[test]
    fn answers_are_told_apart() {
        let m = protocol().unwrap();
        let get = Planned::new(Operation::Get, 42);
        let set = Planned::new(Operation::Set, 42);
        let judge = |what, text: &[u8]| {
            let d = answer(9, 0, 1, text);
            m.decode(&d).map(|r| m.judge(what, &r.body))
        };
        let hit = b"VALUE 0042 0 3\r\nvvv\r\nEND\r\n";
        assert_eq!(judge(get, hit), Ok(Some(Outcome::Hit)));
        assert_eq!(judge(set, hit), Ok(None));
        let other = b"VALUE 0043 0 3\r\nvvv\r\nEND\r\n";
        assert_eq!(judge(get, other), Ok(None));
        assert_eq!(judge(get, b"END\r\n"), Ok(Some(Outcome::Miss)));
        assert_eq!(judge(set, b"END\r\n"), Ok(None));
        assert_eq!(judge(set, b"STORED\r\n"), Ok(Some(Outcome::Stored)));
        assert_eq!(judge(get, b"STORED\r\n"), Ok(None));
        for refusal in [
            &b"ERROR\r\n"[..],
            b"SERVER_ERROR out of memory\r\n",
            b"CLIENT_ERROR bad data chunk\r\n",
        ] {
            assert_eq!(judge(set, refusal), Ok(Some(Outcome::ServerError)));
        }
        for bad in [
            &b""[..],
            b"VALUE",
            b"VALUE 0042 0 3\r\nvv",
            b"VALUE 0042 0 3\r\nvvvv\r\nEND\r\n",
            b"VALUE 0042 0 x\r\nvvv\r\nEND\r\n",
            b"VALUE  0 3\r\nvvv\r\nEND\r\n",
            b"VALUE 0042 0 9999999999\r\nvvv\r\nEND\r\n",
            b"END\r\nmore",
            b"ERROR",
            b"hello\r\n",
        ] {
            assert_eq!(judge(get, bad), Err(Malformed));
        }
    }

    #[test]
    fn long_answers_say_their_place() {
        let first = answer(1, 0, 2, b"VALUE k 0 2000\r\nvvvv");
        let second = answer(1, 1, 2, b"vvvv\r\nEND\r\n");
        let body = Body::Value {
            key: b"k",
            bytes: 2000,
        };
        assert_eq!(decode(Dialect::Ascii, &first).unwrap().body, body);
        let response = decode(Dialect::Ascii, &second).unwrap();
        assert_eq!((response.sequence, response.datagrams), (1, 2));
        assert_eq!(response.body, Body::Continuation);
        assert_eq!(
            decode(Dialect::Ascii, &answer(1, 2, 2, b"")),
            Err(Malformed)
        );
        assert_eq!(
            decode(Dialect::Ascii, &answer(1, 0, 0, b"END\r\n")),
            Err(Malformed)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            if let Ok(r) = decode(Dialect::Ascii, &bytes) {
                prop_assert!(r.sequence < r.datagrams);
            }
        }

        /// Bytes near a real answer reach deeper into the parser than noise does.
        #[test]
        fn damaged_answers_are_survived(
            damage in proptest::collection::vec((0usize..60, any::<u8>()), 0..4),
            cut in 0usize..60,
        ) {
            let mut d = answer(77, 0, 1, b"VALUE 0042 0 12\r\nvvvvvvvvvvvv\r\nEND\r\n");
            for (at, byte) in damage {
                if let Some(b) = d.get_mut(at) {
                    *b = byte;
                }
            }
            d.truncate(cut);
            if let Ok(Response { body: Body::Value { key, .. }, .. }) = decode(Dialect::Ascii, &d) {
                prop_assert!(!key.is_empty() && key.len() < d.len());
            }
        }
    }
}
