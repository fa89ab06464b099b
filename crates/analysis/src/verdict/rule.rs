//! What a rule of the verdict is, and what several rules share.

use taillab_model::summary::{ClaimName, Reason};
use taillab_model::{Nanos, REPORTED_QUANTILES};

use super::evidence::{Evidence, TraceFacts};

/// A check for one thing that can be wrong with a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name in JSON; never changes once released.
    pub key: &'static str,
    /// From where on it applies, and why from there.
    pub limit: Limit,
    /// What was seen; `None` where the rule does not apply.
    pub(super) seen: fn(&Evidence<'_>) -> Option<String>,
    /// What to do about it, or what it means; empty where `seen` already says so.
    pub(super) remedy: fn(&Evidence<'_>) -> &'static str,
    /// What it takes away if it applies. It must not read what was built.
    pub(super) takes: fn(&Evidence<'_>) -> WithdrawnPart,
}

/// From where on a rule applies, with the reason for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// As soon as there is any.
    Any(&'static str),
    /// Beyond this value of what it looks at.
    At(f64, &'static str),
}

/// What a warning takes away.
pub(super) const NOTHING: fn(&Evidence<'_>) -> WithdrawnPart = |_| WithdrawnPart::Nothing;

/// The part of a result that is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WithdrawnPart {
    /// Nothing: it is only a warning.
    Nothing,
    /// Everything: there is no result.
    Everything,
    /// This percentile and all higher ones; from p90 or below, causes and forecasts too; from p50,
    /// everything.
    From(f64),
    /// Everything that depends on the ideal queue.
    Comparison,
    /// Causes and forecasts.
    Explanation,
    /// What a server without its disturbances would do: the ideal and forecasts.
    IdealAndForecasts,
}

impl WithdrawnPart {
    pub(super) fn tail(from: Option<f64>) -> Self {
        from.map_or(Self::Nothing, Self::From)
    }

    /// Whether nothing is left.
    pub(super) fn all(self) -> bool {
        matches!(self, Self::From(q) if q <= REPORTED_QUANTILES[0])
    }

    pub(super) fn withdraws(self, claim: ClaimName) -> bool {
        match (self, claim.quantile()) {
            (Self::Nothing, _) => false,
            (Self::Everything, _) => true,
            (Self::Comparison | Self::Explanation | Self::IdealAndForecasts, Some(_)) => false,
            (Self::Comparison, None) => true,
            (Self::Explanation, None) => claim != ClaimName::Ideal,
            (Self::IdealAndForecasts, None) => claim != ClaimName::Causes,
            (Self::From(from), Some(q)) => q >= from,
            // a few requests cannot change what delayed most of those above p99
            (Self::From(from), None) if claim != ClaimName::Ideal => from <= 0.9,
            (Self::From(_), None) => self.all(),
        }
    }
}

impl Rule {
    pub(super) fn reason(&self, evidence: &Evidence<'_>) -> Option<Reason> {
        let seen = (self.seen)(evidence)?;
        Some(match (self.remedy)(evidence) {
            "" => Reason::new(self.key, seen),
            remedy => Reason::new(self.key, format!("{seen}: {remedy}")),
        })
    }
}

/// `part` is more than `limit` of `whole`.
pub(super) fn exceeds(part: Nanos, limit: f64, whole: Nanos) -> bool {
    part.get() as f64 > limit * whole.get() as f64
}

/// `, so no percentile beyond 99.9 % is known`; empty if every request has an answer.
pub(super) fn no_percentile_beyond(evidence: &Evidence<'_>) -> String {
    let Some(measured) = evidence.measured() else {
        return String::new();
    };
    if measured.unanswered == 0 {
        return String::new();
    }
    let known = rounded_down(measured.answered_share());
    format!(", so no percentile beyond {known} % is known")
}

/// What identifies the requests of connections whose content was not read.
pub const NAME_THE_PROTOCOL: &str = "if the server speaks HTTP/1, memcached or RESP in the clear, name that with \
                                     --protocol, so that requests are identified by their content";

/// What to do about what only a defect of taillab can be.
pub(super) const REPORT_IT: &str = "this is a defect of taillab, please report it, with the recording (capture.tlc, which \
                                    `run` keeps with --save-capture)";

/// What identifies datagrams without ids.
pub const ONE_AT_A_TIME: &str =
    "an answer is certain where its client waits for it, or asks from more ports";

/// A share in percent, rounded down so that it does not promise more than is known: to two digits of what is missing,
/// and to at least one decimal.
fn rounded_down(share: f64) -> f64 {
    let missing = 100.0 * (1.0 - share);
    let decimals = (1.0 - missing.max(1e-9).log10().floor()).max(1.0);
    let unit = 10_f64.powf(decimals);
    // a product that is a whole number may come out a little below it
    (100.0 * share * unit * (1.0 + f64::EPSILON)).floor() / unit
}

/// The remedy that identifies more requests, so that fewer responses are ambiguous.
pub(super) fn remedy_for_ambiguity(evidence: &Evidence<'_>) -> &'static str {
    let speaks = evidence.server.and_then(|server| server.speaks);
    match (evidence.recording, speaks) {
        (None, _) => "use more client ports, or a longer time-out",
        (Some(TraceFacts { framed: true, .. }), Some(other)) => other.advice(),
        (Some(TraceFacts { framed: true, .. }), None) if most_are_ambiguous(evidence) => {
            "check that the server speaks what --protocol says"
        }
        (Some(TraceFacts { framed: true, .. }), None) => {
            "record for longer (-d): connections that were in use when the recording began come into step \
             after some requests"
        }
        (
            Some(TraceFacts {
                datagrams: true, ..
            }),
            _,
        ) => ONE_AT_A_TIME,
        // all stamps are recorded, so framing would read the content of every request
        (Some(_), _) if stamps_are_complete(evidence) => NAME_THE_PROTOCOL,
        (Some(_), _) => {
            "stamp all requests (--stamps all) and, if the server speaks HTTP/1, memcached or RESP in the clear, \
             name that with --protocol, so that requests are identified by their content"
        }
    }
}

fn most_are_ambiguous(evidence: &Evidence<'_>) -> bool {
    (evidence.server).is_some_and(|server| server.matching.ambiguous > server.matching.matched)
}

fn stamps_are_complete(evidence: &Evidence<'_>) -> bool {
    (evidence.server).is_none_or(|server| server.matching.stamps.are_complete())
}

/// `, the first: HTTP/1.1 404 Not Found`; empty if it is not known what the server answered.
pub(super) fn first_of_them(evidence: &Evidence<'_>) -> String {
    (evidence.wrong_answer).map_or_else(String::new, |line| format!(", the first: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_said_in_few_digits_and_never_rounded_up() {
        let said = [
            0.979_868_4,
            0.703_2,
            0.999_987_1,
            0.999,
            0.5,
            0.99,
            0.123_456,
        ];
        let said = said.map(|share| rounded_down(share).to_string());
        assert_eq!(
            said,
            ["97.9", "70.3", "99.9987", "99.9", "50", "99", "12.3"]
        );
    }
}
