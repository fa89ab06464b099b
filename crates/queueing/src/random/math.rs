//! Elementary functions without the platform's library. They have no branches, so that loops over them
//! vectorise, and consist of additions and multiplications only, so that every machine gives the same
//! bits.
//!
//! The coefficients interpolate at Chebyshev nodes. The error is far smaller than any sampling error of
//! random numbers; it is too large for general use.

/// −ln(u) for a normal, positive u; relative error below 3·10⁻¹⁰.
#[inline(always)]
pub(crate) fn neg_ln(u: f64) -> f64 {
    // u = 2^k m with m in [√½, √2): the bits are shifted so that the exponent changes at √½ instead of
    // at 1
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const FRACTION: u64 = (1 << 52) - 1;
    const LN_2: f64 = std::f64::consts::LN_2;
    let shifted = u.to_bits().wrapping_add(ONE - SQRT_HALF);
    let m = f64::from_bits((shifted & FRACTION) + SQRT_HALF);
    // the biased exponent as a double: written into the fraction of 2^52
    let k = f64::from_bits((shifted >> 52) | 0x4330_0000_0000_0000)
        - (4_503_599_627_370_496.0 + 1023.0);
    let r = m - 1.0;
    // ln(1 + r) / r, degree 11, in pairs (Estrin's scheme), for a short chain of dependencies
    let r2 = r * r;
    let r4 = r2 * r2;
    let p01 = 1.000_000_000_048_012 + r * -0.500_000_003_084_553_8;
    let p23 = 0.333_333_308_462_805_2 + r * -0.249_999_365_858_148_16;
    let p45 = 0.200_001_696_379_425_4 + r * -0.166_703_836_523_772_96;
    let p67 = 0.142_837_983_952_702_53 + r * -0.124_108_856_659_614_21;
    let p89 = 0.110_427_360_397_190_09 + r * -0.108_981_125_778_771_82;
    let pab = 0.106_365_423_755_799_53 + r * -0.058_456_713_350_896_375;
    let low = p01 + r2 * p23;
    let mid = p45 + r2 * p67;
    let high = p89 + r2 * pab;
    let p = low + r4 * (mid + r4 * high);
    k * -LN_2 - r * p
}

/// eˣ for x < 700; relative error below 10⁻¹³, and 0 below −708.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    const LOG2_E: f64 = std::f64::consts::LOG2_E;
    // ln 2 in two parts; products of the first with the exponent are exact
    const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // adding 1.5·2^52 rounds to an integer, which is then in the low bits
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let shifted = x * LOG2_E + ROUND;
    let k = shifted - ROUND;
    let f = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    let f2 = f * f;
    let f4 = f2 * f2;
    let p01 = 1.000_000_000_000_013_5 + f * 1.000_000_000_000_001_3;
    let p23 = 0.499_999_999_994_385_9 + f * 0.166_666_666_666_156_48;
    let p45 = 0.041_666_667_040_551_92 + f * 0.008_333_333_367_311_603;
    let p67 = 0.001_388_880_174_965_654_3 + f * 0.000_198_411_906_475_442_4;
    let p89 = 2.488_445_975_175_111_6e-5 + f * 2.763_267_067_543_023_6e-6;
    let p = (p01 + f2 * p23) + f4 * ((p45 + f2 * p67) + f4 * p89);
    let scale = f64::from_bits(
        shifted
            .to_bits()
            .wrapping_sub(ROUND.to_bits())
            .wrapping_add(1023)
            << 52,
    );
    // there, the exponent would wrap around into the sign
    if x < -708.0 { 0.0 } else { p * scale }
}

/// (sin 2πu, cos 2πu) for u in [0, 1]; absolute error below 10⁻¹¹.
#[inline(always)]
pub(crate) fn sin_cos_turns(u: f64) -> (f64, f64) {
    // With v = u − ½ in [−½, ½]: sin 2πu = −sin 2πv and cos 2πu = −cos 2πv. Both follow from the half
    // angle h = πv in [−π/2, π/2].
    let v = u - 0.5;
    let z = v * v;
    let s = [
        3.141_592_653_589_635,
        -5.167_712_779_987_959,
        2.550_164_035_906_745,
        -0.599_264_433_935_728_6,
        0.082_144_794_670_648_54,
        -0.007_364_005_472_115_722,
        0.000_447_492_084_907_710_1,
    ];
    let c = [
        0.999_999_999_999_247_9,
        -4.934_802_200_249_85,
        4.058_712_107_537_437_5,
        -1.335_262_315_262_61,
        0.235_325_436_587_711_2,
        -0.025_776_316_427_315_86,
        0.001_839_989_437_269_404_3,
    ];
    let sin_h = v * horner(&s, z);
    let cos_h = horner(&c, z);
    (-2.0 * sin_h * cos_h, sin_h * sin_h - cos_h * cos_h)
}

#[inline(always)]
fn horner(coefficients: &[f64; 7], x: f64) -> f64 {
    let c = coefficients;
    c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * (c[4] + x * (c[5] + x * c[6])))))
}

/// ln Γ(x) for x > 0 (Lanczos 1964, g = 7, nine terms): relative error about 10⁻¹⁴.
///
/// Only for parameters and moments: it uses the platform's logarithm.
pub(crate) fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // by reflection, since the series does not converge here
        let pi = std::f64::consts::PI;
        return (pi / (pi * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let t = x + 7.5;
    let sum: f64 = C[0]
        + C.iter()
            .enumerate()
            .skip(1)
            .map(|(i, c)| c / (x + i as f64))
            .sum::<f64>();
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_agree_with_the_library() {
        for i in 1..20_000 {
            let u = f64::from(i) / 20_000.0;
            let want = -u.ln();
            assert!((neg_ln(u) - want).abs() <= 3e-10 * want, "ln {u}");
            let x = f64::from(i - 10_000) / 100.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-13, "exp {x}");
        }
        for e in 1..52 {
            let u = 0.5_f64.powi(e) * 1.37;
            assert!((neg_ln(u) / -u.ln() - 1.0).abs() < 3e-10, "ln {u}");
            let near_one = 1.0 - 0.5_f64.powi(e);
            assert!((neg_ln(near_one) / -near_one.ln() - 1.0).abs() < 3e-10);
        }
    }

    #[test]
    fn the_exponential_of_large_negative_numbers_is_zero() {
        assert!((exp(-708.0) / (-708.0_f64).exp() - 1.0).abs() < 1e-13);
        for x in [-708.1, -709.5, -712.0, -3.7e5, -1e300, f64::NEG_INFINITY] {
            assert_eq!(exp(x).to_bits(), 0, "exp {x}");
        }
    }

    #[test]
    fn sine_and_cosine_agree_with_the_library() {
        for i in 0..=4_000 {
            let u = f64::from(i) / 4_000.0;
            let (s, c) = sin_cos_turns(u);
            let angle = 2.0 * std::f64::consts::PI * u;
            assert!((s - angle.sin()).abs() < 1e-11, "sin {u}");
            assert!((c - angle.cos()).abs() < 1e-11, "cos {u}");
        }
    }

    #[test]
    fn the_gamma_function_at_known_points() {
        for (x, gamma) in [
            (1.0, 1.0),
            (5.0, 24.0),
            (0.5, std::f64::consts::PI.sqrt()),
            (0.1, 9.513_507_698_668_732),
        ] {
            assert!((ln_gamma(x).exp() / gamma - 1.0).abs() < 1e-12, "{x}");
        }
    }
}
