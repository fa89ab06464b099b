//! Stores every key before a measurement and checks that it is there.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use taillab_model::{Monotonic, Nanos, Operation, Outcome};

use crate::client::{Client, ReceiveOutcome, Sending};
use crate::clock::now;
use crate::engine::Progress;
use crate::protocol::Planned;
use crate::{Endpoint, LoadError};

/// Requests in flight at once: the server's default socket buffer holds this many sets.
const WINDOW: usize = 32;

/// How long to wait for an answer: longer than a round trip by satellite.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// Where requests can be lost, what has no answer is sent again after this many times the first
/// answer's time, but not before [`LEAST_PATIENCE`].
const ROUND_TRIPS: u64 = 4;

/// A nearby server may pause for this long.
const LEAST_PATIENCE: Nanos = Nanos::from_millis(200);

/// After this many rounds without any answer, about 5 s, the server counts as silent.
const SILENT_ROUNDS: u32 = 5;

/// After this many rounds the missing keys are given up.
const ROUNDS: u32 = 50;

/// Keys that are read back.
const SAMPLE: usize = 1000;

/// The result of prefilling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefilled {
    /// The stop flag was set: keys may be missing.
    pub interrupted: bool,
}

/// Stores everything that the client's protocol needs, repeats what is lost, and reads
/// a sample back.
///
/// `server` is used only in the texts of errors.
///
/// # Errors
/// [`LoadError::Refused`], [`LoadError::NoAnswer`], [`LoadError::NotStored`] or
/// [`LoadError::Evicted`].
pub fn prefill<C: Client>(
    client: &mut C,
    server: &Endpoint,
    stop: &AtomicBool,
) -> Result<Prefilled, LoadError> {
    prefill_watched(client, server, stop, &Progress::new())
}

/// [`prefill()`] with a progress for other threads.
pub(crate) fn prefill_watched<C: Client>(
    client: &mut C,
    server: &Endpoint,
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<Prefilled, LoadError> {
    progress.restart();
    let sets = client.planner().to_store();
    // evenly spread: includes the first keys, which are evicted first
    let step = sets.len().div_ceil(SAMPLE).max(1);
    let gets: Vec<_> = sets
        .iter()
        .step_by(step)
        .map(|set| Planned::new(Operation::Get, set.key()))
        .collect();
    let keys = sets.len() as u64;
    let stored = Exchange::new(client, server, stop, progress).all(sets)?;
    if stored.server_errors > 0 {
        return Err(LoadError::NotStored {
            server: server.clone(),
            refused: stored.server_errors,
            keys,
            said: client.wrong_answer().cloned(),
        });
    }
    let sampled = gets.len() as u64;
    let read = Exchange::new(client, server, stop, progress).all(gets)?;
    if read.misses + read.server_errors > 0 {
        return Err(LoadError::Evicted {
            server: server.clone(),
            missing: read.misses + read.server_errors,
            sampled,
        });
    }
    Ok(Prefilled {
        interrupted: stop.load(Relaxed),
    })
}

/// How a list of requests ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    misses: u64,
    server_errors: u64,
}

/// Sends a list of requests, a window at a time, until each has an answer.
struct Exchange<'a, C> {
    client: &'a mut C,
    server: &'a Endpoint,
    stop: &'a AtomicBool,
    progress: &'a Progress,
    answers: usize,
    /// Requests sent, repeated ones included, that have no answer.
    unanswered: u64,
    patience: Nanos,
    /// The last answer, or the beginning.
    heard: Monotonic,
    ended: Ended,
}

impl<'a, C: Client> Exchange<'a, C> {
    fn new(
        client: &'a mut C,
        server: &'a Endpoint,
        stop: &'a AtomicBool,
        progress: &'a Progress,
    ) -> Self {
        Self {
            client,
            server,
            stop,
            progress,
            answers: 0,
            unanswered: 0,
            patience: PATIENCE,
            heard: now(),
            ended: Ended::default(),
        }
    }

    fn all(mut self, mut todo: Vec<Planned>) -> Result<Ended, LoadError> {
        let mut silent = 0;
        for _ in 0..ROUNDS {
            if todo.is_empty() || self.stop.load(Relaxed) {
                return Ok(self.ended);
            }
            let before = todo.len();
            todo = self.round(todo)?;
            silent = if todo.len() == before { silent + 1 } else { 0 };
            if silent >= SILENT_ROUNDS {
                break;
            }
        }
        if todo.is_empty() || self.stop.load(Relaxed) {
            return Ok(self.ended);
        }
        Err(LoadError::NoAnswer {
            server: self.server.clone(),
            requests: self.unanswered,
            waited: now().saturating_since(self.heard),
            said: self.client.wrong_answer().cloned(),
        })
    }

    /// Sends each request once; returns those without an answer.
    fn round(&mut self, todo: Vec<Planned>) -> Result<Vec<Planned>, LoadError> {
        self.client.begin(0, Sending::Stored);
        let mut waiting: Vec<Option<Planned>> = Vec::with_capacity(todo.len());
        let mut in_flight = 0;
        let mut last = now();
        let mut answered = false;
        while !self.stop.load(Relaxed) {
            if waiting.len() < todo.len() && in_flight < WINDOW {
                let what = todo[waiting.len()];
                // a request that could not be sent is sent again in the next round
                let sent = self.client.send(what).is_ok();
                in_flight += usize::from(sent);
                self.unanswered += u64::from(sent);
                waiting.push(Some(what));
                continue;
            }
            if in_flight == 0 {
                break;
            }
            let look = |k: usize| waiting.get(k).copied().flatten();
            match self.client.receive(look) {
                ReceiveOutcome::Answer { k, outcome } => {
                    waiting[k] = None;
                    // an answer may come after its window was given up: stay at 0
                    in_flight = in_flight.saturating_sub(1);
                    answered = true;
                    let at = now();
                    self.answered(outcome, at, at.saturating_since(last));
                    last = at;
                }
                ReceiveOutcome::Lost { .. } => in_flight = in_flight.saturating_sub(1),
                ReceiveOutcome::Refused => {
                    return Err(LoadError::Refused {
                        server: self.server.clone(),
                    });
                }
                // also if it gets something else without pause
                _ if now().saturating_since(last) > self.patience => {
                    // What is in flight is lost. If this window had no answer at all, the next one
                    // would have none either, so the round ends.
                    if !answered {
                        self.patience = PATIENCE;
                        break;
                    }
                    in_flight = 0;
                    answered = false;
                    last = now();
                }
                _ => {}
            }
            // what waited for a connection
            while self.client.send_waiting(|_, _| true).is_some() {}
        }
        let unsent = todo[waiting.len()..].iter().copied();
        Ok(waiting.into_iter().flatten().chain(unsent).collect())
    }

    /// Counts an answer that was waited for this long.
    fn answered(&mut self, outcome: Outcome, at: Monotonic, waited: Nanos) {
        if self.answers == 0 && self.client.traits().is_lossy {
            self.patience = (waited * ROUND_TRIPS).clamp(LEAST_PATIENCE, PATIENCE);
        }
        self.answers += 1;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.progress.set_received(self.answers);
        self.heard = at;
        match outcome {
            Outcome::Miss => self.ended.misses += 1,
            Outcome::ServerError => self.ended.server_errors += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::fake::{Fake, answer, datagram};

    fn run(
        server: impl FnMut(usize, &[u8]) -> Vec<Vec<u8>> + Send + 'static,
    ) -> Result<Prefilled, LoadError> {
        prefill(
            &mut Fake::client(4, server),
            &endpoint(),
            &AtomicBool::new(false),
        )
    }

    fn endpoint() -> Endpoint {
        Endpoint::Udp(([127, 0, 0, 1], 11211).into())
    }

    fn reply(request: &[u8], text: &[u8]) -> Vec<Vec<u8>> {
        vec![datagram(
            u16::from_be_bytes([request[0], request[1]]),
            0,
            1,
            text,
        )]
    }

    fn is_get(request: &[u8]) -> bool {
        request[8..].starts_with(b"get ")
    }

    #[test]
    fn every_key_is_stored_and_read_back() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let done = run(move |_, request| {
            noted.lock().unwrap().push(request[8..].to_vec());
            vec![answer(request)]
        });
        assert!(!done.unwrap().interrupted);
        let sets = (0..100).map(|key| format!("set {key:04} 0 0 3\r\nvvv\r\n"));
        let gets = (0..100).map(|key| format!("get {key:04}\r\n"));
        let expected: Vec<_> = sets.chain(gets).map(String::into_bytes).collect();
        assert_eq!(*asked.lock().unwrap(), expected);
    }

    #[test]
    fn what_is_lost_is_repeated() {
        let sent = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&sent);
        let lossy = move |k: usize, request: &[u8]| {
            noted.store(k + 1, Relaxed);
            match k % 3 {
                0 => vec![],
                _ => vec![answer(request)],
            }
        };
        run(lossy).unwrap();
        // 100 sets and 100 gets, of which 34 and at least 33 are lost
        let sent = sent.load(Relaxed);
        assert!(sent >= 267, "{sent}");
    }

    #[test]
    fn servers_that_do_not_keep_the_keys_are_named() {
        let silent = run(|_, _| vec![]).unwrap_err();
        assert!(matches!(silent, LoadError::NoAnswer { .. }), "{silent}");
        let full = run(|_, request| reply(request, b"SERVER_ERROR out of memory\r\n"));
        assert!(matches!(
            full,
            Err(LoadError::NotStored { refused: 100, .. })
        ));
        let text = full.unwrap_err().to_string();
        assert!(text.contains("`SERVER_ERROR out of memory`"), "{text}");
        let forgetful = run(|_, request| match is_get(request) {
            true => reply(request, b"END\r\n"),
            false => vec![answer(request)],
        });
        assert!(matches!(
            forgetful,
            Err(LoadError::Evicted { missing: 100, .. })
        ));
    }

    #[test]
    fn only_requests_without_an_answer_are_reported_as_such() {
        let done = run(|k, request| match k < 64 {
            true => vec![answer(request)],
            false => vec![],
        });
        let Err(LoadError::NoAnswer { requests, .. }) = done else {
            panic!("{done:?}");
        };
        // the 36 keys that are left, and in each silent round a window of them
        assert_eq!(requests, 36 + u64::from(SILENT_ROUNDS) * WINDOW as u64);
    }

    #[test]
    fn a_server_that_babbles_is_left() {
        let mut client = Fake::client(4, |_, _| vec![]);
        client.transport.babble = Some(b"what?\r\n".to_vec());
        let error = prefill(&mut client, &endpoint(), &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, LoadError::NoAnswer { .. }), "{error}");
        assert!(error.to_string().contains("it said `what?`"), "{error}");
    }

    #[test]
    fn a_set_stop_flag_ends_it() {
        let mut client = Fake::client(4, |_, _| unreachable!("nothing is sent"));
        let done = prefill(&mut client, &endpoint(), &AtomicBool::new(true)).unwrap();
        assert!(done.interrupted);
    }

    #[test]
    fn a_stop_in_the_last_silent_round_is_not_a_silent_server() {
        let stop = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&stop);
        // each silent round sends a window
        let last_round = (SILENT_ROUNDS as usize - 1) * WINDOW;
        let mut client = Fake::client(4, move |k, _| {
            if k == last_round {
                set.store(true, Relaxed);
            }
            vec![]
        });
        let done = prefill(&mut client, &endpoint(), &stop).unwrap();
        assert!(done.interrupted);
    }
}
