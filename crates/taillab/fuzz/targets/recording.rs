//! Any bytes as a recording, with corrected checksums, analysed to the end.
#![no_main]

#[path = "../../tests/hostile/files.rs"]
mod files;
mod read;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    files::reseal(&mut bytes);
    read::recording(bytes);
});
