//! Figures 4 to 12 of the paper as data: what to measure, and what the paper says about it.
//!
//! Source: Sriraman, Liu, Gunbay, Su and Wenisch 2016, *Deconstructing the Tail at Scale Effect
//! Across Network Protocols*, section 5. The statements are in our words; the numbers are theirs. The
//! text names only the ends of each range of sizes; the sizes between them are our choice.

use taillab_experiment::round_trips::RowPlan;
use taillab_load::rtt::{Mode, Proto};
use taillab_simulator::paper::{Claim, Expected};

use crate::args::RoundTripFigure;

/// A figure: its curves, and what the paper says about them.
pub struct Specification {
    /// `fig4` …
    pub name: &'static str,
    /// A title and, after a colon, what all curves have in common.
    pub title: &'static str,
    /// The curves.
    pub rows: Vec<RowPlan>,
    /// The paper's claims.
    pub claims: Vec<Claim<Measure>>,
    /// It shows single round trips instead of a distribution.
    pub is_series: bool,
    /// The RDMA protocol that it needs; `rows` are the substitute without a device.
    pub rdma: Option<Proto>,
}

impl Specification {
    /// The same curves over RDMA, if the figure needs that.
    pub fn over_rdma(mut self) -> Self {
        if let Some(proto) = self.rdma.take() {
            for row in &mut self.rows {
                row.proto = proto;
            }
        }
        self
    }
}

/// Which of our numbers is compared.
#[derive(Clone, Copy)]
pub enum Measure {
    /// The longest of a quantile over all curves, in µs.
    QuantileUs(f64),
    /// The slowest round trip of all curves, in µs.
    WorstUs,
    /// The slowest divided by the median, the largest over all curves.
    WorstToMedian,
    /// A quantile of the last curve divided by that of the first.
    LastToFirst(f64),
    /// The slowest of the last curve divided by that of the first.
    WorstLastToFirst,
    /// The share of slow round trips that follow one another, the largest over all curves.
    InRuns,
}

impl Measure {
    /// Whether it depends on a single round trip.
    pub const fn is_of_slowest(self) -> bool {
        matches!(
            self,
            Self::WorstUs | Self::WorstToMedian | Self::WorstLastToFirst
        )
    }
}

/// The figures with these names, in the paper's order, each once.
pub fn wanted(names: &[RoundTripFigure]) -> Vec<Specification> {
    use RoundTripFigure as F;
    let all: [(F, fn() -> Specification); 9] = [
        (F::Fig4, fig4),
        (F::Fig5, fig5),
        (F::Fig6, fig6),
        (F::Fig7, fig7),
        (F::Fig8, fig8),
        (F::Fig9, fig9),
        (F::Fig10, fig10),
        (F::Fig11, fig11),
        (F::Fig12, fig12),
    ];
    all.iter()
        .filter(|(name, _)| names.contains(name) || names.contains(&F::All))
        .map(|(_, figure)| figure())
        .collect()
}

const KB: usize = 1 << 10;

fn row(proto: Proto, mode: Mode, size: usize, conns: usize) -> RowPlan {
    RowPlan {
        proto,
        mode,
        size,
        conns,
    }
}

fn figure(
    name: &'static str,
    title: &'static str,
    rows: Vec<RowPlan>,
    claims: Vec<Claim<Measure>>,
) -> Specification {
    Specification {
        name,
        title,
        rows,
        claims,
        is_series: false,
        rdma: None,
    }
}

fn fig4() -> Specification {
    figure(
        "fig4",
        "TCP: messages of 1 KB, one connection",
        vec![row(Proto::Tcp, Mode::Blocking, KB, 1)],
        vec![
            Claim::new(
                "section 5.2, figure 4",
                "99.9 % take less than 100 µs",
                Measure::QuantileUs(0.999),
                Expected::Below(100.0),
            ),
            Claim::new(
                "section 5.2, figure 4",
                "the slowest takes 11 ms",
                Measure::WorstUs,
                Expected::Near(11_000.0),
            ),
            Claim::new(
                "abstract",
                "the slowest takes 110 times the median",
                Measure::WorstToMedian,
                Expected::Near(110.0),
            ),
        ],
    )
}

fn fig5() -> Specification {
    let sizes = [
        64,
        KB,
        4 * KB,
        16 * KB,
        64 * KB,
        128 * KB,
        256 * KB,
        512 * KB,
    ];
    figure(
        "fig5",
        "TCP by size: one connection",
        sizes
            .map(|size| row(Proto::Tcp, Mode::Blocking, size, 1))
            .to_vec(),
        vec![
            Claim::new(
                "section 5.2, figure 5",
                "the slowest takes 19 ms",
                Measure::WorstUs,
                Expected::Near(19_000.0),
            ),
            Claim::new(
                "section 5.2",
                "larger messages take longer at p99.9",
                Measure::LastToFirst(0.999),
                Expected::Above(1.0),
            ),
            Claim::new(
                "section 5.2",
                "the size does not change how long the slowest takes",
                Measure::WorstLastToFirst,
                Expected::Near(1.0),
            ),
        ],
    )
}

fn fig6() -> Specification {
    figure(
        "fig6",
        "TCP by connections: messages of 1 KB",
        [1, 2, 4, 8]
            .map(|conns| row(Proto::Tcp, Mode::Blocking, KB, conns))
            .to_vec(),
        vec![Claim::new(
            "section 5.2, figure 6",
            "the slowest takes 20 ms",
            Measure::WorstUs,
            Expected::Near(20_000.0),
        )],
    )
}

fn fig7() -> Specification {
    figure(
        "fig7",
        "TCP, non-blocking: messages of 1 KB, one connection",
        vec![row(Proto::Tcp, Mode::Nonblocking, KB, 1)],
        vec![
            Claim::new(
                "section 5.2, figure 7",
                "the median is below 100 µs",
                Measure::QuantileUs(0.5),
                Expected::Below(100.0),
            ),
            Claim::new(
                "section 5.2, figure 7",
                "the slowest takes 8 ms",
                Measure::WorstUs,
                Expected::Near(8_000.0),
            ),
        ],
    )
}

fn fig8() -> Specification {
    figure(
        "fig8",
        "UDP: messages of 1 KB, one connection",
        vec![row(Proto::Udp, Mode::Blocking, KB, 1)],
        vec![
            Claim::new(
                "section 5.3, figure 8",
                "99.9 % take less than 100 µs",
                Measure::QuantileUs(0.999),
                Expected::Below(100.0),
            ),
            Claim::new(
                "section 5.3, figure 8",
                "the slowest takes 2.5 ms",
                Measure::WorstUs,
                Expected::Near(2_500.0),
            ),
        ],
    )
}

fn fig9() -> Specification {
    figure(
        "fig9",
        "UDP by size: eight connections",
        [64, 256, KB, 1472]
            .map(|size| row(Proto::Udp, Mode::Blocking, size, 8))
            .to_vec(),
        vec![Claim::new(
            "section 5.3, figure 9",
            "p99.99 is at most 11 ms",
            Measure::QuantileUs(0.9999),
            Expected::Below(11_000.0),
        )],
    )
}

/// Kernel bypass without RDMA.
fn kernel_bypass() -> Vec<RowPlan> {
    [64, KB, 8 * KB]
        .map(|size| row(Proto::Shm, Mode::Nonblocking, size, 1))
        .to_vec()
}

fn fig10() -> Specification {
    Specification {
        rdma: Some(Proto::RdmaRead),
        ..figure(
            "fig10",
            "RDMA read: one connection",
            kernel_bypass(),
            vec![
                Claim::new(
                    "section 5.4, figure 10",
                    "most reads take about 10 µs",
                    Measure::QuantileUs(0.5),
                    Expected::Near(10.0),
                ),
                Claim::new(
                    "section 5.4, figure 10",
                    "the slowest takes 150 µs",
                    Measure::WorstUs,
                    Expected::Near(150.0),
                ),
                Claim::new(
                    "section 5.4",
                    "the slowest takes 15 times the median",
                    Measure::WorstToMedian,
                    Expected::Near(15.0),
                ),
            ],
        )
    }
}

fn fig11() -> Specification {
    Specification {
        rdma: Some(Proto::RdmaWrite),
        ..figure(
            "fig11",
            "RDMA write: one connection",
            kernel_bypass(),
            vec![Claim::new(
                "section 5.4, figure 11",
                "most writes take about 10 µs",
                Measure::QuantileUs(0.5),
                Expected::Near(10.0),
            )],
        )
    }
}

fn fig12() -> Specification {
    Specification {
        is_series: true,
        rdma: Some(Proto::RdmaRead),
        ..figure(
            "fig12",
            "RDMA read, one by one: around the slowest",
            vec![row(Proto::Shm, Mode::Nonblocking, KB, 1)],
            vec![Claim::new(
                "section 5.4, figure 12",
                "slow round trips are single events",
                Measure::InRuns,
                Expected::Below(0.5),
            )],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_curves_that_can_be_measured_and_claims() {
        let all = wanted(&[RoundTripFigure::All]);
        let names: Vec<_> = all.iter().map(|figure| figure.name).collect();
        assert_eq!(
            names,
            [
                "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12"
            ]
        );
        for figure in all {
            assert!(!figure.rows.is_empty() && !figure.claims.is_empty());
            for row in &figure.rows {
                row.proto.check(row.mode, row.size).unwrap();
            }
            let needs_rdma = figure.rdma.is_some();
            assert_eq!(needs_rdma, figure.title.contains("RDMA"));
            for row in figure.over_rdma().rows {
                assert_eq!(row.proto.is_rdma(), needs_rdma);
                row.proto.check(row.mode, row.size).unwrap();
            }
        }
        let two = wanted(&[
            RoundTripFigure::Fig8,
            RoundTripFigure::Fig4,
            RoundTripFigure::Fig8,
        ]);
        assert_eq!(
            two.iter().map(|f| f.name).collect::<Vec<_>>(),
            ["fig4", "fig8"]
        );
    }
}
