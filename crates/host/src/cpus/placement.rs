//! Who gets which CPUs.

use serde::{Deserialize, Serialize};

use super::{CpuError, CpuSet, apart, node, others, siblings, usable};
use crate::roots::Roots;

/// Which CPUs the server and the load generator get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The server's, where its receive work runs too.
    pub server: CpuSet,
    /// The load generator's.
    pub client: CpuSet,
}

/// The CPUs that the user asks for, as far as they are named.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestedCpus<'a> {
    /// The server's.
    pub server: Option<&'a CpuSet>,
    /// The load generator's.
    pub client: Option<&'a CpuSet>,
}

impl<'a> RequestedCpus<'a> {
    fn all(self) -> impl Iterator<Item = &'a CpuSet> {
        [self.server, self.client].into_iter().flatten()
    }
}

/// Which CPUs are near to one.
struct Neighbours<S, N> {
    /// Those that share a core with it.
    siblings: S,
    /// Those of its NUMA node.
    node: N,
}

/// The neighbours on this machine.
fn neighbours(roots: &Roots) -> Neighbours<impl Fn(u32) -> CpuSet, impl Fn(u32) -> CpuSet> {
    Neighbours {
        siblings: |cpu| siblings(roots, cpu),
        node: |cpu| node(roots, cpu),
    }
}

impl Placement {
    /// Takes what the user wants and fills the rest with defaults: the server gets
    /// the first usable CPU, the client the next that shares no core with it, on the same NUMA
    /// node where there is one.
    ///
    /// # Errors
    /// [`CpuError::TooFew`] with one usable CPU, [`CpuError::NoneLeft`], [`CpuError::Overlap`],
    /// [`CpuError::Unusable`], [`CpuError::Unknown`].
    pub fn choose(roots: &Roots, requested: RequestedCpus<'_>) -> Result<Self, CpuError> {
        let usable = usable(requested.all())?;
        Self::choose_among(&usable, neighbours(roots), requested, |_| 1)
    }

    /// The same for a load near the server's capacity: a client that is not named gets a CPU for every two
    /// of the server's, if there are enough.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub fn choose_for_load(roots: &Roots, requested: RequestedCpus<'_>) -> Result<Self, CpuError> {
        let share = |server: &CpuSet| server.len().div_ceil(2);
        let usable = usable(requested.all())?;
        Self::choose_among(&usable, neighbours(roots), requested, share)
    }

    /// Where a third thread disturbs the measurement least: neither the server's CPUs nor the
    /// generator's, or else the generator's, whose delays are known and cut.
    pub fn spare(&self, usable: &CpuSet) -> CpuSet {
        let besides_server = usable.difference(&self.server);
        let besides_both = besides_server.difference(&self.client);
        if besides_both.is_empty() {
            besides_server
        } else {
            besides_both
        }
    }

    /// The usable CPUs that share no core with the server's or the generator's.
    pub fn apart(&self, roots: &Roots, usable: &CpuSet) -> CpuSet {
        let both = self.server.iter().chain(self.client.iter()).collect();
        apart(usable, &both, |cpu| siblings(roots, cpu))
    }

    /// `for_client` says how many CPUs the client gets beside the server's, if there are enough.
    fn choose_among(
        usable: &CpuSet,
        Neighbours { siblings, node }: Neighbours<impl Fn(u32) -> CpuSet, impl Fn(u32) -> CpuSet>,
        requested: RequestedCpus<'_>,
        for_client: impl Fn(&CpuSet) -> usize,
    ) -> Result<Self, CpuError> {
        if usable.len() < 2 {
            return Err(CpuError::TooFew {
                cpus: usable.clone(),
            });
        }
        for wanted in requested.all() {
            let unusable = wanted.difference(usable);
            if !unusable.is_empty() {
                return Err(CpuError::Unusable {
                    unusable,
                    usable: usable.clone(),
                });
            }
        }
        let beside = |taken: &CpuSet, most: usize, owner, other| {
            let near: CpuSet = taken.iter().flat_map(|cpu| node(cpu).0).collect();
            let mut all = taken.clone();
            for _ in 0..most {
                let free = others(usable, &all, &siblings);
                let next = free.intersection(&near).first();
                all.0.extend(next.or_else(|| free.first()));
            }
            let found = all.difference(taken);
            let usable = usable.clone();
            match found.is_empty() {
                true => Err(CpuError::NoneLeft {
                    owner,
                    other,
                    usable,
                }),
                false => Ok(found),
            }
        };
        let (server, client) = match (requested.server, requested.client) {
            (Some(server), Some(client)) => (server.clone(), client.clone()),
            (None, Some(client)) => {
                let server = beside(client, 1, "load generator", "server")?;
                (server, client.clone())
            }
            (server, None) => {
                let first = || usable.first().map(CpuSet::single).unwrap_or_default();
                let server = server.cloned().unwrap_or_else(first);
                let most = for_client(&server);
                let client = beside(&server, most, "server", "load generator")?;
                (server, client)
            }
        };
        let common = server.intersection(&client);
        if !common.is_empty() {
            return Err(CpuError::Overlap { common });
        }
        Ok(Self { server, client })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn choose(usable: &str, server: Option<&str>, client: Option<&str>) -> Result<String, String> {
        // pairs 0-1, 2-3, … share a core, and those from 8 on are on two nodes in turn
        let siblings = |cpu: u32| [cpu & !1, cpu | 1].into_iter().collect();
        let node = |cpu: u32| (8_u32..24).filter(|of| of / 2 % 2 == cpu / 2 % 2).collect();
        let (server, client) = (server.map(set), client.map(set));
        let requested = RequestedCpus {
            server: server.as_ref(),
            client: client.as_ref(),
        };
        let neighbours = Neighbours { siblings, node };
        Placement::choose_among(&set(usable), neighbours, requested, |server| server.len())
            .map(|p| format!("{} {}", p.server, p.client))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_share_no_core_where_that_is_possible() {
        assert_eq!(choose("0-3", None, None), Ok("0 2".into()));
        assert_eq!(choose("0-1", None, None), Ok("0 1".into()));
        assert_eq!(choose("5-7", None, None), Ok("5 6".into()));
        assert_eq!(choose("0-3", Some("2"), None), Ok("2 0".into()));
        assert_eq!(choose("0-3", None, Some("0")), Ok("2 0".into()));
        assert_eq!(choose("0-3", Some("0-1"), Some("3")), Ok("0-1 3".into()));
        // as many for the client as for the server, as far as there are so many
        assert_eq!(choose("0-7", Some("0-1"), None), Ok("0-1 2,4".into()));
        assert_eq!(choose("0-3", Some("0-1"), None), Ok("0-1 2-3".into()));
        assert_eq!(choose("0-2", Some("0-1"), None), Ok("0-1 2".into()));
        // on one node, where there is room
        assert_eq!(choose("8-15", None, None), Ok("8 12".into()));
        assert_eq!(choose("8-15", None, Some("10")), Ok("14 10".into()));
        assert_eq!(choose("8-11", None, None), Ok("8 10".into()));
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_reason() {
        assert!(
            choose("4", None, None)
                .unwrap_err()
                .contains("only CPU 4 is usable")
        );
        assert!(
            choose("0-1", Some("0"), Some("0-1"))
                .unwrap_err()
                .contains("CPU 0 is wanted for both")
        );
        assert!(
            choose("0-1", Some("0-1"), None)
                .unwrap_err()
                .contains("leaves none for the load generator")
        );
        assert!(
            choose("0-1", None, Some("0-1"))
                .unwrap_err()
                .contains("leaves none for the server")
        );
        assert!(
            choose("0-1", Some("7"), None)
                .unwrap_err()
                .contains("choose among 0-1")
        );
    }

    #[test]
    fn a_third_thread_keeps_off_the_server_and_if_it_can_the_generator() {
        let placement = Placement {
            server: set("0-1"),
            client: set("2"),
        };
        assert_eq!(placement.spare(&set("0-4")), set("3-4"));
        assert_eq!(placement.spare(&set("0-2")), set("2"));
    }
}
