//! Every exact cell of the reference tables, and the laws' limits.
//!
//! The tables in `reference/` were computed apart from this code (see the README there).
//! Each test asserts how many cells it compared, so that none is passed over in silence.

use std::collections::HashMap;

use taillab_queueing::exact::moments::{
    fork_join_mean_approximation_services, fork_join_two_mean_services,
    md1_ps_sojourn_variance_services2, mm1_ps_sojourn_variance_services2, ps_mean_sojourn_services,
};
use taillab_queueing::exact::{
    Arrivals, ExactModel, Md1Lifo, Md1Random, Mdc, Mg1, Mmc, MmcReordered, Order, Service,
    ServiceMoments, System,
};
use taillab_queueing::fanout::largest_quantile;
use taillab_queueing::fork_join::{poisson_exponential, warm_up_requests};

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
            let cells = line.split(',').filter(|cell| !cell.is_empty());
            names.iter().map(|s| s.to_string()).zip(cells.map(str::to_string)).collect()
        })
        .collect()
}

fn number(row: &HashMap<String, String>, name: &str) -> f64 {
    row[name].parse().unwrap_or_else(|_| panic!("{name} of {row:?}"))
}

/// Asserts that `ours` rounds to the printed cell: at most half a unit of its last digit
/// away, and a hair for the rounding of the rounding.
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

fn system(service: Service, workers: u32, order: Order, utilization: f64) -> System {
    System {
        arrivals: Arrivals::Poisson,
        service,
        mean_service_s: SERVICE_S,
        workers,
        order,
        utilization,
    }
}

fn model(service: Service, workers: u32, order: Order, utilization: f64) -> ExactModel {
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

fn fifo_table(table: &str, service: Service) -> usize {
    let mut cells = 0;
    for row in rows(table) {
        let workers = number(&row, "c") as u32;
        let rho = number(&row, "rho");
        let exact = model(service, workers, Order::Fifo, rho);
        same_digits(&row, "P_wait", exact.wait_probability().unwrap());
        same_digits(&row, "mean_us", exact.mean_sojourn_s() * 1e6);
        cells += 2;
        for (name, p) in UPPER {
            same_digits(&row, name, exact.sojourn_upper_quantile_s(p).unwrap() * 1e6);
            cells += 1;
        }
        let decay = match service {
            Service::Deterministic => Mdc::new(workers, rho).unwrap().tail_decay_per_service(),
            // the sojourn falls with the slower of the wait's rate and the service's
            _ => Mmc::new(workers, rho).unwrap().tail_decay_per_service().min(1.0),
        };
        same_digits(&row, "tail_decay_per_us", decay / SERVICE_US);
        cells += 1;
    }
    cells
}

#[test]
fn mdc_quantiles() {
    assert_eq!(fifo_table("mdc_sojourn_quantiles", Service::Deterministic), 20 * 9);
}

#[test]
fn mmc_quantiles() {
    assert_eq!(fifo_table("mmc_sojourn_quantiles", Service::Exponential), 20 * 9);
}

#[test]
fn mdc_tail_points() {
    let mut points = 0;
    for row in rows("mdc_ccdf_points") {
        let queue = Mdc::new(number(&row, "c") as u32, number(&row, "rho")).unwrap();
        let ours = queue.wait_ccdf(number(&row, "wait_us") / SERVICE_US);
        let table = number(&row, "P(W>wait)");
        // absolute 1e-12, and relative to the 13 printed digits
        assert!((ours - table).abs() < 1e-12, "{ours:e} in {row:?}");
        assert!((ours / table - 1.0).abs() < 2e-12, "{ours:e} in {row:?}");
        points += 1;
    }
    assert_eq!(points, 245);
}

#[test]
fn disciplines() {
    let mut cells = 0;
    for row in rows("discipline_exact") {
        let rho = number(&row, "rho");
        let service = match row["model"].as_bytes()[2] {
            b'D' => Service::Deterministic,
            b'M' => Service::Exponential,
            other => panic!("service {other}"),
        };
        let order = match row["discipline"].as_str() {
            "FIFO" => Order::Fifo,
            "LIFO" => Order::Lifo,
            "ROS" => Order::RandomRequest,
            "PS" => Order::ProcessorSharing,
            other => panic!("order {other}"),
        };
        let exact = model(service, number(&row, "c") as u32, order, rho);
        let sojourn = row["metric"] == "sojourn";
        let mean = if sojourn {
            exact.mean_sojourn_s()
        } else {
            exact.mean_wait_s().unwrap()
        };
        same_digits(&row, "mean_us", mean * 1e6);
        cells += 1;
        for (name, p) in UPPER {
            if row.contains_key(name) {
                let ours = if sojourn {
                    exact.sojourn_upper_quantile_s(p)
                } else {
                    exact.wait_upper_quantile_s(p)
                };
                same_digits(&row, name, ours.unwrap() * 1e6);
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
        let md1 = Mg1::new(rho, ServiceMoments::DETERMINISTIC).unwrap();
        let ours = match (row["model"].as_str(), row["quantity"].as_str()) {
            ("M/D/1", "E[T] FIFO=LIFO=ROS (P-K)") => SERVICE_US * md1.mean_sojourn_services(),
            ("M/D/1", "E[W^2] FIFO") => square * md1.wait_second_moment_fifo_services2(),
            ("M/D/1", "E[W^2] LIFO") => square * md1.wait_second_moment_lifo_services2(),
            ("M/D/1", "E[W^2] ROS") => square * md1.wait_second_moment_random_services2(),
            ("M/D/1", "Var[T] PS") => square * md1_ps_sojourn_variance_services2(rho).unwrap(),
            ("M/M/1", "Var[T] PS") => square * mm1_ps_sojourn_variance_services2(rho).unwrap(),
            ("M/G/1", "E[T] PS (insensitive)") => {
                SERVICE_US * ps_mean_sojourn_services(rho).unwrap()
            }
            ("M/M/1 fork-join N=2", "E[max]") => {
                SERVICE_US * fork_join_two_mean_services(rho).unwrap()
            }
            ("M/M/1 fork-join N=10", "E[max] approx (few %)") => {
                SERVICE_US * fork_join_mean_approximation_services(10, rho).unwrap()
            }
            ("M/M/1 fork-join N=40", "E[max] approx (few %)") => {
                SERVICE_US * fork_join_mean_approximation_services(40, rho).unwrap()
            }
            other => panic!("no formula for {other:?}"),
        };
        same_digits(&row, "value_us_or_us2", ours);
        cells += 1;
    }
    assert_eq!(cells, 50);
}

/// How far rules of thumb are off: the asymptote and half of the M/M/c wait.
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
        let half = 0.5
            * SERVICE_US
            * Mmc::new(workers, rho).unwrap().wait_upper_quantile_services(p);
        same_digits(&row, "exact_wait_us", exact);
        same_digits(&row, "asymptotic_exp_wait_us", asymptote);
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
            let ours =
                largest_quantile(parts, 1.0 - p, |p| queue.sojourn_upper_quantile_services(p));
            same_digits(&row, name, SERVICE_US * ours.unwrap());
            cells += 1;
        }
    }
    assert_eq!(cells, 18 * 4);
}
