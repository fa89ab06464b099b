//! Formulas for moments that only these tests need, in mean service times.
//!
//! M/G/1: Pollaczek 1930 and Khinchine 1932 (first in first out); Takács 1963, *Delay
//! distributions for one line with Poisson input, general holding times, and various
//! orders of service* (last in first out and random order).

/// M/D/1: E\[W\] = ρ/(2(1−ρ)), in every order that ignores the service times.
pub(super) fn md1_mean_wait(rho: f64) -> f64 {
    rho / (2.0 * (1.0 - rho))
}

/// M/D/1: E\[W²\] first in first out, 2E\[W\]² + λE\[S³\]/(3(1−ρ)).
pub(super) fn md1_wait_second_moment_fifo(rho: f64) -> f64 {
    2.0 * md1_mean_wait(rho).powi(2) + rho / (3.0 * (1.0 - rho))
}

/// E\[W²\] last in first out: FIFO's divided by 1 − ρ.
pub(super) fn md1_wait_second_moment_lifo(rho: f64) -> f64 {
    md1_wait_second_moment_fifo(rho) / (1.0 - rho)
}

/// E\[W²\] in random order: FIFO's times 2/(2 − ρ).
pub(super) fn md1_wait_second_moment_random(rho: f64) -> f64 {
    md1_wait_second_moment_fifo(rho) * 2.0 / (2.0 - rho)
}

/// E\[T\] = 1/(1 − ρ) of M/G/1 with processor sharing, for every service distribution
/// (Sakata, Noguchi and Oizumi 1971).
pub(super) fn ps_mean_sojourn(rho: f64) -> f64 {
    1.0 / (1.0 - rho)
}

/// Var\[T\] of M/M/1 with processor sharing: (2+ρ)/((2−ρ)(1−ρ)²)
/// (Coffman, Muntz and Trotter 1970).
pub(super) fn mm1_ps_sojourn_variance(rho: f64) -> f64 {
    let idle = 1.0 - rho;
    (2.0 + rho) / ((2.0 - rho) * idle * idle)
}

/// Var\[T\] of M/D/1 with processor sharing.
///
/// Var\[T | x\] = 2/(1−ρ)² ∫₀ˣ (x−u) P(W > u) du with the FIFO wait W (Yashkov 1983), at
/// x = 1, where P(W > u) = 1 − (1−ρ)e^{ρu}.
pub(super) fn md1_ps_sojourn_variance(rho: f64) -> f64 {
    let idle = 1.0 - rho;
    // ½ − (1−ρ)(e^ρ − 1 − ρ)/ρ² as a power series: ρ^k (1/(k+1)! − 1/(k+2)!), k ≥ 1
    let (mut sum, mut term) = (0.0, 0.5);
    for k in 1..=24 {
        let k = f64::from(k);
        // ρ^k/(k+1)!, and that over k + 2
        term *= if k == 1.0 { rho } else { rho / (k + 1.0) };
        sum += term * (1.0 - 1.0 / (k + 2.0));
    }
    2.0 / (idle * idle) * sum
}

/// The mean time of the later of two parts, each through its own M/M/1 queue fed by the same
/// arrivals: (12 − ρ)/8 · 1/(1−ρ) (Flatto and Hahn 1984; exact).
pub(super) fn fork_join_two_mean(rho: f64) -> f64 {
    (12.0 - rho) / 8.0 / (1.0 - rho)
}

/// The mean time of the last of `parts` parts, each through its own M/M/1 queue fed by the same
/// arrivals: **an approximation**, a few per cent off.
///
/// \[H_N/H_2 + 4/11 (1 − H_N/H_2) ρ\] times the mean for two, with the harmonic numbers H
/// (Nelson and Tantawi 1988); exact for one and two parts.
pub(super) fn fork_join_mean_approximation(parts: u32, rho: f64) -> Option<f64> {
    if parts <= 1 {
        return (parts == 1).then(|| 1.0 / (1.0 - rho));
    }
    let harmonic: f64 = (1..=parts).rev().map(|k| 1.0 / f64::from(k)).sum();
    let ratio = harmonic / 1.5;
    Some((ratio + 4.0 / 11.0 * (1.0 - ratio) * rho) * fork_join_two_mean(rho))
}

#[test]
fn the_series_agrees_with_the_closed_form() {
    for rho in [0.2_f64, 0.5, 0.9, 0.99] {
        let plain = 0.5 - (1.0 - rho) * (rho.exp() - 1.0 - rho) / (rho * rho);
        let exact = 2.0 / (1.0 - rho).powi(2) * plain;
        let ours = md1_ps_sojourn_variance(rho);
        assert!((ours / exact - 1.0).abs() < 1e-13, "{rho}: {ours} {exact}");
    }
    // light load: P(W > u) ≈ ρ(1 − u), so the variance is 2ρ ∫₀¹ (1 − u)² du = 2ρ/3
    let light = md1_ps_sojourn_variance(1e-9);
    assert!((light / (2e-9 / 3.0) - 1.0).abs() < 1e-8, "{light}");
}

#[test]
fn one_part_is_no_fork() {
    assert_eq!(fork_join_mean_approximation(1, 0.5), Some(2.0));
    assert_eq!(fork_join_mean_approximation(0, 0.5), None);
}
