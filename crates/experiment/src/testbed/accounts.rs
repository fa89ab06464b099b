//! How the server's CPUs were used: by the server, by interrupts, and by other programs.
//!
//! A program that gives way to the server (`nice`, SCHED_IDLE, a group of little weight) uses what the server leaves, and
//! costs it nothing. One that does not makes the server wait. So of what other programs use, only as much counts as the
//! server's threads were runnable without a CPU meanwhile.

use taillab_host::clock::now;
use taillab_host::{CpuSample, CpuSet, HostError, Roots, process_ticks, waiting_time};
use taillab_model::{Monotonic, Nanos};

/// To read what each of more threads waited takes too long beside a load: what other programs use counts as taken.
const MOST_THREADS: usize = 256;

/// The kernel's accounts at one time.
#[derive(Clone, Debug)]
pub struct Accounts {
    at: Monotonic,
    cpus: CpuSample,
    server_ticks: u64,
    /// How long the server's threads waited for a CPU, where that is known.
    waited: Option<Nanos>,
}

/// Shares of the time of the server's CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// They were busy: for the server, with interrupts, or with other programs while the server waited.
    pub busy: f64,
    /// Other programs had them while the server waited.
    pub taken: f64,
}

impl Shares {
    /// No tick passed.
    pub const UNKNOWN: Self = Self {
        busy: f64::NAN,
        taken: f64::NAN,
    };
}

impl Accounts {
    /// Reads them; the server has these processes.
    ///
    /// # Errors
    /// [`HostError`] if `/proc/stat` cannot be read.
    pub fn take(roots: &Roots, server: &[u32]) -> Result<Self, HostError> {
        Ok(Self {
            at: now(),
            cpus: CpuSample::take(roots)?,
            server_ticks: process_ticks(roots, server),
            waited: waiting_time(roots, server, MOST_THREADS),
        })
    }

    /// How `cpus` were used since `before`; `None` if no tick passed.
    pub fn shares_since(&self, before: &Self, cpus: &CpuSet) -> Option<Shares> {
        let usage = self.cpus.usage_since(&before.cpus, cpus)?;
        let ticks = self.server_ticks.saturating_sub(before.server_ticks);
        let server = self.cpus.share_since(&before.cpus, cpus, ticks)?;
        let here = usage.busy_share - usage.steal_share;
        let interrupts = usage.irq_share + usage.softirq_share;
        let others = match self.cpus.measures_interrupts() {
            true => here - server - interrupts,
            // the server's time contains those that came while it ran
            false => (here - server) * (1.0 - interrupts / here.max(f64::MIN_POSITIVE)),
        };
        let others = others.max(0.0);
        let length = self.at.saturating_since(before.at).as_secs_f64() * cpus.len() as f64;
        let waited = before.waited.zip(self.waited);
        let waited = waited.map(|(before, now)| now.saturating_sub(before).as_secs_f64() / length);
        let taken = waited.map_or(others, |waited| waited.min(others));
        Some(Shares {
            busy: usage.busy_share - others + taken,
            taken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How CPU 0 was used, which did this in 100 ticks, of which the server used some: user, system, interrupts,
    /// softirqs. The server waited for a CPU for so many ticks, if that is known.
    fn shares(
        [user, system, irq, softirq]: [u64; 4],
        server_ticks: u64,
        waited: Option<u64>,
    ) -> (f64, f64) {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        std::fs::create_dir_all(&roots.proc).unwrap();
        let at = |seconds: u64, ticks: String, server_ticks, waited| {
            std::fs::write(roots.proc.join("stat"), ticks).unwrap();
            Accounts {
                at: Monotonic::from_nanos_since_boot(seconds * 1_000_000_000),
                cpus: CpuSample::take(&roots).unwrap(),
                server_ticks,
                waited,
            }
        };
        let idle = 100 - user - system - irq - softirq;
        let known = waited.map(|_| Nanos::ZERO);
        let before = at(5, "cpu0 0 0 0 0 0 0 0 0\n".to_owned(), 7, known);
        let after = format!("cpu0 {user} 0 {system} {idle} 0 {irq} {softirq} 0\n");
        let waited = waited.map(|ticks| Nanos::from_millis(ticks * 10));
        let after = at(6, after, 7 + server_ticks, waited);
        let found = after.shares_since(&before, &CpuSet::single(0)).unwrap();
        (found.busy, found.taken)
    }

    fn are((busy, taken): (f64, f64), expected: (f64, f64)) -> bool {
        (busy - expected.0).abs() < 1e-9 && (taken - expected.1).abs() < 1e-9
    }

    #[test]
    fn what_other_programs_had_is_neither_the_servers_nor_interrupts() {
        // the server's time contains the softirqs that came while it ran
        assert!(are(shares([30, 10, 0, 60], 100, None), (1.0, 0.0)));
        assert!(are(shares([30, 10, 0, 60], 50, None), (1.0, 0.2)));
        assert!(are(shares([90, 10, 0, 0], 40, None), (1.0, 0.6)));
        // the kernel measures interrupts, and no process's time contains them
        assert!(are(shares([60, 20, 10, 10], 80, None), (1.0, 0.0)));
        assert!(are(shares([60, 20, 10, 10], 50, None), (1.0, 0.3)));
    }

    #[test]
    fn what_gives_way_to_the_server_takes_nothing() {
        // a compiler that is nice has what the server leaves
        assert!(are(shares([90, 10, 0, 0], 40, Some(1)), (0.41, 0.01)));
        // one that is not makes it wait
        assert!(are(shares([90, 10, 0, 0], 40, Some(70)), (1.0, 0.6)));
        assert!(are(shares([40, 10, 0, 0], 40, Some(5)), (0.45, 0.05)));
    }
}
