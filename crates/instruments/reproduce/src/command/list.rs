//! `taillab reproduce list`.

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::print::{print_saved, style};
use taillab_host::Roots;
use taillab_report::json;
use taillab_report::terminal::Page;
use taillab_report::text::{Ink, Style};

use crate::args::ListArgs;
use crate::declared::{self, PaperName, ThisMachine};
use crate::listed::{FigureList, ListedRow};
use crate::result::SCHEMA_VERSION;

/// Prints the list.
pub fn run(args: ListArgs) -> Result<Exit, Failure> {
    let list = list(&Roots::default())?;
    if args.common.is_silent() {
        return Ok(Exit::Ok);
    }
    match args.common.json {
        true => print_saved(&json::of(&list).or_exit(Exit::Failed)?, None)?,
        false => print_saved(render(&list, style()).as_bytes(), None)?,
    }
    Ok(Exit::Ok)
}

/// All rows, with what this machine lacks.
fn list(roots: &Roots) -> Result<FigureList, Failure> {
    let files = declared::all()?;
    let machine = ThisMachine::look(roots, files.iter().flat_map(|file| &file.rows));
    let mut rows = Vec::new();
    for file in &files {
        for row in &file.rows {
            let (status, needs) = machine.judge(row);
            rows.push(ListedRow {
                paper: file.paper,
                figure: row.figure.clone(),
                what: row.what.clone(),
                status,
                needs,
                show: row.command.clone(),
                seconds: row.seconds,
            });
        }
    }
    Ok(FigureList {
        schema_version: SCHEMA_VERSION,
        command: "reproduce",
        rows,
    })
}

fn render(list: &FigureList, style: Style) -> String {
    let mut page = Page::new(style);
    let title = page.style.paint(Ink::Title, "taillab reproduce list");
    page.line(&title);
    for paper in PaperName::ALL {
        page.heading(paper.text(), "");
        page.table(&list.table(paper));
    }
    page.line("");
    page.paragraph(Ink::Plain, &list.tally());
    page.text
}
