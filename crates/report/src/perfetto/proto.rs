//! The wire format of protocol buffers, as far as a trace needs it.
//!
//! Protocol Buffers Documentation, "Encoding": a field is a key (number and wire type)
//! and a value; numbers are varints, texts and messages are preceded by their length.

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    pub(super) fn fixed(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | FIXED_64);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's documentation.
    #[test]
    fn fields_are_encoded_as_documented() {
        assert_eq!(
            Message::default().number(1, 150).finish(),
            [0x08, 0x96, 0x01]
        );
        assert_eq!(
            Message::default().fixed(1, 2).finish(),
            [0x09, 2, 0, 0, 0, 0, 0, 0, 0]
        );
        let text = Message::default().text(2, "testing").finish();
        assert_eq!(text, *b"\x12\x07testing");
        let inner = Message::default().number(1, 150);
        let outer = Message::default().message(3, &inner).finish();
        assert_eq!(outer, [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }
}
