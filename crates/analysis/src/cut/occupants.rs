//! Which threads ran on a CPU of the generator, from the kernel's record.

use std::io;

use taillab_model::explanation::{Culprit, THIS_GENERATOR, is_our_thread, nameless};
use taillab_model::{
    EventKind, EventSink, MiddleStamps, Monotonic, Nanos, PackedEvent, ThreadName, Tid,
};

/// Which threads came onto one CPU, and when; empty if that was not recorded.
#[derive(Clone, Debug, Default)]
pub struct Occupants<'r> {
    /// In order of time; `None` from the end of a slice, after which nothing is seen.
    came: Vec<(Monotonic, Option<Tid>)>,
    threads: &'r [ThreadName],
}

/// Who comes onto each CPU of the generator, noted while it is recorded.
pub struct Occupancy {
    base: Monotonic,
    cpus: Vec<u32>,
    /// For each of them.
    came: Vec<Vec<(Monotonic, Option<Tid>)>>,
    /// The ends of slices.
    ends: Vec<(Monotonic, Option<Tid>)>,
    has_slices: bool,
}

impl Occupancy {
    /// Of these CPUs. The events' times count from `base`.
    pub fn new(base: Monotonic, cpus: impl IntoIterator<Item = u32>, stamps: MiddleStamps) -> Self {
        let cpus: Vec<u32> = cpus.into_iter().collect();
        Self {
            base,
            came: vec![Vec::new(); cpus.len()],
            cpus,
            ends: Vec::new(),
            has_slices: matches!(stamps, MiddleStamps::Sampled(_)),
        }
    }

    /// The occupants of each CPU, of which these are the names.
    pub fn occupants(self, threads: &[ThreadName]) -> Vec<Occupants<'_>> {
        let of_one = |mut came: Vec<(Monotonic, Option<Tid>)>| {
            came.extend_from_slice(&self.ends);
            came.sort_by_key(|(at, _)| *at);
            Occupants { came, threads }
        };
        self.came.into_iter().map(of_one).collect()
    }
}

impl EventSink for Occupancy {
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
        let here = self.cpus.iter().position(|of| *of == u32::from(cpu));
        // the end of a slice may be recorded on any CPU: that of the thread that detaches the programs
        if here.is_none() && !self.has_slices {
            return Ok(());
        }
        for event in events {
            let at = || self.base + event.since_base();
            match (event.kind(), here) {
                (EventKind::CameOn { tid }, Some(place)) => {
                    self.came[place].push((at(), Some(tid)))
                }
                (EventKind::Slice { begins: false }, _) => self.ends.push((at(), None)),
                _ => {}
            }
        }
        Ok(())
    }

    fn settle(&mut self, _before: Nanos) -> io::Result<()> {
        Ok(())
    }
}

impl Occupants<'_> {
    /// Who is to blame that the generator waited for so long in this stretch: `stress (pid 77)` where one had
    /// the CPU for half of it, `stress (pid 77) and others` where the first of several had it for an eighth.
    pub(super) fn to_blame(&self, from: Monotonic, to: Monotonic, waited: Nanos) -> Option<String> {
        let chief = |share| self.chief(from, to, Nanos::new(waited.get() / share));
        chief(2).or_else(|| Some(format!("{} and others", chief(8)?)))
    }

    /// Which program had the CPU for longest between two times, apart from the generator and the idle
    /// thread: `stress (pid 77)`, with the name of the thread that had it for longest; `None` if none had it for
    /// `least` or longer.
    ///
    /// Time in which the probe was blind counts for the thread that was seen last.
    fn chief(&self, from: Monotonic, to: Monotonic, least: Nanos) -> Option<String> {
        let first = self.came.partition_point(|(at, _)| *at <= from);
        let stays = &self.came[first.saturating_sub(1)..];
        let ends = stays.iter().skip(1).map(|(at, _)| *at).chain([to]);
        let mut had: Vec<(Tid, Nanos)> = Vec::new();
        for (&(at, who), end) in stays.iter().zip(ends).take_while(|((at, _), _)| *at < to) {
            let Some(tid) = who else { continue };
            let lasted = end.min(to).saturating_since(at.max(from));
            match had.iter_mut().find(|(known, _)| *known == tid) {
                Some((_, sum)) => *sum += lasted,
                None => had.push((tid, lasted)),
            }
        }
        had.retain(|(tid, _)| !self.is_known_well(*tid));
        // of the threads of a process, the last is the one that had it for longest
        had.sort_by_key(|(_, lasted)| *lasted);
        let had = had.into_iter();
        let had: Vec<(Tid, Tid, Nanos)> = had
            .map(|(tid, lasted)| (self.process(tid), tid, lasted))
            .collect();
        let of_process = |process: Tid| -> Nanos {
            let own = had.iter().filter(|(of, ..)| *of == process);
            own.map(|(.., lasted)| *lasted).sum()
        };
        let sums = had
            .iter()
            .map(|(process, tid, _)| (*tid, of_process(*process)));
        let (tid, lasted) = sums.max_by_key(|(_, lasted)| *lasted)?;
        (lasted >= least).then(|| self.name(tid))
    }

    /// The process of a thread; the thread itself, where that is not known.
    fn process(&self, tid: Tid) -> Tid {
        let pid = self.thread(tid).map(|thread| thread.pid);
        pid.filter(|pid| *pid != 0).unwrap_or(tid)
    }

    /// Whether it is the idle thread or the generator itself.
    fn is_known_well(&self, tid: Tid) -> bool {
        tid == 0 || (self.thread(tid)).is_some_and(|thread| thread.comm == THIS_GENERATOR)
    }

    fn thread(&self, tid: Tid) -> Option<&ThreadName> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }

    /// Threads of one process count as one program, if the process is known. Ours are named by what each of them does.
    fn name(&self, tid: Tid) -> String {
        let thread = self.thread(tid);
        let pid = thread.map(|thread| thread.pid).filter(|pid| *pid != 0);
        let is_ours = thread.is_some_and(|thread| is_our_thread(&thread.comm));
        let process = pid.and_then(|pid| self.thread(pid));
        let process = process.filter(|process| !process.comm.is_empty() && !is_ours);
        let named = process.or(thread);
        let culprit = Culprit::Thread {
            name: named.map_or_else(|| nameless(tid), |thread| thread.comm.clone()),
            pid,
            tid: pid.is_none().then_some(tid),
            process: None,
        };
        culprit.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(us * 1_000)
    }

    fn thread(tid: Tid, pid: Tid, comm: &str) -> ThreadName {
        ThreadName {
            tid,
            pid,
            comm: comm.into(),
            server: false,
            real_time: None,
        }
    }

    /// Who came onto CPU 1, and when.
    fn occupancy(came: &[(u64, Tid)]) -> Occupancy {
        noted(Occupancy::new(at(0), [1], MiddleStamps::All), came)
    }

    fn noted(mut occupancy: Occupancy, came: &[(u64, Tid)]) -> Occupancy {
        for &(us, tid) in came {
            // another CPU has its own
            for (cpu, tid) in [(1, tid), (2, 99)] {
                let event = PackedEvent::new(Nanos::from_micros(us), EventKind::CameOn { tid });
                occupancy.take(cpu, &[event]).unwrap();
            }
        }
        occupancy
    }

    fn threads() -> Vec<ThreadName> {
        vec![
            thread(5, 4, THIS_GENERATOR),
            thread(77, 70, "stress"),
            thread(78, 78, "kworker/1:2"),
        ]
    }

    #[test]
    fn the_one_that_had_the_cpu_for_longest_is_named() {
        let came = occupancy(&[(0, 5), (100, 78), (200, 77), (900, 5), (950, 0), (990, 5)]);
        let threads = threads();
        let occupants = &came.occupants(&threads)[0];
        let chief = |from, to, least| occupants.chief(at(from), at(to), Nanos::from_micros(least));
        assert_eq!(chief(50, 1_000, 300).unwrap(), "stress (pid 70)");
        // a thread that came before the stretch began, and one that had the CPU for less than `least`
        assert_eq!(chief(150, 210, 40).unwrap(), "kworker/1:2 (pid 78)");
        assert_eq!(chief(150, 210, 60), None);
        // the generator and the idle thread hold nobody up
        assert_eq!(chief(905, 1_000, 0), None);
        assert_eq!(
            Occupants::default().chief(at(0), at(1_000), Nanos::ZERO),
            None
        );
    }

    #[test]
    fn the_threads_of_a_process_had_the_cpu_together() {
        let came = || occupancy(&[(0, 79), (300, 77), (550, 80), (700, 5)]);
        let mut threads = threads();
        threads.extend([thread(79, 79, "cc"), thread(80, 70, "stress-2")]);
        let occupants = &came().occupants(&threads)[0];
        let chief = |least| occupants.chief(at(0), at(700), Nanos::from_micros(least));
        // cc had it for 300 µs at once, the process for 400 µs
        assert_eq!(chief(400).unwrap(), "stress (pid 70)");
        assert_eq!(chief(401), None);
        // its main thread, which did not run here, has the process' name
        threads.push(thread(70, 70, "stress-ng"));
        let occupants = &came().occupants(&threads)[0];
        let chief = occupants.chief(at(0), at(700), Nanos::from_micros(400));
        assert_eq!(chief.unwrap(), "stress-ng (pid 70)");
    }

    #[test]
    fn the_first_of_several_is_to_blame_with_the_others() {
        let came = occupancy(&[(0, 77), (300, 78), (500, 77), (600, 5), (650, 78)]);
        let threads = threads();
        let occupants = &came.occupants(&threads)[0];
        let blamed = |waited| occupants.to_blame(at(0), at(700), Nanos::from_micros(waited));
        assert_eq!(blamed(650).unwrap(), "stress (pid 70)");
        assert_eq!(blamed(1_000).unwrap(), "stress (pid 70) and others");
        assert_eq!(blamed(4_000), None);
    }

    #[test]
    fn between_slices_nobody_is_known() {
        let in_slices = Occupancy::new(at(0), [1], "sampled:1/4".parse().unwrap());
        let mut came = noted(in_slices, &[(0, 5), (100, 77), (300, 78)]);
        let end = EventKind::Slice { begins: false };
        came.take(0, &[PackedEvent::new(Nanos::from_micros(200), end)])
            .unwrap();
        let threads = threads();
        let occupants = &came.occupants(&threads)[0];
        let chief = |from, to| occupants.chief(at(from), at(to), Nanos::from_micros(50));
        // from the end of the slice until a thread is seen again, nobody is known to have the CPU
        assert_eq!(chief(100, 900).unwrap(), "kworker/1:2 (pid 78)");
        assert_eq!(chief(100, 290).unwrap(), "stress (pid 70)");
        assert_eq!(chief(200, 290), None);
    }

    #[test]
    fn each_cpu_has_its_own() {
        let of_three = Occupancy::new(at(0), [2, 7, 1], MiddleStamps::All);
        let threads = threads();
        let all = noted(of_three, &[(0, 77), (500, 78)]).occupants(&threads);
        let chiefs = all.iter().map(|of| of.chief(at(0), at(300), Nanos::ZERO));
        let chiefs: Vec<Option<String>> = chiefs.collect();
        assert!(chiefs[0].as_ref().is_some_and(|who| who.contains("99")));
        // nothing was recorded there
        assert_eq!(chiefs[1], None);
        assert_eq!(chiefs[2].as_deref(), Some("stress (pid 70)"));
    }

    #[test]
    fn a_thread_without_a_name_has_its_number() {
        let occupants = &occupancy(&[(10, 1_234)]).occupants(&[])[0];
        let who = occupants
            .chief(at(0), at(20), Nanos::from_micros(5))
            .unwrap();
        assert!(who.contains("1234"), "{who}");
        // before anybody was seen, nobody is known
        assert_eq!(occupants.chief(at(0), at(10), Nanos::ZERO), None);
    }
}
