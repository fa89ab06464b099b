//! The words of a row.

use taillab_model::rtt::RttRow;

/// `tcp blocking 1K ×2`: the row among others.
pub fn label(row: &RttRow) -> String {
    let each = size_and_conns(row.size_bytes, row.conns);
    format!("{} {} {each}", row.proto, row.mode)
}

/// `1K ×2`: the size of a message and the number of connections; `1K` where that is one.
pub fn size_and_conns(bytes: u32, conns: u32) -> String {
    match conns {
        1 => size(bytes),
        n => format!("{} ×{n}", size(bytes)),
    }
}

/// `64`, `1K`, `512K`, as on the command line.
fn size(bytes: u32) -> String {
    match bytes {
        n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{}M", n >> 20),
        n if n >= 1 << 10 && n % (1 << 10) == 0 => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}
