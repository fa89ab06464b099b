//! Any text as an experiment; one that is accepted reads the same after it is written again.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use taillab_experiment::definition::{Experiment, ServerKind};

fn resolve(text: &[u8]) -> Option<Experiment> {
    let mut file = tempfile::NamedTempFile::new().ok()?;
    file.write_all(text).ok()?;
    for kind in [None, Some(ServerKind::Memcached)] {
        if let Ok(found) = Experiment::resolve(kind, Some(file.path()), Vec::new()) {
            return Some(found);
        }
    }
    None
}

fuzz_target!(|text: &[u8]| {
    if let Some(found) = resolve(text) {
        let written = found.to_toml().unwrap_or_default();
        let again = resolve(written.as_bytes()).map(|again| again.to_toml().unwrap_or_default());
        assert_eq!(again, Some(written));
    }
});
