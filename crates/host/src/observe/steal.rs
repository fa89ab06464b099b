//! Time that the hypervisor says it took from single CPUs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use taillab_model::Nanos;

use crate::cpu_time::parse_cpu;
use crate::cpus::CpuSet;
use crate::roots::Roots;

/// A clock tick of /proc/stat: 1/100 s on every architecture that taillab runs on
/// (USER_HZ, `include/uapi/asm-generic/param.h`).
const TICK: Nanos = Nanos::from_millis(10);

/// Polls the steal time of some CPUs (proc_stat(5)).
///
/// The kernel counts in ticks of 10 ms, so stolen time shows when it has added up to a tick, and
/// many hypervisors report none at all.
#[derive(Debug)]
pub(super) struct StealSampler {
    file: File,
    text: Vec<u8>,
    /// Each CPU with its ticks so far.
    last: BTreeMap<u32, Option<u64>>,
}

impl StealSampler {
    /// Begins to count.
    ///
    /// # Errors
    /// The kernel's answer when `/proc/stat` cannot be opened.
    pub(super) fn new(roots: &Roots, cpus: &CpuSet) -> io::Result<Self> {
        let mut sampler = Self {
            file: File::open(roots.proc.join("stat"))?,
            text: vec![0; 1 << 14],
            last: cpus.iter().map(|cpu| (cpu, None)).collect(),
        };
        sampler.sample(|_, _| {});
        Ok(sampler)
    }

    /// Passes to `stolen` each CPU from which time was taken since the last look, and how much.
    pub(super) fn sample(&mut self, mut stolen: impl FnMut(u32, Nanos)) {
        let Some(text) = self.read() else { return };
        // the CPUs' lines come first
        let lines = text.lines().take_while(|line| line.starts_with("cpu"));
        for (cpu, ticks) in lines.filter_map(parse_cpu) {
            let ticks = ticks.steal();
            let Some(last) = self.last.get_mut(&cpu) else {
                continue;
            };
            let since = last.map_or(0, |last| ticks.saturating_sub(last));
            *last = Some(ticks);
            if since > 0 {
                stolen(cpu, TICK * since);
            }
        }
    }

    /// The file as it is now; `None` when it cannot be read this time.
    fn read(&mut self) -> Option<String> {
        let mut length = 0;
        loop {
            match self.file.read_at(&mut self.text[length..], length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(_) => return None,
            }
            if length == self.text.len() {
                self.text.resize(2 * length, 0);
            }
        }
        Some(String::from_utf8_lossy(&self.text[..length]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_steal_is_told_cpu_by_cpu() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let stat = roots.proc.join("stat");
        std::fs::create_dir_all(&roots.proc).unwrap();
        let write = |steal: [u32; 3]| {
            let [a, b, c] = steal;
            let text = format!(
                "cpu  9 9 9 9 9 9 9 99 0 0\ncpu0 1 0 1 9 0 0 0 {a} 0 0\ncpu1 1 0 1 9 0 0 0 {b} 0 0\n\
                 cpu2 1 0 1 9 0 0 0 {c} 0 0\nintr 5 4 3\n"
            );
            std::fs::write(&stat, text).unwrap();
        };
        write([5, 7, 1]);
        let mut sampler = StealSampler::new(&roots, &"0-1".parse().unwrap()).unwrap();
        let mut stolen = Vec::new();
        sampler.sample(|cpu, lasted| stolen.push((cpu, lasted)));
        assert_eq!(stolen, []);
        write([5, 9, 8]);
        sampler.sample(|cpu, lasted| stolen.push((cpu, lasted)));
        assert_eq!(stolen, [(1, Nanos::from_millis(20))]);
        // a counter that runs backwards has stolen nothing
        write([0, 0, 0]);
        sampler.sample(|cpu, lasted| stolen.push((cpu, lasted)));
        assert_eq!(stolen.len(), 1);
    }
}
