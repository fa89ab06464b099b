//! memcached's ASCII protocol over UDP.
//!
//! Every datagram begins with a frame header of four big-endian 16-bit numbers:
//! request id, sequence number, datagrams in the message, reserved (memcached,
//! `doc/protocol.txt`, "UDP protocol"). A request must be one datagram.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::Operation;

use super::{Body, DatagramProtocol, Malformed, MessageSizes, Planned, Response};
use crate::LoadError;
use crate::engine::Outcome;

/// Bytes of the frame header.
pub const FRAME_BYTES: usize = 8;

/// Largest UDP payload that Ethernet carries unfragmented over IPv4. A fragmented
/// request would be several packets at T1.
pub const MAX_DATAGRAM_BYTES: usize = 1500 - 20 - 8;

/// memcached's limit (`KEY_MAX_LENGTH`).
pub const MAX_KEY_BYTES: usize = 250;

/// What the requests ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct MemcachedWorkload {
    /// Keys, drawn uniformly.
    pub keys: u32,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Share of gets; the others are sets.
    pub get_share: f64,
}

impl Default for MemcachedWorkload {
    /// The memcached workload of Tales of the Tail, section 3.1.
    fn default() -> Self {
        Self {
            keys: 10_000,
            key_bytes: 64,
            value_bytes: 1024,
            get_share: 0.9,
        }
    }
}

impl MemcachedWorkload {
    /// The largest value that fits one datagram together with a key of `key_bytes`.
    pub fn value_limit(key_bytes: usize) -> usize {
        // the size itself takes at most 4 digits
        let frame = FRAME_BYTES + b"set ".len() + key_bytes + b" 0 0 1234\r\n\r\n".len();
        MAX_DATAGRAM_BYTES.saturating_sub(frame)
    }

    /// Checks that the workload can be sent.
    ///
    /// # Errors
    /// [`LoadError::Keys`], [`LoadError::KeySize`], [`LoadError::ValueTooLarge`] or
    /// [`LoadError::GetShare`].
    pub fn validate(&self) -> Result<(), LoadError> {
        let keys = self.keys;
        if keys == 0 || keys > Planned::MAX_KEYS {
            return Err(LoadError::Keys {
                keys,
                max: Planned::MAX_KEYS,
            });
        }
        let min = (keys - 1).checked_ilog10().unwrap_or(0) as usize + 1;
        if self.key_bytes < min || self.key_bytes > MAX_KEY_BYTES {
            return Err(LoadError::KeySize {
                key_bytes: self.key_bytes,
                keys,
                min,
                max: MAX_KEY_BYTES,
            });
        }
        let limit = Self::value_limit(self.key_bytes);
        if self.value_bytes > limit {
            return Err(LoadError::ValueTooLarge {
                value_bytes: self.value_bytes,
                limit,
            });
        }
        if !(0.0..=1.0).contains(&self.get_share) {
            return Err(LoadError::GetShare(self.get_share));
        }
        Ok(())
    }
}

/// The protocol with its workload: prepared keys and request templates.
#[derive(Clone, Debug)]
pub struct Memcached {
    workload: MemcachedWorkload,
    /// All keys, one after the other.
    keys: Vec<u8>,
    get: Vec<u8>,
    set: Vec<u8>,
}

/// Where the key begins in both templates.
const KEY_AT: usize = FRAME_BYTES + 4;

impl Memcached {
    /// Prepares the requests of a workload.
    ///
    /// # Errors
    /// As [`MemcachedWorkload::validate`].
    pub fn new(workload: MemcachedWorkload) -> Result<Self, LoadError> {
        workload.validate()?;
        let width = workload.key_bytes;
        let mut keys = Vec::with_capacity(workload.keys as usize * width);
        for n in 0..workload.keys {
            keys.extend_from_slice(format!("{n:0width$}").as_bytes());
        }
        // request id (patched), sequence 0, one datagram, reserved
        let frame = [0, 0, 0, 0, 0, 1, 0, 0];
        let blank_key = vec![b'0'; width];
        let get = [&frame[..], b"get ", &blank_key, b"\r\n"].concat();
        let size = format!(" 0 0 {}\r\n", workload.value_bytes);
        let value = vec![b'v'; workload.value_bytes];
        let set = [
            &frame[..],
            b"set ",
            &blank_key,
            size.as_bytes(),
            &value,
            b"\r\n",
        ]
        .concat();
        Ok(Self {
            workload,
            keys,
            get,
            set,
        })
    }

    /// The workload that it was made for.
    pub fn workload(&self) -> &MemcachedWorkload {
        &self.workload
    }

    fn key(&self, n: u32) -> &[u8] {
        let width = self.workload.key_bytes;
        &self.keys[n as usize * width..][..width]
    }
}

impl DatagramProtocol for Memcached {
    fn plan(&self, n: usize, seed: u64) -> Vec<Planned> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut draw = || {
            let operation = if rng.random::<f64>() < self.workload.get_share {
                Operation::Get
            } else {
                Operation::Set
            };
            Planned::new(operation, rng.random_range(0..self.workload.keys))
        };
        std::iter::repeat_with(&mut draw).take(n).collect()
    }

    #[inline]
    fn encode(&mut self, what: Planned, id: u16) -> &[u8] {
        let width = self.workload.key_bytes;
        let key = &self.keys[what.key() as usize * width..][..width];
        let datagram = match what.operation() {
            Operation::Get | Operation::Call => &mut self.get,
            Operation::Set => &mut self.set,
        };
        datagram[..2].copy_from_slice(&id.to_be_bytes());
        datagram[KEY_AT..KEY_AT + width].copy_from_slice(key);
        datagram
    }

    #[inline]
    fn decode<'a>(&self, datagram: &'a [u8]) -> Result<Response<'a>, Malformed> {
        decode(datagram)
    }

    #[inline]
    fn judge(&self, what: Planned, body: &Body<'_>) -> Option<Outcome> {
        match (what.operation(), body) {
            (_, Body::Error) => Some(Outcome::ServerError),
            (Operation::Get, Body::Miss) => Some(Outcome::Miss),
            (Operation::Get, Body::Value { key, .. }) => {
                (*key == self.key(what.key())).then_some(Outcome::Hit)
            }
            (Operation::Set, Body::Stored) => Some(Outcome::Stored),
            _ => None,
        }
    }

    /// Those of the commoner operation.
    fn sizes(&self) -> MessageSizes {
        let MemcachedWorkload {
            key_bytes,
            value_bytes,
            get_share,
            ..
        } = self.workload;
        let size = format!(" 0 {value_bytes}\r\n");
        let value = b"VALUE ".len() + key_bytes + size.len() + value_bytes + b"\r\nEND\r\n".len();
        if get_share >= 0.5 {
            MessageSizes {
                request_bytes: self.get.len(),
                response_bytes: FRAME_BYTES + value,
            }
        } else {
            MessageSizes {
                request_bytes: self.set.len(),
                response_bytes: FRAME_BYTES + b"STORED\r\n".len(),
            }
        }
    }

    fn to_store(&self) -> Vec<Planned> {
        let keys = 0..self.workload.keys;
        keys.map(|key| Planned::new(Operation::Set, key)).collect()
    }
}

/// Reads one datagram of an answer.
///
/// # Errors
/// [`Malformed`] for anything that memcached does not send.
pub fn decode(datagram: &[u8]) -> Result<Response<'_>, Malformed> {
    let (frame, text) = datagram
        .split_first_chunk::<FRAME_BYTES>()
        .ok_or(Malformed)?;
    let number = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (id, sequence, datagrams) = (number(0), number(2), number(4));
    if sequence >= datagrams {
        return Err(Malformed);
    }
    let body = if sequence == 0 {
        first_body(text, datagrams == 1)?
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

/// Reads the text of an answer's first datagram, which is `whole` if it is the only one.
fn first_body(text: &[u8], whole: bool) -> Result<Body<'_>, Malformed> {
    if let Some(rest) = text.strip_prefix(b"VALUE ") {
        return value_body(rest, whole);
    }
    match text {
        b"END\r\n" => return Ok(Body::Miss),
        b"STORED\r\n" => return Ok(Body::Stored),
        _ => {}
    }
    const REFUSALS: [&[u8]; 6] = [
        b"ERROR",
        b"SERVER_ERROR",
        b"CLIENT_ERROR",
        b"NOT_STORED",
        b"NOT_FOUND",
        b"EXISTS",
    ];
    let refused = REFUSALS.iter().any(|word| text.starts_with(word));
    if refused && text.ends_with(b"\r\n") {
        Ok(Body::Error)
    } else {
        Err(Malformed)
    }
}

/// Reads `<key> <flags> <bytes>\r\n<data>\r\nEND\r\n`.
fn value_body(rest: &[u8], whole: bool) -> Result<Body<'_>, Malformed> {
    let until = |bytes: &[u8], stop: u8| bytes.iter().position(|&b| b == stop).ok_or(Malformed);
    let line_end = until(rest, b'\r')?;
    let (line, rest) = rest.split_at(line_end);
    let data = rest.strip_prefix(b"\r\n").ok_or(Malformed)?;
    let key_end = until(line, b' ')?;
    let (key, numbers) = (&line[..key_end], &line[key_end + 1..]);
    let flags_end = until(numbers, b' ')?;
    decimal(&numbers[..flags_end])?;
    let bytes = decimal(&numbers[flags_end + 1..])?;
    if key.is_empty() {
        return Err(Malformed);
    }
    const TRAILER: &[u8] = b"\r\nEND\r\n";
    if whole && (data.len() != bytes + TRAILER.len() || !data.ends_with(TRAILER)) {
        return Err(Malformed);
    }
    Ok(Body::Value { key, bytes })
}

/// A decimal number of at most nine digits: no value of memcached is larger.
fn decimal(digits: &[u8]) -> Result<usize, Malformed> {
    if digits.is_empty() || digits.len() > 9 {
        return Err(Malformed);
    }
    digits.iter().try_fold(0, |n, &d| match d {
        b'0'..=b'9' => Ok(n * 10 + usize::from(d - b'0')),
        _ => Err(Malformed),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(id: u16, sequence: u16, datagrams: u16, text: &[u8]) -> Vec<u8> {
        let mut d = Vec::new();
        for n in [id, sequence, datagrams, 0] {
            d.extend_from_slice(&n.to_be_bytes());
        }
        d.extend_from_slice(text);
        d
    }

    #[test]
    fn requests_are_what_memcached_expects() {
        let mut m = Memcached::new(MemcachedWorkload {
            keys: 100,
            key_bytes: 4,
            value_bytes: 3,
            get_share: 0.5,
        })
        .unwrap();
        let get = m.encode(Planned::new(Operation::Get, 42), 0x1234);
        assert_eq!(get, b"\x12\x34\0\0\0\x01\0\0get 0042\r\n");
        let set = m.encode(Planned::new(Operation::Set, 7), 0xffff);
        assert_eq!(set, b"\xff\xff\0\0\0\x01\0\0set 0007 0 0 3\r\nvvv\r\n");
    }

    #[test]
    fn the_largest_value_fits_one_datagram_and_the_next_is_refused() {
        for key_bytes in [16, 64, 250] {
            let limit = MemcachedWorkload::value_limit(key_bytes);
            let workload = MemcachedWorkload {
                key_bytes,
                value_bytes: limit,
                ..Default::default()
            };
            let mut m = Memcached::new(workload.clone()).unwrap();
            let set = m.encode(Planned::new(Operation::Set, 0), 0);
            assert!(set.len() <= MAX_DATAGRAM_BYTES && set.len() + 1 >= MAX_DATAGRAM_BYTES);
            let error = Memcached::new(MemcachedWorkload {
                value_bytes: limit + 1,
                ..workload
            })
            .unwrap_err();
            assert!(error.to_string().contains(&limit.to_string()), "{error}");
        }
    }

    #[test]
    fn workloads_that_cannot_be_sent_are_refused() {
        let ok = MemcachedWorkload::default();
        let with = |change: &dyn Fn(&mut MemcachedWorkload)| {
            let mut w = ok.clone();
            change(&mut w);
            w.validate()
        };
        assert!(ok.validate().is_ok());
        assert!(with(&|w| w.keys = 0).is_err());
        assert!(with(&|w| w.key_bytes = 3).is_err());
        assert!(with(&|w| w.key_bytes = 251).is_err());
        assert!(with(&|w| w.get_share = 1.1).is_err());
        assert!(with(&|w| w.get_share = f64::NAN).is_err());
        assert!(with(&|w| (w.keys, w.key_bytes) = (1, 1)).is_ok());
        assert!(with(&|w| (w.keys, w.key_bytes) = (10_001, 4)).is_err());
    }

    #[test]
    fn the_plan_is_seeded_and_has_the_mix_wanted() {
        let m = Memcached::new(MemcachedWorkload::default()).unwrap();
        let plan = m.plan(100_000, 1);
        assert_eq!(plan, m.plan(100_000, 1));
        assert_ne!(plan, m.plan(100_000, 2));
        let gets = plan
            .iter()
            .filter(|p| p.operation() == Operation::Get)
            .count();
        // five standard deviations of a binomial(100,000, 0.9)
        assert!((gets as f64 - 90_000.0).abs() < 5.0 * 94.9, "{gets}");
        let mut seen = vec![false; 10_000];
        for p in &plan {
            seen[p.key() as usize] = true;
        }
        assert!(seen.iter().filter(|&&s| s).count() > 9_990);
    }

    #[test]
    fn answers_are_told_apart() {
        let m = Memcached::new(MemcachedWorkload {
            keys: 100,
            key_bytes: 4,
            value_bytes: 3,
            get_share: 0.5,
        })
        .unwrap();
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
        assert_eq!(decode(&first).unwrap().body, body);
        let response = decode(&second).unwrap();
        assert_eq!((response.sequence, response.datagrams), (1, 2));
        assert_eq!(response.body, Body::Continuation);
        assert_eq!(decode(&answer(1, 2, 2, b"")), Err(Malformed));
        assert_eq!(decode(&answer(1, 0, 0, b"END\r\n")), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            if let Ok(r) = decode(&bytes) {
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
            if let Ok(Response { body: Body::Value { key, .. }, .. }) = decode(&d) {
                prop_assert!(!key.is_empty() && key.len() < d.len());
            }
        }
    }
}
