//! Redis: GET and SET in RESP2 (Redis serialization protocol specification, version 2).
//!
//! A RESP answer carries nothing that identifies its request: answers are matched by their
//! order, and a get is checked by the size of its value alone.

use taillab_model::wire::resp::{BULK, ERROR, Length, SIMPLE, length};
use taillab_model::{Operation, Outcome};

use super::scan::{line, value};
use super::store::{Limits, Messages, Store, Stored, Template};
use super::{Ask, Decoded, Planned, Protocol, Question, StoreWorkload, StreamProtocol};
use crate::LoadError;

/// Redis in the table of protocols.
pub const PROTOCOL: Protocol = Protocol {
    name: "redis",
    scheme: "redis",
    label: "redis",
    default_port: 6379,
    pipelines: false,
    asks: &[Ask::Keys],
    stream: |workload| Ok(Box::new(Redis::new(workload.store.clone())?)),
    datagrams: None,
    question: |_, _| Question {
        bytes: b"PING\r\n".to_vec(),
        // an error is an answer too: perhaps it asks for a password
        answer: b"",
    },
};

/// The largest value that is sent; the server's limit is 512 MiB.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// The longest key that is sent.
pub const MAX_KEY_BYTES: usize = 1 << 16;

/// The longest simple string or error.
const MAX_LINE_BYTES: usize = 1 << 16;

/// The longest line with a number: sign, 19 digits, end.
const MAX_NUMBER_BYTES: usize = 24;

/// Bytes of the shortest answer: an empty simple string.
const SHORTEST: usize = 3;

/// Redis on a stream.
#[derive(Clone, Debug)]
pub struct Redis(Store);

impl Redis {
    /// Prepares the gets and sets of a workload.
    ///
    /// # Errors
    /// [`LoadError::Keys`], [`LoadError::KeySize`], [`LoadError::KeyDistribution`],
    /// [`LoadError::GetShare`] or [`LoadError::MessageSize`].
    pub fn new(workload: StoreWorkload) -> Result<Self, LoadError> {
        let limits = Limits {
            key_bytes: MAX_KEY_BYTES,
            value_bytes: MAX_VALUE_BYTES,
        };
        Store::new(workload, limits, messages).map(Self)
    }
}

/// GET and SET as arrays of bulk strings.
fn messages(workload: &StoreWorkload) -> Messages {
    let (key_bytes, value_bytes) = (workload.key_bytes, workload.value_bytes);
    let before = |head: &str| format!("{head}\r\n${key_bytes}\r\n").into_bytes();
    let value = format!("\r\n${value_bytes}\r\n{}\r\n", "v".repeat(value_bytes));
    Messages {
        get: Template::untagged(&before("*2\r\n$3\r\nGET"), key_bytes, b"\r\n"),
        set: Template::untagged(&before("*3\r\n$3\r\nSET"), key_bytes, value.as_bytes()),
        hit_bytes: value.len() - b"\r\n".len(),
        stored_bytes: b"+OK\r\n".len(),
    }
}

impl Stored for Redis {
    fn store(&self) -> &Store {
        &self.0
    }
}

impl StreamProtocol for Redis {
    #[inline]
    fn encode(&mut self, what: Planned, tag: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.request(what, tag));
    }

    #[inline]
    fn decode(&self, what: Planned, _tag: u32, bytes: &[u8]) -> Decoded {
        // the first byte is enough to reject what cannot be an answer
        let max = match (bytes.first(), what.operation()) {
            (None, _) => return Decoded::Partial { at_least: SHORTEST },
            (Some(&BULK), Operation::Get) => MAX_NUMBER_BYTES,
            (Some(&(SIMPLE | ERROR)), _) => MAX_LINE_BYTES,
            _ => return Decoded::Malformed,
        };
        let (text, end) = match line(bytes, 0, max, SHORTEST) {
            Ok(line) => line,
            Err(decoded) => return decoded,
        };
        let whole = |bytes, outcome| Decoded::Answer { bytes, outcome };
        match (text, what.operation()) {
            ([ERROR, ..], _) => whole(end, Outcome::ServerError),
            (b"+OK", Operation::Set) => whole(end, Outcome::Stored),
            ([BULK, text @ ..], _) => {
                let wanted = self.0.workload.value_bytes;
                match length(text) {
                    Some(Length::Null) => whole(end, Outcome::Miss),
                    Some(Length::Of(found)) if found == wanted as u64 => {
                        value(bytes, end + wanted, b"\r\n")
                    }
                    _ => Decoded::Malformed,
                }
            }
            _ => Decoded::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Planner;
    use crate::protocol::keys::KeyDistribution;

    fn small() -> Redis {
        Redis::new(StoreWorkload {
            keys: 100,
            key_bytes: 4,
            value_bytes: 3,
            ..StoreWorkload::default()
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
    fn workloads_that_cannot_be_sent_are_refused() {
        let with = |change: &dyn Fn(&mut StoreWorkload)| {
            let mut w = StoreWorkload::default();
            change(&mut w);
            Redis::new(w)
        };
        assert!(with(&|_| {}).is_ok());
        assert!(with(&|w| w.keys = 0).is_err());
        assert!(with(&|w| w.key_bytes = 3).is_err());
        assert!(with(&|w| w.get_share = -0.1).is_err());
        assert!(with(&|w| w.value_bytes = MAX_VALUE_BYTES + 1).is_err());
        assert!(with(&|w| w.distribution = KeyDistribution::Zipf(0.0)).is_err());
    }
}
