//! Runs the disturbers of a kind during a measurement.

use std::fs;
use std::path::PathBuf;

use taillab_host::{Journal, JournalFolder, Roots, ServerProcess, Testbed};
use taillab_load::ground_truth::GroundTruth;

use super::kind::Disturbance;
use super::setup::BenchOptions;
use crate::injection::{
    CpuGroup, Disturber, InjectionError, ReadsFrom, Stop, backend, background, make_real_time,
    make_yielding, packet_flood, packet_loss, quota, rt_hog, slow_reader, stops, timer_storm,
};

/// The server that is disturbed, and where it runs.
#[derive(Clone, Copy)]
pub struct DisturbedServer<'a> {
    /// The namespaces of server and client.
    pub testbed: &'a Testbed,
    /// The server.
    pub server: &'a ServerProcess,
    /// The mount points of proc and of the control groups.
    pub roots: &'a Roots,
    /// Where it listens, and how long its messages are.
    pub speaks: ReadsFrom,
}

/// What disturbances did.
#[derive(Debug, Default)]
pub struct DisturbanceLog {
    /// What held the server up, and when.
    pub injected: GroundTruth,
    /// When another server had each question; `None` where there is none. The server that asks it logs when it waited, so
    /// this is no injection of its own.
    pub backend: Option<GroundTruth>,
}

/// The disturbances that run now.
pub struct Disturbers {
    running: Vec<Stop>,
    backend: Option<Disturber>,
    /// Lists what would be left behind if we were killed: this control group.
    journal: Option<(Journal, Option<PathBuf>)>,
}

/// The threads whose names end in a number, sorted by it. In a server with a thread for each connection
/// this is the order of the connections.
fn by_number(roots: &Roots, threads: &[u32]) -> Vec<u32> {
    let number = |thread: &u32| {
        let name = fs::read_to_string(roots.proc.join(format!("{thread}/comm"))).ok()?;
        let (_, number) = name.trim_end().rsplit_once('-')?;
        Some((number.parse::<u32>().ok()?, *thread))
    };
    let mut numbered: Vec<(u32, u32)> = threads.iter().filter_map(number).collect();
    numbered.sort_unstable();
    numbered.into_iter().map(|(_, thread)| thread).collect()
}

/// The last thread of each full group of `one_in`.
fn last_of(one_in: usize, threads: &[u32]) -> Vec<u32> {
    let groups = threads.chunks_exact(one_in);
    groups.filter_map(|group| group.last().copied()).collect()
}

impl Disturbers {
    /// Starts the disturbances. The server must be running.
    ///
    /// # Errors
    /// [`InjectionError`] if one of them is not possible on this machine.
    pub fn start(
        target: &DisturbedServer,
        disturbances: &[Disturbance],
        asked: &BenchOptions,
    ) -> Result<Self, InjectionError> {
        let mut started = Self {
            running: Vec::new(),
            backend: None,
            journal: None,
        };
        for disturbance in disturbances {
            match started.one(target, *disturbance, asked) {
                Ok(running) => started.running.extend(running),
                Err(error) => {
                    // end what has been started before the journal is removed
                    started.running.clear();
                    started.finish_journal()?;
                    return Err(error);
                }
            }
        }
        Ok(started)
    }

    fn one(
        &mut self,
        target: &DisturbedServer,
        disturbance: Disturbance,
        asked: &BenchOptions,
    ) -> Result<Option<Stop>, InjectionError> {
        let (server, client) = (asked.server_cpu, asked.client_cpu);
        let thread = |disturber: Disturber| -> Stop { Box::new(move || Ok(disturber.stop())) };
        Ok(Some(match disturbance {
            Disturbance::Background(schedule) => thread(background(server, schedule)?),
            Disturbance::OnGenerator(schedule) => thread(background(client, schedule)?),
            Disturbance::Yielding(one_in) => {
                let threads = target.server.threads();
                make_real_time(&threads)?;
                make_yielding(&last_of(one_in, &by_number(target.roots, &threads)))?;
                return Ok(None);
            }
            Disturbance::Timers(schedule) => timer_storm(server, client, schedule)?,
            Disturbance::Flood(schedule) => packet_flood(server, client, schedule)?,
            Disturbance::Stops(schedule) => {
                let processes = target.server.processes();
                thread(stops(&processes, client, server, schedule)?)
            }
            Disturbance::Backend(takes) => {
                self.backend = Some(backend(target.testbed, client, takes)?);
                return Ok(None);
            }
            Disturbance::SlowReader => thread(slow_reader(target.testbed, client, target.speaks)?),
            Disturbance::Loss(one_in) => packet_loss(target.testbed, one_in)?,
            Disturbance::RtHog(appetite) => {
                let threads = target.server.threads();
                make_real_time(&threads)?;
                thread(rt_hog(server, &threads, appetite)?)
            }
            Disturbance::RealTime => {
                make_real_time(&target.server.threads())?;
                return Ok(None);
            }
            Disturbance::Quota(schedule) => {
                let folder = JournalFolder::of_this_user();
                let mut journal = folder.begin(target.roots)?;
                let group = CpuGroup::new(target.roots, &mut journal);
                let path = group.as_ref().ok().map(|group| group.path().to_owned());
                self.journal = Some((journal, path));
                let group = group?;
                for process in target.server.processes() {
                    group.take_in(process)?;
                }
                thread(quota(group, client, server, schedule)?)
            }
        }))
    }

    /// Ends them and returns what they did.
    ///
    /// # Errors
    /// [`InjectionError`] if their records cannot be read.
    pub fn stop(mut self) -> Result<DisturbanceLog, InjectionError> {
        let mut log = DisturbanceLog::default();
        for stop in self.running.drain(..) {
            log.injected.extend(stop()?);
        }
        log.backend = self.backend.take().map(Disturber::stop);
        self.finish_journal()?;
        Ok(log)
    }

    fn finish_journal(&mut self) -> Result<(), InjectionError> {
        match self.journal.take() {
            // a group that could not be removed stays in the journal: the next start removes it
            Some((_, Some(group))) if group.exists() => Ok(()),
            Some((journal, _)) => Ok(journal.finish()?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_in_the_order_of_their_connections() {
        let place = tempfile::tempdir().unwrap();
        let roots = Roots::below(place.path());
        let names = [
            "taillab",
            "null-rpc-10",
            "null-rpc-9",
            "null-rpc-11",
            "null-rpc-12",
        ];
        for (thread, name) in names.iter().enumerate() {
            let folder = roots.proc.join(thread.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        }
        let threads = by_number(&roots, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(threads, [2, 1, 3, 4]);
        assert_eq!(last_of(2, &threads), [1, 4]);
        assert_eq!(last_of(3, &threads), [3]);
    }
}
