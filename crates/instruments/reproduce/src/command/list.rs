//! `taillab reproduce list`.

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::instrument::Instrument;
use taillab_console::print::{print_saved, style};
use taillab_host::Roots;
use taillab_report::json;
use taillab_report::terminal::Page;
use taillab_report::text::{Ink, Style};

use crate::args::ListArgs;
use crate::declared::{self, DeclaredRow, PaperName, RowStatus, ThisMachine};
use crate::listed::{FigureList, ListedRow};
use crate::result::SCHEMA_VERSION;

/// Prints the list.
pub fn run(args: ListArgs, built_in: &[Instrument]) -> Result<Exit, Failure> {
    let names: Vec<&str> = built_in.iter().map(|instrument| instrument.name).collect();
    let list = list(&Roots::default(), &names)?;
    if args.common.is_silent() {
        return Ok(Exit::Ok);
    }
    match args.common.json {
        true => print_saved(&json::of(&list).or_exit(Exit::Failed)?, None)?,
        false => print_saved(render(&list, style()).as_bytes(), None)?,
    }
    Ok(Exit::Ok)
}

/// All rows, with what this machine or this program lacks.
fn list(roots: &Roots, built_in: &[&str]) -> Result<FigureList, Failure> {
    let files = declared::all()?;
    let machine = ThisMachine::look(roots, files.iter().flat_map(|file| &file.rows));
    let mut rows = Vec::new();
    for file in &files {
        for row in &file.rows {
            let (status, needs) = match missing(row, built_in) {
                Some(name) => (RowStatus::NotBuiltIn, format!("the instrument `{name}`")),
                None => machine.judge(row),
            };
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

/// The instrument of a row, if it is not built in.
fn missing<'r>(row: &'r DeclaredRow, built_in: &[&str]) -> Option<&'r str> {
    let name = row.instrument.as_deref()?;
    (!built_in.contains(&name)).then_some(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_an_instrument_that_is_missing_says_so() {
        let rows = |built_in: &[&str]| list(&Roots::default(), built_in).unwrap().rows;
        let all = rows(&["budget", "noise", "rtt"]);
        let is_missing = |row: &&ListedRow| row.status == RowStatus::NotBuiltIn;
        assert_eq!(all.iter().filter(is_missing).count(), 0);
        let some = rows(&["budget", "rtt"]);
        let missing: Vec<&ListedRow> = some.iter().filter(is_missing).collect();
        assert!(!missing.is_empty());
        for row in missing {
            assert!(row.show.contains("taillab noise"), "{row:?}");
            assert_eq!(row.needs, "the instrument `noise`");
        }
    }
}
