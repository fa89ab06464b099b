//! Damages valid answers, to reach the inner branches of the parsers.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Bytes and words that have a meaning in one of the protocols.
const WORDS: [&[u8]; 28] = [
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b" ",
    b"0",
    b"-1",
    b"4294967296",
    b"18446744073709551616",
    b"999999999",
    b"ffffffff",
    b"0\r\n\r\n",
    b"END\r\n",
    b"VALUE ",
    b"VA ",
    b"ERROR\r\n",
    b"O0a0b0c0d",
    b"k0042",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"*2\r\n",
    b"$3\r\n",
    b"+OK\r\n",
    b":1\r\n",
    b"\x81",
    b"\xff\xff\xff\xff",
];

/// The longest input; every prefix of it is tested.
const MAX_BYTES: usize = 400;

/// Draws damaged answers, the same ones for the same seed.
pub(crate) struct Mutator {
    rng: Xoshiro256PlusPlus,
}

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n.max(1))
    }

    /// One of `answers`, damaged in up to five ways; one in sixteen is not damaged, but has other
    /// bytes after it.
    pub(crate) fn damaged(&mut self, answers: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = answers[self.below(answers.len())].clone();
        if self.below(16) == 0 {
            let tail = self.below(20);
            let other = &answers[self.below(answers.len())];
            bytes.extend(other.iter().take(tail));
            return bytes;
        }
        for _ in 0..=self.below(5) {
            self.damage(&mut bytes, answers);
        }
        bytes.truncate(MAX_BYTES);
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>, answers: &[Vec<u8>]) {
        let len = bytes.len();
        let at = self.below(len + 1);
        let some = self.below(len - at + 1);
        match self.below(9) {
            // a bit
            0 if at < len => bytes[at] ^= 1 << self.below(8),
            // a byte
            1 if at < len => bytes[at] = self.rng.random(),
            // the end
            2 => bytes.truncate(at),
            // a piece out
            3 => drop(bytes.drain(at..at + some.min(8))),
            // a piece twice
            4 => {
                let piece = bytes[at..at + some.min(40)].to_vec();
                bytes.splice(at..at, piece);
            }
            // the rest of another answer
            5 => {
                let other = answers[self.below(answers.len())].clone();
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            // a word in
            6 | 7 => {
                let word = WORDS[self.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            // a number made another
            _ => self.renumber(bytes, at),
        }
    }

    /// Replaces the digits at or behind `at`.
    fn renumber(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let is_digit = |b: &u8| b.is_ascii_digit();
        let Some(from) = bytes[at..].iter().position(is_digit).map(|n| at + n) else {
            return;
        };
        let digits = bytes[from..].iter().take_while(|b| is_digit(b)).count();
        let number: u64 = match self.below(4) {
            0 => self.rng.random_range(0..32),
            1 => self.rng.random_range(0..2000),
            2 => 1 << self.below(64),
            _ => self.rng.random(),
        };
        bytes.splice(from..from + digits, number.to_string().into_bytes());
    }
}
