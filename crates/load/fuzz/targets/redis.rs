//! Any bytes as Redis's answer; the first byte chooses the request.
#![no_main]

#[path = "../../tests/fuzz/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;
use taillab_model::Operation;

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let operation = [Operation::Get, Operation::Set, Operation::Call][usize::from(choice % 3)];
    checks::check_stream(&checks::redis(operation), bytes);
});
