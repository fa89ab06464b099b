//! Attempts that the machine can spoil.

#![allow(
    unreachable_pub,
    reason = "test binaries of three crates include this file"
)]

use std::thread;
use std::time::{Duration, Instant};

/// Before the second attempt; longer and longer before those that follow.
const REST: Duration = Duration::from_millis(250);

/// The first of at most `attempts` that the machine did not spoil. `spoiled` names what proves that it did, as
/// the recording, the program or the kernel says it: never that what is tested does not hold.
#[track_caller]
pub fn first_unspoiled<T>(
    attempts: usize,
    mut run: impl FnMut(usize) -> T,
    spoiled: impl Fn(&T) -> Option<String>,
) -> T {
    let mut reasons = Vec::new();
    for attempt in 0..attempts {
        let began = Instant::now();
        // what spoiled the last one, as threads of init on a CPU, often lasts for seconds
        thread::sleep(REST * attempt.min(4) as u32);
        let found = run(attempt);
        let Some(reason) = spoiled(&found) else {
            return found;
        };
        let took = began.elapsed().as_secs_f64();
        // the runner of the tests reads this: it is no part of the suite's seconds
        eprintln!("attempt {attempt} is spoiled after {took:.1} s: {reason}");
        reasons.push(reason);
    }
    panic!("every attempt is spoiled: {reasons:#?}");
}
