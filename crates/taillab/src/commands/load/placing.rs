//! Which CPUs the client's threads, its helper and the null responder run on.

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_host::{CpuSet, cpus};

/// Where everything runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placing {
    /// One CPU for each thread; several threads may have the same when that was asked for.
    pub threads: Vec<u32>,
    /// CPUs without a thread of the client: for drawing, and for the responder.
    pub rest: Vec<u32>,
}

impl Placing {
    /// Places `threads` on `wanted`, or on the last CPUs that this process may use.
    pub fn choose(
        threads: usize,
        wanted: Option<&str>,
        oversubscribe: bool,
    ) -> Result<Self, Failure> {
        let wanted = wanted
            .map(str::parse::<CpuSet>)
            .transpose()
            .or_exit(Exit::Usage)?;
        let allowed = match &wanted {
            Some(wanted) => cpus::ensure_usable(wanted),
            None => cpus::allowed(),
        };
        let allowed = allowed.map_err(host)?;
        Self::on(threads, wanted.as_ref(), oversubscribe, &allowed).or_exit(Exit::Usage)
    }

    fn on(
        threads: usize,
        wanted: Option<&CpuSet>,
        oversubscribe: bool,
        allowed: &CpuSet,
    ) -> Result<Self, String> {
        let usable: Vec<u32> = wanted.unwrap_or(allowed).iter().collect();
        if threads > usable.len() && !oversubscribe {
            let set = wanted.unwrap_or(allowed);
            return Err(format!(
                "{threads} threads on {} CPU{} ({set}) would make each other late: use at most \
                 -t {}, \
                 give more CPUs with --client-cpus, or add --oversubscribe",
                usable.len(),
                if usable.len() == 1 { "" } else { "s" },
                usable.len()
            ));
        }
        // the last ones: interrupts and most servers begin at the first
        let first = match wanted {
            Some(_) => 0,
            None => usable.len().saturating_sub(threads),
        };
        let own = &usable[first..];
        let threads: Vec<u32> = (0..threads).map(|i| own[i % own.len()]).collect();
        let rest = allowed
            .iter()
            .filter(|cpu| !threads.contains(cpu))
            .collect();
        Ok(Self { threads, rest })
    }

    /// Pins the calling thread as thread number `i` of the client.
    pub fn pin(&self, i: usize) -> Result<(), taillab_host::CpuError> {
        let cpu = self.threads[i % self.threads.len()];
        cpus::pin_current_thread(&CpuSet::single(cpu))
    }

    /// Keeps the calling thread off the client's CPUs, where there are others.
    pub fn step_aside(&self) -> Result<(), Failure> {
        if self.rest.is_empty() {
            return Ok(());
        }
        cpus::pin_current_thread(&self.rest.iter().copied().collect()).map_err(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn on(threads: usize, wanted: Option<&str>, allowed: &str) -> Result<Placing, String> {
        Placing::on(threads, wanted.map(set).as_ref(), false, &set(allowed))
    }

    #[test]
    fn threads_take_the_last_cpus_or_those_given() {
        let placing = on(2, None, "0-3").unwrap();
        assert_eq!((placing.threads, placing.rest), (vec![2, 3], vec![0, 1]));
        let placing = on(1, Some("0,2"), "0-3").unwrap();
        assert_eq!((placing.threads, placing.rest), (vec![0], vec![1, 2, 3]));
        let placing = on(1, None, "5").unwrap();
        assert_eq!((placing.threads, placing.rest), (vec![5], vec![]));
    }

    #[test]
    fn too_many_threads_and_foreign_cpus_are_refused() {
        let error = on(3, None, "0-1").unwrap_err();
        assert!(
            error.contains("-t 2") && error.contains("--oversubscribe"),
            "{error}"
        );
        assert!(on(2, Some("1"), "0-3").unwrap_err().contains("1 CPU (1)"));
        let foreign = Placing::choose(1, Some("1023"), false).unwrap_err();
        assert!(foreign.message.contains("choose among"), "{foreign}");
        let forced = Placing::on(3, None, true, &set("0-1")).unwrap();
        assert_eq!(forced.threads, [0, 1, 0]);
    }
}
