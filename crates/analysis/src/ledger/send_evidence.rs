//! What is known of why responses wait to be sent.

use taillab_model::{Monotonic, Nanos, SendLimit};

use super::delayed_acks::DelayedAcks;
use crate::id_map::IdMap;
use crate::matched::{Matched, SendPause};

/// What is known of why one response waited, if it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendEvidence {
    /// It waited as long as a client delays an acknowledgement, or left with one that a request carried.
    pub(super) for_ack: bool,
    /// What kept TCP from sending during most of the wait.
    pub(super) limit: Option<SendLimit>,
}

/// What the connections have shown, from window to window.
#[derive(Default)]
pub(super) struct SendHistory {
    delayed_acks: DelayedAcks,
    pauses: IdMap<Vec<SendPause>>,
}

impl SendHistory {
    /// The evidence for each request of the next window.
    pub(super) fn of(&mut self, matched: &Matched) -> Vec<SendEvidence> {
        self.note_pauses(matched);
        let for_ack = self.delayed_acks.of(matched);
        let evidence = for_ack.into_iter().enumerate();
        evidence
            .map(|(place, for_ack)| SendEvidence {
                for_ack,
                limit: self.limit_of(matched, place),
            })
            .collect()
    }

    fn note_pauses(&mut self, matched: &Matched) {
        // windows follow each other in order of T1: later requests cannot overlap what ended before
        if let Some(oldest) = (!matched.requests.is_empty()).then(|| matched.requests.t1(0)) {
            self.pauses.retain(|_, pauses| {
                pauses.retain(|pause| pause.to >= oldest);
                !pauses.is_empty()
            });
        }
        for pause in &matched.send_pauses {
            let pauses = self.pauses.entry(pause.connection).or_default();
            pauses.push(*pause);
        }
    }

    fn limit_of(&self, matched: &Matched, place: usize) -> Option<SendLimit> {
        let pauses = self.pauses.get(&matched.keys[place].connection)?;
        let stamps = matched.requests.stamps(place);
        let (t5, t6) = (stamps.t5?, stamps.t6);
        let paused = |limit| -> Nanos {
            let by = pauses.iter().filter(|pause| pause.limit == limit);
            by.map(|pause| overlap(pause, t5, t6)).sum()
        };
        [SendLimit::ClientWindow, SendLimit::CongestionWindow]
            .into_iter()
            .find(|&limit| paused(limit).get() * 2 > t6.saturating_since(t5).get())
    }
}

fn overlap(pause: &SendPause, from: Monotonic, to: Monotonic) -> Nanos {
    pause.to.min(to).saturating_since(pause.from.max(from))
}
