//! Any bytes as memcached's answer; the first byte chooses dialect, request and transport.
#![no_main]

#[path = "../../tests/fuzz/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;
use taillab_load::protocol::memcached::Dialect;
use taillab_model::Operation;

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let dialect = Dialect::ALL[usize::from(choice % 3)];
    match choice / 3 % 3 {
        0 => {
            checks::check_stream(&checks::memcached(dialect, Operation::Get), bytes);
        }
        1 => {
            checks::check_stream(&checks::memcached(dialect, Operation::Set), bytes);
        }
        _ => {
            checks::check_datagram(&checks::memcached_udp(dialect), bytes);
        }
    }
});
