//! The shadow of slow requests: whom those delay whose own work takes far longer than that of the others.
//!
//! The lengths of requests' own work fall into two groups where some ask for far more than the rest, such as a
//! script among lookups: there is a wide gap between the groups, and few are above it.

use std::collections::BTreeMap;

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, SlowOperation, SlowRequests};
use taillab_model::histogram::{cell, cell_of};

use crate::commands::Command;
use crate::id_map::grow_to;
use crate::ledger::{Entry, Labels};

/// log2 of the number of cells for each doubling of a length.
const BITS: u32 = 3;

/// The shortest of the slow ones take at least this many times as long as the longest of the others.
const APART: f64 = 3.0;

/// For so many requests above a gap, one may lie within it: stalls that nothing recorded make some take longer.
const STRAGGLERS: u64 = 4;

/// A gap with as many requests in it as above it would count as so many times narrower, and one more: otherwise, the
/// shortest of the slow ones would pass for stragglers.
const STRAGGLERS_COUNT: f64 = 8.0;

/// At most this share of the requests is slow: more are not an exception. They have at least half of all slow
/// service.
const FEW: f64 = 0.2;

/// A request is delayed by slow ones if it waits for at least this part of their mean length.
const DELAYED: u64 = 50;

/// The length of a request's work is known if the probe was blind, while the request was in the server, for at most one
/// part in so many of it.
const SEEN: u64 = 20;

#[derive(Clone, Copy, Debug, Default)]
struct CountAndSum {
    n: u64,
    ns: u64,
    /// Those of them whose length is known: of the others, a part was not seen.
    known: u64,
    known_ns: u64,
}

impl CountAndSum {
    const fn add(&mut self, ns: u64, is_known: bool) {
        self.n += 1;
        self.ns += ns;
        if is_known {
            self.known += 1;
            self.known_ns += ns;
        }
    }

    fn plus(self, more: Self) -> Self {
        Self {
            n: self.n + more.n,
            ns: self.ns + more.ns,
            known: self.known + more.known,
            known_ns: self.known_ns + more.known_ns,
        }
    }

    /// That of those whose length is known; if there is none, what was seen of all.
    fn mean_ns(self) -> u64 {
        match self.known {
            0 => self.ns / self.n.max(1),
            known => self.known_ns / known,
        }
    }
}

fn sum(cells: &[CountAndSum]) -> CountAndSum {
    cells.iter().fold(CountAndSum::default(), |a, b| a.plus(*b))
}

/// A range of lengths that hardly any request has.
struct Gap {
    /// The shortest above it, divided by the longest below it.
    width: f64,
    /// The requests within it, divided by those above it.
    stragglers: f64,
}

/// Sums up how long requests work, and how long they wait for the slow service of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow {
    /// By the cell of the length.
    own: Vec<CountAndSum>,
    /// What of that is charged as slow service.
    own_slow_ns: Vec<u64>,
    delays: Vec<CountAndSum>,
    /// How many requests of a cell asked for what.
    commands: BTreeMap<(Command, usize), u64>,
}

impl Shadow {
    pub(crate) fn add(&mut self, entry: &Entry<'_>, labels: &Labels) {
        if !entry.asked {
            return;
        }
        let of = |cause| {
            let parts = entry.parts.iter();
            let parts = parts.filter(move |(label, _)| labels.cause(*label) == cause);
            parts.map(|(_, ns)| ns).sum::<u64>()
        };
        let is_seen = of(Cause::Unobserved) * SEEN <= entry.own_ns;
        self.add_own((entry.own_ns, is_seen), entry.own_slow_ns, entry.command);
        let of_others = of(Cause::SlowService).saturating_sub(entry.own_slow_ns);
        if of_others > 0 {
            grow_to(&mut self.delays, cell(of_others, BITS)).add(of_others, true);
        }
    }

    /// Adds a request that has worked for so long, as far as was seen, and whether all of that was.
    fn add_own(&mut self, (ns, is_seen): (u64, bool), slow_ns: u64, command: Option<Command>) {
        let cell = cell(ns, BITS);
        if let Some(command) = command {
            *self.commands.entry((command, cell)).or_default() += 1;
        }
        grow_to(&mut self.own, cell).add(ns, is_seen);
        *grow_to(&mut self.own_slow_ns, cell) += slow_ns;
    }

    /// The slow requests and their shadow; `None` if the work of all is about as long.
    pub(crate) fn finish(&self) -> Option<SlowRequests> {
        let first = self.first_slow()?;
        let (others, slow) = (sum(&self.own[..first]), sum(&self.own[first..]));
        let mean_ns = slow.mean_ns();
        let least = cell((mean_ns / DELAYED).max(1), BITS).min(self.delays.len());
        let delayed = sum(&self.delays[least..]);
        Some(SlowRequests {
            requests: slow.n,
            operations: self.operations(first),
            mean_own_ns: Nanos::new(mean_ns),
            others_own_ns: Nanos::new(others.mean_ns()),
            delayed: delayed.n,
            mean_delay_ns: Nanos::new(delayed.mean_ns()),
        })
    }

    /// What the requests from a cell on asked for, the most frequent first.
    fn operations(&self, first: usize) -> Vec<SlowOperation> {
        let mut found: Vec<SlowOperation> = Vec::new();
        for ((command, _), requests) in self.commands.iter().filter(|((_, cell), _)| *cell >= first)
        {
            match found.last_mut().filter(|last| last.name == command.name()) {
                Some(last) => last.requests += requests,
                None => found.push(SlowOperation {
                    name: command.name().to_owned(),
                    requests: *requests,
                }),
            }
        }
        found.sort_by_key(|operation| std::cmp::Reverse(operation.requests));
        found
    }

    /// The first cell above the widest gap between two groups: one in which no request lies, if there is such a one.
    fn first_slow(&self) -> Option<usize> {
        let gaps = (2..self.own.len()).filter_map(|first| Some((self.gap_below(first)?, first)));
        let gaps = gaps.filter(|(gap, first)| gap.width >= APART && self.are_exceptions(*first));
        let clear = |gap: &Gap| gap.width / (1.0 + STRAGGLERS_COUNT * gap.stragglers);
        let rank = |gap: &Gap| (gap.stragglers == 0.0, clear(gap));
        let (_, first) = gaps.max_by(|(a, _), (b, _)| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        })?;
        Some(first)
    }

    /// Whether the requests from this cell on are few, and have most of the slow service.
    fn are_exceptions(&self, first: usize) -> bool {
        let (others, slow) = (sum(&self.own[..first]), sum(&self.own[first..]));
        let slow_ns = |cells: &[u64]| cells.iter().sum::<u64>();
        let theirs = slow_ns(&self.own_slow_ns[first..]);
        let are_few = slow.n as f64 <= FEW * (slow.n + others.n) as f64;
        are_few && theirs >= slow_ns(&self.own_slow_ns[..first])
    }

    /// The gap under this cell.
    fn gap_below(&self, first: usize) -> Option<Gap> {
        if self.own[first].n == 0 {
            return None;
        }
        let above: u64 = self.own[first..].iter().map(|cell| cell.n).sum();
        let (mut stragglers, mut below) = (0, first);
        loop {
            below -= 1;
            // requests without any work of their own were not seen to work: next to them, all others stand out
            if below == 0 {
                return None;
            }
            let more = stragglers + self.own[below].n;
            if more * STRAGGLERS > above {
                break;
            }
            stragglers = more;
        }
        let (least, width) = cell_of(below, BITS);
        Some(Gap {
            width: cell_of(first, BITS).0 as f64 / (least + width).max(1) as f64,
            stragglers: stragglers as f64 / above as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::REDIS;

    /// Requests of 50 to 70 µs, and so many that work for 33 ms and delay 300 others by 11 ms each.
    fn shadow(slow: u64) -> Option<SlowRequests> {
        let mut shadow = Shadow::default();
        for i in 0..10_000 {
            shadow.add_own((50_000 + i % 20_000, true), i % 1_000, None);
        }
        for i in 0..slow {
            shadow.add_own((33_000_000 + i, true), 32_900_000, None);
        }
        for _ in 0..slow * 300 {
            grow_to(&mut shadow.delays, cell(11_000_000, BITS)).add(11_000_000, true);
            grow_to(&mut shadow.delays, cell(900, BITS)).add(900, true);
        }
        shadow.finish()
    }

    /// Who made the shadow was not said. Only what the slow ones asked for is.
    #[test]
    fn what_the_slow_ones_ask_for_is_counted() {
        let named = |name: &[u8]| Command::named(name, REDIS);
        let mut shadow = Shadow::default();
        for i in 0..10_000 {
            let name: &[u8] = if i % 2 == 0 { b"GET" } else { b"EVALSHA" };
            shadow.add_own((50_000 + i % 20_000, true), i % 1_000, named(name));
        }
        for i in 0..9 {
            // in cells of their own
            shadow.add_own(
                (33_000_000 + i * 5_000_000, true),
                32_900_000,
                named(b"EVALSHA"),
            );
        }
        (0..2).for_each(|_| shadow.add_own((33_000_000, true), 32_900_000, named(b"KEYS")));
        shadow.add_own((33_000_000, true), 32_900_000, None);
        let found = shadow.finish().unwrap();
        let operations = found.operations.iter();
        let operations: Vec<(&str, u64)> = operations
            .map(|operation| (operation.name.as_str(), operation.requests))
            .collect();
        assert_eq!(found.requests, 12);
        assert_eq!(operations, [("EVALSHA", 9), ("KEYS", 2)]);
    }

    #[test]
    fn a_script_among_lookups_has_a_shadow() {
        let found = shadow(12).unwrap();
        assert_eq!((found.requests, found.delayed), (12, 3_600));
        assert_eq!(found.mean_own_ns.get() / 1_000_000, 33);
        assert_eq!(found.mean_delay_ns, Nanos::from_millis(11));
        assert!(
            (50_000..70_000).contains(&found.others_own_ns.get()),
            "{found:?}"
        );
    }

    /// Requests into which a stall fell that nothing recorded lie everywhere between the groups, and are in neither's way.
    #[test]
    fn a_few_in_between_do_not_hide_the_slow_ones() {
        let mut shadow = Shadow::default();
        (0..2_700).for_each(|i| shadow.add_own((290_000 + i * 7, true), 0, None));
        (0..27).for_each(|_| shadow.add_own((5_300_000, true), 5_000_000, None));
        for stalled in [640_000, 1_300_000, 2_600_000] {
            shadow.add_own((stalled, true), stalled - 300_000, None);
        }
        let found = shadow.finish().unwrap();
        assert_eq!(found.requests, 27);
        assert_eq!(found.mean_own_ns, Nanos::new(5_300_000));
    }

    /// Twenty scripts of 30 ms do not make stragglers of five of 3 ms, which stand out as well, nor does one request that
    /// took longer than all slow ones hide these.
    #[test]
    fn two_groups_of_slow_ones_are_both_slow_and_a_longer_one_hides_none() {
        let mut shadow = Shadow::default();
        (0..2_000).for_each(|_| shadow.add_own((50_000, true), 0, None));
        (0..5).for_each(|_| shadow.add_own((3_000_000, true), 2_900_000, None));
        (0..20).for_each(|_| shadow.add_own((30_000_000, true), 29_900_000, None));
        assert_eq!(shadow.finish().map(|slow| slow.requests), Some(25));

        let mut shadow = Shadow::default();
        (0..2_000).for_each(|_| shadow.add_own((1_000_000, true), 0, None));
        (0..27).for_each(|_| shadow.add_own((4_000_000, true), 3_000_000, None));
        shadow.add_own((20_000_000, true), 19_000_000, None);
        assert_eq!(shadow.finish().map(|slow| slow.requests), Some(28));
    }

    #[test]
    fn the_shortest_of_the_slow_ones_are_no_stragglers() {
        let mut shadow = Shadow::default();
        (0..2_000).for_each(|_| shadow.add_own((60_000, true), 0, None));
        for i in 0..20 {
            let ns = 20_000_000 + 3_000_000 * i;
            shadow.add_own((ns, true), ns, None);
        }
        assert_eq!(shadow.finish().map(|slow| slow.requests), Some(20));
    }

    /// Such as a few whose worker was not known: these make no gap.
    #[test]
    fn requests_that_were_not_seen_to_work_hide_none() {
        let mut shadow = Shadow::default();
        shadow.add_own((0, true), 0, None);
        (0..10_000).for_each(|_| shadow.add_own((50_000, true), 0, None));
        (0..12).for_each(|_| shadow.add_own((33_000_000, true), 32_900_000, None));
        assert_eq!(shadow.finish().map(|slow| slow.requests), Some(12));
    }

    /// A script that the probe did not see for most of its time counts, and its length is that of the others.
    #[test]
    fn work_that_was_seen_in_part_does_not_shorten_the_mean() {
        let mut shadow = Shadow::default();
        (0..10_000).for_each(|_| shadow.add_own((50_000, true), 0, None));
        (0..11).for_each(|_| shadow.add_own((33_000_000, true), 32_900_000, None));
        shadow.add_own((3_000_000, false), 2_900_000, None);
        let found = shadow.finish().unwrap();
        assert_eq!(
            (found.requests, found.mean_own_ns),
            (12, Nanos::from_millis(33))
        );
    }

    #[test]
    fn requests_that_were_not_seen_to_work_are_no_other_group() {
        let mut shadow = Shadow::default();
        (0..10_000).for_each(|_| shadow.add_own((0, true), 0, None));
        (0..12).for_each(|_| shadow.add_own((50_000, true), 20_000, None));
        assert_eq!(shadow.finish(), None);
    }

    /// A single request took long, and the slow service is that of all the others.
    #[test]
    fn one_that_stands_out_is_not_blamed_for_all() {
        let mut shadow = Shadow::default();
        (0..10_000).for_each(|_| shadow.add_own((50_000, true), 20_000, None));
        shadow.add_own((900_000, true), 870_000, None);
        assert_eq!(shadow.finish(), None);
    }

    #[test]
    fn work_that_is_alike_has_none() {
        assert_eq!(shadow(0), None);
        assert_eq!(shadow(5_000), None, "every third is no exception");
    }
}
