//! The vector instructions that a kernel may use, detected at run time.
//!
//! Each hot loop is written once, in plain Rust over a fixed number of lanes, and compiled several times
//! for wider vectors. No loop uses a fused multiply-add, and each lane is computed independently, so every
//! version gives the same bits.

/// A set of vector instructions that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

/// The instruction sets that hot loops are compiled for.
///
/// An [`Isa`] cannot be made from a level, only by detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The instructions that every processor of the target has.
    Baseline,
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The instructions that every processor of the target has.
    pub const BASELINE: Self = Self(Level::Baseline);

    /// The widest vectors of this processor.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self::BASELINE)
    }

    /// All sets that this processor has, the widest last.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Self::BASELINE];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Self(Level::Avx2));
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                {
                    all.push(Self(Level::Avx512));
                }
            }
        }
        all
    }

    /// The instruction set to run.
    #[inline]
    pub fn level(self) -> Level {
        self.0
    }

    /// The name of the instruction set, for reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }
}

/// Compiles a function once for each instruction set, and chooses one at the call.
///
/// The function gets an additional first parameter `isa`. Constant parameters are in brackets after the
/// name: `fn f[const N: usize](x: &mut [f64; N]) { … }`.
#[macro_export]
macro_rules! multiversion {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $([$(const $g:ident : $gt:ty),+])? (
            $($arg:ident : $ty:ty),* $(,)?
        ) $(-> $ret:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$(const $g: $gt),+>)? (
            isa: $crate::isa::Isa, $($arg: $ty),*
        ) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body $(<$(const $g: $gt),+>)? ($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$(const $g: $gt),+>)? ($($arg: $ty),*) $(-> $ret)? {
                body $(::<$($g),+>)? ($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$(const $g: $gt),+>)? ($($arg: $ty),*) $(-> $ret)? {
                body $(::<$($g),+>)? ($($arg),*)
            }

            match isa.level() {
                $crate::isa::Level::Baseline => body $(::<$($g),+>)? ($($arg),*),
                // SAFETY: an `Isa` of this level exists only if the processor has these
                // features.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx2 => unsafe { avx2 $(::<$($g),+>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx512 => unsafe { avx512 $(::<$($g),+>)? ($($arg),*) },
            }
        }
    )*};
}
pub use multiversion;
