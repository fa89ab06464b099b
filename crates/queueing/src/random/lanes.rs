//! A random number generator with several lanes; each lane is an independent stream.

use crate::isa::{Isa, Level};

/// The use of a stream of random numbers. Every use has its own streams, so that two disciplines with the
/// same seed have the same arrivals and the same service times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Gaps between requests.
    Arrivals = 1,
    /// Service times of requests.
    Service = 2,
    /// Which worker, queue or request is chosen.
    Choice = 3,
    /// Gaps between jobs of the background class.
    Background = 4,
    /// Service times of the background class.
    BackgroundService = 5,
    /// Which connection belongs to which worker.
    Assignment = 6,
}

/// xoshiro256+ (Blackman and Vigna 2021) in `L` lanes, laid out for vectors.
///
/// The upper 53 bits pass all tests of its authors. The lowest bits are weak; at most, they break ties.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct LaneRng<const L: usize> {
    s: [[u64; L]; 4],
}

/// The step between two states of SplitMix64 (Steele, Lea and Flood 2014).
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The next number of SplitMix64.
#[inline]
pub const fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN);
    mix(*state)
}

/// The finaliser of SplitMix64: any input, well-mixed output.
#[inline]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl<const L: usize> LaneRng<L> {
    /// The streams of the replications `first`, `first + 1`, … of one purpose.
    pub fn new(seed: u64, purpose: Purpose, first: u64) -> Self {
        let mut s = [[0; L]; 4];
        for lane in 0..L {
            // Three rounds of mixing, so that neighbouring seeds, purposes and replications have
            // unrelated states.
            let mut state = seed;
            let mut mixed = split_mix(&mut state) ^ purpose as u64;
            let mut state = split_mix(&mut mixed) ^ (first + lane as u64);
            for word in &mut s {
                word[lane] = split_mix(&mut state);
            }
        }
        Self { s }
    }

    /// The next 64 bits of every lane.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> [u64; L] {
        std::array::from_fn(|lane| self.next_of(lane))
    }

    /// The next 64 bits of one lane.
    #[inline(always)]
    pub fn next_of(&mut self, lane: usize) -> u64 {
        let [s0, s1, s2, s3] = &mut self.s;
        let out = s0[lane].wrapping_add(s3[lane]);
        let t = s1[lane] << 17;
        s2[lane] ^= s0[lane];
        s3[lane] ^= s1[lane];
        s1[lane] ^= s2[lane];
        s0[lane] ^= s3[lane];
        s2[lane] ^= t;
        s3[lane] = s3[lane].rotate_left(45);
        out
    }

    /// A uniform number of one lane, in (0, 1).
    #[inline(always)]
    pub fn uniform_of(&mut self, lane: usize) -> f64 {
        open_unit(self.next_of(lane))
    }
}

/// 64 random bits as a number in (0, 1): an odd multiple of 2⁻⁵³.
#[inline(always)]
pub(crate) fn open_unit(bits: u64) -> f64 {
    // the upper bits become the fraction of a number in [1, 2)
    f64::from_bits((bits >> 12) | 0x3ff0_0000_0000_0000) - (1.0 - f64::EPSILON / 2.0)
}

/// Fills rows with random bits; each lane continues its stream from row to row.
pub fn fill_bits<const L: usize>(isa: Isa, rng: &mut LaneRng<L>, rows: &mut [[u64; L]]) {
    #[cfg(target_arch = "x86_64")]
    {
        let vectors = rng.s.as_flattened_mut();
        // This is the hottest loop of all, and the compiler by itself does not keep the four vectors of
        // state in registers.
        if let (8, Ok(state)) = (L, <&mut [u64; 32]>::try_from(vectors)) {
            let out = rows.as_flattened_mut();
            match isa.level() {
                Level::Avx512 => {
                    // SAFETY: an `Isa` of this level exists only if the processor has the features.
                    unsafe { x86::fill_avx512(state, out) };
                    return;
                }
                Level::Avx2 => {
                    // SAFETY: as above.
                    unsafe { x86::fill_avx2(state, out) };
                    return;
                }
                Level::Baseline => {}
            }
        }
    }
    let _ = isa;
    for row in rows {
        *row = rng.next();
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Eight lanes at a time: one vector for each word of the state.
    #[target_feature(enable = "avx512f")]
    pub(super) fn fill_avx512(state: &mut [u64; 32], out: &mut [u64]) {
        let at = state.as_mut_ptr();
        // SAFETY: the four vectors of eight words are the 32 words of `state`.
        let [mut s0, mut s1, mut s2, mut s3] =
            unsafe { [0, 8, 16, 24].map(|i| _mm512_loadu_si512(at.add(i).cast())) };
        for row in out.chunks_exact_mut(8) {
            let sum = _mm512_add_epi64(s0, s3);
            // SAFETY: `row` has eight words.
            unsafe { _mm512_storeu_si512(row.as_mut_ptr().cast(), sum) };
            let t = _mm512_slli_epi64::<17>(s1);
            s2 = _mm512_xor_si512(s2, s0);
            s3 = _mm512_xor_si512(s3, s1);
            s1 = _mm512_xor_si512(s1, s2);
            s0 = _mm512_xor_si512(s0, s3);
            s2 = _mm512_xor_si512(s2, t);
            s3 = _mm512_rol_epi64::<45>(s3);
        }
        for (i, s) in [s0, s1, s2, s3].into_iter().enumerate() {
            // SAFETY: as for the loads.
            unsafe { _mm512_storeu_si512(at.add(8 * i).cast(), s) };
        }
    }

    /// Four lanes at a time: first the lower half of each row, then the upper.
    #[target_feature(enable = "avx2")]
    pub(super) fn fill_avx2(state: &mut [u64; 32], out: &mut [u64]) {
        let at = state.as_mut_ptr();
        for half in [0, 4] {
            // SAFETY: word and half together stay within the 32 words of `state`.
            let [mut s0, mut s1, mut s2, mut s3] =
                unsafe { [0, 8, 16, 24].map(|i| _mm256_loadu_si256(at.add(i + half).cast())) };
            for row in out.chunks_exact_mut(8) {
                let sum = _mm256_add_epi64(s0, s3);
                // SAFETY: `row` has eight words, and half + 4 ≤ 8.
                unsafe { _mm256_storeu_si256(row.as_mut_ptr().add(half).cast(), sum) };
                let t = _mm256_slli_epi64::<17>(s1);
                s2 = _mm256_xor_si256(s2, s0);
                s3 = _mm256_xor_si256(s3, s1);
                s1 = _mm256_xor_si256(s1, s2);
                s0 = _mm256_xor_si256(s0, s3);
                s2 = _mm256_xor_si256(s2, t);
                s3 = _mm256_or_si256(_mm256_slli_epi64::<45>(s3), _mm256_srli_epi64::<19>(s3));
            }
            for (i, s) in [s0, s1, s2, s3].into_iter().enumerate() {
                // SAFETY: as for the loads.
                unsafe { _mm256_storeu_si256(at.add(8 * i + half).cast(), s) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256Plus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    #[test]
    fn a_lane_is_the_published_generator() {
        let mut lanes = LaneRng::<8>::new(7, Purpose::Arrivals, 3);
        for lane in 0..8 {
            let mut seed = [0; 32];
            for (bytes, word) in seed.chunks_mut(8).zip(&lanes.s) {
                bytes.copy_from_slice(&word[lane].to_le_bytes());
            }
            let mut one = Xoshiro256Plus::from_seed(seed);
            for _ in 0..100 {
                assert_eq!(lanes.next_of(lane), one.next_u64());
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let start = LaneRng::<8>::new(5, Purpose::Choice, 0);
        let mut want = [[0; 8]; 33];
        fill_bits(Isa::BASELINE, &mut start.clone(), &mut want);
        for isa in Isa::available() {
            let mut rng = start.clone();
            let mut rows = [[0; 8]; 33];
            // in two parts: the state must be kept between calls
            let (first, second) = rows.split_at_mut(10);
            fill_bits(isa, &mut rng, first);
            fill_bits(isa, &mut rng, second);
            assert_eq!(rows, want, "{}", isa.name());
        }
    }

    #[test]
    fn lanes_are_the_same_streams_at_any_width() {
        let mut eight = LaneRng::<8>::new(1, Purpose::Service, 16);
        let mut one = LaneRng::<1>::new(1, Purpose::Service, 21);
        for _ in 0..10 {
            assert_eq!(eight.next()[5], one.next()[0]);
        }
    }

    #[test]
    fn unit_numbers_stay_inside_the_open_interval() {
        assert!(open_unit(0) > 0.0);
        assert!(open_unit(u64::MAX) < 1.0);
    }
}
