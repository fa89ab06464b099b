//! The queue as it would have been if the server's CPUs had always worked at their usual speed.

use taillab_model::explanation::Culprit;

use super::observed::{NONE, Observed};

impl Observed {
    /// The queue with the usual work, and the usual time to receive packets, where the CPUs were slower.
    /// (What the ledger charges to other causes is as long as measured.)
    pub(super) fn at_usual_speed(&self) -> Self {
        let mut usual = self.clone();
        let origin_ns = self.origin_ns;
        let shorter =
            |at_ns: u64, length_ns: u64| self.speed.shorter_ns(origin_ns + at_ns, length_ns);
        for job in &mut usual.requests {
            let at_ns = job.finish_ns();
            for work in [
                &mut job.before_ns,
                &mut job.after_ns,
                &mut job.first_ns,
                &mut job.compute_ns,
                &mut job.reply_ns,
            ] {
                if *work != NONE {
                    *work -= shorter(at_ns, *work);
                }
            }
        }
        let receives = |source: &u16| {
            let source = self.sources.get(usize::from(*source));
            let culprit = source.and_then(|source| source.culprit.as_ref());
            matches!(culprit, Some(Culprit::Softirq { name }) if name == "NET_RX")
        };
        for vacations in &mut usual.vacations {
            vacations.shorten(|from_ns, length_ns, source| {
                if receives(&source) {
                    shorter(from_ns, length_ns)
                } else {
                    0
                }
            });
        }
        usual
    }
}

#[cfg(test)]
mod tests {
    use super::super::agreement::{change, departures, observed};
    use super::super::change::{Order, Sharing};
    use super::super::observed::VacationSource;
    use super::*;
    use crate::speed::Speed;
    use taillab_model::explanation::Cause;

    const MS: u64 = 1_000_000;

    #[test]
    fn work_and_receiving_are_as_short_as_usual_and_the_rest_as_long_as_measured() {
        // three requests, the last two in a stretch in which all work takes twice as long; then the CPU
        // receives for 2 ms, and another softirq takes 2 ms
        let jobs = [
            (MS, 1_000_000, 0, 0),
            (105 * MS, 4_000_000, 0, 0),
            (0, 2_000_000, 0, 0),
        ];
        let away = vec![(106 * MS, 2_000_000, 0), (MS, 2_000_000, 1)];
        let mut observed = observed(&jobs, &[away]);
        for (job, measured_ns) in observed.requests.iter_mut().zip([MS, 8 * MS, 10 * MS]) {
            job.measured_ns = measured_ns;
        }
        let softirq = |name: &str| VacationSource {
            cause: Cause::Softirq,
            culprit: Some(Culprit::Softirq {
                name: name.to_owned(),
            }),
            own: false,
        };
        observed.sources = vec![softirq("NET_RX"), softirq("TIMER")];
        observed.speed = Speed::slower(vec![(11, 2.0)]);
        observed.origin_ns = 1_000 * MS;
        let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
        let milliseconds = |of: Vec<u64>| -> Vec<u64> { of.iter().map(|at| at / MS).collect() };
        assert_eq!(milliseconds(departures(&observed, &change)), [2, 114, 116]);
        change.usual_speed = true;
        assert_eq!(milliseconds(departures(&observed, &change)), [2, 109, 112]);
    }
}
