//! The grammar of a protocol: what follows each part of a message.

use std::fmt;

use crate::commands::{Command, Vocabulary, known_beginning};

/// Which way a stream goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the client.
    #[default]
    Requests,
    /// From the server.
    Responses,
}

/// What a request says about its response, and a response about its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Opcode and opaque of memcached's binary protocol: the same in both directions.
    pub tag: Option<u64>,
    /// Of a request: there may be no response.
    pub quiet: bool,
    /// Of a request: there is no response.
    pub silent: bool,
    /// Of a request: its response has no body, whatever its head says (`HEAD`).
    pub head_only: bool,
    /// Of a request: what it asks for, if that has a name.
    pub command: Option<Command>,
}

/// The end of a message is not known: no later message is found until the parser is restarted where
/// one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// What follows a line, or a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another line.
    Line,
    /// This many bytes, and then another line.
    Body(u64),
    /// This many bytes, and then the message ends.
    LastBody(u64),
    /// The message ends here.
    End,
    /// What came was not the message, which is still to come: an interim response, or what the server sent
    /// unasked.
    Anew,
}

/// What follows each part of a message, in one direction of a connection.
pub(super) trait Grammar: fmt::Debug + Send {
    /// Forgets the last message and begins one with this byte. Returns the length of its header if
    /// it begins with a header of a fixed length instead of a line.
    fn begin(&mut self, first: u8) -> Option<usize>;

    /// What follows a header.
    fn header(&mut self, _header: &[u8], _message: &mut Message) -> Result<Next, Lost> {
        Err(Lost)
    }

    /// What follows a line, which is `cut` if it is longer than what is kept of one.
    fn line(&mut self, line: &[u8], cut: bool, message: &mut Message) -> Result<Next, Lost>;

    /// What follows a body that is not the message's last.
    fn after_body(&mut self) -> Next {
        Next::Line
    }

    /// Whether a packet that begins like this where a body should begin is the next response. That is possible
    /// only where a response may state the length of a body that it does not have.
    fn begins_response(&self, _content: &[u8]) -> bool {
        false
    }

    /// Whether a packet of the server that begins like this asks for the rest of the request.
    fn asks_for_rest(&self, _content: &[u8]) -> bool {
        false
    }

    /// Whether what has come of the message begins as no other content does.
    fn is_unmistakable(&self) -> bool {
        false
    }

    /// Whether the parser is lost because from here on the server sends without being asked, or because another
    /// protocol follows.
    fn sends_unasked(&self) -> bool {
        false
    }

    /// Blanks what is not needed of a header, or of its beginning, and what is no header. What happens to a
    /// byte must not depend on later bytes.
    ///
    /// Called before [`Grammar::header`], which must return the same for the redacted header.
    fn redact_header(&self, _header: &mut [u8]) {}

    /// Blanks what is not needed of the next line, or of its beginning. What happens to a byte must
    /// not depend on later bytes, so that a line in two packets is redacted like one in a single
    /// packet.
    ///
    /// Called before [`Grammar::line`], which must return the same for the redacted line.
    fn redact_line(&self, line: &mut [u8]);
}

/// The replacement for each byte that is not needed. It occurs in no keyword, number or separator
/// of a grammar.
pub const BLANK: u8 = b'x';

/// Blanks text. A carriage return remains, since it may end the line.
pub(super) fn blank(text: &mut [u8]) {
    blank_unless(text, |_| false);
}

/// Blanks the bytes that are not `kept`.
pub(super) fn blank_unless(text: &mut [u8], kept: impl Fn(u8) -> bool) {
    for byte in text.iter_mut().filter(|byte| **byte != b'\r') {
        if !kept(*byte) {
            *byte = BLANK;
        }
    }
}

/// Keeps the longest prefix that a word shares with one of the `keywords`, in upper or lower case,
/// and blanks the rest.
pub(super) fn keep_keyword(word: &mut [u8], keywords: &[&[u8]]) {
    let alike = |keyword: &&[u8]| {
        let pairs = word.iter().zip(keyword.iter());
        pairs.take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count()
    };
    let kept = keywords.iter().map(alike).max().unwrap_or(0);
    blank(&mut word[kept..]);
}

/// Keeps the beginning of a word that names of a protocol have, and blanks the rest, so that no name is made of it that
/// was none: a name may end with the letter of [`BLANK`].
pub(super) fn keep_command(word: &mut [u8], of: &Vocabulary) {
    let known = known_beginning(word, of);
    blank(&mut word[known..]);
    if known > 0
        && let Some(next) = word.get_mut(known).filter(|byte| **byte == BLANK)
    {
        *next = NO_KIND;
    }
}

/// Replaces a byte that would give what is kept a meaning.
pub(super) const NO_KIND: u8 = b'?';

/// The words of a line, for changing them, each with its place.
pub(super) fn words_mut(line: &mut [u8]) -> impl Iterator<Item = (usize, &mut [u8])> {
    line.split_mut(|&byte| byte == b' ')
        .filter(|word| !word.is_empty())
        .enumerate()
}
