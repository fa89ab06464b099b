//! For `taillab noise`: loops that read the clock in the kernel, and the CPUs that send interrupts
//! to others.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use taillab_model::{Monotonic, Nanos};

use crate::ProbeError;
use crate::noise_account::KernelAccount;
use crate::object::{Aligned, as_io, check_kernel, has_function, map};

/// The compiled programs.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/noise.bpf.o")));

/// `FINE`, `KEPT` and `SENDS` in noise.bpf.c.
const FINE: usize = 4_096;
const KEPT: usize = 8_192;
const SENDS: usize = 4_096;

const MASKED: &str = "watch_without_interrupts";
const UNMASKED: &str = "watch_with_interrupts";

/// A loop in the kernel that reads the kernel's clock, on the caller's CPU.
#[derive(Debug)]
pub struct KernelLoop {
    object: Object,
    program: &'static str,
}

impl KernelLoop {
    /// Loads it; with `masked` the CPU's interrupts are off while it runs.
    ///
    /// # Errors
    /// [`ProbeError`]: what is missing and what to do about it.
    pub fn load(masked: bool) -> Result<Self, ProbeError> {
        check_kernel()?;
        if masked && !has_function("bpf_local_irq_save") {
            return Err(refused(
                "bpf_local_irq_save",
                "choosing",
                std::io::Error::other("this kernel does not have it: Linux 6.12 or later does"),
            ));
        }
        let program = if masked { MASKED } else { UNMASKED };
        let object = load(program, "accounts", 1)?;
        Ok(Self { object, program })
    }

    /// The longest time of one call of [`KernelLoop::watch`]: a longer one would delay the CPU's
    /// interrupts or its other tasks too much.
    fn longest_call(&self) -> Duration {
        match self.program {
            MASKED => Duration::from_micros(500),
            _ => Duration::from_millis(50),
        }
    }

    /// Reads the clock for this long. Two consecutive reads that are `gap` or more apart count as a gap; a
    /// `gap` above 4,096 ns counts as 4,096 ns.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`].
    pub fn watch(&self, length: Duration, gap: Nanos) -> Result<(), ProbeError> {
        let length_ns = length.min(self.longest_call()).as_nanos() as u64;
        let mut request = [0; 16];
        request[..8].copy_from_slice(&length_ns.to_ne_bytes());
        request[8..].copy_from_slice(&gap.get().min(FINE as u64).to_ne_bytes());
        let mut programs = self.object.progs_mut();
        let program = programs
            .find(|program| program.name() == self.program)
            .ok_or_else(ProbeError::missing)?;
        let input = ProgramInput {
            context_in: Some(&mut request[..]),
            ..ProgramInput::default()
        };
        program
            .test_run(input)
            .map(drop)
            .map_err(ProbeError::kernel("running its loop"))
    }

    /// What was found since the last call.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`].
    pub fn take(&self) -> Result<KernelAccount, ProbeError> {
        let failed = ProbeError::kernel("reading its loop's account");
        let accounts = map(&self.object, "accounts")?;
        let first = 0_u32.to_ne_bytes();
        let found = accounts.lookup(&first, MapFlags::ANY).map_err(&failed)?;
        let bytes = found.unwrap_or_default();
        let words = words(&bytes);
        let nothing = vec![0; bytes.len()];
        accounts
            .update(&first, &nothing, MapFlags::ANY)
            .map_err(&failed)?;
        let gaps = words.get(FINE).copied().unwrap_or(0);
        let instant = Monotonic::from_nanos_since_boot;
        let kept = words.get(FINE + 2..).unwrap_or_default();
        let (kept, _) = kept.as_chunks::<2>();
        Ok(KernelAccount {
            gaps: kept[..kept.len().min(gaps as usize)]
                .iter()
                .map(|&[from, to]| (instant(from), instant(to)))
                .collect(),
            gaps_not_kept: gaps.saturating_sub(KEPT as u64),
            watched: Nanos::new(words.get(FINE + 1).copied().unwrap_or(0)),
            short: words[..FINE.min(words.len())].to_vec(),
        })
    }
}

/// Watches which CPUs send interrupts to others, until it is dropped.
#[derive(Debug)]
pub struct IpiWatch {
    object: Object,
    _link: Link,
    /// How many interrupts of each CPU have been taken.
    taken: Vec<u64>,
}

impl IpiWatch {
    /// Starts watching.
    ///
    /// # Errors
    /// [`ProbeError`]; the tracepoint came with Linux 6.4.
    pub fn start() -> Result<Self, ProbeError> {
        check_kernel()?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(ProbeError::kernel("counting CPUs"))?;
        let object = load("ipi_sent", "asked", cpus as u32)?;
        let link = object
            .progs_mut()
            .find(|program| program.name() == "ipi_sent")
            .ok_or_else(ProbeError::missing)?
            .attach()
            .map_err(|e| refused("ipi_send_cpu", "attaching", as_io(&e)))?;
        Ok(Self {
            object,
            _link: link,
            taken: vec![0; cpus],
        })
    }

    /// The interrupts sent to this CPU since the last call, in order: when, and by which CPU. At most
    /// the last 4,096, and none that was sent to several CPUs at once.
    pub fn asked(&mut self, cpu: u16) -> Vec<(Monotonic, u16)> {
        let index = u32::from(cpu).to_ne_bytes();
        let place = usize::from(cpu);
        let asked = map(&self.object, "asked").ok();
        let found = asked.and_then(|asked| asked.lookup(&index, MapFlags::ANY).ok()?);
        let (Some(bytes), Some(taken)) = (found, self.taken.get_mut(place)) else {
            return Vec::new();
        };
        let words = words(&bytes);
        let Some((&count, sends)) = words.split_first() else {
            return Vec::new();
        };
        let first = (*taken).max(count.saturating_sub(SENDS as u64));
        *taken = count;
        let mut asked = sent(sends, first..count);
        asked.sort_unstable();
        asked
    }
}

/// The sends with these numbers, counted from 0: when, and by which CPU. A place that holds another send
/// has not been written yet, or has been written again.
fn sent(places: &[u64], numbers: Range<u64>) -> Vec<(Monotonic, u16)> {
    let (places, _) = places.as_chunks::<2>();
    numbers
        .filter_map(|number| {
            let &[which, at] = places.get(number as usize % SENDS)?;
            let written = which >> 16 == number + 1;
            written.then(|| (Monotonic::from_nanos_since_boot(at), which as u16))
        })
        .collect()
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Loads this program, and its map with the given number of entries.
fn load(program: &'static str, its_map: &str, entries: u32) -> Result<Object, ProbeError> {
    let failed = |phase| move |e: libbpf_rs::Error| refused(program, phase, as_io(&e));
    let mut open = ObjectBuilder::default()
        .open_memory(&OBJECT.0)
        .map_err(failed("opening"))?;
    for mut one in open.progs_mut() {
        let wanted = one.name() == program;
        one.set_autoload(wanted);
    }
    for mut one in open.maps_mut() {
        match one.name() == Path::new(its_map).as_os_str() {
            true => one.set_max_entries(entries).map_err(failed("sizing"))?,
            false => one.set_autocreate(false).map_err(failed("choosing"))?,
        }
    }
    open.load().map_err(failed("loading"))
}

fn refused(hook: &'static str, phase: &'static str, source: std::io::Error) -> ProbeError {
    ProbeError::HookRefused {
        stamp: "noise",
        hook,
        phase,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_that_is_not_written_yet_is_left_out() {
        let of = |number: u64, cpu: u64| (number + 1) << 16 | cpu;
        let mut places = vec![0; 2 * SENDS];
        // the third and the fourth were begun, and the fourth has been written
        places[..8].copy_from_slice(&[of(0, 3), 10, of(1, 65_535), 20, 0, 0, of(3, 1), 40]);
        let at = Monotonic::from_nanos_since_boot;
        assert_eq!(
            sent(&places, 0..4),
            [(at(10), 3), (at(20), 65_535), (at(40), 1)]
        );
        // one lap later, the place holds the send of the lap before
        let lap = SENDS as u64;
        assert!(sent(&places, lap..lap + 1).is_empty());
        places[..2].copy_from_slice(&[of(lap, 2), 50]);
        assert_eq!(sent(&places, lap..lap + 2), [(at(50), 2)]);
    }
}
