//! Any bytes as what a client or a server wrote: where messages end does not depend on how the bytes are cut,
//! and what a recording keeps of them has the same ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taillab_analysis::Framing;
use taillab_analysis::matcher::framing::{Direction, Message, Parser};

/// Where messages end when the bytes come in pieces of this length, and whether the parser lost its way.
fn ends(
    (framing, direction): (Framing, Direction),
    bytes: &[u8],
    piece: usize,
) -> (Vec<(usize, Message)>, bool) {
    let Some(mut parser) = Parser::new(framing, direction) else {
        return (Vec::new(), true);
    };
    let (mut ends, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let to = bytes.len().min(at + piece);
        match parser.feed(&bytes[at..to]) {
            Err(_) => return (ends, true),
            Ok((taken, message)) => {
                at += taken;
                ends.extend(message.map(|message| (at, message)));
            }
        }
    }
    (ends, false)
}

fuzz_target!(|data: &[u8]| {
    let [choice, piece, bytes @ ..] = data else {
        return;
    };
    let direction = match choice % 2 {
        0 => Direction::Requests,
        _ => Direction::Responses,
    };
    let name = usize::from(choice / 2) % Framing::names().split(", ").count();
    let framing = Framing::names().split(", ").nth(name).and_then(|name| name.parse().ok());
    let of = (framing.unwrap_or_default(), direction);
    let piece = usize::from(*piece).max(1);
    let whole = ends(of, bytes, usize::MAX - bytes.len());
    assert_eq!(ends(of, bytes, piece), whole, "cut in pieces of {piece}");
    let Some(mut parser) = Parser::new(of.0, of.1) else {
        return;
    };
    let mut kept = bytes.to_vec();
    for part in kept.chunks_mut(piece) {
        parser.redact(part);
    }
    assert_eq!(ends(of, &kept, piece), whole, "after redaction");
});
