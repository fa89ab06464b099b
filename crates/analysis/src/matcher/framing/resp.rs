//! Redis' protocol, versions 2 and 3, and its inline commands.

use taillab_model::wire::resp::{ARRAY, BULK, ERROR, Length, SIMPLE, length};
use taillab_model::wire::{decimal, words};

use super::grammar::{
    Direction, Grammar, Lost, Message, NO_KIND, Next, blank, blank_unless, keep_command, words_mut,
};
use crate::commands::{Command, REDIS};

/// What has been read of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resp {
    direction: Direction,
    begun: bool,
    /// Elements that are still to come.
    elements: u64,
    /// The length of the command's name, if that is the next line.
    name: Option<u64>,
    /// The command's name has come.
    named: bool,
    /// A push is being read. It answers nothing: the reply is still to come.
    push: bool,
    /// The command that has come is one of [`SUBSCRIPTIONS`].
    subscribed: bool,
}

/// More elements or bytes than any message has.
const MOST: u64 = 1 << 32;

/// Longer than the name of any command.
const LONGEST_NAME: u64 = 64;

/// After these commands the server sends messages that are not replies. The last three are those of replicas.
const SUBSCRIPTIONS: [&[u8]; 7] = [
    b"SUBSCRIBE",
    b"PSUBSCRIBE",
    b"SSUBSCRIBE",
    b"MONITOR",
    b"SYNC",
    b"PSYNC",
    b"REPLCONF",
];

fn subscribes(name: &[u8]) -> bool {
    SUBSCRIPTIONS
        .iter()
        .any(|other| other.eq_ignore_ascii_case(name))
}

impl Grammar for Resp {
    fn begin(&mut self, _first: u8) -> Option<usize> {
        *self = Self::new(self.direction);
        None
    }

    fn line(&mut self, line: &[u8], cut: bool, message: &mut Message) -> Result<Next, Lost> {
        match self.direction {
            Direction::Requests => self.request(line, cut, message),
            Direction::Responses => self.response(line, cut),
        }
    }

    fn sends_unasked(&self) -> bool {
        self.subscribed
    }

    fn after_body(&mut self) -> Next {
        self.next()
    }

    fn redact_line(&self, line: &mut [u8]) {
        let Some(&first) = line.first() else {
            return;
        };
        let request = self.direction == Direction::Requests;
        if request && self.name.is_some() {
            return keep_command(line, REDIS);
        }
        if request && !self.begun && first != ARRAY {
            for (place, word) in words_mut(line) {
                let begins_with_letter = word[0].is_ascii_alphabetic();
                match place {
                    0 => keep_command(word, REDIS),
                    _ => blank(word),
                }
                if place == 0 && !begins_with_letter && word[0] != b'\r' {
                    word[0] = NO_KIND;
                }
            }
            return;
        }
        let (kind, rest) = line.split_at_mut(1);
        let kinds: &[u8] = if request { b"*$" } else { b"+-:_#,($!=*~>%|" };
        if !kinds.contains(&first) && first != b'\r' {
            kind[0] = NO_KIND;
        }
        if b"$!=*~>%|".contains(&first) {
            // -1: a null
            let counted = rest.strip_prefix(b"-").map_or(0, |_| 1);
            blank_unless(&mut rest[counted..], |byte| byte.is_ascii_digit());
        } else {
            blank(rest);
        }
    }
}

impl Resp {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            ..Self::default()
        }
    }

    fn request(&mut self, line: &[u8], cut: bool, message: &mut Message) -> Result<Next, Lost> {
        if let Some(length) = self.name.take() {
            self.subscribed = subscribes(line);
            message.command = Command::named(line, REDIS);
            if line.len() as u64 != length || self.subscribed {
                return Err(Lost);
            }
            return Ok(self.next());
        }
        if !self.begun && line.first() != Some(&ARRAY) {
            let name = words(line).next();
            self.subscribed = name.is_some_and(subscribes);
            message.command = name.and_then(|name| Command::named(name, REDIS));
            return match name {
                _ if cut => Err(Lost),
                Some(name) if name[0].is_ascii_alphabetic() && !self.subscribed => Ok(Next::End),
                Some(_) => Err(Lost),
                // an empty line asks for nothing
                None => Ok(Next::Line),
            };
        }
        let (&kind, rest) = line.split_first().ok_or(Lost)?;
        let count = decimal(rest).filter(|&count| count < MOST).ok_or(Lost)?;
        match (kind, self.begun) {
            (ARRAY, false) => {
                self.begun = count > 0;
                self.elements = count;
                Ok(Next::Line)
            }
            (BULK, true) => {
                let first = !std::mem::replace(&mut self.named, true);
                self.elements -= 1;
                if first && count <= LONGEST_NAME {
                    self.name = Some(count);
                    return Ok(Next::Line);
                }
                Ok(self.body(count))
            }
            _ => Err(Lost),
        }
    }

    fn response(&mut self, line: &[u8], cut: bool) -> Result<Next, Lost> {
        let (&kind, rest) = line.split_first().ok_or(Lost)?;
        if !self.begun {
            self.begun = true;
            self.elements = 1;
            self.push = kind == b'>';
        }
        let count = || {
            decimal(rest)
                .filter(|&count| count < MOST && !cut)
                .ok_or(Lost)
        };
        self.elements -= 1;
        let more = match kind {
            SIMPLE | ERROR | b':' | b'_' | b'#' | b',' | b'(' => 0,
            BULK | ARRAY if length(rest) == Some(Length::Null) => 0,
            BULK | b'!' | b'=' => {
                let bytes = count()?;
                return Ok(self.body(bytes));
            }
            ARRAY | b'~' | b'>' => count()?,
            b'%' => 2 * count()?,
            // an attribute, and then what it describes
            b'|' => 2 * count()? + 1,
            _ => return Err(Lost),
        };
        self.elements = self.elements.saturating_add(more);
        Ok(self.next())
    }

    /// A string of this many bytes, and its line break.
    const fn body(&self, bytes: u64) -> Next {
        if self.elements == 0 && !self.push {
            Next::LastBody(bytes + 2)
        } else {
            Next::Body(bytes + 2)
        }
    }

    /// What follows an element.
    const fn next(&self) -> Next {
        if self.elements > 0 {
            return Next::Line;
        }
        match self.push {
            true => Next::Anew,
            false => Next::End,
        }
    }
}
