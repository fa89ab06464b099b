//! Messages: what is sent, and the check of what comes back.
//!
//! A message begins with the header of sockperf (its `message.h`): a sequence number, flags and
//! the whole length, in network byte order. So sockperf's server can answer it: it clears the
//! client flag in its answer and changes nothing else. Any other echo server returns the
//! message unchanged.

/// Bytes of the header, and so of the shortest message.
pub const LEAST_BYTES: usize = 14;

/// Set by a client; sockperf's server clears it.
const FROM_CLIENT: u8 = 1;
/// The client wants an answer.
const WANTS_ANSWER: u8 = 2;

/// The low byte of the flags.
const FLAGS: usize = 9;

/// The message of one connection; only its number changes.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    bytes: Vec<u8>,
    number: u64,
}

/// What kind of message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The answer to the message under way.
    Answer,
    /// An answer to the earlier message with this number.
    Earlier(u64),
    /// Not an answer to any of our messages.
    Foreign,
}

impl Message {
    /// A message of `size` bytes, at least [`LEAST_BYTES`], with the number `first`.
    pub(crate) fn new(size: usize, first: u64) -> Self {
        let mut bytes: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        bytes[8] = 0;
        bytes[FLAGS] = FROM_CLIENT | WANTS_ANSWER;
        bytes[10..LEAST_BYTES].copy_from_slice(&(size as u32).to_be_bytes());
        let mut message = Self { bytes, number: 0 };
        message.set_number(first);
        message
    }

    fn set_number(&mut self, number: u64) {
        self.number = number;
        self.bytes[..8].copy_from_slice(&number.to_be_bytes());
    }

    /// Gives it the next number.
    pub(crate) fn advance(&mut self) {
        self.set_number(self.number + 1);
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What `answer` is, if this message was sent last. Every byte is compared: a
    /// server that returns anything else is not an echo server.
    pub(crate) fn check(&self, answer: &[u8]) -> Arrived {
        let same_length = answer.len() == self.bytes.len();
        if !same_length
            || answer[8] != self.bytes[8]
            || answer[FLAGS] | FROM_CLIENT != self.bytes[FLAGS]
            || answer[FLAGS + 1..] != self.bytes[FLAGS + 1..]
        {
            return Arrived::Foreign;
        }
        if answer[..8] == self.bytes[..8] {
            return Arrived::Answer;
        }
        let mut number = [0; 8];
        number.copy_from_slice(&answer[..8]);
        match u64::from_be_bytes(number) {
            earlier if earlier < self.number => Arrived::Earlier(earlier),
            _ => Arrived::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_an_answer_with_or_without_the_flag_of_a_client() {
        for size in [LEAST_BYTES, 64, 1024] {
            let mut message = Message::new(size, 7);
            message.advance();
            let mut echo = message.bytes().to_vec();
            assert_eq!(echo.len(), size);
            assert_eq!(&echo[..10], [0, 0, 0, 0, 0, 0, 0, 8, 0, 3]);
            assert_eq!(&echo[10..14], (size as u32).to_be_bytes());
            assert_eq!(message.check(&echo), Arrived::Answer);
            // as sockperf's server answers
            echo[FLAGS] = WANTS_ANSWER;
            assert_eq!(message.check(&echo), Arrived::Answer);
        }
    }

    #[test]
    fn earlier_and_foreign_messages_are_told_apart() {
        let mut message = Message::new(32, 1);
        let first = message.bytes().to_vec();
        message.advance();
        assert_eq!(message.check(&first), Arrived::Earlier(1));
        let mut later = message.clone();
        later.advance();
        assert_eq!(message.check(later.bytes()), Arrived::Foreign);
        assert_eq!(message.check(&message.bytes()[..31]), Arrived::Foreign);
        for at in 8..32 {
            let mut wrong = message.bytes().to_vec();
            wrong[at] ^= 0x40;
            assert_eq!(message.check(&wrong), Arrived::Foreign, "byte {at}");
        }
    }
}
