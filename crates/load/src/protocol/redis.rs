//! Redis: GET and SET, or one command of the user's own, in RESP2 (Redis serialization
//! protocol specification, version 2).
//!
//! RESP has nothing that a server gives back with an answer: which request it belongs to
//! follows from its place, and a get is checked by the size of its value alone.

use taillab_model::Operation;

use super::keys::{self, KeyDistribution, KeySet};
use super::scan::{Line, decimal, line};
use super::{Decoded, MessageSizes, Planned, StreamProtocol};
use crate::LoadError;
use crate::engine::Outcome;

/// The largest value; the server's limit is 512 MiB.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// The longest key that is sent.
pub const MAX_KEY_BYTES: usize = 1 << 16;

/// The longest simple string or error.
const MAX_LINE_BYTES: usize = 1 << 16;

/// The longest line with a number: sign, 19 digits, end.
const MAX_NUMBER_BYTES: usize = 24;

/// The most elements of all arrays of an answer together.
const MAX_ELEMENTS: usize = 1 << 20;

/// The shortest element: an empty simple string.
const SHORTEST: usize = 3;

/// What the requests ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisWorkload {
    /// How many keys there are.
    pub keys: u32,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Share of gets; the others are sets.
    pub get_share: f64,
    /// How popular each key is.
    pub distribution: KeyDistribution,
}

impl Default for RedisWorkload {
    /// As memcached's of Tales of the Tail, section 3.1.
    fn default() -> Self {
        Self {
            keys: 10_000,
            key_bytes: 64,
            value_bytes: 1024,
            get_share: 0.9,
            distribution: KeyDistribution::Uniform,
        }
    }
}

impl RedisWorkload {
    /// Checks that the workload can be sent.
    ///
    /// # Errors
    /// [`LoadError::Keys`], [`LoadError::KeySize`], [`LoadError::KeyDistribution`],
    /// [`LoadError::GetShare`] or [`LoadError::MessageSize`].
    pub fn validate(&self) -> Result<(), LoadError> {
        KeySet::validate(self.keys, self.key_bytes, MAX_KEY_BYTES)?;
        self.distribution.validate()?;
        keys::validate_get_share(self.get_share)?;
        if self.value_bytes > MAX_VALUE_BYTES {
            return Err(LoadError::MessageSize {
                what: "a value",
                bytes: self.value_bytes,
                min: 0,
                max: MAX_VALUE_BYTES,
            });
        }
        Ok(())
    }
}

/// Redis on a stream.
#[derive(Clone, Debug)]
pub struct Redis(Asks);

#[derive(Clone, Debug)]
enum Asks {
    Store(Store),
    Command(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Store {
    workload: RedisWorkload,
    keys: KeySet,
    get: Vec<u8>,
    set: Vec<u8>,
    /// Where the key begins in either.
    key_at: usize,
}

/// An array of bulk strings.
fn command(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Redis {
    /// Prepares the gets and sets of a workload.
    ///
    /// # Errors
    /// As [`RedisWorkload::validate`].
    pub fn new(workload: RedisWorkload) -> Result<Self, LoadError> {
        workload.validate()?;
        let key = vec![b'0'; workload.key_bytes];
        let value = vec![b'v'; workload.value_bytes];
        let head = format!("*2\r\n$3\r\nGET\r\n${}\r\n", workload.key_bytes);
        Ok(Self(Asks::Store(Store {
            keys: KeySet::new(workload.keys, workload.key_bytes, MAX_KEY_BYTES)?,
            get: command(&[b"GET", &key]),
            set: command(&[b"SET", &key, &value]),
            key_at: head.len(),
            workload,
        })))
    }

    /// One command with its arguments, again and again; any answer but an error will do.
    ///
    /// # Errors
    /// [`LoadError::RequestText`] when there is no command.
    pub fn command(parts: &[&[u8]]) -> Result<Self, LoadError> {
        if parts.first().is_none_or(|name| name.is_empty()) {
            return Err(LoadError::RequestText {
                what: "Redis command",
                text: String::new(),
                remedy: "name one, such as PING",
            });
        }
        Ok(Self(Asks::Command(command(parts))))
    }
}

impl StreamProtocol for Redis {
    fn plan(&self, n: usize, seed: u64) -> Vec<Planned> {
        match &self.0 {
            Asks::Store(Store { workload: w, .. }) => {
                keys::plan_store(w.keys, w.distribution, w.get_share, n, seed)
            }
            Asks::Command(_) => vec![Planned::new(Operation::Call, 0); n],
        }
    }

    #[inline]
    fn encode(&mut self, what: Planned, _tag: u32, out: &mut Vec<u8>) {
        match &self.0 {
            Asks::Store(store) => {
                let key = store.keys.get(what.key());
                let at = out.len() + store.key_at;
                out.extend_from_slice(match what.operation() {
                    Operation::Set => &store.set,
                    Operation::Get | Operation::Call => &store.get,
                });
                out[at..][..key.len()].copy_from_slice(key);
            }
            Asks::Command(bytes) => out.extend_from_slice(bytes),
        }
    }

    #[inline]
    fn decode(&self, what: Planned, _tag: u32, bytes: &[u8]) -> Decoded {
        let wanted = match (&self.0, what.operation()) {
            (Asks::Store(store), Operation::Get) => Some(store.workload.value_bytes),
            _ => None,
        };
        let stores = matches!(self.0, Asks::Store(_));
        // the kind alone shows what cannot be an answer, however long it would be
        if stores && matches!(bytes.first(), Some(b'*' | b':')) {
            return Decoded::Malformed;
        }
        if let Some(wanted) = wanted
            && bytes.first() == Some(&b'$')
            && let Line::Whole { text, .. } = line(bytes, 0, MAX_NUMBER_BYTES)
            && text != b"$-1"
            && decimal(&text[1..]) != Some(wanted)
        {
            return Decoded::Malformed;
        }
        let (end, kind) = match reply(bytes) {
            Reply::Whole { end, kind } => (end, kind),
            Reply::Partial { at_least } => return Decoded::Partial { at_least },
            Reply::Bad => return Decoded::Malformed,
        };
        let outcome = match (what.operation(), kind) {
            (_, Kind::Error) => Outcome::ServerError,
            (Operation::Get, Kind::Bulk) if stores => Outcome::Hit,
            (Operation::Get, Kind::Null) if stores => Outcome::Miss,
            (Operation::Set, Kind::Ok) if stores => Outcome::Stored,
            _ if stores => return Decoded::Malformed,
            _ => Outcome::Done,
        };
        Decoded::Answer {
            bytes: end,
            outcome,
        }
    }

    /// Those of the commoner operation.
    fn sizes(&self) -> MessageSizes {
        match &self.0 {
            Asks::Store(store) if store.workload.get_share >= 0.5 => {
                let value_bytes = store.workload.value_bytes;
                MessageSizes {
                    request_bytes: store.get.len(),
                    response_bytes: format!("${value_bytes}\r\n\r\n").len() + value_bytes,
                }
            }
            Asks::Store(store) => MessageSizes {
                request_bytes: store.set.len(),
                response_bytes: b"+OK\r\n".len(),
            },
            Asks::Command(bytes) => MessageSizes {
                request_bytes: bytes.len(),
                response_bytes: b"+PONG\r\n".len(),
            },
        }
    }

    fn to_store(&self) -> Vec<Planned> {
        match &self.0 {
            Asks::Store(store) => store.keys.sets(),
            Asks::Command(_) => Vec::new(),
        }
    }
}

/// What an answer is, by its first element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The simple string "OK".
    Ok,
    /// Another simple string, an integer or an array.
    Other,
    Error,
    Bulk,
    /// A null bulk string or array.
    Null,
}

enum Reply {
    Whole { end: usize, kind: Kind },
    Partial { at_least: usize },
    Bad,
}

/// Reads one answer. Arrays, however deep, only add to the elements that are missing, so
/// that neither recursion nor memory is needed.
fn reply(bytes: &[u8]) -> Reply {
    let mut at = 0;
    let mut missing = 1_usize;
    let mut elements = 1_usize;
    let mut first = None;
    while missing > 0 {
        // what is there, and the shortest that the rest can be
        let partial = |have: usize, missing: usize| Reply::Partial {
            at_least: (have + SHORTEST * missing).max(bytes.len() + 1),
        };
        let Some(&kind) = bytes.get(at) else {
            return partial(at, missing);
        };
        let max = match kind {
            b'+' | b'-' => MAX_LINE_BYTES,
            b':' | b'$' | b'*' => MAX_NUMBER_BYTES,
            _ => return Reply::Bad,
        };
        let (text, end) = match line(bytes, at, max) {
            Line::Whole { text, end } => (&text[1..], end),
            Line::Open => return partial(at, missing),
            Line::Bad => return Reply::Bad,
        };
        at = end;
        missing -= 1;
        let kind = match kind {
            b'+' if text == b"OK" => Kind::Ok,
            b'+' => Kind::Other,
            b'-' => Kind::Error,
            b':' if is_integer(text) => Kind::Other,
            b'$' | b'*' if text == b"-1" => Kind::Null,
            b'$' => {
                let Some(size) = decimal(text) else {
                    return Reply::Bad;
                };
                let data_end = at + size;
                at = data_end + 2;
                if bytes.len() < at {
                    return partial(at, missing);
                }
                if &bytes[data_end..at] != b"\r\n" {
                    return Reply::Bad;
                }
                Kind::Bulk
            }
            b'*' => {
                let Some(more) = decimal(text) else {
                    return Reply::Bad;
                };
                elements += more;
                missing += more;
                if elements > MAX_ELEMENTS {
                    return Reply::Bad;
                }
                Kind::Other
            }
            _ => return Reply::Bad,
        };
        first.get_or_insert(kind);
    }
    Reply::Whole {
        end: at,
        kind: first.unwrap_or(Kind::Other),
    }
}

/// A sign where wanted, and 1 to 19 digits.
fn is_integer(text: &[u8]) -> bool {
    let digits = match text {
        [b'+' | b'-', digits @ ..] => digits,
        digits => digits,
    };
    (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Redis {
        Redis::new(RedisWorkload {
            keys: 100,
            key_bytes: 4,
            value_bytes: 3,
            ..RedisWorkload::default()
        })
        .unwrap()
    }

    fn answer(bytes: usize, outcome: Outcome) -> Decoded {
        Decoded::Answer { bytes, outcome }
    }

    #[test]
    fn requests_are_what_redis_expects() {
        let mut redis = small();
        let mut out = Vec::new();
        redis.encode(Planned::new(Operation::Get, 42), 0, &mut out);
        redis.encode(Planned::new(Operation::Set, 7), 0, &mut out);
        let expected = "*2\r\n$3\r\nGET\r\n$4\r\n0042\r\n\
                        *3\r\n$3\r\nSET\r\n$4\r\n0007\r\n$3\r\nvvv\r\n";
        assert_eq!(out, expected.as_bytes());
        assert_eq!(redis.sizes().request_bytes, 23);
        assert_eq!(redis.sizes().response_bytes, 9);
    }

    #[test]
    fn answers_are_told_apart() {
        let redis = small();
        let get = |bytes: &[u8]| redis.decode(Planned::new(Operation::Get, 42), 0, bytes);
        let set = |bytes: &[u8]| redis.decode(Planned::new(Operation::Set, 42), 0, bytes);
        assert_eq!(get(b"$3\r\nv\r\n\r\n+OK\r\n"), answer(9, Outcome::Hit));
        assert_eq!(get(b"$3\r\nv\r\r\n+OK\r\n"), Decoded::Malformed);
        assert_eq!(get(b"$3\r\n\r\nv\r\n+OK\r\n"), answer(9, Outcome::Hit));
        assert_eq!(get(b"$-1\r\n"), answer(5, Outcome::Miss));
        assert_eq!(set(b"+OK\r\n+OK\r\n"), answer(5, Outcome::Stored));
        let error = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
        assert_eq!(set(error), answer(error.len(), Outcome::ServerError));
        assert_eq!(get(b"-ERR\r\n"), answer(6, Outcome::ServerError));
        for bad in [
            &b"$4\r\n"[..],
            b"$99999999999\r\n",
            b"$-2\r\n",
            b"$\r\n",
            b"+OK\r\n",
            b":1\r\n",
            b"*1\r\n",
            b"HTTP/1.1",
            b"_\r\n",
        ] {
            assert_eq!(get(bad), Decoded::Malformed, "{}", bad.escape_ascii());
        }
        for bad in [&b"+PONG\r\n"[..], b"$3\r\nvvv\r\n", b"$-1\r\n"] {
            assert_eq!(set(bad), Decoded::Malformed, "{}", bad.escape_ascii());
        }
        assert_eq!(get(b""), Decoded::Partial { at_least: 3 });
        assert_eq!(get(b"$3\r\n"), Decoded::Partial { at_least: 9 });
        assert_eq!(get(b"$3\r"), Decoded::Partial { at_least: 4 });
    }

    #[test]
    fn any_other_command_may_answer_with_arrays() {
        let mut redis = Redis::command(&[b"PING"]).unwrap();
        let what = redis.plan(1, 0)[0];
        let mut out = Vec::new();
        redis.encode(what, 0, &mut out);
        assert_eq!(out, b"*1\r\n$4\r\nPING\r\n");
        let look = |bytes: &[u8]| redis.decode(what, 0, bytes);
        for whole in [
            &b"+PONG\r\n"[..],
            b":-9223372036854775808\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n*2\r\n:1\r\n$2\r\nab\r\n-in here it is data\r\n",
        ] {
            assert_eq!(look(whole), answer(whole.len(), Outcome::Done));
        }
        assert_eq!(look(b"*3\r\n"), Decoded::Partial { at_least: 13 });
        assert_eq!(look(b"*3\r\n$5\r\n"), Decoded::Partial { at_least: 21 });
        assert_eq!(look(b"-ERR\r\n"), answer(6, Outcome::ServerError));
        let endless = b"*1\r\n".repeat(MAX_ELEMENTS);
        for bad in [
            &endless[..],
            b"*1048577\r\n",
            b"*999999999\r\n",
            b":\r\n",
            b":1x\r\n",
        ] {
            assert_eq!(look(bad), Decoded::Malformed);
        }
        assert!(Redis::command(&[]).is_err());
    }

    #[test]
    fn workloads_that_cannot_be_sent_are_refused() {
        let with = |change: &dyn Fn(&mut RedisWorkload)| {
            let mut w = RedisWorkload::default();
            change(&mut w);
            w.validate()
        };
        assert!(with(&|_| {}).is_ok());
        assert!(with(&|w| w.keys = 0).is_err());
        assert!(with(&|w| w.key_bytes = 3).is_err());
        assert!(with(&|w| w.get_share = -0.1).is_err());
        assert!(with(&|w| w.value_bytes = MAX_VALUE_BYTES + 1).is_err());
        assert!(with(&|w| w.distribution = KeyDistribution::Zipf(0.0)).is_err());
    }
}
