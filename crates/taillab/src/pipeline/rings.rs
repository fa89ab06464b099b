//! How large the probe's rings are.

use taillab_host::{CpuSet, Roots, cpus};

/// The usual size of a CPU's ring: room for the events of half a second at 100,000 requests per second.
const RING_BYTES: usize = 8 << 20;
/// The limit for all rings together: they are resident memory.
const ALL_RINGS_BYTES: usize = 128 << 20;
/// The smallest ring that is useful.
const LEAST_RING_BYTES: usize = 256 << 10;

/// CPUs as the probe and recordings number them.
pub fn cpu_numbers(cpus: &CpuSet) -> Vec<u16> {
    let number = |cpu| u16::try_from(cpu).unwrap_or(u16::MAX);
    cpus.iter().map(number).collect()
}

/// The size of each ring: smaller on a machine with many CPUs, as every possible CPU has a ring.
pub fn ring_bytes_per_cpu() -> usize {
    let possible = cpus::listed(&Roots::default(), "possible").map_or(1, |cpus| cpus.len().max(1));
    let mut bytes = RING_BYTES;
    while bytes * possible > ALL_RINGS_BYTES && bytes > LEAST_RING_BYTES {
        bytes /= 2;
    }
    bytes
}
