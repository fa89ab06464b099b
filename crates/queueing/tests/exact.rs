//! Every exact cell of the reference tables, and the limits of the laws.
//!
//! The tables in `reference/` were computed independently of this code (see the README there).
//! Each test asserts how many cells it compared, so that none is skipped silently.

mod formulas;

use std::collections::HashMap;

use proptest::prelude::*;
use taillab_queueing::exact::{
    ArrivalKind, ExactModel, Md1Lifo, Md1Random, Mdc, Mmc, MmcReordered, Order, ServiceKind, System,
};
use taillab_queueing::fanout::one_upper_probability;

const SERVICE_US: f64 = 50.0;
const SERVICE_S: f64 = 50e-6;

/// A table's rows by column name; an empty or missing cell is absent.
fn rows(table: &str) -> Vec<HashMap<String, String>> {
    let path = format!("{}/tests/reference/{table}.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the reference table");
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
    lines
        .map(|line| {
            let cells = names.iter().zip(line.split(','));
            cells
                .filter(|(_, cell)| !cell.is_empty())
                .map(|(name, cell)| (name.to_string(), cell.to_string()))
                .collect()
        })
        .collect()
}

fn number(row: &HashMap<String, String>, name: &str) -> f64 {
    row[name]
        .parse()
        .unwrap_or_else(|_| panic!("{name} of {row:?}"))
}

/// Asserts that `ours` rounds to the printed cell: it is at most half a unit of the last digit
/// away, with a little tolerance for rounding.
fn same_digits(row: &HashMap<String, String>, name: &str, ours: f64) {
    let cell = &row[name];
    let decimals = cell.split_once('.').map_or(0, |(_, tail)| tail.len()) as i32;
    let printed: f64 = cell.parse().expect("a number");
    let allowed = 0.500_01 * 10_f64.powi(-decimals) + 1e-12 * printed.abs();
    assert!(
        (ours - printed).abs() <= allowed,
        "{name}: {ours} is not {cell} in {row:?}"
    );
}

fn system(service: ServiceKind, workers: u32, order: Order, utilization: f64) -> System {
    System {
        arrivals: ArrivalKind::Poisson,
        service,
        mean_service_s: SERVICE_S,
        workers,
        order,
        utilization,
    }
}

fn model(service: ServiceKind, workers: u32, order: Order, utilization: f64) -> ExactModel {
    ExactModel::of(&system(service, workers, order, utilization))
        .expect("a valid system")
        .expect("an exact result")
}

const UPPER: [(&str, f64); 6] = [
    ("p50_us", 0.5),
    ("p90_us", 0.1),
    ("p99_us", 1e-2),
    ("p99.9_us", 1e-3),
    ("p99.99_us", 1e-4),
    ("p99.999_us", 1e-5),
];

/// M/M/c: the rate c(1 − ρ) at which the wait's tail falls, per mean service time.
fn mmc_decay(workers: u32, rho: f64) -> f64 {
    f64::from(workers) * (1.0 - rho)
}

fn fifo_table(table: &str, service: ServiceKind) -> usize {
    let mut cells = 0;
    for row in rows(table) {
        let workers = number(&row, "c") as u32;
        let rho = number(&row, "rho");
        let exact = model(service, workers, Order::Fifo, rho);
        let wait_probability = match service {
            ServiceKind::Deterministic => Mdc::new(workers, rho)
                .expect("a valid system")
                .wait_ccdf(0.0),
            _ => Mmc::new(workers, rho)
                .expect("a valid system")
                .wait_probability(),
        };
        same_digits(&row, "P_wait", wait_probability);
        same_digits(&row, "mean_us", exact.mean_sojourn_s() * 1e6);
        cells += 2;
        for (name, p) in UPPER {
            same_digits(
                &row,
                name,
                exact.sojourn_upper_quantile_s(p).expect("a quantile") * 1e6,
            );
            cells += 1;
        }
        let decay = match service {
            ServiceKind::Deterministic => Mdc::new(workers, rho)
                .expect("a valid system")
                .tail_decay_per_service(),
            // the sojourn falls with the slower of the wait's rate and the service's
            _ => mmc_decay(workers, rho).min(1.0),
        };
        same_digits(&row, "tail_decay_per_us", decay / SERVICE_US);
        cells += 1;
    }
    cells
}

#[test]
fn mdc_quantiles() {
    assert_eq!(
        fifo_table("mdc_sojourn_quantiles", ServiceKind::Deterministic),
        20 * 9
    );
}

#[test]
fn mmc_quantiles() {
    assert_eq!(
        fifo_table("mmc_sojourn_quantiles", ServiceKind::Exponential),
        20 * 9
    );
}

#[test]
fn mdc_tail_points() {
    let mut points = 0;
    for row in rows("mdc_ccdf_points") {
        let queue =
            Mdc::new(number(&row, "c") as u32, number(&row, "rho")).expect("a valid system");
        let ours = queue.wait_ccdf(number(&row, "wait_us") / SERVICE_US);
        let table = number(&row, "P(W>wait)");
        // absolute 1e-12, and relative to the 13 printed digits
        assert!((ours - table).abs() < 1e-12, "{ours:e} in {row:?}");
        assert!((ours / table - 1.0).abs() < 2e-12, "{ours:e} in {row:?}");
        points += 1;
    }
    assert_eq!(points, 245);
}

/// P(W > x) of these systems, x in mean service times; 0 beyond the computed part of the tail.
fn wait_ccdf(
    service: ServiceKind,
    workers: u32,
    order: Order,
    rho: f64,
) -> Box<dyn Fn(f64) -> f64> {
    use ServiceKind::{Deterministic, Exponential};
    match (order, service) {
        (Order::Fifo, Deterministic) => {
            let queue = Mdc::new(workers, rho).expect("a valid system");
            Box::new(move |x| queue.wait_ccdf(x))
        }
        (Order::Fifo, Exponential) => {
            let queue = Mmc::new(workers, rho).expect("a valid system");
            let decay = mmc_decay(workers, rho);
            Box::new(move |x| queue.wait_probability() * (-decay * x).exp())
        }
        (Order::Lifo, Exponential) => {
            let queue = MmcReordered::last_in_first_out(workers, rho).expect("a valid system");
            Box::new(move |x| queue.wait_ccdf(x))
        }
        (Order::RandomRequest, Exponential) => {
            let queue = MmcReordered::random_order(workers, rho).expect("a valid system");
            Box::new(move |x| queue.wait_ccdf(x))
        }
        (Order::Lifo, Deterministic) => {
            let queue = Md1Lifo::new(rho).expect("a valid system");
            Box::new(move |x| queue.wait_ccdf(x))
        }
        (Order::RandomRequest, Deterministic) => {
            let queue = Md1Random::new(rho, 5e-7).expect("a valid system");
            Box::new(move |x| queue.wait_ccdf(x).unwrap_or(0.0))
        }
        other => panic!("no wait of {other:?}"),
    }
}

/// The wait that a share `p` of the requests exceeds, by bisection of the tail.
fn wait_upper_quantile_s(ccdf: impl Fn(f64) -> f64, p: f64) -> f64 {
    // beyond the computed part of the tail, it is smaller than any `p` of the table
    let is_exceeded = |wait_s: f64| ccdf(wait_s / SERVICE_S) > p;
    if !is_exceeded(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, SERVICE_S);
    while is_exceeded(high) {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if is_exceeded(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[test]
fn disciplines() {
    let mut cells = 0;
    for row in rows("discipline_exact") {
        let rho = number(&row, "rho");
        let service = match row["model"].as_bytes()[2] {
            b'D' => ServiceKind::Deterministic,
            b'M' => ServiceKind::Exponential,
            other => panic!("service {other}"),
        };
        let order = match row["discipline"].as_str() {
            "FIFO" => Order::Fifo,
            "LIFO" => Order::Lifo,
            "ROS" => Order::RandomRequest,
            "PS" => Order::ProcessorSharing,
            other => panic!("order {other}"),
        };
        let workers = number(&row, "c") as u32;
        let exact = model(service, workers, order, rho);
        let sojourn = row["metric"] == "sojourn";
        let mean = if sojourn {
            exact.mean_sojourn_s()
        } else {
            exact.mean_sojourn_s() - SERVICE_S
        };
        same_digits(&row, "mean_us", mean * 1e6);
        cells += 1;
        for (name, p) in UPPER {
            if row.contains_key(name) {
                let ours = if sojourn {
                    exact.sojourn_upper_quantile_s(p).unwrap()
                } else {
                    wait_upper_quantile_s(wait_ccdf(service, workers, order, rho), p)
                };
                same_digits(&row, name, ours * 1e6);
                cells += 1;
            }
        }
    }
    // 31 rows of a mean and five quantiles; one row has no p99.99
    assert_eq!(cells, 31 * 6 - 1);
}

#[test]
fn moments() {
    let square = SERVICE_US * SERVICE_US;
    let mut cells = 0;
    for row in rows("moments_exact") {
        let rho = number(&row, "rho");
        let ours = match (row["model"].as_str(), row["quantity"].as_str()) {
            ("M/D/1", "E[T] FIFO=LIFO=ROS (P-K)") => {
                SERVICE_US * (1.0 + formulas::md1_mean_wait(rho))
            }
            ("M/D/1", "E[W^2] FIFO") => square * formulas::md1_wait_second_moment_fifo(rho),
            ("M/D/1", "E[W^2] LIFO") => square * formulas::md1_wait_second_moment_lifo(rho),
            ("M/D/1", "E[W^2] ROS") => square * formulas::md1_wait_second_moment_random(rho),
            ("M/D/1", "Var[T] PS") => square * formulas::md1_ps_sojourn_variance(rho),
            ("M/M/1", "Var[T] PS") => square * formulas::mm1_ps_sojourn_variance(rho),
            ("M/G/1", "E[T] PS (insensitive)") => SERVICE_US * formulas::ps_mean_sojourn(rho),
            ("M/M/1 fork-join N=2", "E[max]") => SERVICE_US * formulas::fork_join_two_mean(rho),
            ("M/M/1 fork-join N=10", "E[max] approx (few %)") => {
                SERVICE_US * formulas::fork_join_mean_approximation(10, rho).unwrap()
            }
            ("M/M/1 fork-join N=40", "E[max] approx (few %)") => {
                SERVICE_US * formulas::fork_join_mean_approximation(40, rho).unwrap()
            }
            other => panic!("no formula for {other:?}"),
        };
        same_digits(&row, "value_us_or_us2", ours);
        cells += 1;
    }
    assert_eq!(cells, 50);
}

/// How far off two rules of thumb are: the asymptote, and half of the M/M/c wait.
#[test]
fn approximations() {
    let mut cells = 0;
    for row in rows("approximations") {
        let (workers, rho) = (number(&row, "c") as u32, number(&row, "rho"));
        let p = 1.0 - number(&row, "q");
        let queue = Mdc::new(workers, rho).unwrap();
        let exact = SERVICE_US * queue.wait_upper_quantile_services(p);
        let asymptote =
            SERVICE_US * (queue.tail_amplitude() / p).ln() / queue.tail_decay_per_service();
        let waits = Mmc::new(workers, rho).unwrap().wait_probability();
        let half = 0.5 * SERVICE_US * ((waits / p).ln() / mmc_decay(workers, rho)).max(0.0);
        same_digits(&row, "exact_wait_us", exact);
        // the table's constant of the asymptote was fitted: one unit of the last digit
        let printed = number(&row, "asymptotic_exp_wait_us");
        assert!((asymptote - printed).abs() < 1e-4, "{asymptote} in {row:?}");
        same_digits(&row, "half_of_MMc_wait_us", half);
        cells += 3;
        if row["rel_err_asym"] != "nan" {
            same_digits(&row, "rel_err_asym", asymptote / exact - 1.0);
            same_digits(&row, "rel_err_half", half / exact - 1.0);
            cells += 2;
        }
    }
    assert_eq!(cells, 80 * 5 - 2);
}

#[test]
fn fan_out() {
    let mut cells = 0;
    for row in rows("fanout_exact") {
        let queue = Mdc::new(number(&row, "c") as u32, number(&row, "rho")).unwrap();
        let parts = number(&row, "N") as u32;
        for (name, p) in &UPPER[..4] {
            let ours = queue.sojourn_upper_quantile_services(one_upper_probability(parts, *p));
            same_digits(&row, name, SERVICE_US * ours);
            cells += 1;
        }
    }
    assert_eq!(cells, 18 * 4);
}

/// Simulations made elsewhere, compared with the exact laws. The bias of the far quantile is
/// within its error.
#[test]
fn simulations_made_elsewhere() {
    let mut cells = 0;
    for row in rows("discipline_sim") {
        let service = if row["service"] == "D" {
            ServiceKind::Deterministic
        } else {
            ServiceKind::Exponential
        };
        let order = match row["discipline"].as_str() {
            "fifo" => Order::Fifo,
            "lifo" => Order::Lifo,
            "ros" => Order::RandomRequest,
            "rw" => Order::RandomWorker,
            "rr" => Order::RoundRobin,
            "ps" => Order::ProcessorSharing,
            "jsq" | "po2" => Order::Other,
            "fj" => continue, // the last of several: `fork_join_rows`
            other => panic!("order {other}"),
        };
        let asked = system(
            service,
            number(&row, "c") as u32,
            order,
            number(&row, "rho"),
        );
        let Some(exact) = ExactModel::of(&asked).unwrap() else {
            continue;
        };
        // no standard error of the mean: 0.5 % is far above it and far below a wrong law
        let mean = exact.mean_sojourn_s() * 1e6;
        assert!(
            (number(&row, "mean_us") / mean - 1.0).abs() < 5e-3,
            "{mean} {row:?}"
        );
        cells += 1;
        for (name, p) in [UPPER[0], UPPER[2], UPPER[3], UPPER[4]] {
            let Some(ours) = exact.sojourn_upper_quantile_s(p) else {
                continue;
            };
            let error = number(&row, &format!("se_{}", name.trim_end_matches("_us")));
            // an edge case: half of M/D/1's requests at ρ = ½ do not wait at all
            if name == "p50_us" && service == ServiceKind::Deterministic && ours < 50.000_1e-6 {
                continue;
            }
            let z = (number(&row, name) - ours * 1e6) / error;
            assert!(z.abs() <= 4.0, "{name}: z = {z} in {row:?}");
            cells += 1;
        }
    }
    assert_eq!(cells, 111);
}

/// Every law known for a small system, to test properties that all laws must have.
fn all_laws(rho: f64) -> Vec<ExactModel> {
    use Order::{Fifo, Lifo, ProcessorSharing, RandomRequest, RandomWorker, RoundRobin};
    let orders = [
        Fifo,
        Lifo,
        RandomRequest,
        RandomWorker,
        RoundRobin,
        ProcessorSharing,
    ];
    let mut laws = Vec::new();
    for service in [ServiceKind::Deterministic, ServiceKind::Exponential] {
        for workers in [1, 2, 5] {
            for order in orders {
                let found =
                    ExactModel::of(&system(service, workers, order, rho)).expect("a valid system");
                laws.extend(found.filter(|law| law.sojourn_ccdf(SERVICE_S).is_some()));
            }
        }
    }
    laws
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn tails_fall_and_quantiles_invert_them(
        rho in 0.02_f64..0.97,
        log_p in -13.0_f64..-0.05,
        shorter in 0.0_f64..1.0,
    ) {
        let p = log_p.exp();
        let laws = all_laws(rho);
        prop_assert_eq!(laws.len(), 27);
        for law in laws {
            let t = law.sojourn_upper_quantile_s(p).unwrap();
            let back = law.sojourn_ccdf(t).unwrap();
            // at an atom (no wait) the tail jumps over p
            let atom = t <= SERVICE_S && law.sojourn_ccdf(0.999 * SERVICE_S) == Some(1.0);
            prop_assert!(atom || (back / p - 1.0).abs() < 1e-9, "{} {} {}", law.name(), p, back);
            let before = law.sojourn_ccdf(shorter * t).unwrap();
            prop_assert!(before >= back * (1.0 - 1e-12) && before <= 1.0 + 1e-12, "{}", law.name());
        }
    }
}

/// ∫ P(T > t) dt is the mean, for every law: by Simpson's rule between jumps.
#[test]
fn the_tail_integrates_to_the_mean() {
    for rho in [0.3, 0.8] {
        for law in all_laws(rho) {
            let Some(end) = law.sojourn_upper_quantile_s(6e-7) else {
                panic!("{} has no far quantile", law.name());
            };
            // Simpson's rule, an even number of steps to each service time
            let steps = 40 * (end / SERVICE_S).ceil() as usize;
            let step = SERVICE_S / 40.0;
            // the tail can jump at a service time, so each pair of steps uses the limits from its inside
            let mut integral = 0.0;
            for i in 0..steps / 2 {
                let at = |k: usize, nudge: f64| {
                    law.sojourn_ccdf((k as f64 + nudge) * step).unwrap_or(0.0)
                };
                integral += step / 3.0
                    * (at(2 * i, 1e-9) + 4.0 * at(2 * i + 1, 0.0) + at(2 * i + 2, -1e-9));
            }
            let mean = law.mean_sojourn_s();
            // the part beyond p99.99994 is missing
            assert!(
                (integral / mean - 1.0).abs() < 2e-4,
                "{} ρ={rho}: {integral:e} {mean:e}",
                law.name()
            );
        }
    }
}

#[test]
fn limits() {
    // an idle system: nobody waits
    for law in all_laws(1e-9) {
        assert!(
            (law.mean_sojourn_s() / SERVICE_S - 1.0).abs() < 1e-8,
            "{}",
            law.name()
        );
    }
    // one worker, exponential: round robin, random worker and FIFO are the same
    for order in [Order::RandomWorker, Order::RoundRobin] {
        for p in [0.3, 1e-3, 1e-6] {
            let one = model(ServiceKind::Exponential, 1, Order::Fifo, 0.7);
            let other = model(ServiceKind::Exponential, 1, order, 0.7);
            let (a, b) = (
                one.sojourn_upper_quantile_s(p),
                other.sojourn_upper_quantile_s(p),
            );
            assert!((a.unwrap() / b.unwrap() - 1.0).abs() < 1e-12);
        }
    }
    // the order changes the tail, never the mean, and FIFO's tail is the lightest
    for (service, workers) in [
        (ServiceKind::Deterministic, 1),
        (ServiceKind::Exponential, 8),
    ] {
        let of = |order| model(service, workers, order, 0.9);
        let (fifo, random, lifo) = (of(Order::Fifo), of(Order::RandomRequest), of(Order::Lifo));
        let p999 = |law: &ExactModel| law.sojourn_upper_quantile_s(1e-3).unwrap();
        assert!(p999(&fifo) < p999(&random) && p999(&random) < p999(&lifo));
        assert!((fifo.mean_sojourn_s() / lifo.mean_sojourn_s() - 1.0).abs() < 1e-12);
    }
}

/// Far quantiles, many servers, heavy load: finite and in order.
#[test]
fn far_and_heavy() {
    for workers in [1, 3, 64, 200] {
        for rho in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let queue = Mdc::new(workers, rho).unwrap();
            let mut last = 0.0;
            for digits in 1..=12 {
                let x = queue.sojourn_upper_quantile_services(10_f64.powi(-digits));
                assert!(
                    x.is_finite() && x >= last,
                    "c={workers} ρ={rho}: {x} after {last}"
                );
                last = x;
            }
        }
    }
}

#[test]
fn what_is_not_known_is_none() {
    let unknown = [
        system(ServiceKind::Deterministic, 2, Order::Lifo, 0.5),
        system(ServiceKind::General(None), 1, Order::Fifo, 0.5),
        system(ServiceKind::Exponential, 4, Order::Other, 0.5),
        System {
            arrivals: ArrivalKind::Other,
            ..system(ServiceKind::Exponential, 1, Order::Fifo, 0.5)
        },
    ];
    for asked in unknown {
        assert!(ExactModel::of(&asked).unwrap().is_none(), "{asked:?}");
    }
    let only_moments = model(ServiceKind::General(Some(1.5)), 1, Order::Fifo, 0.5);
    assert!(only_moments.sojourn_quantile_s(0.5).is_none());
    assert!((only_moments.mean_sojourn_s() / SERVICE_S - 1.75).abs() < 1e-12);
    for (workers, rho, seconds) in [
        (0, 0.5, 1.0),
        (1, 1.0, 1.0),
        (1, f64::NAN, 1.0),
        (1, 0.5, 0.0),
    ] {
        let mut asked = system(ServiceKind::Exponential, workers, Order::Fifo, rho);
        asked.mean_service_s = seconds;
        assert!(ExactModel::of(&asked).is_err(), "{asked:?}");
    }
}
