//! Any bytes as a server's answer; the first byte chooses protocol, request and transport.
#![no_main]

#[path = "../../../load/tests/fuzz/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;
use taillab_load::protocol::PROTOCOLS;

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let choice = usize::from(*choice);
    let protocol = &PROTOCOLS[choice % PROTOCOLS.len()];
    let operations = checks::operations(protocol);
    let operation = operations[choice / PROTOCOLS.len() % operations.len()];
    checks::check_stream(&checks::on_stream(protocol, operation), bytes);
    if protocol.over_udp() {
        checks::check_datagram(&checks::in_datagrams(protocol), bytes);
    }
});
