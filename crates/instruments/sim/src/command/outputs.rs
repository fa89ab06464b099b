//! Files and what is printed.

use std::path::{Path, PathBuf};

use taillab_console::args::Output;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::print::{print, style};
use taillab_console::rendered::save_figure;
use taillab_console::rundir::RunDir;
use taillab_host::user_files::write_named;
use taillab_report::json;
use taillab_report::terminal::render_chart;

use crate::args::SimArgs;
use crate::figure::chart;
use crate::page;
use crate::parquet::write_parquet;
use crate::result::SimulationReport;

/// The outputs that were asked for.
#[derive(Debug)]
pub struct Outputs {
    plots: Vec<Plot>,
    parquet: Option<PathBuf>,
    directory: Option<RunDir>,
    common: Output,
}

#[derive(Debug)]
enum Plot {
    Terminal,
    Svg(PathBuf),
    Html(PathBuf),
}

impl Outputs {
    /// Refuses now what could not be written later.
    pub fn of(args: &SimArgs) -> Result<Self, Failure> {
        let (result, common) = (&args.result, args.common);
        let plots = result.plot.iter().cloned().map(plot);
        let plots: Vec<Plot> = plots.collect::<Result<_, _>>()?;
        if common.json && plots.iter().any(|plot| matches!(plot, Plot::Terminal)) {
            return Err(Failure::usage(
                "--json and --plot - both want standard output; draw into a file",
            ));
        }
        let files = plots
            .iter()
            .filter_map(Plot::file)
            .chain(result.parquet.as_deref());
        for file in files {
            let folder = file.parent().filter(|folder| *folder != Path::new(""));
            if let Some(folder) = folder
                && !folder.is_dir()
            {
                return Err(Failure::usage(format!(
                    "cannot write {}: there is no directory {}; make it first",
                    file.display(),
                    folder.display()
                )));
            }
        }
        Ok(Self {
            plots,
            parquet: result.parquet.clone(),
            directory: RunDir::create_if_asked(result.output.clone(), 0)?,
            common,
        })
    }
}

impl Plot {
    fn file(&self) -> Option<&Path> {
        match self {
            Self::Terminal => None,
            Self::Svg(path) | Self::Html(path) => Some(path),
        }
    }
}

fn plot(path: PathBuf) -> Result<Plot, Failure> {
    if path == Path::new("-") {
        return Ok(Plot::Terminal);
    }
    let extension = path.extension().map(|name| name.to_ascii_lowercase());
    match extension.as_ref().and_then(|name| name.to_str()) {
        Some("svg") => Ok(Plot::Svg(path)),
        Some("png" | "pdf") => Err(Failure::usage(format!(
            "taillab draws FILE.svg and FILE.html; PNG and PDF are drawn by its Python package, from a saved result \
             (-o DIR): taillab.plot.ccdf(taillab.load(\"DIR\")).figure.savefig(\"{}\")",
            path.display()
        ))),
        Some("html" | "htm") => Ok(Plot::Html(path)),
        _ => Err(Failure::usage(format!(
            "cannot tell the format of `{}`; name it FILE.svg or FILE.html, or - for the \
                 terminal",
            path.display()
        ))),
    }
}

/// Writes every file, also those after one that could not be written.
pub fn save(wanted: &mut Outputs, report: &SimulationReport) -> Result<(), Failure> {
    let figure = chart(report);
    let mut written = Ok(());
    let put = |path: &Path, bytes: Result<Vec<u8>, Failure>| -> Result<(), Failure> {
        write_named(path, &bytes?).map_err(host)
    };
    for plot in &wanted.plots {
        written = written.and(match plot {
            Plot::Terminal => Ok(()),
            Plot::Svg(path) => put(path, Ok(figure.svg())),
            Plot::Html(path) => put(path, Ok(page::render(report))),
        });
    }
    if let Some(path) = &wanted.parquet {
        written = written.and(put(path, table(report)));
    }
    if let Some(dir) = &mut wanted.directory {
        let json = json::of(report).or_exit(Exit::Failed);
        written = written
            .and(json.and_then(|json| dir.put("sim.json", &json)))
            .and(table(report).and_then(|table| dir.put("sim.parquet", &table)))
            .and(dir.put("sim.html", &page::render(report)))
            .and(save_figure(dir, "sim", &figure));
    }
    written
}

fn table(report: &SimulationReport) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    write_parquet(report, &mut bytes).or_exit(Exit::Failed)?;
    Ok(bytes)
}

/// Prints the result on stdout.
pub fn show(wanted: &Outputs, report: &SimulationReport) -> Result<(), Failure> {
    if wanted.common.is_silent() {
        return Ok(());
    }
    if wanted.common.json {
        return print(&json::of(report).or_exit(Exit::Failed)?);
    }
    let style = style();
    let mut text = crate::terminal::render(report, style);
    if wanted
        .plots
        .iter()
        .any(|plot| matches!(plot, Plot::Terminal))
    {
        text.push('\n');
        text.push_str(&render_chart(&chart(report), style));
    }
    print(text.as_bytes())
}
