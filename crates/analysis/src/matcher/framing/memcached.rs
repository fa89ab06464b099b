//! memcached's text, meta and binary protocols (protocol.txt and protocol-binary.txt of
//! memcached).

use taillab_model::wire::memcached::{BinaryHeader, HEADER_BYTES, REQUEST, RESPONSE};
use taillab_model::wire::{decimal, words};

use super::grammar::{
    Direction, Grammar, Lost, Message, Next, blank, blank_unless, keep_keyword, words_mut,
};
use crate::commands::{Command, MEMCACHED};

/// Opcode whose response is many packets, the last of them empty.
const STAT: u8 = 0x10;

/// Commands that answer only what is unexpected: getq, getkq, setq, addq, replaceq,
/// deleteq, incrementq, decrementq, quitq, flushq, appendq, prependq, gatq, gatkq.
const QUIET: [u8; 14] = [
    0x09, 0x0d, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1e, 0x24,
];

/// What the text protocol calls the command with this opcode, where it has the same.
const fn name_of(opcode: u8) -> Option<&'static [u8]> {
    Some(match opcode {
        0x00 | 0x09 | 0x0c | 0x0d => b"get",
        0x01 | 0x11 => b"set",
        0x02 | 0x12 => b"add",
        0x03 | 0x13 => b"replace",
        0x04 | 0x14 => b"delete",
        0x05 | 0x15 => b"incr",
        0x06 | 0x16 => b"decr",
        0x07 | 0x17 => b"quit",
        0x08 | 0x18 => b"flush_all",
        0x0b => b"version",
        0x0e | 0x19 => b"append",
        0x0f | 0x1a => b"prepend",
        0x1c => b"touch",
        0x1d | 0x1e | 0x23 | 0x24 => b"gat",
        _ => return None,
    })
}

const fn is_binary(first: u8, direction: Direction) -> bool {
    match direction {
        Direction::Requests => first == REQUEST,
        Direction::Responses => first == RESPONSE,
    }
}

/// No opcode is greater.
const MOST_OPCODE: u8 = 0x48;

/// The place of the data type, which is always 0.
const DATA_TYPE: usize = 5;

/// What replaces the data type where the bytes are no header.
const NO_HEADER: u8 = 0xff;

/// Whether these bytes may begin a header: opcode, length of the key (at most 250) and of the extras (at most
/// 20), and the data type.
fn is_header(header: &[u8]) -> bool {
    const MOST_EXTRAS: u8 = 20;
    const MOST_KEY: u8 = 250;
    let at_most = |place: usize, most: u8| header.get(place).is_none_or(|&byte| byte <= most);
    let key = at_most(2, 0) && at_most(3, MOST_KEY);
    at_most(1, MOST_OPCODE) && key && at_most(4, MOST_EXTRAS) && at_most(DATA_TYPE, 0)
}

/// What follows a binary header.
fn header(bytes: &[u8], direction: Direction, message: &mut Message) -> Result<Next, Lost> {
    let header = BinaryHeader::read(bytes.first_chunk().ok_or(Lost)?);
    if !is_binary(header.magic, direction) || !is_header(bytes) {
        return Err(Lost);
    }
    let (opcode, body) = (header.opcode, header.body_bytes);
    let opaque = u32::from_be_bytes(header.opaque);
    message.tag = Some(u64::from(opcode) << 32 | u64::from(opaque));
    message.quiet = QUIET.contains(&opcode);
    message.command = name_of(opcode).and_then(|name| Command::named(name, &MEMCACHED));
    if direction == Direction::Responses && opcode == STAT && body > 0 {
        // each statistic is a packet of its own; only the empty last one ends the response
        return Err(Lost);
    }
    Ok(Next::LastBody(body.into()))
}

/// What has been read of a text message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memcached {
    direction: Direction,
    /// Values or statistics have come: more may follow.
    listing: bool,
    /// A value has come, but not yet the line break after it.
    value: bool,
    /// The command `watch` has come: the server sends lines that are not replies.
    watched: bool,
}

impl Grammar for Memcached {
    fn begin(&mut self, first: u8) -> Option<usize> {
        *self = Self::new(self.direction);
        is_binary(first, self.direction).then_some(HEADER_BYTES)
    }

    fn header(&mut self, bytes: &[u8], message: &mut Message) -> Result<Next, Lost> {
        header(bytes, self.direction, message)
    }

    fn line(&mut self, line: &[u8], cut: bool, message: &mut Message) -> Result<Next, Lost> {
        match self.direction {
            Direction::Requests => {
                self.watched = words(line).next() == Some(b"watch".as_slice());
                request(line, cut, message)
            }
            Direction::Responses => self.response(line, cut),
        }
    }

    fn sends_unasked(&self) -> bool {
        self.watched
    }

    fn redact_header(&self, header: &mut [u8]) {
        let is_header = is_header(&header[..header.len().min(DATA_TYPE + 1)]);
        for (place, byte) in header.iter_mut().enumerate() {
            match place {
                0 => {}
                1 if *byte <= MOST_OPCODE => {}
                DATA_TYPE if !is_header => *byte = NO_HEADER,
                // the length of the body, opaque
                8..16 if is_header => {}
                _ => *byte = 0,
            }
        }
    }

    fn redact_line(&self, line: &mut [u8]) {
        if self.value {
            return blank(line);
        }
        let mut command = Vec::new();
        for (place, word) in words_mut(line) {
            match (place, self.direction) {
                (0, Direction::Requests) => {
                    command.extend_from_slice(word);
                    keep_keyword(word, &MEMCACHED);
                }
                (0, Direction::Responses) if word[0].is_ascii_digit() => {
                    // the value of a counter: that it is a number is what ends the message
                    let digits = word.iter_mut().filter(|byte| byte.is_ascii_digit());
                    digits.for_each(|digit| *digit = b'0');
                    blank_unless(word, |byte| byte == b'0');
                }
                (0, Direction::Responses) => {
                    command.extend_from_slice(word);
                    keep_keyword(word, &[&LISTINGS[..], &ANSWERS].concat());
                }
                _ => match needed(&command, place) {
                    Needed::Nothing => blank(word),
                    Needed::Number => blank_unless(word, |byte| byte.is_ascii_digit()),
                    Needed::Keyword(keyword) => keep_keyword(word, &[keyword]),
                },
            }
        }
    }
}

/// The first words of lines that belong to a listing or announce a body.
const LISTINGS: [&[u8]; 5] = [b"VALUE", b"STAT", b"ITEM", b"END", b"VA"];

/// The first words of lines that are a whole answer.
const ANSWERS: [&[u8]; 25] = [
    b"STORED",
    b"NOT_STORED",
    b"EXISTS",
    b"NOT_FOUND",
    b"DELETED",
    b"TOUCHED",
    b"OK",
    b"ERROR",
    b"CLIENT_ERROR",
    b"SERVER_ERROR",
    b"VERSION",
    b"RESET",
    b"BUSY",
    b"BADCLASS",
    b"NOSPARE",
    b"NOTFULL",
    b"UNSAFE",
    b"SAME",
    b"HD",
    b"EN",
    b"NS",
    b"EX",
    b"NF",
    b"MN",
    b"ME",
];

/// What framing needs of a word.
enum Needed {
    Nothing,
    /// How many bytes follow.
    Number,
    /// Whether it is this one.
    Keyword(&'static [u8]),
}

/// What is needed of the word at this place after a command or the first word of an answer.
fn needed(command: &[u8], place: usize) -> Needed {
    match (command, place) {
        (b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas", 4)
        | (b"ms", 2)
        | (b"VALUE", 3)
        | (b"VA", 1) => Needed::Number,
        (b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas", 5..)
        | (b"delete" | b"incr" | b"decr" | b"touch" | b"flush_all" | b"verbosity", _) => {
            Needed::Keyword(b"noreply")
        }
        (b"ms", 3..) | (b"mg" | b"md" | b"ma" | b"me", 2..) => Needed::Keyword(b"q"),
        _ => Needed::Nothing,
    }
}

impl Memcached {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            ..Self::default()
        }
    }

    fn response(&mut self, line: &[u8], cut: bool) -> Result<Next, Lost> {
        if std::mem::take(&mut self.value) {
            return if line.is_empty() {
                Ok(Next::Line)
            } else {
                Err(Lost)
            };
        }
        let mut words = words(line);
        let word = words.next().ok_or(Lost)?;
        match word {
            // VALUE <key> <flags> <bytes> [<cas>]
            b"VALUE" if !cut => {
                let bytes = words.nth(2).and_then(decimal).ok_or(Lost)?;
                self.listing = true;
                self.value = true;
                // an empty value leaves only its line break
                Ok(Next::Body(bytes))
            }
            b"STAT" | b"ITEM" => {
                self.listing = true;
                Ok(Next::Line)
            }
            b"END" => Ok(Next::End),
            _ if self.listing => Err(Lost),
            // VA <bytes> <flags>*
            b"VA" if !cut => {
                let bytes = words.next().and_then(decimal).ok_or(Lost)?;
                Ok(Next::LastBody(bytes + 2))
            }
            _ if ANSWERS.contains(&word) => Ok(Next::End),
            // a counter, of up to 20 digits
            _ if word.iter().all(u8::is_ascii_digit) => Ok(Next::End),
            _ => Err(Lost),
        }
    }
}

fn request(line: &[u8], cut: bool, message: &mut Message) -> Result<Next, Lost> {
    let mut all = words(line);
    let word = all.next().ok_or(Lost)?;
    message.command = Command::named(word, &MEMCACHED);
    let noreply = words(line).last() == Some(b"noreply".as_slice()) && !cut;
    match word {
        // a truncated line has many keys; only its first word matters
        b"get" | b"gets" | b"gat" | b"gats" | b"stats" | b"version" | b"slabs" | b"lru"
        | b"lru_crawler" | b"watch" | b"cache_memlimit" => {
            // after `watch`, the server sends lines that are not replies
            (word != b"watch").then_some(Next::End).ok_or(Lost)
        }
        _ if cut => Err(Lost),
        // <command> <key> <flags> <exptime> <bytes> [<cas>] [noreply]
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
            let bytes = all.nth(3).and_then(decimal).ok_or(Lost)?;
            message.silent = noreply;
            Ok(Next::LastBody(bytes + 2))
        }
        b"delete" | b"incr" | b"decr" | b"touch" | b"flush_all" | b"verbosity" => {
            message.silent = noreply;
            Ok(Next::End)
        }
        b"quit" | b"shutdown" => {
            message.silent = true;
            Ok(Next::End)
        }
        b"mn" => Ok(Next::End),
        b"mg" | b"md" | b"ma" | b"me" => {
            no_quiet_flag(all.skip(1))?;
            Ok(Next::End)
        }
        // ms <key> <bytes> <flags>*
        b"ms" => {
            let bytes = all.nth(1).and_then(decimal).ok_or(Lost)?;
            no_quiet_flag(all)?;
            Ok(Next::LastBody(bytes + 2))
        }
        _ => Err(Lost),
    }
}

/// Refuses the flag q: whether such a command has a response shows only in what comes later.
fn no_quiet_flag<'a>(mut flags: impl Iterator<Item = &'a [u8]>) -> Result<(), Lost> {
    if flags.any(|flag| flag == b"q") {
        return Err(Lost);
    }
    Ok(())
}
