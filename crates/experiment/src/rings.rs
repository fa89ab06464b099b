//! How large the probe's rings are.

use taillab_host::environment::Memory;
use taillab_host::{CpuSet, Roots, cpus};

/// The usual size of a CPU's ring: room for the events of half a second at 100,000 requests per second.
const RING_BYTES: usize = 8 << 20;
/// The limit for all rings together: they are resident memory.
const ALL_RINGS_BYTES: usize = 128 << 20;
/// Where this part (1/N) of the machine's memory is more, that is the limit: with 256 CPUs, rings of half a
/// MiB are full in 25 ms.
const PART_OF_MEMORY: u64 = 512;
/// The smallest ring that is useful.
const LEAST_RING_BYTES: usize = 256 << 10;

/// CPUs as the probe and recordings number them.
pub fn cpu_numbers(cpus: &CpuSet) -> Vec<u16> {
    let number = |cpu| u16::try_from(cpu).unwrap_or(u16::MAX);
    cpus.iter().map(number).collect()
}

/// The size of each ring: smaller on a machine with many CPUs, as every possible CPU has a ring.
pub fn ring_bytes_per_cpu() -> usize {
    let roots = Roots::default();
    let possible = cpus::listed(&roots, "possible").map_or(1, |cpus| cpus.len().max(1));
    ring_bytes(possible, Memory::read(&roots).total_bytes.unwrap_or(0))
}

fn ring_bytes(possible_cpus: usize, memory_bytes: u64) -> usize {
    let part = usize::try_from(memory_bytes / PART_OF_MEMORY).unwrap_or(usize::MAX);
    let most = part.max(ALL_RINGS_BYTES);
    let mut bytes = RING_BYTES;
    while bytes * possible_cpus > most && bytes > LEAST_RING_BYTES {
        bytes /= 2;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_smaller_on_many_cpus_unless_there_is_much_memory() {
        let of = |cpus, memory_gib: u64| ring_bytes(cpus, memory_gib << 30);
        assert_eq!(of(2, 0), 8 << 20);
        assert_eq!(of(16, 4), 8 << 20);
        assert_eq!(of(64, 4), 2 << 20);
        assert_eq!(of(256, 4), 512 << 10);
        assert_eq!(of(256, 512), 4 << 20);
        assert_eq!(of(4096, 4), LEAST_RING_BYTES);
    }
}
