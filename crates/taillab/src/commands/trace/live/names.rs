//! The names of threads while they live. A thread that has ended is forgotten: its number may be given to another one,
//! and a server may start one for each connection.

use std::collections::{BTreeMap, HashMap};

use taillab_host::Roots;
use taillab_host::observe;
use taillab_model::{Event, EventKind, Monotonic, Nanos, RecordingContext, ThreadName, Tid};

/// A thread that did not run for so long is forgotten, and asked for again when it does. What is shown of a second may
/// be that of two seconds ago.
const STALE_AFTER: Nanos = Nanos::from_secs(3);

/// When threads ran last.
#[derive(Default)]
pub(super) struct Names {
    last: HashMap<Tid, Monotonic>,
    /// The threads that are on the CPUs.
    current: BTreeMap<u16, Tid>,
}

impl Names {
    /// Names the threads that came onto a CPU in these events, as far as they still live, and forgets those that have
    /// not run for long. The threads of the server's `processes` are read each time.
    pub(super) fn update(
        &mut self,
        events: &[Event],
        context: &mut RecordingContext,
        roots: &Roots,
        processes: &[u32],
    ) {
        let Some(now) = events.last().map(|event| event.at) else {
            return;
        };
        let mut new = Vec::new();
        for event in events {
            if let EventKind::Switched { next, .. } = event.kind {
                self.current.insert(event.cpu, next);
                if next != 0 && self.last.insert(next, event.at).is_none() {
                    new.push(next);
                }
            }
        }
        // who has a CPU for itself is never switched to
        for tid in self.current.values().filter(|tid| **tid != 0) {
            self.last.insert(*tid, now);
        }
        self.last
            .retain(|_, last| now.saturating_since(*last) <= STALE_AFTER);
        let mut seen = std::mem::take(&mut context.threads);
        seen.retain(|thread| self.last.contains_key(&thread.tid));
        seen.extend(new.into_iter().map(|tid| ThreadName {
            tid,
            pid: 0,
            comm: String::new(),
            server: false,
            real_time: None,
        }));
        observe::name_threads(context, roots, seen, processes);
        observe::name_own(context, roots);
        // threads that are gone stay numbers
        context.threads.retain(|thread| !thread.comm.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn switch(at: Nanos, cpu: u16, next: Tid) -> Event {
        Event {
            at: Monotonic::from_nanos_since_boot(at.get()),
            cpu,
            kind: EventKind::Switched {
                prev: 0,
                next,
                preempted: false,
                asleep: None,
            },
        }
    }

    /// A thread that comes and one that goes again at once, so that no thread stays on the CPU.
    fn runs(at: Nanos, tid: Tid) -> [Event; 2] {
        [switch(at, 1, tid), switch(at + Nanos::new(1), 1, 0)]
    }

    fn is_called(folder: &Path, tid: Tid, comm: &str) {
        let thread = folder.join(format!("proc/{tid}"));
        fs::create_dir_all(&thread).unwrap();
        fs::write(thread.join("comm"), comm).unwrap();
    }

    fn ended(folder: &Path, tid: Tid) {
        fs::remove_dir_all(folder.join(format!("proc/{tid}"))).unwrap();
    }

    fn name(context: &RecordingContext, tid: Tid) -> Option<&str> {
        let found = context.threads.iter().find(|thread| thread.tid == tid);
        found.map(|thread| thread.comm.as_str())
    }

    #[test]
    fn a_number_that_is_used_again_has_the_name_of_the_new_thread() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let (mut names, mut context) = (Names::default(), RecordingContext::default());
        let mut update = |events: &[Event]| {
            names.update(events, &mut context, &roots, &[]);
            name(&context, 7).map(str::to_owned)
        };
        is_called(folder.path(), 7, "a\n");
        let second = Nanos::from_secs(1);
        assert_eq!(update(&runs(second, 7)).as_deref(), Some("a"));
        ended(folder.path(), 7);
        // what is shown now may still be about it
        let early = [runs(second * 2, 8), runs(second * 3, 9)].concat();
        assert_eq!(update(&early).as_deref(), Some("a"));
        assert_eq!(update(&runs(second * 9, 8)), None);
        is_called(folder.path(), 7, "b\n");
        assert_eq!(update(&runs(second * 10, 7)).as_deref(), Some("b"));
    }

    #[test]
    fn who_has_a_cpu_for_itself_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        is_called(folder.path(), 7, "spins\n");
        let (mut names, mut context) = (Names::default(), RecordingContext::default());
        let second = Nanos::from_secs(1);
        names.update(&[switch(second, 0, 7)], &mut context, &roots, &[]);
        for at in 2..20 {
            names.update(&runs(second * at, 8), &mut context, &roots, &[]);
        }
        assert_eq!(name(&context, 7), Some("spins"));
    }

    #[test]
    fn a_hundred_thousand_short_threads_are_not_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        is_called(folder.path(), 1, "init\n");
        let (mut names, mut context) = (Names::default(), RecordingContext::default());
        for second in 0..250_u32 {
            let first = 1_000 + second * 400;
            let at = Nanos::from_secs(1) * u64::from(second + 1);
            let events: Vec<Event> = (first..first + 400).flat_map(|tid| runs(at, tid)).collect();
            // they still live when they are asked for, and get a name
            context
                .threads
                .extend((first..first + 400).map(|tid| ThreadName {
                    tid,
                    pid: tid,
                    comm: "short".to_owned(),
                    server: true,
                    real_time: None,
                }));
            names.update(&events, &mut context, &roots, &[]);
            assert!(names.last.len() < 2_000, "{}", names.last.len());
            let named = context.threads.len();
            assert!(named < 2_000, "{named}");
        }
        assert!(context.threads.len() >= 400);
    }
}
