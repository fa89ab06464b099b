//! What several workers reach together of as many times what one reaches by itself.

use taillab_model::Nanos;
use taillab_model::explanation::Share;
use taillab_model::summary::{
    Calibration, LimitedBy, NoScaling, Scaling, ServerResult, ServiceTimeSource,
};

/// A value and its interval.
type Bounded = (f64, f64, f64);

/// What the workers of this server reached at this peak; `None` where there is only one.
///
/// t of one core is what the busy periods show: its own CPU time per request while the next one waits. That has the
/// probe in it, so it is compared with the peak with the probe. A t that was given, and the wait of virtual workers,
/// are compared with the peak itself.
pub fn of(server: &ServerResult, peak: &Calibration) -> Option<Scaling> {
    let probe = &server.overhead;
    let left = |lost: f64| 1.0 - lost;
    let one = OneWorker {
        t: server.service_time_ns,
        interval: server.service_time_lo_ns.zip(server.service_time_hi_ns),
        source: server.service_time_source,
        left_by_probe: probe.throughput_loss.map(|loss| {
            let (lo, hi) = (probe.throughput_loss_lo, probe.throughput_loss_hi);
            (
                left(loss),
                left(hi.unwrap_or(loss)),
                left(lo.unwrap_or(loss)),
            )
        }),
    };
    let workers = server.ideal.workers;
    (workers >= 2).then(|| one.times(workers, peak))
}

/// What is known of one worker.
struct OneWorker {
    t: Nanos,
    interval: Option<(Nanos, Nanos)>,
    source: ServiceTimeSource,
    /// The share of the peak that the probe leaves, where that was measured.
    left_by_probe: Option<Bounded>,
}

impl OneWorker {
    /// So many of them, compared with what all of them reached.
    fn times(&self, workers: u32, peak: &Calibration) -> Scaling {
        let is_of_server = match self.source {
            // their CPUs are idle, whatever the limit
            ServiceTimeSource::VirtualWait => peak.limited_by != LimitedBy::Client,
            _ => peak.limited_by == LimitedBy::Server,
        };
        let (one, share, why) = match self.alone().zip(self.together(peak)) {
            None => (None, None, Some(NoScaling::OneIsNotKnown)),
            Some((one, _)) if !is_of_server => {
                (Some(one), None, Some(NoScaling::PeakIsNotOfServer))
            }
            Some((one, all)) => (Some(one), Some(reached(all, one, workers)), None),
        };
        Scaling {
            workers,
            one_per_s: one.map(|(per_s, ..)| per_s),
            reached: share,
            not_known_because: why,
        }
    }

    /// Requests per second that one answers by itself.
    fn alone(&self) -> Option<Bounded> {
        let per_s = |t: Nanos| Some(t.as_secs_f64().recip()).filter(|per_s| per_s.is_finite());
        let one = per_s(self.t)?;
        match self.source {
            ServiceTimeSource::VirtualWait | ServiceTimeSource::Given => Some((one, one, one)),
            ServiceTimeSource::BusyPeriods => {
                let (lo, hi) = self.interval?;
                Some((one, per_s(hi)?, per_s(lo)?))
            }
            ServiceTimeSource::Calibrated
            | ServiceTimeSource::BusyTime
            | ServiceTimeSource::AsFastAsMeasured
            | ServiceTimeSource::Unknown => None,
        }
    }

    /// Requests per second that all of them answered at the peak: with the probe, if t has it.
    fn together(&self, peak: &Calibration) -> Option<Bounded> {
        let all = (peak.peak_per_s, peak.peak_lo_per_s, peak.peak_hi_per_s);
        match self.source {
            ServiceTimeSource::BusyPeriods => {
                Some(combined(all, self.left_by_probe?, |all, left| all * left))
            }
            _ => Some(all),
        }
    }
}

/// The share that all of them reach of as many times what one does.
fn reached(all: Bounded, one: Bounded, workers: u32) -> Share {
    let share = |one: f64| (one * f64::from(workers)).recip();
    // more of one makes it smaller
    let one = (share(one.0), share(one.2), share(one.1));
    let (value, lo, hi) = combined(all, one, |all, one| all * one);
    Share {
        value,
        lo: Some(lo),
        hi: Some(hi),
    }
}

/// Of two independent values, which both increase it: their errors add in quadrature.
fn combined(a: Bounded, b: Bounded, of: fn(f64, f64) -> f64) -> Bounded {
    let value = of(a.0, b.0);
    let off = |a_end: f64, b_end: f64| (of(a_end, b.0) - value).hypot(of(a.0, b_end) - value);
    (value, value - off(a.1, b.1), value + off(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs()
    }

    #[test]
    fn a_share_has_the_interval_of_both_its_parts() {
        // four reach 80,000 ± 10 %, one 25,000 ± 5 %
        let share = reached((80e3, 72e3, 88e3), (25e3, 25e3 / 1.05, 25e3 / 0.95), 4);
        assert!(near(share.value, 0.8), "{share:?}");
        let off = 0.8 * 0.1_f64.hypot(0.05);
        assert!(near(share.lo.unwrap(), 0.8 - off), "{share:?}");
        assert!(near(share.hi.unwrap(), 0.8 + off), "{share:?}");
        // what is known exactly adds nothing
        let share = reached((80e3, 72e3, 88e3), (25e3, 25e3, 25e3), 4);
        assert!(near(share.lo.unwrap(), 0.72) && near(share.hi.unwrap(), 0.88));
    }

    const WORKERS: u32 = 4;

    fn peak(limited_by: LimitedBy) -> Calibration {
        Calibration {
            peak_per_s: 100e3,
            peak_lo_per_s: 98e3,
            peak_hi_per_s: 102e3,
            server_cpu_busy_share: 1.0,
            limited_by,
            outstanding: 64,
            blocks: 9,
            scaling: None,
        }
    }

    /// 40 µs, so four answer 100,000/s if they do not disturb each other.
    fn one(source: ServiceTimeSource) -> OneWorker {
        let us = Nanos::from_micros;
        OneWorker {
            t: us(40),
            interval: Some((us(39), us(41))),
            source,
            left_by_probe: Some((0.9, 0.88, 0.92)),
        }
    }

    #[test]
    fn a_recorded_t_is_compared_with_the_peak_with_the_probe() {
        let found = one(ServiceTimeSource::BusyPeriods).times(WORKERS, &peak(LimitedBy::Server));
        let share = found.reached.unwrap();
        assert!(near(share.value, 0.9) && near(found.one_per_s.unwrap(), 25e3));
        assert!(
            share.lo.unwrap() < 0.88 && share.hi.unwrap() > 0.92,
            "{share:?}"
        );
        assert_eq!(found.not_known_because, None);
        // virtual workers wait without the probe, and leave their CPUs idle
        let waiting = one(ServiceTimeSource::VirtualWait).times(WORKERS, &peak(LimitedBy::Waits));
        assert!(near(waiting.reached.unwrap().value, 1.0));
    }

    #[test]
    fn what_says_nothing_of_one_worker_gives_no_share() {
        let found = |one: OneWorker, limited_by| one.times(WORKERS, &peak(limited_by));
        let recorded = || one(ServiceTimeSource::BusyPeriods);
        for limited_by in [LimitedBy::Client, LimitedBy::Others, LimitedBy::Waits] {
            let found = found(recorded(), limited_by);
            assert_eq!(found.reached, None);
            assert_eq!(found.not_known_because, Some(NoScaling::PeakIsNotOfServer));
        }
        // t is workers ÷ peak: the share would always be 1
        let circular = found(one(ServiceTimeSource::Calibrated), LimitedBy::Server);
        let unknown_probe = OneWorker {
            left_by_probe: None,
            ..recorded()
        };
        for found in [circular, found(unknown_probe, LimitedBy::Server)] {
            assert_eq!(found.reached, None);
            assert_eq!(found.not_known_because, Some(NoScaling::OneIsNotKnown));
        }
    }
}
