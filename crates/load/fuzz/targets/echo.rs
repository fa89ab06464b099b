//! Any bytes as an echo's answer, on a stream and in a datagram.
#![no_main]

#[path = "../../tests/fuzz/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    checks::check_stream(&checks::echo(), data);
    checks::check_datagram(&checks::echo_datagrams(), data);
});
