//! Writes every output of a simulated load and of a search into a directory, to look at.
//!
//! `cargo run -p taillab-report --example sample_load -- DIR [colour]`

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use taillab_model::Nanos;
use taillab_report::load::{LoadDocument, LoadSeries, chart, write_hlog};
use taillab_report::terminal::{Style, render_load};
use taillab_report::{html, json};

#[path = "../tests/common/mod.rs"]
mod common;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/load/samples.rs"]
mod samples;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args_os().nth(1).ok_or("name a directory")?);
    fs::create_dir_all(&dir)?;
    let sample = samples::sample(Nanos::from_secs(20));
    let search = samples::search();
    let documents = [
        ("load", sample.document()),
        ("search", LoadDocument::of(&search)),
    ];
    for (name, document) in &documents {
        let file = |ending: &str| dir.join(format!("{name}.{ending}"));
        fs::write(file("json"), json::of(document.report)?)?;
        fs::write(file("html"), html::render_load(document))?;
        if let Some(chart) = chart(document) {
            fs::write(file("svg"), chart.svg())?;
        }
    }
    taillab_report::load::write_parquet(
        sample.rows.iter().copied(),
        BufWriter::new(File::create(dir.join("requests.parquet"))?),
    )?;
    let started = sample.rows[0].times.intended;
    let mut log = BufWriter::new(File::create(dir.join("latency.hlog"))?);
    let rows = sample.rows.iter().copied();
    let totals = write_hlog(rows, started, sample.report.started_unix_s, &mut log)?;
    log.flush()?;
    if let Some(file) = totals.percentiles(LoadSeries::ResponseTime, |_| true) {
        fs::write(dir.join("response_time.hgrm"), file)?;
    }
    let style = Style {
        colour: std::env::args_os().nth(2).is_some(),
        width: 100,
    };
    let mut out = std::io::stdout();
    for (_, document) in &documents {
        out.write_all(render_load(document, dir.to_str(), style).as_bytes())?;
    }
    Ok(())
}
