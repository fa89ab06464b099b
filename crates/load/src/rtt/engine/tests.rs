use super::*;

/// A wire that answers as a script says.
struct Scripted {
    /// What happens to the n-th message sent.
    script: fn(u64) -> Fate,
    sent: u64,
    inbox: std::collections::VecDeque<Vec<u8>>,
    taken: Vec<u8>,
    held: Option<Vec<u8>>,
}

enum Fate {
    Answered,
    Lost,
    Twice,
    /// Its answer comes just before the answer to the next message.
    Late,
    Damaged,
    Gone,
}

impl Scripted {
    fn new(script: fn(u64) -> Fate) -> Self {
        Self {
            script,
            sent: 0,
            inbox: std::collections::VecDeque::new(),
            taken: Vec::new(),
            held: None,
        }
    }
}

impl Wire for Scripted {
    fn send(&mut self, _: usize, message: &[u8]) -> Result<(), RttError> {
        let echo = message.to_vec();
        self.inbox.extend(self.held.take());
        match (self.script)(self.sent) {
            Fate::Answered => self.inbox.push_back(echo),
            Fate::Lost => {}
            Fate::Twice => self.inbox.extend([echo.clone(), echo]),
            Fate::Late => self.held = Some(echo),
            Fate::Damaged => {
                let mut wrong = echo.clone();
                wrong[20] ^= 1;
                self.inbox.extend([wrong, echo]);
            }
            Fate::Gone => {
                return Err(RttError::PeerGone {
                    server: "it".to_owned(),
                    answered: self.sent,
                });
            }
        }
        self.sent += 1;
        Ok(())
    }

    fn receive(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        match self.inbox.pop_front() {
            Some(bytes) => {
                self.taken = bytes;
                Ok(WaitOutcome::Message {
                    connection: 0,
                    bytes: &self.taken,
                })
            }
            None => {
                std::thread::sleep(std::time::Duration::from_micros(200));
                Ok(WaitOutcome::Nothing)
            }
        }
    }
}

const COUNT: u64 = 100;

fn played(script: fn(u64) -> Fate, is_datagram: bool) -> RoundTrips {
    let task = ThreadTask {
        counts: vec![COUNT],
        first_connection: 0,
        warm_up: 5,
        size: 32,
        timeout: Nanos::from_millis(1),
        is_datagram,
        server: "it",
        stop: &AtomicBool::new(false),
        progress: &AtomicU64::new(0),
    };
    play(&task, &mut Scripted::new(script))
}

#[test]
fn the_warm_up_is_left_out() {
    let done = played(|_| Fate::Answered, true);
    assert!(done.failure.is_none());
    assert_eq!(done.round_trips.len(), COUNT as usize);
    let expected = RttCounts {
        sent: COUNT,
        answered: COUNT,
        ..RttCounts::default()
    };
    assert_eq!(done.counts, expected);
}

#[test]
fn what_is_lost_late_twice_or_damaged_is_counted_and_disturbs_no_other_round_trip() {
    let script = |n| match n {
        15 | 16 => Fate::Lost,
        30 => Fate::Late,
        45 => Fate::Twice,
        60 => Fate::Damaged,
        _ => Fate::Answered,
    };
    let done = played(script, true);
    assert!(done.failure.is_none(), "{:?}", done.failure);
    let expected = RttCounts {
        sent: COUNT,
        answered: COUNT - 3,
        lost: 3,
        late: 1,
        duplicated: 1,
        foreign: 1,
    };
    assert_eq!(done.counts, expected);
    // the warm-up has the first five
    let lost: Vec<usize> = (done.round_trips.iter().enumerate())
        .filter(|(_, trip)| trip.lost)
        .map(|(n, _)| n)
        .collect();
    assert_eq!(lost, [10, 11, 25]);
    for trip in done.round_trips.iter().filter(|trip| trip.lost) {
        assert!(trip.rtt >= Nanos::from_millis(1));
    }
    assert_eq!(done.round_trips.len(), COUNT as usize);
    assert!(
        done.round_trips
            .is_sorted_by(|a, b| a.sent + a.rtt <= b.sent)
    );
}

#[test]
fn stray_datagrams_of_the_warm_up_end_no_run_whose_server_echoes() {
    let script = |n| match n {
        1..4 => Fate::Damaged,
        _ => Fate::Answered,
    };
    let done = played(script, true);
    assert!(done.failure.is_none(), "{:?}", done.failure);
    assert_eq!((done.counts.answered, done.counts.foreign), (COUNT, 3));
}

/// The first connection always has an answer; what is sent on the second one is lost.
#[derive(Default)]
struct HalfDeaf {
    inbox: std::collections::VecDeque<Vec<u8>>,
    taken: Vec<u8>,
}

impl Wire for HalfDeaf {
    fn send(&mut self, connection: usize, message: &[u8]) -> Result<(), RttError> {
        if connection == 0 {
            self.inbox.push_back(message.to_vec());
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        std::thread::sleep(std::time::Duration::from_micros(100));
        let Some(bytes) = self.inbox.pop_front() else {
            return Ok(WaitOutcome::Nothing);
        };
        self.taken = bytes;
        Ok(WaitOutcome::Message {
            connection: 0,
            bytes: &self.taken,
        })
    }
}

#[test]
fn a_lost_message_is_given_up_while_another_connection_is_busy() {
    let many = 1_000;
    let task = ThreadTask {
        counts: vec![many, PATIENCE],
        first_connection: 0,
        warm_up: 0,
        size: 32,
        timeout: Nanos::from_millis(1),
        is_datagram: true,
        server: "it",
        stop: &AtomicBool::new(false),
        progress: &AtomicU64::new(0),
    };
    let done = play(&task, &mut HalfDeaf::default());
    assert!(matches!(
        done.failure,
        Some(RttError::Silent { lost: PATIENCE, .. })
    ));
    assert_eq!(done.counts.lost, PATIENCE);
    assert!(done.counts.answered < many, "{:?}", done.counts);
}

#[test]
fn a_peer_that_goes_leaves_what_there_was() {
    let script = |n| if n < 55 { Fate::Answered } else { Fate::Gone };
    let done = played(script, false);
    assert!(matches!(done.failure, Some(RttError::PeerGone { .. })));
    assert_eq!(done.counts.answered, 50);
    assert_eq!(done.round_trips.len(), 50);
}

#[test]
fn silence_ends_it_after_some_messages_on_a_stream_after_one() {
    let done = played(|n| if n < 25 { Fate::Answered } else { Fate::Lost }, true);
    assert!(matches!(
        done.failure,
        Some(RttError::Silent { lost: PATIENCE, .. })
    ));
    assert_eq!((done.counts.answered, done.counts.lost), (20, PATIENCE));
    let done = played(|n| if n < 25 { Fate::Answered } else { Fate::Lost }, false);
    assert!(matches!(
        done.failure,
        Some(RttError::Silent { lost: 1, .. })
    ));
}

#[test]
fn a_stream_that_does_not_echo_ends_at_once() {
    let done = played(|_| Fate::Damaged, false);
    assert!(matches!(
        done.failure,
        Some(RttError::NoEcho { foreign: 1, .. })
    ));
    assert!(done.round_trips.is_empty());
}

#[test]
fn an_interruption_keeps_what_there_was() {
    let stop = AtomicBool::new(true);
    let task = ThreadTask {
        counts: vec![COUNT],
        first_connection: 3,
        warm_up: 0,
        size: 32,
        timeout: Nanos::from_secs(1),
        is_datagram: true,
        server: "it",
        stop: &stop,
        progress: &AtomicU64::new(0),
    };
    let done = play(&task, &mut Scripted::new(|_| Fate::Answered));
    assert!(done.failure.is_none());
    assert_eq!(done.round_trips.len(), 1);
    assert_eq!(done.round_trips[0].connection, 3);
}
