//! The load of an experiment's `[background]` section: taillab's own processes on the server's CPUs.

use std::process::{Child, Command, Stdio};

use taillab_console::exit::Failure;
use taillab_host::CpuSet;

use crate::definition::{Experiment, OURSELVES};

/// Processes that run until this is dropped. They also end with this process, because it holds the pipes of
/// their standard inputs.
#[derive(Debug)]
pub struct BackgroundLoad {
    processes: Vec<Child>,
}

impl BackgroundLoad {
    /// Starts the processes that the experiment asks for, if any. They are processes, not threads, so that
    /// mitigations against other programs affect them.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn start(experiment: &Experiment, server: &CpuSet) -> Result<Self, Failure> {
        let mut load = Self {
            processes: Vec::new(),
        };
        let Some(asked) = experiment.background else {
            return Ok(load);
        };
        for number in 0..asked.processes {
            let seed = experiment.workload.seed ^ (u64::from(number) << 32);
            let process = Command::new(OURSELVES)
                .arg("burn")
                .args(["--cpus", &server.to_string()])
                .args(["--busy", &asked.busy.to_exact_string()])
                .args(["--every", &asked.every.to_exact_string()])
                .args(["--seed", &seed.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn();
            let process = process.map_err(|error| {
                Failure::failed(format!("cannot start the background load: {error}"))
            })?;
            load.processes.push(process);
        }
        Ok(load)
    }
}

impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // it may have ended already
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
