//! memcached on a stream, in any dialect.

use super::dialect::{Dialect, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use super::{ascii, binary, meta};
use crate::LoadError;
use crate::protocol::store::{Limits, Store, Stored};
use crate::protocol::{Decoded, Planned, StoreWorkload, StreamProtocol};

/// memcached on a stream.
#[derive(Clone, Debug)]
pub struct MemcachedStream {
    dialect: Dialect,
    store: Store,
}

impl MemcachedStream {
    /// Prepares the requests of a workload.
    ///
    /// # Errors
    /// [`LoadError::Keys`], [`LoadError::KeySize`], [`LoadError::KeyDistribution`],
    /// [`LoadError::GetShare`] or [`LoadError::MessageSize`].
    pub fn new(dialect: Dialect, workload: StoreWorkload) -> Result<Self, LoadError> {
        let limits = Limits {
            key_bytes: MAX_KEY_BYTES,
            value_bytes: MAX_VALUE_BYTES,
        };
        let store = Store::new(workload, limits, |w| dialect.messages(w))?;
        Ok(Self { dialect, store })
    }
}

impl Stored for MemcachedStream {
    fn store(&self) -> &Store {
        &self.store
    }
}

impl StreamProtocol for MemcachedStream {
    #[inline]
    fn encode(&mut self, what: Planned, tag: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.store.request(what, tag));
    }

    #[inline]
    fn decode(&self, what: Planned, tag: u32, bytes: &[u8]) -> Decoded {
        let asked = self.store.asked(what, tag);
        match self.dialect {
            Dialect::Ascii => ascii::decode(&asked, bytes),
            Dialect::Binary => binary::decode(&asked, bytes),
            Dialect::Meta => meta::decode(&asked, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::Operation;

    use super::*;
    use crate::protocol::Planner;
    use crate::protocol::keys::KeyDistribution;

    #[test]
    fn workloads_that_cannot_be_sent_are_refused() {
        let with = |change: &dyn Fn(&mut StoreWorkload)| {
            let mut w = StoreWorkload::default();
            change(&mut w);
            MemcachedStream::new(Dialect::Ascii, w)
        };
        assert!(with(&|_| {}).is_ok());
        assert!(with(&|w| w.keys = 0).is_err());
        assert!(with(&|w| w.key_bytes = 3).is_err());
        assert!(with(&|w| w.key_bytes = 251).is_err());
        assert!(with(&|w| w.get_share = 1.1).is_err());
        assert!(with(&|w| w.get_share = f64::NAN).is_err());
        assert!(with(&|w| w.distribution = KeyDistribution::Zipf(f64::NAN)).is_err());
        assert!(with(&|w| w.value_bytes = MAX_VALUE_BYTES + 1).is_err());
        assert!(with(&|w| w.value_bytes = 0).is_ok());
        assert!(with(&|w| (w.keys, w.key_bytes) = (1, 1)).is_ok());
        assert!(with(&|w| (w.keys, w.key_bytes) = (10_001, 4)).is_err());
    }

    #[test]
    fn the_plan_is_seeded_and_has_the_mix_wanted() {
        let m = MemcachedStream::new(Dialect::Ascii, StoreWorkload::default()).unwrap();
        let plan = m.plan(100_000, 1);
        assert_eq!(plan, m.plan(100_000, 1));
        assert_ne!(plan, m.plan(100_000, 2));
        let gets = plan
            .iter()
            .filter(|p| p.operation() == Operation::Get)
            .count();
        // five standard deviations of a binomial(100,000, 0.9)
        assert!((gets as f64 - 90_000.0).abs() < 5.0 * 94.9, "{gets}");
        let mut seen = vec![false; 10_000];
        for p in &plan {
            seen[p.key() as usize] = true;
        }
        assert!(seen.iter().filter(|&&s| s).count() > 9_990);
    }

    #[test]
    fn every_key_is_to_be_stored_once() {
        let m = MemcachedStream::new(
            Dialect::Ascii,
            StoreWorkload {
                keys: 3,
                ..StoreWorkload::default()
            },
        )
        .unwrap();
        let sets: Vec<_> = (0..3)
            .map(|key| Planned::new(Operation::Set, key))
            .collect();
        assert_eq!(m.to_store(), sets);
    }
}
