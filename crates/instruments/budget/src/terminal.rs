//! Where the time goes between two programs, as text.

use taillab_report::terminal::Page;
use taillab_report::text::{Ink, Style, columns};

use crate::result::{BudgetResult, BudgetRow, Standing, Topology};
use crate::tables;

/// The widest bar, in characters.
const BAR: f64 = 40.0;

/// Components and networks with their bars, on one screen; with `all`, also the paper's other figures,
/// what is substituted and by what, the parts of each network, and the earlier study.
pub fn render(result: &BudgetResult, all: bool, style: Style) -> String {
    let mut page = Page::new(style);
    page.title_of_done(tables::title(result), result.partial);
    let reproduces = tables::reproduces(result);
    if reproduces {
        page.fact("paper", tables::PAPER);
    }
    page.machine(result.kernel.as_deref(), result.hypervisor.as_deref());
    page.heading(
        "Components",
        "good up to 1 µs, bad up to 100 µs, ugly beyond",
    );
    if all {
        page.table(&tables::rows_table(result, true));
    } else {
        page.table(&match reproduces {
            true => tables::rows_beside_paper(result),
            false => tables::rows_screen(result).fit(style, &[&|table| table.shorten()]),
        });
        let stands_in = |row: &BudgetRow| row.standing == Standing::Substituted;
        if result.rows.iter().any(stands_in) {
            let text = format!(
                "{} a substitute for what this machine does not have",
                tables::STAND_IN
            );
            page.paragraph(Ink::Quiet, &text);
        }
    }
    if !result.topologies.is_empty() {
        page.heading(
            "Networks",
            "measured hosts and stated constants; a share of the tail each",
        );
        page.table(&tables::networks_table(result, all));
        bars(&mut page, result);
    }
    if all {
        page.heading("The earlier study", "");
        page.table(&tables::earlier_table(result));
    }
    page.notes(&result.notes);
    if !all {
        page.line("");
        let more = match reproduces {
            true => "-v: the substitutes, the least times, the parts of each network",
            false => "-v: the substitutes, the paper’s other figures, the parts of each network",
        };
        page.paragraph(Ink::Quiet, more);
    }
    page.text
}

/// What each part adds in the tail of each network, on one scale.
fn bars(page: &mut Page, result: &BudgetResult) {
    const MARKS: [&str; 4] = ["█", "▓", "▒", "░"];
    let networks = || result.topologies.iter();
    let whole = |network: &Topology| -> u64 {
        network.parts.iter().map(|part| part.in_tail_ns.get()).sum()
    };
    let Some(longest) = networks().map(whole).max().filter(|ns| *ns > 0) else {
        return;
    };
    page.line("");
    let width = networks().map(|network| columns(&network.name)).max();
    let width = width.unwrap_or(0);
    for network in networks() {
        let parts = network.parts.iter().zip(MARKS.iter().cycle());
        let bar: String = parts
            .map(|(part, mark)| {
                let share = part.in_tail_ns.get() as f64 / longest as f64;
                mark.repeat((share * BAR).round() as usize)
            })
            .collect();
        page.line(&format!("  {:width$}  {bar}", network.name));
    }
    let parts = result.topologies[0].parts.iter().zip(MARKS);
    let legend: Vec<String> = parts
        .map(|(part, mark)| format!("{mark} {}", part.name))
        .collect();
    page.paragraph(
        Ink::Quiet,
        &format!("in the slowest thousandth: {}", legend.join("  ")),
    );
}
