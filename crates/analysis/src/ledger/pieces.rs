//! A slow request in order of time.

use super::label::Label;

/// A stretch of a request with one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// When it begins, in nanoseconds after T1.
    pub from_ns: u64,
    /// How long it lasts, in nanoseconds.
    pub lasted_ns: u64,
    /// Its cause and culprit.
    pub label: Label,
    /// The delay held up an earlier request, behind which this one waited.
    pub inherited: bool,
}

/// The kind of a moment, before the waiting behind others is split into causes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// Held up.
    Delay(Label),
    /// A receive softirq within ρ.
    Received,
    /// Work for this request.
    Own,
    /// Work for others.
    Others,
}

/// The labels of work for others (in this order), of the request's own work, and of receive softirqs.
pub(super) struct Meaning<'a> {
    pub(super) others: &'a [(Label, u64, bool)],
    pub(super) own: [(Label, u64); 2],
    pub(super) received: Label,
}

/// The pieces from T1 on, `total_ns` in total: first those of [T1, T2] (`stack`, latest first), then the
/// `raw` moments with their labels from `meaning`.
pub(super) fn pieces(
    stack: &[(Label, u64)],
    raw: &[(Moment, u64)],
    meaning: &Meaning<'_>,
    total_ns: u64,
) -> Vec<Piece> {
    let mut pieces = Pieces::default();
    for &(label, ns) in stack.iter().rev() {
        pieces.push(label, ns, false);
    }
    let mut others = meaning.others.to_vec();
    others.reverse();
    let mut own = meaning.own;
    for &(what, ns) in raw {
        let mut left = ns;
        match what {
            Moment::Delay(label) => pieces.push(label, ns, false),
            Moment::Received => pieces.push(meaning.received, ns, false),
            Moment::Own => {
                for part in &mut own {
                    let taken = part.1.min(left);
                    part.1 -= taken;
                    left -= taken;
                    pieces.push(part.0, taken, false);
                }
            }
            Moment::Others => {
                while left > 0
                    && let Some(part) = others.last_mut()
                {
                    let taken = part.1.min(left);
                    part.1 -= taken;
                    left -= taken;
                    pieces.push(part.0, taken, part.2);
                    if part.1 == 0 {
                        others.pop();
                    }
                }
            }
        }
    }
    // parts without an event come at the end
    for part in others.iter().rev() {
        pieces.push(part.0, part.1, part.2);
    }
    for part in own {
        pieces.push(part.0, part.1, false);
    }
    pieces.cut(total_ns);
    pieces.list
}

#[derive(Default)]
struct Pieces {
    list: Vec<Piece>,
    at_ns: u64,
}

impl Pieces {
    /// Drops what is beyond `total_ns`, and makes the last piece end there.
    fn cut(&mut self, total_ns: u64) {
        self.list.retain(|piece| piece.from_ns < total_ns);
        if let Some(last) = self.list.last_mut() {
            last.lasted_ns = total_ns - last.from_ns;
        }
    }

    fn push(&mut self, label: Label, ns: u64, inherited: bool) {
        if ns == 0 {
            return;
        }
        match self.list.last_mut() {
            Some(last) if last.label == label && last.inherited == inherited => {
                last.lasted_ns += ns;
            }
            _ => self.list.push(Piece {
                from_ns: self.at_ns,
                lasted_ns: ns,
                label,
                inherited,
            }),
        }
        self.at_ns += ns;
    }
}
