//! Questions of a thread to other servers, each with its answer.

/// The most questions of a thread that are looked at to find which one it waits for: a thread that serves many clients may
/// have asked thousands of times.
const MOST_OPEN: usize = 512;

/// A question to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// When it was written, in nanoseconds since boot.
    pub(crate) from_ns: u64,
    /// When the first data of the answer was there.
    pub(crate) to_ns: u64,
    /// Who was asked: [`UpstreamServer::number`](taillab_model::UpstreamServer::number).
    pub(crate) server: u16,
}

/// The questions of a thread, in the order of their answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Questions(Vec<Question>);

impl Questions {
    /// Adds a question that has just been answered.
    pub(super) fn add(&mut self, question: Question) {
        self.0.push(question);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The questions so far. Those that were answered before `keep_from_ns` are dropped.
    pub(super) fn part(&mut self, keep_from_ns: u64) -> Self {
        let so_far = self.clone();
        let answered = self.answered_by(keep_from_ns);
        self.0.drain(..answered);
        so_far
    }

    /// Those that were answered after `from_ns` and up to `upto_ns`.
    pub(crate) fn answered(&self, from_ns: u64, upto_ns: u64) -> &[Question] {
        let upto = self.answered_by(upto_ns);
        &self.0[self.answered_by(from_ns).min(upto)..upto]
    }

    /// The question whose answer the thread waits for at `at_ns`, for what it began at `since_ns`: the first one since then
    /// of those that have no answer yet, or else one before. If all have one, it is the last one since then: the rest of its
    /// answer may be to come.
    pub(crate) fn waits_for(&self, at_ns: u64, since_ns: u64) -> Option<Question> {
        let first = (self.open_at(at_ns))
            .min_by_key(|question| (question.from_ns < since_ns, question.from_ns));
        let last = self.0[..self.answered_by(at_ns)].last();
        let last = last.filter(|question| question.from_ns >= since_ns);
        first.or(last).copied()
    }

    /// The server that the thread asked first since `since_ns`.
    pub(crate) fn first_since(&self, since_ns: u64) -> Option<u16> {
        let later = self
            .later(since_ns)
            .filter(|question| question.from_ns >= since_ns);
        let first = later.min_by_key(|question| question.from_ns);
        first.map(|question| question.server)
    }

    /// When the last question since `since_ns` is answered that is open at `at_ns`; `at_ns` if none is.
    pub(crate) fn open_until(&self, at_ns: u64, since_ns: u64) -> u64 {
        let open = self
            .open_at(at_ns)
            .filter(|question| question.from_ns >= since_ns);
        open.map(|question| question.to_ns).max().unwrap_or(at_ns)
    }

    fn open_at(&self, at_ns: u64) -> impl Iterator<Item = &Question> {
        let later = self.later(at_ns);
        later.filter(move |question| question.from_ns <= at_ns)
    }

    /// Those that were answered after `at_ns`.
    fn later(&self, at_ns: u64) -> impl Iterator<Item = &Question> {
        self.0[self.answered_by(at_ns)..].iter().take(MOST_OPEN)
    }

    /// How many were answered by then.
    fn answered_by(&self, at_ns: u64) -> usize {
        self.0.partition_point(|question| question.to_ns <= at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(questions: &[(u64, u64, u16)]) -> Questions {
        let mut all = Questions::default();
        for &(from_ns, to_ns, server) in questions {
            all.add(Question {
                from_ns,
                to_ns,
                server,
            });
        }
        all
    }

    #[test]
    fn a_thread_waits_for_whom_it_asked_first() {
        // a quick server answers three times while a slow one works
        let all = asked(&[(110, 120, 1), (130, 140, 1), (150, 160, 1), (100, 200, 2)]);
        let waits_for = |at, since| all.waits_for(at, since).map(|question| question.server);
        assert_eq!(waits_for(99, 0), None);
        for at in [100, 115, 125, 155, 199] {
            assert_eq!(waits_for(at, 0), Some(2), "at {at}");
        }
        // the rest of its answer, but not for a later request
        assert_eq!(waits_for(250, 100), Some(2));
        assert_eq!(waits_for(250, 210), None);
        // for a later request, which asked the quick one
        assert_eq!(
            (waits_for(155, 145), waits_for(165, 145)),
            (Some(1), Some(2))
        );
        let first = [90, 105, 131, 151].map(|since| all.first_since(since));
        assert_eq!(first, [Some(2), Some(1), Some(1), None]);
        let until = [(155, 100), (155, 145), (200, 0)];
        let until = until.map(|(at, since)| all.open_until(at, since));
        assert_eq!(until, [200, 160, 200]);
    }

    #[test]
    fn the_next_part_begins_with_those_that_are_not_over() {
        let mut all = asked(&[(1, 10, 1), (5, 20, 2), (15, 30, 3)]);
        assert_eq!(all.part(10).0.len(), 3);
        let servers = |questions: &[Question]| -> Vec<u16> {
            questions.iter().map(|question| question.server).collect()
        };
        assert_eq!(servers(&all.0), [2, 3]);
        assert_eq!(servers(all.answered(20, 30)), [3]);
        assert_eq!(servers(all.answered(0, 20)), [2]);
        assert!(all.answered(30, 20).is_empty());
    }
}
