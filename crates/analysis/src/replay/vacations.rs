//! When a server of the queue is unavailable (on vacation), and the source of each vacation.

use super::track::SourceId;

/// The vacations of one server: in order of time, without overlaps. Times count from the origin of the
/// replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vacations {
    from_ns: Vec<u64>,
    length_ns: Vec<u64>,
    source: Vec<u16>,
}

/// The maximum length of vacations of each source: 0 removes the source, `u64::MAX` changes nothing.
pub(crate) type Limits = [u64];

/// A place in the vacations of a server that only moves forward.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor(usize);

impl Vacations {
    /// Adds a vacation after all others. One that overlaps the last is shortened.
    pub(crate) fn push(&mut self, from_ns: u64, to_ns: u64, source: SourceId) {
        let from = match (self.from_ns.last(), self.length_ns.last()) {
            (Some(from), Some(length)) => from_ns.max(from + length),
            _ => from_ns,
        };
        if from < to_ns {
            self.from_ns.push(from);
            self.length_ns.push(to_ns - from);
            self.source.push(source.0);
        }
    }

    /// Changes the numbers of the sources.
    pub(crate) fn renumber(&mut self, to: impl Fn(u16) -> u16) {
        for source in &mut self.source {
            *source = to(*source);
        }
    }

    /// Shortens each by what `shorter` says of its begin, its length and its source.
    pub(crate) fn shorten(&mut self, shorter: impl Fn(u64, u64, u16) -> u64) {
        let of = self.from_ns.iter().zip(&self.source);
        for (length, (&from, &source)) in self.length_ns.iter_mut().zip(of) {
            *length -= shorter(from, *length, source).min(*length);
        }
    }

    /// The begin, length and source of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64, u16)> + '_ {
        let lengths = self.length_ns.iter().zip(&self.source);
        let all = self.from_ns.iter().zip(lengths);
        all.map(|(from, (length, source))| (*from, *length, *source))
    }

    fn get(&self, place: usize, limits: &Limits) -> Option<(u64, u64)> {
        let from = *self.from_ns.get(place)?;
        let limit = limits[usize::from(self.source[place])];
        Some((from, from + self.length_ns[place].min(limit)))
    }

    /// When `work_ns` of work that may begin at `now_ns` is done. Work pauses during vacations. If `now_ns`
    /// is in a vacation, work begins at its end, even if there is none to do. `cursor` must not be past
    /// `now_ns`.
    #[inline]
    pub(crate) fn finish(
        &self,
        cursor: &mut Cursor,
        limits: &Limits,
        mut now_ns: u64,
        mut work_ns: u64,
    ) -> u64 {
        while let Some((from, to)) = self.get(cursor.0, limits) {
            if to > now_ns {
                if from > now_ns {
                    let gap = from - now_ns;
                    if work_ns <= gap {
                        break;
                    }
                    work_ns -= gap;
                }
                now_ns = to;
            }
            cursor.0 += 1;
        }
        now_ns + work_ns
    }

    /// The work that could be done from `from_ns` until `to_ns`.
    pub(crate) fn available(
        &self,
        mut cursor: Cursor,
        limits: &Limits,
        from_ns: u64,
        to_ns: u64,
    ) -> u64 {
        let mut available = to_ns.saturating_sub(from_ns);
        while let Some((from, to)) = self.get(cursor.0, limits) {
            if from >= to_ns {
                break;
            }
            let absent = to.min(to_ns).saturating_sub(from.max(from_ns));
            available = available.saturating_sub(absent);
            cursor.0 += 1;
        }
        available
    }

    /// Whether an idle server need not be woken at `now_ns`: a vacation covers that time, and until the
    /// server is back, one of the sources in `keeps_awake` occurs. With other limits, `cursor` may have passed
    /// that vacation.
    pub(crate) fn is_awake_at(
        &self,
        cursor: Cursor,
        limits: &Limits,
        keeps_awake: &[bool],
        now_ns: u64,
    ) -> bool {
        let ends = |place: usize| self.get(place, limits).map(|(_, to)| to);
        let (mut place, mut until) = (cursor.0, now_ns);
        while place > 0 && ends(place - 1).is_some_and(|to| to > now_ns) {
            place -= 1;
        }
        while ends(place).is_some_and(|to| to <= now_ns) {
            place += 1;
        }
        while let Some((from, to)) = self.get(place, limits)
            && from <= until
        {
            if to > from && keeps_awake[usize::from(self.source[place])] {
                return true;
            }
            until = to;
            place += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEEP: [u64; 2] = [u64::MAX; 2];

    #[test]
    fn work_stops_during_vacations_and_a_removed_source_is_none() {
        let mut vacations = Vacations::default();
        vacations.push(10, 20, SourceId(0));
        vacations.push(15, 30, SourceId(1));
        let finish = |limits: &Limits, now, work| {
            vacations.finish(&mut Cursor::default(), limits, now, work)
        };
        assert_eq!(finish(&KEEP, 5, 5), 10);
        assert_eq!(finish(&KEEP, 5, 6), 31);
        assert_eq!(finish(&KEEP, 12, 0), 30);
        assert_eq!(finish(&[0, u64::MAX], 5, 6), 11);
        assert_eq!(finish(&[0, 0], 5, 100), 105);
        // a limit shortens: 10 to 14, and 20 to 24
        assert_eq!(finish(&[4, 4], 5, 20), 33);
    }

    #[test]
    fn a_very_long_vacation_is_kept_whole() {
        let mut vacations = Vacations::default();
        let long = 10_u64.pow(10);
        vacations.push(5, long, SourceId(0));
        assert_eq!(
            vacations.finish(&mut Cursor::default(), &KEEP, 0, 6),
            long + 1
        );
    }

    proptest! {
        /// Compares with counting nanosecond by nanosecond.
        #[test]
        fn finishing_agrees_with_counting(
            gaps in prop::collection::vec((0_u64..20, 1_u64..20, 0_u16..2), 0..6),
            limits in [0_u64..30, 0_u64..30],
            jobs in prop::collection::vec((0_u64..40, 0_u64..30), 1..6),
        ) {
            let mut vacations = Vacations::default();
            let mut absent = vec![false; 1_000];
            let mut at = 0;
            for (gap, length, source) in gaps {
                let from = at + gap;
                at = from + length;
                vacations.push(from, at, SourceId(source));
                let limit = limits[usize::from(source)];
                for t in from..at.min(from + limit) {
                    absent[t as usize] = true;
                }
            }
            let mut cursor = Cursor::default();
            let mut now = 0;
            for (later, work) in jobs {
                now += later;
                let before = cursor;
                let mut t = now;
                let mut left = work;
                while left > 0 || absent[t as usize] {
                    left -= u64::from(!absent[t as usize]);
                    t += 1;
                    if left == 0 && work > 0 {
                        break;
                    }
                }
                let awake = vacations.is_awake_at(before, &limits, &[true; 2], now);
                prop_assert_eq!(awake, absent[now as usize]);
                let got = vacations.finish(&mut cursor, &limits, now, work);
                prop_assert_eq!(got, t);
                prop_assert_eq!(vacations.available(before, &limits, now, got), work);
                now = got;
            }
        }
    }
}
