//! Measured ÷ ideal, divided among what makes it more than 1.
//!
//! The requests around a percentile of the measurement are not those around the same percentile of the ideal
//! queue. So the difference between the two percentiles is divided in the proportions in which the ledger
//! divides the excess of the requests around the measured one.
//!
//! Where requests differ much in their work, the ideal is that of each request's own work. It has the slow
//! requests, too, and what they delay, so they are no part of what is beyond it.

use taillab_model::explanation::{Band, Cause, DividedRatio, RatioPart};
use taillab_model::summary::{ServerResult, ServiceTimeSource};

use crate::composition::AROUND;

/// What a reader is told, and the causes that it sums up.
const PARTS: [(&str, &[Cause]); 16] = [
    ("wake-ups and idle exits", &[Cause::Wakeup, Cause::IdleExit]),
    ("receive", &[Cause::StackRx]),
    ("transmit", &[Cause::StackTx]),
    ("other threads", &[Cause::Background]),
    ("own threads", &[Cause::OwnThreads]),
    ("pauses of the whole server", &[Cause::Pause]),
    ("waiting for an upstream", &[Cause::Upstream]),
    ("waiting for the client", &[Cause::Client]),
    ("interrupts and softirqs", &[Cause::Irq, Cause::Softirq]),
    (
        "batching and order",
        &[Cause::Queue, Cause::Order, Cause::Imbalance],
    ),
    ("slow requests", &[Cause::SlowService, Cause::Service]),
    (
        "sleeping inside requests",
        &[
            Cause::BlockedLock,
            Cause::BlockedFault,
            Cause::BlockedIo,
            Cause::BlockedOther,
        ],
    ),
    ("quotas", &[Cause::Throttled]),
    ("the host", &[Cause::Hypervisor, Cause::SlowCpu]),
    ("retransmissions", &[Cause::Retransmit]),
    (
        "what was not seen",
        &[Cause::Unobserved, Cause::Unexplained],
    ),
];

const PROBE: &str = "the probe";

/// The ratios of a result, as far as there are an ideal and an explanation.
pub fn divided(server: &ServerResult) -> Vec<DividedRatio> {
    let explanation = server.explanation.iter();
    let around = explanation.flat_map(|explanation| &explanation.around);
    around.filter_map(|band| divide(server, band)).collect()
}

/// The ratio at the percentile around which this band lies.
fn divide(server: &ServerResult, band: &Band) -> Option<DividedRatio> {
    let is_in_band = |q: &f64| (band.from_q..=band.to_q).contains(q);
    let q = AROUND.into_iter().find(is_in_band)?;
    let measured = server.measured.sojourn.quantile(q)?.get() as f64;
    let ideal = server.ideal.base().quantile(q)?.get() as f64;
    if ideal <= 0.0 || measured <= ideal {
        return None;
    }
    let beyond = measured / ideal - 1.0;
    let probe = probe_ns(server) / ideal;
    let parts = match server.ideal.base_of_own_work().is_some() {
        true => parts(&without_slow_requests(band), beyond, probe).unwrap_or_default(),
        false => parts(band, beyond, probe)?,
    };
    Some(DividedRatio {
        q,
        ratio: measured / ideal,
        parts,
    })
}

/// A band without what the ideal of each request's own work has as well.
fn without_slow_requests(band: &Band) -> Band {
    let mut band = band.clone();
    let is_work = |cause| matches!(cause, Cause::SlowService | Cause::Service);
    band.parts.retain(|part| !is_work(part.cause));
    band
}

/// What is beyond 1, of which the probe makes this much, in the proportions of a band; `None` if the band has
/// no excess.
fn parts(band: &Band, beyond: f64, probe: f64) -> Option<Vec<RatioPart>> {
    let excess: f64 = band.parts.iter().map(|part| part.mean_excess_ns).sum();
    if excess <= 0.0 {
        return None;
    }
    let probe = probe.min(beyond);
    let scale = (beyond - probe) / excess;
    let part = |what: &str, causes: &[Cause], value: f64| RatioPart {
        what: what.to_owned(),
        causes: causes.to_vec(),
        value,
    };
    let of_causes = PARTS.iter().map(|(what, causes)| {
        let own = (band.parts.iter()).filter(|part| causes.contains(&part.cause));
        let own: f64 = own.map(|part| part.mean_excess_ns).sum();
        part(what, causes, scale * own)
    });
    let mut parts: Vec<RatioPart> = of_causes.chain([part(PROBE, &[], probe)]).collect();
    parts.retain(|part| part.value != 0.0);
    parts.sort_by(|a, b| b.value.total_cmp(&a.value));
    Some(parts)
}

/// The probe's CPU time per request, where the measurement has it and the ideal has not: where t is that of a
/// peak without the probe.
fn probe_ns(server: &ServerResult) -> f64 {
    let loss = match server.service_time_source {
        ServiceTimeSource::Calibrated => server.overhead.throughput_loss,
        _ => None,
    };
    let loss = loss.unwrap_or(0.0).clamp(0.0, 0.9);
    server.service_time_ns.get() as f64 * loss / (1.0 - loss)
}

#[cfg(test)]
mod tests {
    use taillab_model::explanation::{BandPart, Share};

    use super::*;

    fn band(parts: &[(Cause, f64)]) -> Band {
        let part = |&(cause, mean_excess_ns): &(Cause, f64)| BandPart {
            cause,
            mean_excess_ns,
            share: Share::default(),
        };
        Band {
            from_q: 0.475,
            to_q: 0.525,
            requests: 100,
            mean_sojourn_ns: 40_000.0,
            mean_ideal_ns: 20_000.0,
            parts: parts.iter().map(part).collect(),
        }
    }

    #[test]
    fn the_parts_sum_to_what_is_beyond_the_ideal() {
        let of = band(&[
            (Cause::StackTx, 6_000.0),
            (Cause::Wakeup, 9_000.0),
            (Cause::IdleExit, 6_000.0),
            (Cause::Service, -1_000.0),
        ]);
        let found = parts(&of, 1.35, 0.15).unwrap();
        let named: Vec<(&str, f64)> = (found.iter())
            .map(|part| (part.what.as_str(), (part.value * 1e9).round() / 1e9))
            .collect();
        assert_eq!(
            named,
            [
                ("wake-ups and idle exits", 0.9),
                ("transmit", 0.36),
                ("the probe", 0.15),
                ("slow requests", -0.06),
            ]
        );
        let sum: f64 = found.iter().map(|part| part.value).sum();
        assert!((sum - 1.35).abs() < 1e-12, "{sum}");
        // the probe is not more than all
        let found = parts(&of, 0.1, 0.15).unwrap();
        assert_eq!((found.len(), found[0].value), (1, 0.1));
        assert_eq!(parts(&band(&[]), 1.0, 0.0), None);
    }

    #[test]
    fn slow_requests_are_no_part_where_the_ideal_has_them() {
        let of = band(&[(Cause::SlowService, 90_000.0), (Cause::Wakeup, 9_000.0)]);
        let found = parts(&without_slow_requests(&of), 0.5, 0.0).unwrap();
        assert_eq!((found.len(), found[0].value), (1, 0.5));
        assert_eq!(found[0].causes, [Cause::Wakeup, Cause::IdleExit]);
    }

    #[test]
    fn each_cause_is_in_one_part() {
        for cause in Cause::ALL {
            let with = PARTS.iter().filter(|(_, causes)| causes.contains(&cause));
            assert_eq!(with.count(), 1, "{cause:?}");
        }
    }
}
