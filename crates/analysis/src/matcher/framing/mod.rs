//! Where requests and responses end in the two byte streams of a connection.
//!
//! A [`Parser`] reads one direction, piece by piece, and says where each message ends. It needs
//! only the bytes that say how long a message is. It knows the length of a body, which can then be
//! skipped, so the beginning of each packet is enough. It copes with any input: if it does not
//! understand the bytes, it returns [`Lost`], and has to be restarted where a message begins. It
//! holds at most one line of 1,024 bytes.
//!
//! | framing | grammar | no boundary is known after |
//! |---|---|---|
//! | [`Framing::FixedLength`] | all requests have one length, and all responses have one | |
//! | [`Framing::Http1`] | RFC 9112: head, then `Content-Length` or chunks | a body that ends with the connection, `CONNECT`, an upgrade |
//! | [`Framing::Memcached`] | text, meta and binary (`doc/protocol*.txt` of memcached) | a meta command with flag q |
//! | [`Framing::Resp`] | RESP2 and RESP3, inline commands | a subscription, `MONITOR`, streamed types |

mod grammar;
mod http;
mod memcached;
mod resp;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

pub use grammar::{BLANK, Direction, Lost, Message};
use grammar::{Grammar, Next};

/// Defines [`Framing`], with a variant for each row: its name in a recording, and its grammar.
macro_rules! framings {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal, $grammar:ty;)+) => {
        /// How the requests of a connection are separated.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Framing {
            /// By the turns that client and server take: what the client sends in its turn is one
            /// request.
            #[default]
            OneInTurn,
            /// Each request and each response has the same length.
            FixedLength {
                /// Bytes of a request.
                request: NonZeroU32,
                /// Bytes of a response.
                response: NonZeroU32,
            },
            $($(#[$doc])+ $variant,)+
        }

        /// The framings by content, and their names.
        const BY_CONTENT: &[(Framing, &str)] = &[$((Framing::$variant, $name)),+];

        impl Framing {
            /// How messages of one direction end; `None` for [`Framing::OneInTurn`].
            fn ends(self, direction: Direction) -> Option<Ends> {
                match self {
                    Self::OneInTurn => None,
                    Self::FixedLength { request, response } => Some(Ends::Fixed(match direction {
                        Direction::Requests => request,
                        Direction::Responses => response,
                    })),
                    $(Self::$variant => {
                        Some(Ends::ByContent(Box::new(<$grammar>::new(direction))))
                    })+
                }
            }
        }

        impl fmt::Display for Framing {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::OneInTurn => f.write_str("one-in-turn"),
                    Self::FixedLength { request, response } => {
                        write!(f, "fixed:{request}:{response}")
                    }
                    $(Self::$variant => f.write_str($name),)+
                }
            }
        }
    };
}

framings! {
    /// HTTP/1.0 and HTTP/1.1.
    Http1 = "http", http::Http;
    /// memcached: text, meta or binary commands.
    Memcached = "memcached", memcached::Memcached;
    /// Redis.
    Resp = "resp", resp::Resp;
}

impl Framing {
    /// How many bytes at the beginning of each packet the parsers need; 0 if they need none, and
    /// the probe need not record any.
    ///
    /// A client that pipelines puts many messages into a packet, and each states its length at its
    /// own beginning. Messages that begin after the recorded bytes are ambiguous.
    pub const fn payload_bytes(self) -> u16 {
        match self {
            Self::OneInTurn => 0,
            Self::FixedLength { .. } => 1,
            _ => 2_048,
        }
    }

    /// The names of the framings by content, for help and messages: `http, memcached, resp`.
    pub fn names() -> String {
        let names: Vec<&str> = BY_CONTENT.iter().map(|(_, name)| *name).collect();
        names.join(", ")
    }
}

/// The error for a text that does not name a framing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a framing; write one-in-turn, {names}, or fixed:REQUEST:RESPONSE with both \
     lengths in bytes",
    names = Framing::names()
)]
pub struct ParseFramingError(String);

impl FromStr for Framing {
    type Err = ParseFramingError;

    /// Reads a framing in the form in which it is displayed; `fixed:N` sets both lengths to N.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseFramingError(text.to_owned());
        if text == "one-in-turn" {
            return Ok(Self::OneInTurn);
        }
        if let Some((framing, _)) = BY_CONTENT.iter().find(|(_, name)| *name == text) {
            return Ok(*framing);
        }
        let lengths = text.strip_prefix("fixed:").ok_or_else(error)?;
        let (request, response) = lengths.split_once(':').unwrap_or((lengths, lengths));
        let length = |text: &str| text.parse().map_err(|_| error());
        Ok(Self::FixedLength {
            request: length(request)?,
            response: length(response)?,
        })
    }
}

/// How many bytes of a line are kept.
const MAX_LINE: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// At the first byte of a message.
    Start,
    Line,
    /// In a header of this length.
    Header(usize),
    Body {
        left: u64,
        last: bool,
    },
    Lost,
}

/// How the end of a message is found.
#[derive(Debug)]
enum Ends {
    /// After this many bytes.
    Fixed(NonZeroU32),
    /// As its content says.
    ByContent(Box<dyn Grammar>),
}

/// Reads the messages of one direction of a connection.
#[derive(Debug)]
pub struct Parser {
    direction: Direction,
    ends: Ends,
    state: LineState,
    /// The beginning of the line, or of the binary header, so far.
    line: Vec<u8>,
    /// The line is longer than what is kept of it.
    cut: bool,
    message: Message,
    /// The length of the body that has begun.
    body: u64,
}

impl Parser {
    /// A parser at the beginning of a message; `None` for [`Framing::OneInTurn`], which needs no
    /// parser.
    pub fn new(framing: Framing, direction: Direction) -> Option<Self> {
        Some(Self {
            direction,
            ends: framing.ends(direction)?,
            state: LineState::Start,
            line: Vec::new(),
            cut: false,
            message: Message::default(),
            body: 0,
        })
    }

    /// Starts again at the beginning of a message.
    pub fn restart(&mut self) {
        self.state = LineState::Start;
        self.line.clear();
        self.cut = false;
        self.message = Message::default();
    }

    /// Whether the next byte begins a message.
    pub fn is_at_start(&self) -> bool {
        self.state == LineState::Start
    }

    /// What is known so far of a message that has begun and not ended. Of one whose length alone is known, that
    /// is nothing.
    pub fn begun(&self) -> Option<Message> {
        let has_begun = !matches!(self.state, LineState::Start | LineState::Lost);
        let by_content = matches!(self.ends, Ends::ByContent(_));
        (has_begun && by_content).then_some(self.message)
    }

    /// Whether the end of the message is not known; this lasts until [`Parser::restart`].
    pub fn is_lost(&self) -> bool {
        self.state == LineState::Lost
    }

    /// Forgets where it is: it is lost until [`Parser::restart`].
    pub fn lose(&mut self) {
        self.state = LineState::Lost;
    }

    /// Whether it is lost because from here on the server sends without being asked, or because another
    /// protocol follows.
    pub fn sends_unasked(&self) -> bool {
        match &self.ends {
            Ends::Fixed(_) => false,
            Ends::ByContent(grammar) => self.is_lost() && grammar.sends_unasked(),
        }
    }

    /// Whether all that has come since a restart was understood, up to the end of a packet of which the last
    /// `left` bytes have not come: there are nothing but whole messages in it, or it begins as no other
    /// content does.
    pub fn has_understood(&self, left: u64) -> bool {
        let grammar = match &self.ends {
            // nothing is needed of it
            Ends::Fixed(_) => return true,
            Ends::ByContent(grammar) => grammar,
        };
        match self.state {
            LineState::Lost => false,
            _ if grammar.is_unmistakable() => true,
            LineState::Start => left == 0,
            LineState::Body { left: body, last } => last && body == left,
            LineState::Line | LineState::Header(_) => false,
        }
    }

    /// Whether a head that says how long its body is has ended, and the next response follows
    /// instead of the body.
    pub fn lacks_body(&self, next: &[u8]) -> bool {
        let before_body = matches!(self.state, LineState::Body { left, .. } if left == self.body);
        match &self.ends {
            Ends::Fixed(_) => false,
            Ends::ByContent(grammar) => before_body && grammar.begins_response(next),
        }
    }

    /// Whether a packet of the server that begins like this asks for the rest of the request.
    pub fn asks_for_rest(&self, packet: &[u8]) -> bool {
        match &self.ends {
            Ends::Fixed(_) => false,
            Ends::ByContent(grammar) => grammar.asks_for_rest(packet),
        }
    }

    /// Tells the parser which request the next response answers. To be called before that response
    /// begins.
    pub fn expect(&mut self, request: Message) {
        self.message.head_only = request.head_only;
    }

    /// Reads the next `bytes` of the stream, the first of which are `recorded`, up to the end of
    /// the message or of what was recorded. Returns how many bytes that took, and the message if it
    /// ended there.
    ///
    /// # Errors
    /// [`Lost`], as for [`Parser::feed`] and [`Parser::skip`].
    pub fn read_on(&mut self, recorded: &[u8], bytes: u64) -> Result<(u64, Option<Message>), Lost> {
        if recorded.is_empty() {
            return self.skip(bytes);
        }
        let (taken, message) = self.feed(recorded)?;
        Ok((taken as u64, message))
    }

    /// Reads up to the end of the message, or of something that was none. Returns how many of `bytes` that
    /// took, and the message if it ended there.
    ///
    /// # Errors
    /// [`Lost`], and then on every call until [`Parser::restart`].
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Message>), Lost> {
        let mut taken = 0;
        while taken < bytes.len() {
            let (step, next) = self.step(&bytes[taken..])?;
            taken += step;
            match next {
                Some(Next::End) => return Ok((taken, Some(self.end_message()))),
                Some(Next::Anew) => break,
                _ => {}
            }
        }
        Ok((taken, None))
    }

    /// Reads these bytes as [`Parser::feed`] does, message after message, and blanks every byte
    /// that it does not need. Another parser then finds the same ends in the result. Once the
    /// parser is [`Lost`], it needs nothing.
    pub fn redact(&mut self, bytes: &mut [u8]) {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &mut bytes[taken..];
            if self.state == LineState::Start {
                self.begin(rest[0]);
            }
            let (part, before) = (self.state, self.line.len());
            let (length, line_feed) = match part {
                LineState::Start | LineState::Lost => (rest.len(), false),
                LineState::Body { left, .. } => (shorter(rest, left), false),
                LineState::Header(length) => (rest.len().min(length - before), false),
                LineState::Line => line_end(rest),
            };
            let kept = self.kept(part, &rest[..length]);
            let read = self.step(rest);
            match kept {
                Some(kept) => rest[..length].copy_from_slice(&kept),
                None => rest[..length].fill(BLANK),
            }
            let Ok((step, next)) = read else {
                rest[length + usize::from(line_feed)..].fill(BLANK);
                return;
            };
            taken += step;
            if let Some(Next::End) = next {
                self.end_message();
            }
        }
    }

    /// The next `bytes`, which do not go beyond the end of `part`, with everything blanked that is
    /// not needed; `None` if none of them is needed.
    fn kept(&self, part: LineState, bytes: &[u8]) -> Option<Vec<u8>> {
        let Ends::ByContent(grammar) = &self.ends else {
            return None;
        };
        let whole = || [self.line.as_slice(), bytes].concat();
        let mut whole = match part {
            LineState::Line => {
                let mut line = whole();
                grammar.redact_line(&mut line);
                // the rest of a line is not looked at
                line.iter_mut()
                    .skip(MAX_LINE)
                    .for_each(|byte| *byte = BLANK);
                line
            }
            LineState::Header(_) => {
                let mut header = whole();
                grammar.redact_header(&mut header);
                header
            }
            _ => return None,
        };
        Some(whole.split_off(self.line.len()))
    }

    /// Reads up to the end of the line, header or body. Returns how many bytes that took, and what
    /// follows if it ended there.
    fn step(&mut self, rest: &[u8]) -> Result<(usize, Option<Next>), Lost> {
        match self.state {
            LineState::Lost => Err(Lost),
            LineState::Start => {
                self.begin(rest[0]);
                Ok((0, None))
            }
            LineState::Body { left, .. } => {
                let step = shorter(rest, left);
                Ok((step, self.pass(step as u64)))
            }
            LineState::Header(length) => {
                let step = rest.len().min(length - self.line.len());
                self.line.extend_from_slice(&rest[..step]);
                let ends = self.line.len() == length;
                Ok((step, ends.then(|| self.end_header()).transpose()?))
            }
            LineState::Line => {
                let (step, ends) = line_end(rest);
                let room = MAX_LINE - self.line.len();
                self.cut |= step > room;
                self.line.extend_from_slice(&rest[..step.min(room)]);
                match ends {
                    true => Ok((step + 1, Some(self.end_line()?))),
                    false => Ok((step, None)),
                }
            }
        }
    }

    /// Passes over bytes that were not recorded, up to the end of the message. Returns how many of
    /// `bytes` that took, and the message if it ended there.
    ///
    /// # Errors
    /// [`Lost`] if one of these bytes would have said how long the message is.
    pub fn skip(&mut self, bytes: u64) -> Result<(u64, Option<Message>), Lost> {
        if bytes == 0 {
            return Ok((0, None));
        }
        if let (LineState::Start, Ends::Fixed(_)) = (self.state, &self.ends) {
            self.begin(0);
        }
        match self.state {
            LineState::Body { left, last } if left >= bytes || last => {
                let step = left.min(bytes);
                match self.pass(step) {
                    Some(Next::End) => Ok((step, Some(self.end_message()))),
                    _ => Ok((step, None)),
                }
            }
            _ => {
                self.state = LineState::Lost;
                Err(Lost)
            }
        }
    }

    /// How long the next message is, where that is known before it comes.
    pub fn next_length(&self) -> Option<NonZeroU32> {
        match (self.state, &self.ends) {
            (LineState::Start, Ends::Fixed(length)) => Some(*length),
            _ => None,
        }
    }

    /// Passes over bytes that were not recorded, message after message.
    ///
    /// # Errors
    /// As [`Parser::skip`].
    pub fn skip_over(&mut self, bytes: u64) -> Result<(), Lost> {
        let mut left = bytes;
        while left > 0 {
            if let (LineState::Start, Ends::Fixed(length)) = (self.state, &self.ends) {
                // whole messages at once: there may be billions
                left %= u64::from(length.get());
            }
            left -= self.skip(left)?.0;
        }
        Ok(())
    }

    fn begin(&mut self, first: u8) {
        let head_only = self.message.head_only;
        self.message = Message {
            head_only: head_only && self.direction == Direction::Responses,
            ..Message::default()
        };
        self.line.clear();
        self.cut = false;
        self.state = match &mut self.ends {
            Ends::Fixed(length) => LineState::Body {
                left: length.get().into(),
                last: true,
            },
            Ends::ByContent(grammar) => match grammar.begin(first) {
                Some(length) => LineState::Header(length),
                None => LineState::Line,
            },
        };
    }

    fn end_header(&mut self) -> Result<Next, Lost> {
        let next = match &mut self.ends {
            Ends::Fixed(_) => Err(Lost),
            Ends::ByContent(grammar) => grammar.header(&self.line, &mut self.message),
        };
        self.line.clear();
        self.turn(next)
    }

    fn end_line(&mut self) -> Result<Next, Lost> {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let next = match &mut self.ends {
            Ends::Fixed(_) => Err(Lost),
            Ends::ByContent(grammar) => grammar.line(line, self.cut, &mut self.message),
        };
        self.line.clear();
        self.cut = false;
        self.turn(next)
    }

    /// Enters the state for what follows; an error makes the parser lost.
    fn turn(&mut self, next: Result<Next, Lost>) -> Result<Next, Lost> {
        let next = next.inspect_err(|Lost| self.state = LineState::Lost)?;
        match next {
            Next::Line => self.state = LineState::Line,
            Next::Body(0) => {
                self.state = LineState::Line;
                return Ok(Next::Line);
            }
            Next::LastBody(0) => return Ok(Next::End),
            Next::Body(left) => self.state = LineState::Body { left, last: false },
            Next::LastBody(left) => self.state = LineState::Body { left, last: true },
            Next::End => {}
            Next::Anew => self.state = LineState::Start,
        }
        if let Next::Body(length) | Next::LastBody(length) = next {
            self.body = length;
        }
        Ok(next)
    }

    /// Passes over bytes of a body.
    fn pass(&mut self, bytes: u64) -> Option<Next> {
        let LineState::Body { left, last } = &mut self.state else {
            return None;
        };
        *left -= bytes;
        if *left > 0 {
            return None;
        }
        if *last {
            return Some(Next::End);
        }
        let next = match &mut self.ends {
            Ends::Fixed(_) => Next::Line,
            Ends::ByContent(grammar) => grammar.after_body(),
        };
        self.state = match next {
            Next::Anew => LineState::Start,
            _ => LineState::Line,
        };
        Some(next)
    }

    fn end_message(&mut self) -> Message {
        self.state = LineState::Start;
        std::mem::take(&mut self.message)
    }
}

/// How many of these bytes belong to a body of which `left` bytes are still to come.
fn shorter(bytes: &[u8], left: u64) -> usize {
    bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))
}

/// How many of these bytes come before the end of the line, and whether that end is among them.
fn line_end(bytes: &[u8]) -> (usize, bool) {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    (end.unwrap_or(bytes.len()), end.is_some())
}
