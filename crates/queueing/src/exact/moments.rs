//! Means and variances of processor sharing and of fork-join, in mean service times.

use super::{ExactError, checked_load};

/// E\[T\] = 1/(1 − ρ) of M/G/1 with processor sharing, for every service distribution
/// (Sakata, Noguchi and Oizumi 1971).
///
/// # Errors
/// When the utilisation is not in (0, 1).
pub fn ps_mean_sojourn_services(utilization: f64) -> Result<f64, ExactError> {
    checked_load(1, utilization)?;
    Ok(1.0 / (1.0 - utilization))
}

/// Var\[T\] of M/M/1 with processor sharing: (2+ρ)/((2−ρ)(1−ρ)²)
/// (Coffman, Muntz and Trotter 1970).
///
/// # Errors
/// When the utilisation is not in (0, 1).
pub fn mm1_ps_sojourn_variance_services2(utilization: f64) -> Result<f64, ExactError> {
    checked_load(1, utilization)?;
    let idle = 1.0 - utilization;
    Ok((2.0 + utilization) / ((2.0 - utilization) * idle * idle))
}

/// Var\[T\] of M/D/1 with processor sharing.
///
/// Var\[T | x\] = 2/(1−ρ)² ∫₀ˣ (x−u) P(W > u) du with the FIFO wait W (Yashkov 1983), at
/// x = 1, where P(W > u) = 1 − (1−ρ)e^{ρu}.
///
/// # Errors
/// When the utilisation is not in (0, 1).
pub fn md1_ps_sojourn_variance_services2(utilization: f64) -> Result<f64, ExactError> {
    checked_load(1, utilization)?;
    let rho = utilization;
    let idle = 1.0 - rho;
    // ½ − (1−ρ)(e^ρ − 1 − ρ)/ρ² as a power series: ρ^k (1/(k+1)! − 1/(k+2)!), k ≥ 1
    let (mut sum, mut term) = (0.0, 0.5);
    for k in 1..=24 {
        let k = f64::from(k);
        // ρ^k/(k+1)!, and that over k + 2
        term *= if k == 1.0 { rho } else { rho / (k + 1.0) };
        sum += term * (1.0 - 1.0 / (k + 2.0));
    }
    Ok(2.0 / (idle * idle) * sum)
}

/// E of the later of two parts, each through its own M/M/1 queue fed by the same
/// arrivals: (12 − ρ)/8 · 1/(1−ρ) (Flatto and Hahn 1984; exact).
///
/// # Errors
/// When the utilisation is not in (0, 1).
pub fn fork_join_two_mean_services(utilization: f64) -> Result<f64, ExactError> {
    checked_load(1, utilization)?;
    Ok((12.0 - utilization) / 8.0 / (1.0 - utilization))
}

/// E of the last of `parts` parts, each through its own M/M/1 queue fed by the same
/// arrivals: **an approximation**, a few per cent off.
///
/// \[H_N/H_2 + 4/11 (1 − H_N/H_2) ρ\] times the mean for two, with the harmonic numbers H
/// (Nelson and Tantawi 1988); exact for one and two parts.
///
/// # Errors
/// When the utilisation is not in (0, 1) or there is no part.
pub fn fork_join_mean_approximation_services(
    parts: u32,
    utilization: f64,
) -> Result<f64, ExactError> {
    if parts == 0 {
        return Err(ExactError::NoWorkers);
    }
    let two = fork_join_two_mean_services(utilization)?;
    if parts == 1 {
        return Ok(1.0 / (1.0 - utilization));
    }
    let harmonic: f64 = (1..=parts).rev().map(|k| 1.0 / f64::from(k)).sum();
    let ratio = harmonic / 1.5;
    Ok((ratio + 4.0 / 11.0 * (1.0 - ratio) * utilization) * two)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_agrees_with_the_closed_form() {
        for rho in [0.2_f64, 0.5, 0.9, 0.99] {
            let plain = 0.5 - (1.0 - rho) * (rho.exp() - 1.0 - rho) / (rho * rho);
            let exact = 2.0 / (1.0 - rho).powi(2) * plain;
            let ours = md1_ps_sojourn_variance_services2(rho).unwrap();
            assert!((ours / exact - 1.0).abs() < 1e-13, "{rho}: {ours} {exact}");
        }
        // light load: the variance is ρ/1 · ∫(1−u)… → 2ρ/3
        let light = md1_ps_sojourn_variance_services2(1e-9).unwrap();
        assert!((light / (2e-9 / 3.0) - 1.0).abs() < 1e-8, "{light}");
    }

    #[test]
    fn one_part_is_no_fork() {
        let one = fork_join_mean_approximation_services(1, 0.5).unwrap();
        assert_eq!(one, 2.0);
        assert!(fork_join_mean_approximation_services(0, 0.5).is_err());
    }
}
