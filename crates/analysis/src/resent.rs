//! When packets were retransmitted on each client's connection.

use crate::id_map::IdMap;

/// The times of retransmissions on each client's connection
/// ([`taillab_model::RequestKey::client`]), in order; nanoseconds since boot.
#[derive(Debug, Default)]
pub(crate) struct Resent(IdMap<Vec<u64>>);

impl Resent {
    /// The time of the last retransmission from `from_ns` until `to_ns`.
    pub(crate) fn last_within(&self, client: u32, from_ns: u64, to_ns: u64) -> Option<u64> {
        let times = self.0.get(&client)?;
        let end = times.partition_point(|&at| at <= to_ns);
        times[..end].last().copied().filter(|at| *at >= from_ns)
    }

    /// Whether there was a retransmission from `from_ns` until `to_ns`.
    pub(crate) fn within(&self, client: u32, from_ns: u64, to_ns: u64) -> bool {
        self.last_within(client, from_ns, to_ns).is_some()
    }
}

/// From times in order, each with its client.
impl FromIterator<(u64, u32)> for Resent {
    fn from_iter<T: IntoIterator<Item = (u64, u32)>>(times: T) -> Self {
        let mut of: IdMap<Vec<u64>> = IdMap::default();
        for (at_ns, client) in times {
            of.entry(client).or_default().push(at_ns);
        }
        Self(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_sent_again_meanwhile_and_on_that_connection_counts() {
        let resent: Resent = [(10, 7), (30, 7)].into_iter().collect();
        assert!(resent.within(7, 10, 10) && resent.within(7, 11, 30) && resent.within(7, 5, 99));
        assert!(!resent.within(7, 11, 29) && !resent.within(7, 31, 99));
        assert!(!resent.within(8, 0, 99));
        assert_eq!(resent.last_within(7, 5, 99), Some(30));
    }
}
