//! Any bytes as a web server's answer.
#![no_main]

#[path = "../../tests/fuzz/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    checks::check_stream(&checks::http(), data);
});
