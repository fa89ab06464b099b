//! Simulated queues, compared with the exact results and the independent simulations in
//! `reference/` of the crate `queueing`: every cell is within four standard errors.
//!
//! The error of a simulated cell is that of its own independent batches; where the
//! reference is simulated, too, its standard error is added in quadrature. A cell is
//! tested only where the sample supports it: where its own relative error is at most
//! 15 %, so that the count behind it is nearly normal. The number of cells tested is
//! checked, so that none is dropped silently.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::service::Service;
use taillab_simulator::fork_join::{ForkJoin, warm_up_requests};
use taillab_simulator::run::Outcome;
use taillab_simulator::sample::{Estimate, Sample};
use taillab_simulator::simulation::{Simulation, Stop};

/// More batches than usual, so that the errors themselves are better known.
const BATCHES: u32 = 64;
const LARGEST_Z: f64 = 4.0;
const LARGEST_RELATIVE_ERROR: f64 = 0.15;

const QUANTILES: [(&str, f64); 6] = [
    ("p50_us", 0.5),
    ("p90_us", 0.1),
    ("p99_us", 0.01),
    ("p99.9_us", 0.001),
    ("p99.99_us", 0.000_1),
    ("p99.999_us", 0.000_01),
];

/// A table with a header: one map from column to text for each row.
fn table(file: &str) -> Vec<BTreeMap<String, String>> {
    let path = format!(
        "{}/../queueing/tests/reference/{file}",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    lines
        .map(|line| {
            let pairs = header.iter().zip(line.split(','));
            pairs
                .map(|(k, v)| ((*k).to_owned(), v.to_owned()))
                .collect()
        })
        .collect()
}

/// The number in a column, if there is one.
fn number(row: &BTreeMap<String, String>, column: &str) -> Option<f64> {
    row.get(column)?.parse().ok()
}

/// A simulation of one row; each row has its own random numbers, so that the errors of
/// different rows are independent.
fn simulate(
    row: usize,
    service: &str,
    workers: u32,
    rho: f64,
    discipline: &str,
    millions: u64,
) -> Outcome {
    let simulation = Simulation {
        stop: Stop::Requests(millions * 1_000_000),
        batches: BATCHES,
        seed: 20_140_401 + row as u64,
        ..Simulation::new(
            ArrivalProcess::Poisson,
            service.parse().unwrap(),
            NonZeroU32::new(workers).unwrap(),
            rho,
            discipline.parse().unwrap(),
        )
    };
    simulation.run().unwrap()
}

/// Collects cells with their outcomes.
#[derive(Default)]
struct Cells {
    tested: usize,
    unsupported: Vec<String>,
    misses: Vec<String>,
    squares: f64,
}

impl Cells {
    fn check(&mut self, name: String, got: Estimate, want: f64, error_of_want: f64) {
        let error = got.standard_error.hypot(error_of_want);
        let off = got.value - want;
        let z = if off == 0.0 { 0.0 } else { off / error };
        self.tested += 1;
        self.squares += z * z;
        if z.is_nan() || z.abs() > LARGEST_Z {
            self.misses.push(format!(
                "{name}: {} instead of {want}, z = {z:.2}",
                got.value
            ));
        }
    }

    /// Checks the share above an exact quantile.
    fn check_tail(&mut self, name: &str, sample: &Sample, x_us: f64, above: f64) {
        let got = sample.share_above(x_us * 1e3).unwrap();
        // relative to the share or to its complement, whichever is smaller
        let relative = got.standard_error / got.value.min(1.0 - got.value);
        if relative > LARGEST_RELATIVE_ERROR || got.value == 0.0 {
            self.unsupported.push(name.to_owned());
        } else {
            self.check(name.to_owned(), got, above, 0.0);
        }
    }

    /// Asserts that enough cells were tested, that none is off, and that they scatter as they should.
    fn finish(self, least: usize) {
        let scatter = (self.squares / self.tested as f64).sqrt();
        let (tested, unsupported) = (self.tested, self.unsupported);
        println!(
            "{tested} cells, root mean square of z {scatter:.2}, not supported: {unsupported:?}"
        );
        assert!(self.misses.is_empty(), "{}", self.misses.join("\n"));
        assert!(
            tested >= least,
            "only {tested} of {least} cells were tested"
        );
        // errors that are too large would hide every defect
        assert!(
            (0.4..1.5).contains(&scatter),
            "root mean square of z: {scatter}"
        );
    }
}

/// The law of the sojourn, its mean and P(wait) of FIFO over 1 to 8 workers.
fn fifo(file: &str, service: &str, least: usize) {
    let mut cells = Cells::default();
    for (i, row) in table(file).into_iter().enumerate() {
        let (c, rho) = (number(&row, "c").unwrap(), number(&row, "rho").unwrap());
        let millions = if rho > 0.85 { 400 } else { 100 };
        let outcome = simulate(i, service, c as u32, rho, "fifo", millions);
        let name = |column: &str| format!("{} c={c} rho={rho} {column}", row["model"]);
        let waits = outcome.wait.share_above(0.0).unwrap();
        cells.check(name("P(wait)"), waits, number(&row, "P_wait").unwrap(), 0.0);
        let mean = outcome.sojourn.mean_ns().unwrap();
        cells.check(
            name("mean"),
            mean,
            number(&row, "mean_us").unwrap() * 1e3,
            0.0,
        );
        for (column, above) in QUANTILES {
            let x = number(&row, column).unwrap();
            // at the shortest possible sojourn there is an atom, which P(wait) tests
            if service.starts_with("deterministic") && x <= 50.000_001 {
                continue;
            }
            cells.check_tail(&name(column), &outcome.sojourn, x, above);
        }
    }
    cells.finish(least);
}

#[test]
fn mdc_sojourns() {
    fifo("mdc_sojourn_quantiles.csv", "deterministic:50us", 138);
}

#[test]
fn mmc_sojourns() {
    fifo("mmc_sojourn_quantiles.csv", "exponential:50us", 143);
}

/// P(W > x) on the grid of a quarter service time.
#[test]
fn mdc_waits_on_the_grid() {
    let mut cells = Cells::default();
    let mut outcomes: BTreeMap<String, Outcome> = BTreeMap::new();
    for (i, row) in table("mdc_ccdf_points.csv").into_iter().enumerate() {
        let (c, rho) = (number(&row, "c").unwrap(), number(&row, "rho").unwrap());
        let key = format!("c={c} rho={rho}");
        let outcome = outcomes
            .entry(key.clone())
            .or_insert_with(|| simulate(i, "deterministic:50us", c as u32, rho, "fifo", 60));
        let x = number(&row, "wait_us").unwrap();
        let name = format!("M/D/c {key} P(W > {x})");
        cells.check_tail(&name, &outcome.wait, x, number(&row, "P(W>wait)").unwrap());
    }
    cells.finish(179);
}

/// LIFO, random order and processor sharing by exact laws.
#[test]
fn disciplines_against_exact_laws() {
    let mut cells = Cells::default();
    for (i, row) in table("discipline_exact.csv").into_iter().enumerate() {
        let (c, rho) = (number(&row, "c").unwrap(), number(&row, "rho").unwrap());
        let service = if row["model"].starts_with("M/D") {
            "deterministic:50us"
        } else {
            "exponential:50us"
        };
        let discipline = match row["discipline"].as_str() {
            "FIFO" => "fifo",
            "LIFO" => "lifo",
            "ROS" => "random-request",
            "PS" => "ps",
            other => panic!("unknown discipline {other}"),
        };
        let outcome = simulate(i, service, c as u32, rho, discipline, 40);
        let sample = match row["metric"].as_str() {
            "wait_only" => &outcome.wait,
            "sojourn" => &outcome.sojourn,
            other => panic!("unknown metric {other}"),
        };
        let name = |column: &str| format!("{} {discipline} c={c} rho={rho} {column}", row["model"]);
        let mean = sample.mean_ns().unwrap();
        cells.check(
            name("mean"),
            mean,
            number(&row, "mean_us").unwrap() * 1e3,
            0.0,
        );
        for (column, above) in QUANTILES {
            let Some(x) = number(&row, column) else {
                continue;
            };
            // atoms: no wait at all, and in M/D/1 the shortest sojourn, whatever the order
            let atom = if service.starts_with("deterministic") && discipline != "ps" {
                50.000_001
            } else {
                0.0
            };
            if x > atom {
                cells.check_tail(&name(column), sample, x, above);
            }
        }
    }
    cells.finish(174);
}

/// Means, second moments and variances by formula.
#[test]
fn moments() {
    let mut cells = Cells::default();
    for (i, row) in table("moments_exact.csv").into_iter().enumerate() {
        let rho = number(&row, "rho").unwrap();
        let quantity = row["quantity"].as_str();
        // fork-join has its own simulator and test
        if quantity.starts_with("E[max]") {
            continue;
        }
        let service = if row["model"].starts_with("M/M") {
            "exponential:50us"
        } else {
            "deterministic:50us"
        };
        let of = |discipline: &str, millions| simulate(i, service, 1, rho, discipline, millions);
        let want = number(&row, "value_us_or_us2").unwrap();
        // second moments of long tails need more requests
        let millions = if rho > 0.92 { 60 } else { 30 };
        let name = format!("{} rho={rho} {quantity}", row["model"]);
        let mut check = |got: Option<Estimate>, unit: f64| {
            cells.check(name.clone(), got.unwrap(), want * unit, 0.0)
        };
        match quantity {
            "E[T] FIFO=LIFO=ROS (P-K)" => {
                for discipline in ["fifo", "lifo", "random-request"] {
                    check(of(discipline, millions).sojourn.mean_ns(), 1e3);
                }
            }
            "E[W^2] FIFO" => check(mean_of_squares(&of("fifo", 2 * millions).wait), 1e6),
            "E[W^2] LIFO" => check(mean_of_squares(&of("lifo", millions).wait), 1e6),
            "E[W^2] ROS" => check(mean_of_squares(&of("random-request", millions).wait), 1e6),
            "Var[T] PS" => check(variance(&of("ps", millions).sojourn), 1e6),
            "E[T] PS (insensitive)" => check(of("ps", millions).sojourn.mean_ns(), 1e3),
            other => panic!("unknown quantity {other}"),
        }
    }
    cells.finish(45);
}

fn mean_of_squares(sample: &Sample) -> Option<Estimate> {
    sample.ratio(|batch| batch.mean_of_squares().unwrap_or(0.0) * batch.count() as f64)
}

/// E(X − m)² with m the mean of all batches: linear in each batch's sums.
fn variance(sample: &Sample) -> Option<Estimate> {
    let mean = sample.pooled().mean_ns()?;
    sample.ratio(|batch| {
        let squares = batch.mean_of_squares().unwrap_or(0.0);
        let batch_mean = batch.mean_ns().unwrap_or(0.0);
        (squares - 2.0 * mean * batch_mean + mean * mean) * batch.count() as f64
    })
}

/// Disciplines without exact laws, compared with the results of an independent simulator.
#[test]
fn disciplines_against_another_simulator() {
    let mut cells = Cells::default();
    for (i, row) in table("discipline_sim.csv").into_iter().enumerate() {
        let (c, rho) = (number(&row, "c").unwrap(), number(&row, "rho").unwrap());
        let service = if row["service"] == "D" {
            "deterministic:50us"
        } else {
            "exponential:50us"
        };
        let discipline = match row["discipline"].as_str() {
            "fifo" | "lifo" | "jsq" | "ps" => row["discipline"].as_str(),
            "ros" => "random-request",
            "rw" => "random-worker",
            "rr" => "round-robin",
            "po2" => "power-of-d:2",
            // fork-join has its own simulator and test
            "fj" => continue,
            other => panic!("unknown discipline {other}"),
        };
        let outcome = simulate(i, service, c as u32, rho, discipline, 25);
        let name =
            |column: &str| format!("{} {service} c={c} rho={rho} {column}", row["discipline"]);
        for (column, q) in [
            ("p50", 0.5),
            ("p99", 0.99),
            ("p99.9", 0.999),
            ("p99.99", 0.9999),
        ] {
            let want = number(&row, &format!("{column}_us")).unwrap() * 1e3;
            let error = number(&row, &format!("se_{column}")).unwrap() * 1e3;
            let Some(got) = outcome.sojourn.quantile(q) else {
                cells.unsupported.push(name(column));
                continue;
            };
            // The reference's quantiles come from bins that are 0.5 µs wide. This shows in a median next to the
            // atom of the requests that do not wait (M/D/1 at 0.5).
            let bins = 0.5 * 1e3 / 12.0_f64.sqrt();
            let estimate = Estimate {
                value: got.value_ns,
                standard_error: got.standard_error_ns,
            };
            cells.check(name(column), estimate, want, error.hypot(bins));
        }
    }
    cells.finish(128);
}

/// Fork-join, compared with the exact mean for two stations and with the simulated rows; shares and
/// errors come from independent replications.
#[test]
fn fork_join_rows() {
    let mut cells = 0;
    for row in table("discipline_sim.csv") {
        if row["discipline"] != "fj" {
            continue;
        }
        let (stations, rho) = (
            number(&row, "c").unwrap() as u32,
            number(&row, "rho").unwrap(),
        );
        let service = Service::Exponential {
            mean: Nanos::from_micros(50),
        };
        let replications = 16;
        let each = if stations == 2 { 250_000 } else { 100_000 };
        let warm_up = warm_up_requests(rho) as usize;
        let runs: Vec<Vec<f64>> = (0..replications)
            .map(|seed| {
                let join = ForkJoin::new(&ArrivalProcess::Poisson, &service, stations, rho, seed)
                    .expect("a valid fork-join");
                let kept = join.skip(warm_up).take(each);
                let mut run: Vec<f64> = kept.map(|t_ns| t_ns / 1e3).collect();
                run.sort_unstable_by(f64::total_cmp);
                run
            })
            .collect();
        if stations == 2 {
            let means: Vec<f64> = runs
                .iter()
                .map(|run| run.iter().sum::<f64>() / each as f64)
                .collect();
            let (mean, error) = mean_and_error(&means);
            // Flatto and Hahn 1984
            let exact = 50.0 * (12.0 - rho) / 8.0 / (1.0 - rho);
            let z = (mean - exact) / error;
            assert!(
                z.abs() <= 4.0,
                "mean {mean} ± {error}, exact {exact}: z = {z}"
            );
            cells += 1;
        }
        for (name, p) in [QUANTILES[0], QUANTILES[2], QUANTILES[3]] {
            let reference = number(&row, name).unwrap();
            let reference_error =
                number(&row, &format!("se_{}", name.trim_end_matches("_us"))).unwrap();
            // the share above the reference's quantile is unbiased; the reference's own error is converted to a
            // share by the local slope of the tail
            let share_above = |t: f64| -> Vec<f64> {
                let above = |run: &Vec<f64>| each - run.partition_point(|&x| x <= t);
                runs.iter()
                    .map(|run| above(run) as f64 / each as f64)
                    .collect()
            };
            let (share, error) = mean_and_error(&share_above(reference));
            let (low, _) = mean_and_error(&share_above(reference - 0.05 * reference));
            let (high, _) = mean_and_error(&share_above(reference + 0.05 * reference));
            let slope = (low - high) / (0.1 * reference);
            let z = (share - p) / error.hypot(slope * reference_error);
            assert!(
                z.abs() <= 4.0,
                "N={stations} {name}: share {share}, z = {z}"
            );
            cells += 1;
        }
    }
    assert_eq!(cells, 7);
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}
