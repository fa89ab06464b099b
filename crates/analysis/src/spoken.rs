//! What clients speak where the content of connections is read: protocols of which no framing is known are told by
//! their beginnings, so that nobody is advised to name another framing.

/// A protocol whose messages no framing separates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherProtocol {
    /// TLS: the content is encrypted.
    Tls,
    /// HTTP/2 in the clear, whose requests overlap.
    Http2,
}

impl OtherProtocol {
    /// The protocol of which a client's packet begins like this. Of HTTP/2, only the first packet of a connection does.
    pub fn of(packet: &[u8]) -> Option<Self> {
        /// The upper half of the greatest length of a TLS record, 2^14 + 2,048 bytes.
        const LONGEST: u8 = 0x48;
        match packet {
            // alert, handshake or data; version 3.0 to 3.4; and a length
            [0x15..=0x17, 3, 0..=4, 0..=LONGEST, _, ..] => Some(Self::Tls),
            packet if packet.starts_with(Self::Http2.mark()) => Some(Self::Http2),
            _ => None,
        }
    }

    /// A beginning of such a packet that is the same for everybody; no message of a framing begins with it.
    pub const fn mark(self) -> &'static [u8] {
        match self {
            Self::Tls => &[0x16, 3, 1, 0, 0],
            // of the preface, as much as one event carries
            Self::Http2 => b"PRI * HT",
        }
    }

    /// What to do where the content of connections was to be read.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Tls => {
                "the server speaks TLS, whose content cannot be read, so leave --protocol out"
            }
            Self::Http2 => {
                "the server speaks HTTP/2, which no --protocol reads, so leave --protocol out"
            }
        }
    }
}

/// How many connections began in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beginnings {
    /// Connections of which some content was read.
    pub connections: u64,
    /// Those with TLS.
    pub tls: u64,
    /// Those with HTTP/2.
    pub http2: u64,
}

impl Beginnings {
    /// Adds a connection whose first content is that of this protocol, if it is a known one without a framing.
    pub const fn add(&mut self, other: Option<OtherProtocol>) {
        self.connections += 1;
        match other {
            None => {}
            Some(OtherProtocol::Tls) => self.tls += 1,
            Some(OtherProtocol::Http2) => self.http2 += 1,
        }
    }

    /// Those of two parts of a recording.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            connections: self.connections + more.connections,
            tls: self.tls + more.tls,
            http2: self.http2 + more.http2,
        }
    }

    /// The protocol with which at least half of the connections began.
    pub fn mostly(self) -> Option<OtherProtocol> {
        let is_most = |n: u64| n > 0 && 2 * n >= self.connections;
        match self {
            Self { tls, .. } if is_most(tls) => Some(OtherProtocol::Tls),
            Self { http2, .. } if is_most(http2) => Some(OtherProtocol::Http2),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_told_by_how_its_client_begins() {
        let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];
        assert_eq!(OtherProtocol::of(&hello), Some(OtherProtocol::Tls));
        let data = [0x17, 3, 3, 0, 40, 9];
        assert_eq!(OtherProtocol::of(&data), Some(OtherProtocol::Tls));
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(OtherProtocol::of(preface), Some(OtherProtocol::Http2));
        for other in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PRINT\r\n",
            &[0x16, 3, 9, 0, 0],
            &[0x16, 3],
            b"",
        ] {
            assert_eq!(OtherProtocol::of(other), None);
        }
    }

    #[test]
    fn what_a_recording_keeps_tells_as_much() {
        for other in [OtherProtocol::Tls, OtherProtocol::Http2] {
            assert_eq!(OtherProtocol::of(other.mark()), Some(other));
        }
    }

    #[test]
    fn a_few_strange_connections_are_not_the_protocol() {
        let of = |connections, tls, http2| {
            let all = Beginnings {
                connections,
                tls,
                http2,
            };
            all.mostly()
        };
        assert_eq!(of(0, 0, 0), None);
        assert_eq!(of(10, 4, 0), None);
        assert_eq!(of(10, 5, 0), Some(OtherProtocol::Tls));
        assert_eq!(of(10, 1, 9), Some(OtherProtocol::Http2));
    }
}
