//! Writes every output of a simulated trace into a directory, to look at.
//!
//! `cargo run -p taillab-report --example sample_trace -- DIR [colour]`

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use taillab_model::Nanos;
use taillab_report::terminal::Style;
use taillab_report::{html, json, perfetto, terminal};

#[path = "../tests/common/mod.rs"]
mod common;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args_os().nth(1).ok_or("name a directory")?);
    fs::create_dir_all(&dir)?;
    let mut sample = common::explained::trace(Nanos::from_secs(20));
    fs::write(dir.join("summary.json"), json::of_report(&sample.summary)?)?;
    fs::write(dir.join("report.html"), html::render(&sample.report()))?;
    let slowest = sample.explanation().slowest.clone();
    let trace = perfetto::trace(&sample.summary.target, &slowest);
    fs::write(dir.join("slowest.pftrace"), trace)?;
    let style = Style {
        colour: std::env::args_os().nth(2).is_some(),
        width: 100,
    };
    let report = sample.report();
    let mut text = terminal::render(&report, Some("nginx.tlc"), style);
    text.push_str(&terminal::details(&report, style));
    text.push_str(&terminal::slowest(&slowest[..2], style));
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
