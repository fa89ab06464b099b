//! A long series of changes, in about four bytes each.
//!
//! In a recording of ten million requests, the current thread of a CPU changes a hundred million times; as
//! plain pairs of time and code, the changes would fill a gigabyte. They are nearly always microseconds
//! apart, and of a few kinds, so the distance to the last change and the code share a word. If they do not
//! fit, they take five words.
//!
//! The newest changes stay unpacked, because later events may still alter them: an interrupt is recorded
//! at its end, a blind window when a later event reveals it.

/// At least this many changes stay unpacked; later events cannot alter older ones.
const TAIL: usize = 4_096;

/// The number of packed changes between two marks; reading can begin at a mark.
const MARK_EVERY: usize = 256;

/// From `at_ns` on, until the next change, the state is `code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnChange {
    pub(super) at_ns: u64,
    pub(super) code: u64,
}

/// Reading can begin at this word, with the change at `at_ns`.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_ns: u64,
    before_ns: u64,
    word: usize,
}

/// Changes in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Column {
    packed: Vec<u32>,
    marks: Vec<Mark>,
    packed_changes: usize,
    /// The time to which the first packed change is relative.
    base_ns: u64,
    last_packed_ns: u64,
    tail: Vec<ColumnChange>,
}

impl Column {
    /// Adds a change at `at_ns`, or at the time of the last change if that is later. A change to the same
    /// state is ignored, and a change at the same time replaces the last one.
    pub(super) fn push(&mut self, at_ns: u64, code: u64) {
        if let Some(last) = self.tail.last_mut() {
            if last.code == code {
                return;
            }
            if last.at_ns >= at_ns {
                last.code = code;
                self.join_last();
                return;
            }
        }
        self.append(at_ns, code);
    }

    /// Adds an event, which is no change of a state: each is kept, and all have the code 0.
    pub(super) fn push_event(&mut self, at_ns: u64) {
        let at_ns = self.last_ns().map_or(at_ns, |last| last.max(at_ns));
        self.append(at_ns, 0);
    }

    fn append(&mut self, at_ns: u64, code: u64) {
        self.tail.push(ColumnChange { at_ns, code });
        if self.tail.len() >= 2 * TAIL {
            self.pack(TAIL);
        }
    }

    /// Removes the last change if it has the same state as the one before it.
    fn join_last(&mut self) {
        let n = self.tail.len();
        if n >= 2 && self.tail[n - 1].code == self.tail[n - 2].code {
            self.tail.pop();
        }
    }

    /// The time of the last change.
    pub(super) fn last_ns(&self) -> Option<u64> {
        self.tail.last().map(|last| last.at_ns)
    }

    /// Applies `rewrite` to everything between `from_ns` and `to_ns`, as far back as the changes are
    /// unpacked.
    pub(super) fn rewrite(
        &mut self,
        from_ns: u64,
        to_ns: u64,
        mut rewrite: impl FnMut(u64) -> u64,
    ) {
        let (Some(first), Some(last)) = (self.tail.first(), self.tail.last()) else {
            return;
        };
        let from_ns = from_ns.max(first.at_ns);
        if from_ns >= to_ns {
            return;
        }
        if from_ns >= last.at_ns {
            let code = last.code;
            self.push(from_ns, rewrite(code));
            self.push(to_ns, code);
            return;
        }
        let end = self.boundary(to_ns);
        let begin = self.boundary(from_ns);
        let end = end + usize::from(self.tail.len() > end && self.tail[end].at_ns < to_ns);
        let mut place = begin;
        while place < self.tail.len() && self.tail[place].at_ns < to_ns {
            self.tail[place].code = rewrite(self.tail[place].code);
            place += 1;
        }
        // neighbours that now have the same state are joined
        let mut place = begin.max(1);
        let mut left = (end + 2).min(self.tail.len()).saturating_sub(place);
        while left > 0 && place < self.tail.len() {
            if self.tail[place].code == self.tail[place - 1].code {
                self.tail.remove(place);
            } else {
                place += 1;
            }
            left -= 1;
        }
    }

    /// Whether `is` is true of anything between two times, as far back as the changes are unpacked.
    pub(super) fn any(&self, from_ns: u64, to_ns: u64, is: impl Fn(u64) -> bool) -> bool {
        let latest_first = self.tail.iter().rev();
        for change in latest_first.skip_while(|change| change.at_ns >= to_ns) {
            if is(change.code) {
                return true;
            }
            if change.at_ns <= from_ns {
                break;
            }
        }
        false
    }

    /// Makes sure that there is a change at `at_ns`, without altering any state; returns its place.
    fn boundary(&mut self, at_ns: u64) -> usize {
        let mut place = self.tail.len();
        while place > 0 && self.tail[place - 1].at_ns > at_ns {
            place -= 1;
        }
        if place > 0 && self.tail[place - 1].at_ns == at_ns {
            return place - 1;
        }
        let code = self.tail[place.saturating_sub(1)].code;
        self.tail.insert(place, ColumnChange { at_ns, code });
        place
    }

    fn pack(&mut self, keep: usize) {
        let changes = self.tail.len().saturating_sub(keep);
        for place in 0..changes {
            let ColumnChange { at_ns, code } = self.tail[place];
            self.pack_change(at_ns, code);
        }
        self.tail.drain(..changes);
    }

    fn pack_change(&mut self, at_ns: u64, code: u64) {
        if self.packed_changes.is_multiple_of(MARK_EVERY) {
            self.marks.push(Mark {
                at_ns,
                before_ns: self.last_packed_ns,
                word: self.packed.len(),
            });
        }
        write(&mut self.packed, at_ns - self.last_packed_ns, code);
        self.last_packed_ns = at_ns;
        self.packed_changes += 1;
    }

    /// Packs everything, after the last alteration.
    pub(super) fn finish(&mut self) {
        self.pack(0);
        self.packed.shrink_to_fit();
        self.tail = Vec::new();
    }

    /// Replaces each code.
    pub(super) fn recode(&mut self, mut new: impl FnMut(u64) -> u64) {
        let mut recoded = Self {
            base_ns: self.base_ns,
            last_packed_ns: self.base_ns,
            ..Self::default()
        };
        for change in self.changes() {
            recoded.pack_change(change.at_ns, new(change.code));
        }
        recoded.last_packed_ns = self.last_packed_ns;
        recoded.tail = std::mem::take(&mut self.tail);
        for change in &mut recoded.tail {
            change.code = new(change.code);
        }
        *self = recoded;
    }

    /// All changes so far, as a finished column. What stays here begins with a change at or before
    /// `keep_from_ns`, and includes everything that may still be altered.
    pub(super) fn part(&mut self, keep_from_ns: u64) -> Self {
        let later = self
            .marks
            .partition_point(|mark| mark.at_ns <= keep_from_ns);
        let first = later.saturating_sub(1);
        let begin = self.marks.get(first).copied();
        let (word, base_ns) = begin.map_or((0, self.base_ns), |mark| (mark.word, mark.before_ns));
        let marks = self.marks[first.min(self.marks.len())..].iter();
        let kept = Self {
            packed: self.packed[word..].to_vec(),
            marks: marks
                .map(|mark| Mark {
                    word: mark.word - word,
                    ..*mark
                })
                .collect(),
            packed_changes: self.packed_changes - first * MARK_EVERY,
            base_ns,
            last_packed_ns: self.last_packed_ns,
            tail: self.tail.clone(),
        };
        let mut part = std::mem::replace(self, kept);
        part.finish();
        part
    }

    /// The changes of a finished column.
    pub(super) fn changes(&self) -> impl Iterator<Item = ColumnChange> {
        let mut reader = self.start();
        std::iter::from_fn(move || reader.next(self))
    }

    /// The beginning of a finished column.
    pub(super) const fn start(&self) -> Reader {
        Reader {
            word: 0,
            at_ns: self.base_ns,
        }
    }

    /// The place of the last change at or before `at_ns` in a finished column.
    pub(super) fn reader_from(&self, at_ns: u64) -> Reader {
        let mark = self.marks.partition_point(|mark| mark.at_ns <= at_ns);
        let mut reader = match mark.checked_sub(1).map(|place| self.marks[place]) {
            Some(mark) => Reader {
                word: mark.word,
                at_ns: mark.before_ns,
            },
            None => self.start(),
        };
        // goes on to the last change that is not later
        let mut ahead = reader;
        ahead.next(self);
        loop {
            let behind = ahead;
            match ahead.next(self) {
                Some(next) if next.at_ns <= at_ns => reader = behind,
                _ => return reader,
            }
        }
    }
}

/// A place in a finished column, from which its changes are read forwards. It does not borrow the column,
/// so a reader can continue in the next part of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reader {
    word: usize,
    at_ns: u64,
}

impl Reader {
    /// The next change of the column to which this reader belongs.
    #[inline]
    pub(super) fn next(&mut self, column: &Column) -> Option<ColumnChange> {
        let word = u64::from(*column.packed.get(self.word)?);
        let (since_ns, code) = if word == u64::from(LONG) {
            self.long(&column.packed)?
        } else {
            self.word += 1;
            (word >> CODE_BITS, word & CODE_MASK)
        };
        self.at_ns += since_ns;
        Some(ColumnChange {
            at_ns: self.at_ns,
            code,
        })
    }

    /// A change that takes more than a word.
    #[cold]
    fn long(&mut self, words: &[u32]) -> Option<(u64, u64)> {
        let &[_, a, b, c, d] = words[self.word..].first_chunk()?;
        self.word += 5;
        let number = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Some((number(a, b), number(c, d)))
    }
}

/// The lowest bits of a word are the code; those above are the time since the last change, up to 4 ms.
const CODE_BITS: u32 = 10;
const CODE_MASK: u64 = (1 << CODE_BITS) - 1;

/// Marks a time and a code that do not fit into a word.
const LONG: u32 = u32::MAX;

#[inline]
fn write(words: &mut Vec<u32>, since_ns: u64, code: u64) {
    match u32::try_from(since_ns << CODE_BITS | code) {
        Ok(word) if since_ns < 1 << 32 && code <= CODE_MASK && word != LONG => words.push(word),
        _ => write_long(words, since_ns, code),
    }
}

#[cold]
fn write_long(words: &mut Vec<u32>, since_ns: u64, code: u64) {
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    words.push(LONG);
    words.extend(halves(since_ns).into_iter().chain(halves(code)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(column: &Column) -> Vec<(u64, u64)> {
        column.changes().map(|c| (c.at_ns, c.code)).collect()
    }

    #[test]
    fn what_is_learnt_later_is_written_back() {
        let mut column = Column::default();
        column.push(10, 1);
        column.push(50, 2);
        column.push(80, 1);
        column.rewrite(40, 60, |code| code + 10);
        column.finish();
        assert_eq!(
            pairs(&column),
            [(10, 1), (40, 11), (50, 12), (60, 2), (80, 1)]
        );
    }

    #[test]
    fn an_open_end_is_cut_where_the_rewriting_ends() {
        let mut column = Column::default();
        column.push(10, 1);
        column.rewrite(20, 30, |_| 7);
        column.rewrite(30, 40, |_| 7);
        column.finish();
        assert_eq!(pairs(&column), [(10, 1), (20, 7), (40, 1)]);
    }

    #[test]
    fn what_lies_between_two_times_is_seen() {
        let mut column = Column::default();
        for (at, code) in [(10, 1), (20, 2), (30, 3)] {
            column.push(at, code);
        }
        let seen = |from, to| [1, 2, 3].map(|code| column.any(from, to, |other| other == code));
        assert_eq!(seen(0, 10), [false; 3]);
        assert_eq!(seen(0, 11), [true, false, false]);
        assert_eq!(seen(19, 21), [true, true, false]);
        assert_eq!(seen(20, 30), [false, true, false]);
        assert_eq!(seen(40, 50), [false, false, true]);
    }

    #[test]
    fn codes_are_replaced_wherever_they_are() {
        let (mut column, mut other) = (Column::default(), Column::default());
        for i in 0..50_000_u64 {
            let times = if i <= 30_000 { 300 } else { 1 };
            column.push(i * 10, i % 7 * times);
            other.push(i * 10, i % 7);
            if i == 30_000 {
                column.part(250_000);
                other.part(250_000);
                column.recode(|code| code / 300);
            }
        }
        column.finish();
        other.finish();
        assert!(column.packed.len() < 40_000, "only a part is left");
        // from anywhere
        for at_ns in [0, 260_000, 300_000, 400_000] {
            let rest = |column: &Column| -> Vec<ColumnChange> {
                let mut reader = column.reader_from(at_ns);
                std::iter::from_fn(|| reader.next(column)).collect()
            };
            assert_eq!(rest(&column), rest(&other), "{at_ns}");
        }
    }

    #[test]
    fn what_does_not_fit_into_a_word_takes_more() {
        let mut column = Column::default();
        let most = (1 << (u32::BITS - CODE_BITS)) - 1;
        let lengths = [1, most - 1, most, most + 1, 1 << 33, 1 << 54, 7];
        let codes = [0, CODE_MASK - 1, CODE_MASK, CODE_MASK + 1, 1 << 40];
        let mut pushed = Vec::new();
        let mut at = 0;
        for length in lengths {
            for code in codes {
                at += length;
                column.push(at, code);
                pushed.push((at, code));
            }
        }
        column.finish();
        assert_eq!(pairs(&column), pushed);
    }

    proptest! {
        #[test]
        fn a_column_says_what_a_plain_list_says(
            steps in prop::collection::vec((0_u64..50, 0_u64..4), 1..400),
            rewrites in prop::collection::vec((0_u64..5_000, 1_u64..300), 0..8),
            probe in 0_u64..6_000,
        ) {
            let mut column = Column::default();
            let mut plain = Vec::new(); // one value for each nanosecond
            let mut at = 0;
            for &(gap, code) in &steps {
                at += gap;
                column.push(at, code);
                plain.resize(at as usize, plain.last().copied().unwrap_or(99));
                plain.push(code);
            }
            plain.resize(6_100, plain[plain.len() - 1]);
            let first = steps[0].0;
            for &(from, length) in &rewrites {
                column.rewrite(from, from + length, |code| code * 2 + 1);
                for ns in from.max(first)..from + length {
                    plain[ns as usize] = plain[ns as usize] * 2 + 1;
                }
            }
            column.finish();
            let mut changes = column.changes().peekable();
            let mut now = 99;
            for ns in first..6_000 {
                while let Some(change) = changes.next_if(|change| change.at_ns <= ns) {
                    now = change.code;
                }
                prop_assert_eq!(now, plain[ns as usize], "at {}", ns);
            }
            if probe >= first {
                let found = column.reader_from(probe).next(&column).unwrap();
                prop_assert!(found.at_ns <= probe);
                prop_assert_eq!(found.code, plain[probe as usize]);
            }
        }

        /// However the column is cut, each part agrees with the whole from where the part must begin.
        #[test]
        fn parts_agree_with_the_whole(
            cuts in prop::collection::vec(0_usize..40_000, 1..5),
            back in 0_u64..30_000,
        ) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let (mut whole, mut parted) = (Column::default(), Column::default());
            let (mut parts, mut keep_from) = (Vec::new(), 0);
            for i in 0..40_000_u64 {
                let at = i * 7;
                for column in [&mut whole, &mut parted] {
                    column.push(at, i % 5);
                    if i % 50 == 7 {
                        column.rewrite(at.saturating_sub(300), at, |code| code | 8);
                    }
                }
                while cuts.first().is_some_and(|cut| *cut as u64 <= i) {
                    cuts.remove(0);
                    let next = at.saturating_sub(back);
                    parts.push((keep_from, parted.part(next)));
                    keep_from = next;
                }
            }
            whole.finish();
            parts.push((keep_from, parted.part(u64::MAX)));
            for (place, (from, part)) in parts.iter().enumerate() {
                // what is rewritten after the cut is not in the part
                let until = parts.get(place + 1).map_or(u64::MAX, |next| next.0.saturating_sub(300));
                let mut reader = part.reader_from(*from);
                let read = std::iter::from_fn(|| reader.next(part)).take_while(|c| c.at_ns < until);
                let mut reader = whole.reader_from(*from);
                let truth = std::iter::from_fn(|| reader.next(&whole)).take_while(|c| c.at_ns < until);
                prop_assert!(read.eq(truth), "part {place}");
            }
        }

        #[test]
        fn reading_can_begin_anywhere(at in 0_u64..200_000) {
            let mut column = Column::default();
            for i in 0..20_000_u64 {
                column.push(i * 10, i % 3 + 300 * (i % 2));
            }
            column.finish();
            let mut reader = column.reader_from(at);
            let first = reader.next(&column).unwrap();
            prop_assert_eq!(first.at_ns, (at / 10 * 10).min(199_990));
            let rest = std::iter::from_fn(|| reader.next(&column)).count() as u64;
            prop_assert_eq!(rest + 1, 20_000 - first.at_ns / 10);
        }
    }
}
