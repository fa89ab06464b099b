//! Figures 1 to 4 of *Tales of the Tail* as data: what to simulate, and what the paper says about it.
//!
//! Source: Li, Sharma, Ports and Gribble 2014, UW-CSE14-04-01, section 2 (requests of 50 µs each), and
//! public remarks on these figures by one of the authors ("the author's thread"). The statements are in our
//! words; the numbers are theirs. If the text does not specify all curves of a figure, the others are our
//! choice, and a note says so.

mod claim;
mod figures;

pub use self::claim::{
    Claim, ClaimVerdict, Curve, Expected, Figure, Measure, SERVICE_TIME, Specification,
};

impl Figure {
    /// All figures of section 2.
    pub const ALL: [Self; 4] = [Self::Fig1, Self::Fig2, Self::Fig3, Self::Fig4];

    /// What to simulate and what to check.
    pub fn specification(self) -> Specification {
        match self {
            Self::Fig1 => figures::arrival_processes(),
            Self::Fig2 => figures::utilisation(),
            Self::Fig3 => figures::workers(),
            Self::Fig4 => figures::disciplines(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::figures::curve;
    use super::*;
    use taillab_queueing::arrivals::ArrivalProcess;
    use taillab_queueing::discipline::Discipline;
    use taillab_queueing::exact::{ExactModel, Mmc, MmcReordered, System};

    /// The exact quantile where theory has one; for LIFO and random request in M/D/4, the result of a
    /// simulation made elsewhere (95 M requests each, `queueing/tests/reference/discipline_sim.csv`).
    fn quantile_us(curve: &Curve, q: f64) -> Option<f64> {
        let system = System::new(
            &curve.arrivals,
            &curve.service(),
            curve.workers,
            &curve.discipline,
            curve.utilization,
        );
        if let Some(exact) = ExactModel::of(&system).unwrap() {
            return Some(exact.sojourn_quantile_s(q)? * 1e6);
        }
        let row = match (&curve.discipline, &curve.arrivals) {
            (_, ArrivalProcess::Deterministic) => [50.0; 3],
            (Discipline::Lifo, _) => [51.7927, 352.1673, 966.7929],
            (Discipline::RandomRequest, _) => [53.7447, 235.6334, 427.2903],
            _ => return None,
        };
        let column = [0.5, 0.99, 0.999].iter().position(|&x| x == q)?;
        Some(row[column])
    }

    #[test]
    fn exact_theory_agrees_with_the_paper_except_where_it_is_said_not_to() {
        let mut checked = 0;
        for figure in Figure::ALL {
            let specification = figure.specification();
            let curves = &specification.curves;
            for claim in &specification.claims {
                let ours = claim
                    .measure
                    .evaluate(curves.len(), |i, q| quantile_us(&curves[i], q));
                let wanted = match claim.known_disagreement {
                    Some(_) => ClaimVerdict::DisagreesAsKnown,
                    None => ClaimVerdict::Agrees,
                };
                let verdict = ours.map(|ours| claim.judge(ours));
                assert_eq!(verdict, Some(wanted), "{figure}: {ours:?} {claim:?}");
                checked += 1;
            }
        }
        assert_eq!(checked, 5 + 5 + 3 + 8);
    }

    #[test]
    fn the_explanations_state_what_theory_gives() {
        let at = |utilization, q| quantile_us(&curve("", 1, utilization), q).unwrap();
        let factor = |q| (at(0.95, q) / at(0.7, q) * 10.0).round() / 10.0;
        assert_eq!((factor(0.9), factor(0.999)), (5.7, 6.3));
        let fifo = quantile_us(&curve("", 4, 0.8), 0.5).unwrap();
        assert_eq!((fifo * 10.0).round() / 10.0, 56.9);
        // the paper's pair of medians, to the microsecond, from exponential service
        let fifo = Mmc::new(4, 0.785).unwrap();
        let lifo = MmcReordered::last_in_first_out(4, 0.785).unwrap();
        assert_eq!(
            (50.0 * fifo.sojourn_upper_quantile_services(0.5)).round(),
            64.0
        );
        assert_eq!(
            (50.0 * lifo.sojourn_upper_quantile_services(0.5)).round(),
            50.0
        );
    }

    #[test]
    fn specifications_name_their_figures() {
        for figure in Figure::ALL {
            assert_eq!(figure.specification().figure, figure);
        }
    }

    #[test]
    fn a_missing_quantile_gives_no_number() {
        for figure in Figure::ALL {
            for claim in figure.specification().claims {
                assert_eq!(claim.measure.evaluate(4, |_, _| None), None);
            }
        }
    }
}
