//! Writes every output of a simulated run into a directory, to look at.
//!
//! `cargo run -p taillab-report --example sample_report -- DIR [colour]`

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use taillab_model::Nanos;
use taillab_report::terminal::Style;
use taillab_report::{hlog, html, json, terminal};

#[path = "../tests/common/mod.rs"]
mod common;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args_os().nth(1).ok_or("name a directory")?);
    fs::create_dir_all(&dir)?;
    let sample = common::sample(Nanos::from_secs(20));
    let report = sample.report();
    fs::write(dir.join("summary.json"), json::of_report(&sample.summary)?)?;
    fs::write(dir.join("report.html"), html::render(&report))?;
    taillab_report::requests::write_parquet(
        sample.rows.iter().copied(),
        BufWriter::new(File::create(dir.join("requests.parquet"))?),
    )?;
    let mut log = BufWriter::new(File::create(dir.join("latency.hlog"))?);
    let rows = sample.rows.iter().copied();
    let started_unix_s = sample.summary.started_unix_s;
    hlog::write(rows, sample.started, started_unix_s, &mut log)?;
    log.flush()?;
    let style = Style {
        colour: std::env::args_os().nth(2).is_some(),
        width: 100,
    };
    let text = terminal::render(&report, dir.to_str(), style);
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
