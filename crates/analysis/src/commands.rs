//! The commands of the protocols whose content is read, by name: what a request asks for. A recording keeps those of these
//! names that it meets. They are words of the protocol, and nobody's data.

mod redis;

use std::cmp::Ordering;
use std::num::NonZeroU16;

/// The names of a protocol's commands, in alphabetical order whatever their letters' case.
pub(crate) type Vocabulary = [&'static [u8]];

/// The methods of RFC 9110, 5789, 4918, 3253 and 5323, QUERY, and the PURGE of caches.
pub(crate) static HTTP: [&[u8]; 20] = [
    b"CONNECT",
    b"COPY",
    b"DELETE",
    b"GET",
    b"HEAD",
    b"LOCK",
    b"MKCOL",
    b"MOVE",
    b"OPTIONS",
    b"PATCH",
    b"POST",
    b"PROPFIND",
    b"PROPPATCH",
    b"PURGE",
    b"PUT",
    b"QUERY",
    b"REPORT",
    b"SEARCH",
    b"TRACE",
    b"UNLOCK",
];

/// The commands of memcached's text and meta protocols.
pub(crate) static MEMCACHED: [&[u8]; 31] = [
    b"add",
    b"append",
    b"cache_memlimit",
    b"cas",
    b"decr",
    b"delete",
    b"flush_all",
    b"gat",
    b"gats",
    b"get",
    b"gets",
    b"incr",
    b"lru",
    b"lru_crawler",
    b"ma",
    b"md",
    b"me",
    b"mg",
    b"mn",
    b"ms",
    b"prepend",
    b"quit",
    b"replace",
    b"set",
    b"shutdown",
    b"slabs",
    b"stats",
    b"touch",
    b"verbosity",
    b"version",
    b"watch",
];

/// The commands of Redis and of those that speak like it.
pub(crate) static REDIS: &Vocabulary = &redis::NAMES;

/// All names. The code of a command is its place among them, from 1 on.
static ALL: [&Vocabulary; 3] = [&HTTP, &MEMCACHED, &redis::NAMES];

/// What a request asks for: one of the names of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command(NonZeroU16);

impl Command {
    /// The command of a vocabulary with this name, in large or small letters.
    pub(crate) fn named(name: &[u8], of: &'static Vocabulary) -> Option<Self> {
        let place = of.binary_search_by(|other| compare(other, name)).ok()?;
        let before = ALL.iter().take_while(|other| !std::ptr::eq(**other, of));
        let code = 1 + before.map(|other| other.len()).sum::<usize>() + place;
        NonZeroU16::new(u16::try_from(code).ok()?).map(Self)
    }

    /// Its name: `GET`, `EVALSHA`, `set`.
    pub fn name(self) -> &'static str {
        let all = ALL.iter().copied().flatten();
        let mut names = all.skip(usize::from(self.0.get()) - 1);
        let name = names.next().copied().unwrap_or_default();
        std::str::from_utf8(name).unwrap_or_default()
    }
}

/// How many bytes at the beginning of a word are those of a name. Its bytes beyond these do not matter.
pub(crate) fn known_beginning(word: &[u8], of: &Vocabulary) -> usize {
    let place = of.partition_point(|name| compare(name, word).is_lt());
    // the names that are most like it stand next to its place
    let near = of[..place].last().into_iter().chain(of.get(place));
    let alike = near.map(|name| {
        let pairs = name.iter().zip(word);
        pairs.take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count()
    });
    alike.max().unwrap_or(0)
}

/// The order of two names, whatever their letters' case.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let large = |byte: &u8| byte.to_ascii_uppercase();
    a.iter().map(large).cmp(b.iter().map(large))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found() {
        for of in ALL {
            assert!(of.is_sorted_by(|a, b| compare(a, b).is_lt()));
            for name in of {
                let found = Command::named(&name.to_ascii_lowercase(), of).unwrap();
                assert_eq!(found.name().as_bytes(), *name);
                assert_eq!(known_beginning(name, of), name.len());
            }
            assert_eq!(Command::named(b"4711", of), None);
            assert_eq!(Command::named(b"", of), None);
        }
    }

    #[test]
    fn no_more_of_a_word_is_known_than_names_have() {
        let known = |word: &[u8]| known_beginning(word, REDIS);
        assert_eq!(known(b"EVALSHA"), 7);
        assert_eq!(known(b"evalshaving"), 7);
        assert_eq!(known(b"GETAWAY"), 3);
        assert_eq!(known(b"ZRANGEBYSECRET"), 9);
        assert_eq!(known(b"~q9#zj7~"), 0);
        assert_eq!(known(b""), 0);
        // what is known of a beginning does not depend on what follows
        let word = b"ZRANGEBYSCORES";
        for upto in 0..word.len() {
            let whole = known(word).min(upto);
            assert_eq!(known(&word[..upto]), whole);
        }
    }
}
