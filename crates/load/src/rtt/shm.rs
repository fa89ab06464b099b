//! Shared memory: a mailbox each way, and both ends spin on it.
//!
//! It takes no system call, and no copy except one at each end: the minimum time that two CPUs of
//! this machine need to pass a message to each other and back.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::error::RttError;
use super::wire::{WaitOutcome, Wire};

/// Looks before a wait returns to the engine.
const LOOKS: u32 = 4096;

/// Two cache lines, which processors fetch together.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Lines([u8; LINES]);

const LINES: usize = 128;

/// A counter with cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// A place for one message, written by one end and read by the other.
///
/// The counter and the message have cache lines of their own, so that neither end takes a line
/// from the other that it does not need. The reader polls the counter while the writer reads where
/// the message goes: with both on one line, a round trip took nearly twice as long.
#[derive(Debug)]
struct Mailbox {
    /// Messages put in so far; only the writer changes it.
    written: Counter,
    lines: UnsafeCell<Box<[Lines]>>,
    /// Bytes of a message.
    size: usize,
}

// SAFETY: the bytes have one writer and one reader, and they take turns: the writer puts the
// next message in only after the other mailbox of the pair has brought the answer to the last
// one, which the reader writes after it has read (release by the store to `written`, acquire by
// the load of it).
unsafe impl Sync for Mailbox {}

impl Mailbox {
    fn new(size: usize) -> Self {
        Self {
            written: Counter::default(),
            // touched now: no page fault later
            lines: UnsafeCell::new(vec![Lines([1; LINES]); size.div_ceil(LINES)].into()),
            size,
        }
    }

    /// Puts a message in; the reader must be done with the last one.
    #[inline]
    fn put(&self, message: &[u8], number: u64) {
        // SAFETY: it is the writer's turn, as above, so that nobody else has a reference.
        let lines = unsafe { &mut *self.lines.get() };
        flat_mut(lines)[..self.size].copy_from_slice(message);
        self.written.0.store(number, Ordering::Release);
    }

    /// The message, once `number` has been put in.
    #[inline]
    fn get(&self, number: u64) -> Option<&[u8]> {
        if self.written.0.load(Ordering::Acquire) < number {
            return None;
        }
        // SAFETY: it is the reader's turn, as above, until it writes its answer; the borrow of
        // both callers ends before that.
        let lines = unsafe { &*self.lines.get() };
        Some(&flat(lines)[..self.size])
    }
}

/// The bytes of all lines.
#[inline]
fn flat(lines: &[Lines]) -> &[u8] {
    // SAFETY: lines are arrays of bytes without padding (their size is their alignment), one behind
    // the other; the borrow is that of the lines.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

/// The same, writable.
#[inline]
fn flat_mut(lines: &mut [Lines]) -> &mut [u8] {
    // SAFETY: as above, and the borrow is the only one.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}

/// The two mailboxes of a connection.
#[derive(Debug)]
pub(super) struct Pair {
    requests: Mailbox,
    answers: Mailbox,
}

impl Pair {
    pub(super) fn new(size: usize) -> Self {
        Self {
            requests: Mailbox::new(size),
            answers: Mailbox::new(size),
        }
    }
}

/// Answers on all connections until told to stop; `begun` counts the messages taken on each
/// connection.
pub(super) fn serve(pairs: &[Arc<Pair>], begun: &mut [u64], stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..LOOKS {
            for (pair, number) in pairs.iter().zip(begun.iter_mut()) {
                if let Some(message) = pair.requests.get(*number + 1) {
                    *number += 1;
                    pair.answers.put(message, *number);
                }
            }
            spin_loop();
        }
    }
}

/// The client's end of some connections.
pub(super) struct Memory {
    pairs: Vec<Arc<Pair>>,
    sent: Vec<u64>,
    waits: Vec<bool>,
}

impl Memory {
    /// The client's end; no other client may use the same pairs meanwhile.
    pub(super) fn new(pairs: Vec<Arc<Pair>>) -> Self {
        // an earlier client may have left a message
        let sent = (pairs.iter())
            .map(|pair| pair.requests.written.0.load(Ordering::Acquire))
            .collect();
        let waits = vec![false; pairs.len()];
        Self { pairs, sent, waits }
    }

    /// Looks for a message this many times.
    #[inline]
    fn within(&mut self, looks: u32) -> Result<WaitOutcome<'_>, RttError> {
        for _ in 0..looks {
            for connection in 0..self.pairs.len() {
                if !self.waits[connection] {
                    continue;
                }
                if let Some(bytes) = self.pairs[connection].answers.get(self.sent[connection]) {
                    self.waits[connection] = false;
                    return Ok(WaitOutcome::Message { connection, bytes });
                }
            }
            spin_loop();
        }
        Ok(WaitOutcome::Nothing)
    }
}

impl Wire for Memory {
    #[inline]
    fn send(&mut self, connection: usize, message: &[u8]) -> Result<(), RttError> {
        self.sent[connection] += 1;
        self.waits[connection] = true;
        self.pairs[connection]
            .requests
            .put(message, self.sent[connection]);
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        self.within(LOOKS)
    }

    #[inline]
    fn look(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        self.within(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_take_turns() {
        let pairs: Vec<_> = (0..2).map(|_| Arc::new(Pair::new(16))).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&pairs, &mut [0, 0], &stop));
            let mut memory = Memory::new(pairs.clone());
            for k in 0..1_000_u32 {
                let connection = (k % 2) as usize;
                let message = [k as u8; 16];
                memory.send(connection, &message).unwrap();
                loop {
                    if let WaitOutcome::Message {
                        connection: found,
                        bytes,
                    } = memory.receive().unwrap()
                    {
                        assert_eq!((found, bytes), (connection, &message[..]));
                        break;
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
