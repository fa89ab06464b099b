//! The events of a block as columns of bytes, each value as its distance from a guess.
//!
//! The first column has a byte for each event: its kind, and which of its extra byte and
//! its two values differ from the guess. A kind that does not fit there is 0, and is itself the first of the event's
//! values in the third column; version 1 of the format has no such kinds. The second has the times, each as its distance from
//! the event before. The third has the values that differ, each as its distance from the
//! guess. Numbers are of variable length (LEB128), signed ones in zigzag order.
//!
//! The guess is the last event of the same kind, with two exceptions that follow from the path
//! of a packet: the packet that is queued is the one that came in last, and the later stages of
//! requests come in the order in which the requests came in.

use super::PackedEvent;
use super::packed::{KIND_SHIFT, TIME_BITS, TIME_MASK, kind};

/// The bits of a symbol that hold the kind.
const KIND_MASK: u8 = 31;
/// The kind of a symbol whose event has one that does not fit.
const LARGER: u8 = 0;
const EXTRA_DIFFERS: u8 = 1 << 5;
const FIRST_DIFFERS: u8 = 1 << 6;
const SECOND_DIFFERS: u8 = 1 << 7;
const KINDS: usize = 64;
const _: () = assert!((kind::LAST as usize) < KINDS);

/// How many of the latest requests are remembered, for guesses about their later stages.
const KEYS: usize = 256;
/// How far from the expected request another one is searched for.
const SEARCH: usize = 16;

/// The most bytes that an event takes: symbol, time of 48 bits, kind, extra byte, two values.
pub(super) const MAX_EVENT_BYTES: usize = 1 + 7 + 1 + 1 + 5 + 5;
/// Bytes before the columns: the length of the second one.
pub(super) const PREFIX_BYTES: usize = 4;

/// What an event holds besides its time.
#[derive(Clone, Copy, Default)]
struct Fields {
    extra: u8,
    first: u32,
    second: u32,
}

/// What the next event of each kind will probably look like, from those before it in the block.
struct Guesses {
    last: [Fields; KINDS],
    /// The keys of the latest requests that came in.
    keys: [u32; KEYS],
    /// How many came in.
    came_in: usize,
    /// For each kind, which of the requests its next event is about.
    next_key: [usize; KINDS],
}

impl Guesses {
    fn new() -> Self {
        Self {
            last: [Fields::default(); KINDS],
            keys: [0; KEYS],
            came_in: 0,
            next_key: [0; KINDS],
        }
    }

    #[inline]
    fn of(&self, kind: u8) -> Fields {
        let mut guess = self.last[usize::from(kind) % KINDS];
        match kind {
            kind::ENQUEUED => guess.first = self.last[usize::from(kind::PACKET_IN)].first,
            kind::PACKET_OUT
            | kind::SEGMENT_QUEUED
            | kind::SEGMENT_READ
            | kind::SEGMENT_WRITTEN
            | kind::SEGMENT_OUT => {
                let next = self.next_key[usize::from(kind)];
                if next < self.came_in {
                    guess.second = self.keys[next % KEYS];
                }
            }
            _ => {}
        }
        guess
    }

    #[inline]
    fn learn(&mut self, kind: u8, fields: Fields) {
        self.last[usize::from(kind) % KINDS] = fields;
        match kind {
            kind::PACKET_IN | kind::SEGMENT_IN => {
                self.keys[self.came_in % KEYS] = fields.second;
                self.came_in += 1;
            }
            kind::PACKET_OUT
            | kind::SEGMENT_QUEUED
            | kind::SEGMENT_READ
            | kind::SEGMENT_WRITTEN
            | kind::SEGMENT_OUT => {
                let next = &mut self.next_key[usize::from(kind)];
                if *next < self.came_in && self.keys[*next % KEYS] == fields.second {
                    *next += 1;
                } else {
                    self.search(kind, fields.second);
                }
            }
            _ => {}
        }
    }

    /// Continues after the request with this key if it is near the expected one.
    fn search(&mut self, kind: u8, key: u32) {
        let expected = self.next_key[usize::from(kind)].min(self.came_in);
        let oldest = self.came_in.saturating_sub(KEYS);
        let from = expected.saturating_sub(SEARCH).max(oldest);
        let to = (expected + SEARCH).min(self.came_in);
        let found = (from..to).find(|&index| self.keys[index % KEYS] == key);
        let behind = found.map_or(expected.max(oldest), |index| index + 1);
        self.next_key[usize::from(kind)] = behind;
    }
}

/// Encodes the columns; reuses its memory from block to block.
#[derive(Default)]
pub(super) struct Encoder {
    symbols: Vec<u8>,
    times: Vec<u8>,
    values: Vec<u8>,
}

impl Encoder {
    /// Appends the columns of events in order of time, which begin at `first`.
    pub(super) fn encode(&mut self, events: &[PackedEvent], first: u64, out: &mut Vec<u8>) {
        self.symbols.clear();
        self.times.clear();
        self.values.clear();
        let mut guesses = Guesses::new();
        let mut before = first;
        for event in events {
            let [head, values] = event.words();
            let at = head & TIME_MASK;
            put(&mut self.times, at.wrapping_sub(before) & TIME_MASK);
            before = at;
            let kind = (head >> KIND_SHIFT) as u8;
            let fields = Fields {
                extra: (head >> TIME_BITS) as u8,
                first: values as u32,
                second: (values >> 32) as u32,
            };
            let guess = guesses.of(kind);
            let mut symbol = match kind <= KIND_MASK {
                true => kind,
                false => {
                    self.values.push(kind);
                    LARGER
                }
            };
            if fields.extra != guess.extra {
                symbol |= EXTRA_DIFFERS;
                self.values.push(fields.extra);
            }
            if fields.first != guess.first {
                symbol |= FIRST_DIFFERS;
                put(&mut self.values, zigzag(fields.first, guess.first));
            }
            if fields.second != guess.second {
                symbol |= SECOND_DIFFERS;
                put(&mut self.values, zigzag(fields.second, guess.second));
            }
            self.symbols.push(symbol);
            guesses.learn(kind, fields);
        }
        out.extend_from_slice(&(self.times.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.symbols);
        out.extend_from_slice(&self.times);
        out.extend_from_slice(&self.values);
    }
}

/// Appends the events of these columns, which begin at `first`, to `out`. The kinds go up to `last_kind`.
///
/// # Errors
/// The columns are damaged; some events may have been appended already.
pub(super) fn decode(
    columns: &[u8],
    events: usize,
    first: u64,
    last_kind: u8,
    out: &mut Vec<PackedEvent>,
) -> Result<(), &'static str> {
    const TOO_SHORT: &str = "a column of a block is too short";
    let (prefix, rest) = columns
        .split_first_chunk::<PREFIX_BYTES>()
        .ok_or(TOO_SHORT)?;
    let (symbols, rest) = rest.split_at_checked(events).ok_or(TOO_SHORT)?;
    let times = u32::from_le_bytes(*prefix) as usize;
    let (_, values) = rest.split_at_checked(times).ok_or(TOO_SHORT)?;
    let mut times = Bytes { rest, len: times };
    let mut values = Bytes {
        rest: values,
        len: values.len(),
    };
    let mut guesses = Guesses::new();
    let mut at = first;
    out.reserve(events);
    for &symbol in symbols {
        let mut kind = symbol & KIND_MASK;
        if kind == LARGER {
            kind = values.byte().ok_or(TOO_SHORT)?;
        }
        if kind > last_kind {
            return Err("an event of unknown kind");
        }
        let mut fields = guesses.of(kind);
        if symbol & EXTRA_DIFFERS != 0 {
            fields.extra = values.byte().ok_or(TOO_SHORT)?;
        }
        if symbol & FIRST_DIFFERS != 0 {
            fields.first = unzigzag(values.number().ok_or(TOO_SHORT)?, fields.first);
        }
        if symbol & SECOND_DIFFERS != 0 {
            fields.second = unzigzag(values.number().ok_or(TOO_SHORT)?, fields.second);
        }
        at += times.number().ok_or(TOO_SHORT)?;
        if at > TIME_MASK {
            return Err("a time of a block is too large");
        }
        let head = u64::from(kind) << KIND_SHIFT | u64::from(fields.extra) << TIME_BITS | at;
        let values = u64::from(fields.second) << 32 | u64::from(fields.first);
        let event = PackedEvent::from_words([head, values]).ok_or("an event of unknown kind")?;
        out.push(event);
        guesses.learn(kind, fields);
    }
    if times.len == 0 && values.len == 0 {
        Ok(())
    } else {
        Err("a column of a block is too long")
    }
}

/// Appends a number, seven bits per byte, the lowest first.
#[inline]
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The distance from a guess, so that small ones of either sign become small numbers.
#[inline]
const fn zigzag(value: u32, guess: u32) -> u64 {
    let distance = value.wrapping_sub(guess) as i32;
    ((distance << 1) ^ (distance >> 31)) as u32 as u64
}

#[inline]
const fn unzigzag(number: u64, guess: u32) -> u32 {
    let number = number as u32;
    guess.wrapping_add((number >> 1) ^ (number & 1).wrapping_neg())
}

/// What is left of a column.
struct Bytes<'a> {
    /// From the next byte to the end of the block, so possibly beyond the end of the column.
    rest: &'a [u8],
    /// How many of these bytes belong to the column.
    len: usize,
}

impl Bytes<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.len = self.len.checked_sub(1)?;
        Some(byte)
    }

    /// A number of at most 56 bits.
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let word = match self.rest.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => self.last_bytes(),
        };
        // the first byte without the top bit ends the number; there is no branch, since the lengths
        // follow no pattern and it would often be mispredicted
        let ends = !word & 0x8080_8080_8080_8080;
        if ends == 0 {
            return None;
        }
        let bytes = ends.trailing_zeros() as usize / 8 + 1;
        self.len = self.len.checked_sub(bytes)?;
        self.rest = self.rest.get(bytes..)?;
        let word = word & (ends ^ ends.wrapping_sub(1)) & 0x7f7f_7f7f_7f7f_7f7f;
        // closes the gaps between groups of 7, 14 and 28 bits
        let word = (word & 0x7f00_7f00_7f00_7f00) >> 1 | word & 0x007f_007f_007f_007f;
        let word = (word & 0x3fff_0000_3fff_0000) >> 2 | word & 0x0000_3fff_0000_3fff;
        Some((word & 0x0fff_ffff_0000_0000) >> 4 | word & 0x0fff_ffff)
    }

    /// The last few bytes of a block, padded with bytes that do not end a number.
    #[cold]
    fn last_bytes(&self) -> u64 {
        let mut bytes = [0xff; 8];
        bytes[..self.rest.len()].copy_from_slice(self.rest);
        u64::from_le_bytes(bytes)
    }
}
