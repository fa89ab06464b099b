//! Counts the messages of a connection that is not followed, to find a moment at which nothing is owed.
//!
//! After packets were missed, the server still owes an unknown number of responses to requests that came
//! before. It cannot answer what it has not read: whenever it has sent more responses than it has read new
//! requests, the difference is owed to the old ones. If that difference is as great at many moments, and
//! never greater, it is all that was owed: at these moments, the server had answered everything. Otherwise
//! it would have had the same number of requests in hand each time, and never fewer.

use std::collections::VecDeque;

use super::framing::{Direction, Framing, Message, Parser};
use super::packet::NewBytes;
use super::parts::Position;

/// This many moments are not a coincidence.
const MOMENTS: u32 = 16;

/// More requests than this are never in hand.
const MOST_UNREAD: usize = 1 << 16;

/// The messages since packets were missed.
pub(super) struct Count {
    responses: Parser,
    /// Where the requests end that came and have not been read.
    unread: VecDeque<Position>,
    came: u64,
    read: u64,
    answered: u64,
    /// The responses to earlier requests: at least this many.
    owed: u64,
    /// At how many moments, with more requests read each time, there were this many.
    moments: u32,
    read_then: u64,
}

impl Count {
    /// Begins to count; `None` where the content says nothing about messages.
    pub(super) fn new(framing: Framing) -> Option<Box<Self>> {
        Some(Box::new(Self {
            responses: Parser::new(framing, Direction::Responses)?,
            unread: VecDeque::new(),
            came: 0,
            read: 0,
            answered: 0,
            owed: 0,
            moments: 0,
            read_then: 0,
        }))
    }

    /// Begins again: what has come and is not answered is one of the earlier requests.
    fn begin_again(&mut self) {
        self.responses.restart();
        self.unread.clear();
        (self.came, self.read, self.answered, self.owed) = (0, 0, 0, 0);
        (self.moments, self.read_then) = (0, 0);
    }

    /// A request has come that ends here. Returns whether such requests can be counted.
    pub(super) fn came(&mut self, request: Message, end: Position) -> bool {
        if request.silent {
            return true;
        }
        self.came += 1;
        self.unread.push_back(end);
        // otherwise it may have no response, or one whose end depends on what it answers
        !request.quiet && !request.head_only && self.unread.len() < MOST_UNREAD
    }

    /// The server, which has read up to `read`, sends this.
    pub(super) fn left(&mut self, new: NewBytes<'_>, read: Position) {
        let NewBytes {
            hole,
            recorded,
            bytes,
        } = new;
        if hole > 0 {
            self.begin_again();
        }
        while self.unread.front().is_some_and(|end| *end <= read) {
            self.unread.pop_front();
            self.read += 1;
        }
        let mut at = 0;
        while at < bytes {
            let rest = recorded.get(at as usize..).unwrap_or_default();
            if rest.is_empty()
                && let Some(length) = self.responses.next_length()
                && length.get() <= bytes - at
            {
                // whole messages at once: there may be billions
                let messages = (bytes - at) / length;
                at += messages * length.get();
                self.answered(messages.into());
                continue;
            }
            let Ok((taken, message)) = self.responses.read_on(rest, u64::from(bytes - at)) else {
                return self.begin_again();
            };
            at += taken as u32;
            if message.is_some() {
                self.answered(1);
            }
        }
    }

    fn answered(&mut self, messages: u64) {
        self.answered += messages;
        let owed = self.answered.saturating_sub(self.read);
        if owed > self.owed {
            (self.owed, self.moments) = (owed, 0);
        }
        let all = self.answered == self.read + self.owed;
        if all && (self.moments == 0 || self.read > self.read_then) {
            self.moments += 1;
            self.read_then = self.read;
        }
    }

    /// Whether everything that came has been answered.
    pub(super) fn owes_nothing(&self) -> bool {
        let all = self.answered == self.came + self.owed;
        all && self.moments >= MOMENTS && self.responses.is_at_start()
    }
}
