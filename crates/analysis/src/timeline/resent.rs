//! Detects retransmissions by clients: of packets that were lost behind the driver, or whose
//! acknowledgement was lost.

use taillab_model::RequestKey;

use crate::id_map::IdMap;

/// The most connections that are remembered. Beyond it, all are forgotten, and the next segment of each is
/// taken for a new one.
const MOST: usize = 1 << 18;

/// How far each client's stream has been received.
#[derive(Debug, Default)]
pub(super) struct Streams {
    ends: IdMap<u16>,
}

impl Streams {
    /// A number is that of another connection from now on.
    pub(super) fn forget(&mut self, connection: u32) {
        self.ends.remove(&connection);
    }

    /// Whether an incoming segment was received before. `key` names its end, as in
    /// [`taillab_model::EventKind::SegmentIn`]; a connection begins with a segment without bytes.
    pub(super) fn again(&mut self, key: RequestKey, bytes: u32) -> bool {
        let Some(end) = self.ends.get_mut(&key.connection) else {
            if self.ends.len() >= MOST {
                self.ends.clear();
            }
            self.ends.insert(key.connection, key.id);
            return false;
        };
        let in_order = key.id.wrapping_sub(bytes as u16) == *end;
        let behind = bytes > 0 && !in_order && (key.id.wrapping_sub(*end) as i16) <= 0;
        // a long segment may exceed what 16 bits can express
        let again = behind && bytes < 1 << 15;
        if !again {
            *end = key.id;
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(segments: &[(u16, u32)]) -> Vec<bool> {
        let mut streams = Streams::default();
        let key = |id| RequestKey::hashed(1, 2, id);
        let segments = segments.iter();
        segments
            .map(|&(end, bytes)| streams.again(key(end), bytes))
            .collect()
    }

    #[test]
    fn what_ends_where_something_has_ended_is_sent_again() {
        let segments = [(65_500, 0), (65_530, 30), (24, 30), (24, 30), (54, 30)];
        assert_eq!(again(&segments), [false, false, false, true, false]);
        // an older segment, and one after a hole
        let segments = [(100, 0), (300, 100), (200, 100), (400, 100)];
        assert_eq!(again(&segments), [false, false, true, false]);
    }

    #[test]
    fn the_first_packet_seen_and_another_connection_are_new() {
        assert_eq!(again(&[(500, 100), (600, 100)]), [false, false]);
        let segments = [(500, 0), (600, 100), (500, 0), (600, 100)];
        assert_eq!(again(&segments), [false; 4]);
    }

    #[test]
    fn long_segments_in_order_are_new() {
        let segments = [(0, 0), (50_000, 50_000), (34_464, 50_000), (34_464, 65_536)];
        assert_eq!(again(&segments), [false; 4]);
    }
}
