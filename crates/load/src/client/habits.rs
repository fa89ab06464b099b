//! Who the requests come from, and how their clients use their connections.

use std::num::NonZeroU32;

use taillab_model::summary::{ClientKind, Connect};

/// How clients use their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Whether each connection is a client of its own, or all are the pool of one.
    pub kind: ClientKind,
    /// The most requests under way on a connection at once; a request that finds so many waits in its
    /// client. `None`: no limit. Datagrams have none.
    pub pipeline: Option<NonZeroU32>,
    /// The last connections, of this number, take a request only when no other one is idle. Only a pool
    /// has such a reserve.
    pub reserve: usize,
    /// Whether connections are kept, or each request has one of its own. Then it matters neither whose it is nor what
    /// is under way on it.
    pub connect: Connect,
}

impl Habits {
    /// A pool without a reserve and without a limit.
    pub const POOL: Self = Self {
        kind: ClientKind::Pooled,
        pipeline: None,
        reserve: 0,
        connect: Connect::Once,
    };

    /// A connection of its own for each request.
    pub const EACH: Self = Self {
        connect: Connect::Each,
        ..Self::independent(None)
    };

    /// Independent clients with this limit on each connection.
    pub const fn independent(pipeline: Option<NonZeroU32>) -> Self {
        Self {
            kind: ClientKind::Independent,
            pipeline,
            reserve: 0,
            connect: Connect::Once,
        }
    }

    /// Refuses what does not fit together, in what was asked for: a limit that follows from the protocol is not checked.
    ///
    /// # Errors
    /// What is wrong and what to leave out, in the caller's `names`.
    pub fn check(&self, are_datagrams: bool, names: &HabitNames) -> Result<(), String> {
        let HabitNames {
            pipeline,
            reserve,
            each,
            pooled,
            streams,
        } = names;
        let is_each = self.connect == Connect::Each;
        let is_pool = self.kind == ClientKind::Pooled;
        let refusal = if are_datagrams && self.pipeline.is_some() {
            format!("{pipeline} is for {streams}: datagrams never wait; leave it out")
        } else if are_datagrams && self.reserve > 0 {
            format!("{reserve} is for {streams}: datagrams never wait; leave it out")
        } else if are_datagrams && is_each {
            format!("{each} is for {streams}: a datagram needs no connection; leave it out")
        } else if self.reserve > 0 && !is_pool {
            format!("{reserve} belongs to a pool: leave it out, or choose {pooled}")
        } else if is_each && is_pool {
            format!("a pool keeps its connections: leave out {each} or {pooled}")
        } else if is_each && self.pipeline.is_some_and(|most| most > NonZeroU32::MIN) {
            format!("with {each}, a connection carries one request: leave out {pipeline}")
        } else {
            return Ok(());
        };
        Err(refusal)
    }
}

/// What a command calls its settings of [`Habits`].
#[derive(Clone, Copy, Debug)]
pub struct HabitNames {
    /// The limit of a connection.
    pub pipeline: &'static str,
    /// The connections in reserve.
    pub reserve: &'static str,
    /// A connection for each request.
    pub each: &'static str,
    /// A pool of connections.
    pub pooled: &'static str,
    /// What has connections.
    pub streams: &'static str,
}

/// What decides when the requests of a count are sent, and so which connections they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// A schedule. Each request of independent clients belongs to one of them, drawn with this seed.
    Scheduled {
        /// The seed.
        seed: u64,
    },
    /// The answers, each of which lets another request go. It takes a connection that is idle, in a pool the
    /// one that has been idle for longest, else one drawn with this seed.
    Answered {
        /// The seed.
        seed: u64,
    },
    /// As above, to store the keys before a measurement. A connection that would be opened for each request is kept
    /// meanwhile.
    Stored,
}

/// Draws the connection of each request, all equally likely.
///
/// If requests come as a Poisson process and each one draws its connection, the requests of each connection
/// are a Poisson process of their own, independent of all others (Kingman, *Poisson Processes*, 1993, section
/// 5.1): so each connection is a client that knows nothing of the others. A draw depends on the seed and the
/// number of the request only, so nothing is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    seed: u64,
    connections: usize,
}

/// The step between two states of SplitMix64 (Steele, Lea and Flood 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Draw {
    /// Draws from this number of connections.
    pub fn new(seed: u64, connections: usize) -> Self {
        Self { seed, connections }
    }

    /// The connection of request `k`.
    #[inline]
    pub fn of(self, k: usize) -> usize {
        // the k-th number of SplitMix64, which is made for states that count up
        let mut z = (self.seed).wrapping_add(STEP.wrapping_mul((k as u64).wrapping_add(1)));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // Lemire 2019: the high half of the product is below the number of connections
        ((u128::from(z) * self.connections as u128) >> 64) as usize
    }

    /// Another connection for request `k`, for the attempt after `attempt` others.
    #[inline]
    pub(super) fn again(self, k: usize, attempt: usize) -> usize {
        // far beyond the numbers of requests
        self.of(k.wrapping_add(attempt << 48))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_are_equally_likely_and_a_seed_gives_the_same_again() {
        let draw = Draw::new(7, 10);
        let mut counts = [0_u32; 10];
        (0..100_000).for_each(|k| counts[draw.of(k)] += 1);
        // chi-square with 9 degrees of freedom: 27.9 at one in a thousand
        let chi: f64 = counts
            .iter()
            .map(|n| (f64::from(*n) - 1e4).powi(2) / 1e4)
            .sum();
        assert!(chi < 27.9, "{counts:?}");
        let first = |seed| -> Vec<usize> { (0..50).map(|k| Draw::new(seed, 10).of(k)).collect() };
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
    }

    #[test]
    fn what_does_not_fit_together_is_refused_in_the_callers_words() {
        const NAMES: HabitNames = HabitNames {
            pipeline: "PIPELINE",
            reserve: "RESERVE",
            each: "EACH",
            pooled: "POOLED",
            streams: "STREAMS",
        };
        let one = NonZeroU32::MIN;
        let limited = Habits::independent(Some(one));
        let reserved = |kind| Habits {
            reserve: 4,
            kind,
            ..Habits::POOL
        };
        let each = |kind, most| Habits {
            kind,
            pipeline: NonZeroU32::new(most),
            ..Habits::EACH
        };
        for (habits, datagrams, parts) in [
            (limited, true, ["PIPELINE is for STREAMS", "leave it out"]),
            (
                reserved(ClientKind::Pooled),
                true,
                ["RESERVE is for", "STREAMS"],
            ),
            (Habits::EACH, true, ["EACH is for STREAMS", "leave it out"]),
            (
                reserved(ClientKind::Independent),
                false,
                ["RESERVE", "or choose POOLED"],
            ),
            (
                each(ClientKind::Pooled, 0),
                false,
                ["a pool keeps", "EACH or POOLED"],
            ),
            (
                each(ClientKind::Independent, 2),
                false,
                ["one request", "leave out PIPELINE"],
            ),
        ] {
            let refusal = habits.check(datagrams, &NAMES).unwrap_err();
            assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
        }
        for fitting in [
            Habits::POOL,
            Habits::EACH,
            limited,
            each(ClientKind::Independent, 1),
        ] {
            assert_eq!(fitting.check(false, &NAMES), Ok(()), "{fitting:?}");
        }
        assert_eq!(Habits::POOL.check(true, &NAMES), Ok(()));
    }

    /// In turn, each connection has exactly one of ten requests. Drawn, it has none of ten in 35 %.
    #[test]
    fn what_one_client_does_says_nothing_about_the_others() {
        let draw = Draw::new(1, 10);
        let blocks = 20_000;
        let without = (0..blocks)
            .filter(|block| (0..10).all(|k| draw.of(block * 10 + k) != 3))
            .count();
        let share = without as f64 / blocks as f64;
        assert!((share - 0.9_f64.powi(10)).abs() < 0.015, "{share}");
        // one request and the next: 1 in 10 has the same connection
        let same = (0..100_000)
            .filter(|k| draw.of(*k) == draw.of(k + 1))
            .count();
        assert!((9_600..10_400).contains(&same), "{same}");
    }
}
