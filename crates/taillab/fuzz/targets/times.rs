//! Any bytes as a file of times: a list, CSV or Parquet, as its first bytes say.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use taillab_experiment::time_stamps::{TimeUnit, TraceFile, TraceOptions};

fuzz_target!(|data: &[u8]| {
    let Ok(mut file) = tempfile::NamedTempFile::new() else {
        return;
    };
    if file.write_all(data).is_err() {
        return;
    }
    for column in [None, Some("t_us".to_owned())] {
        let options = TraceOptions {
            path: file.path().to_owned(),
            column,
            unit: Some(TimeUnit::Us),
            unit_matters: true,
        };
        let read = |trace: TraceFile| trace.read(|_, _| Ok(()));
        let _ = TraceFile::open(options).and_then(read);
    }
});
