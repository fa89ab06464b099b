//! Any text as the context of a recording, followed by the events of a sound recording.
#![no_main]

#[path = "../../tests/hostile/files.rs"]
mod files;
mod read;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    files::unpacked(include_bytes!(
        "../../../analysis/tests/golden/pipelined_redis.tlc"
    ))
});

fuzz_target!(|context: &[u8]| read::recording(files::with_context(&SOUND, context)));
