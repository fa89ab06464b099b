//! Damage to recordings that goes deeper than their checksums. It knows the format by its description, not by
//! its code (`crates/model/src/recording/format.rs`). The targets of cargo-fuzz (`crates/taillab/fuzz`) use it too.

const MARK: &[u8] = b"\xb1TLB";
const BLOCK_HEADER_BYTES: usize = 68;
const HEADER_BYTES: usize = 32;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Where blocks may begin.
fn marks(bytes: &[u8]) -> Vec<usize> {
    let all = 0..bytes.len().saturating_sub(BLOCK_HEADER_BYTES);
    all.filter(|&at| bytes[at..].starts_with(MARK)).collect()
}

/// Corrects the checksums of a recording, wherever they may be.
pub(crate) fn reseal(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let context = (u32_at(bytes, 12) as usize).min(bytes.len() - HEADER_BYTES);
    let sum = crc32fast::hash(&bytes[..24]);
    put(bytes, 24, sum);
    let sum = crc32fast::hash(&bytes[HEADER_BYTES..HEADER_BYTES + context]);
    put(bytes, 28, sum);
    for at in marks(bytes) {
        let begin = at + BLOCK_HEADER_BYTES;
        let length = (u32_at(bytes, at + 12) as usize).min(bytes.len() - begin);
        let sum = crc32fast::hash(&bytes[begin..begin + length]);
        put(bytes, at + 20, sum);
        let sum = crc32fast::hash(&bytes[at..at + 64]);
        put(bytes, at + 64, sum);
    }
}

/// Whether connections have numbers in this recording: from version 2 on.
#[allow(dead_code, reason = "the targets of cargo-fuzz take any")]
pub(crate) fn is_numbered(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES && u32_at(bytes, 8) >= 2
}

/// The same recording with no block compressed.
pub(crate) fn unpacked(packed: &[u8]) -> Vec<u8> {
    let blocks = marks(packed);
    let mut bytes = packed[..blocks[0]].to_vec();
    let mut footer = 0;
    for at in blocks {
        let mut header = packed[at..at + BLOCK_HEADER_BYTES].to_vec();
        let begin = at + BLOCK_HEADER_BYTES;
        let payload = &packed[begin..begin + u32_at(&header, 12) as usize];
        let length = u32_at(&header, 16);
        let payload = match header[5] {
            0 => payload.to_vec(),
            _ => lz4_flex::block::decompress(payload, length as usize).unwrap(),
        };
        header[5] = 0;
        put(&mut header, 12, payload.len() as u32);
        footer = bytes.len() as u64;
        bytes.extend(header);
        bytes.extend(payload);
    }
    bytes.extend(footer.to_le_bytes());
    bytes.extend(b"taillabF");
    reseal(&mut bytes);
    bytes
}

/// A recording whose blocks are repeated until it has about this many bytes.
pub(crate) fn grown(packed: &[u8], bytes: usize) -> Vec<u8> {
    let whole = unpacked(packed);
    let blocks = marks(&whole);
    let (first, footer) = (blocks[0], blocks[blocks.len() - 1]);
    let mut grown = whole[..first].to_vec();
    while grown.len() + footer - first < bytes {
        grown.extend(&whole[first..footer]);
    }
    let place = grown.len() as u64;
    grown.extend(&whole[footer..whole.len() - 16]);
    grown.extend(place.to_le_bytes());
    grown.extend(b"taillabF");
    grown
}

/// The same recording with another context, and without its end, which has a later one.
#[allow(dead_code, reason = "a target of cargo-fuzz uses it")]
pub(crate) fn with_context(whole: &[u8], context: &[u8]) -> Vec<u8> {
    let blocks = marks(whole);
    let mut bytes = whole[..HEADER_BYTES].to_vec();
    put(&mut bytes, 12, context.len() as u32);
    bytes.extend(context);
    bytes.extend(&whole[blocks[0]..blocks[blocks.len() - 1]]);
    reseal(&mut bytes);
    bytes
}
