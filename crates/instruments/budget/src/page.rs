//! Where the time goes between two programs, as a page.

use taillab_model::Nanos;
use taillab_report::html::bars::{Bar, Segment, put_bars};
use taillab_report::html::figure;
use taillab_report::html::page::{Head, plain_document};
use taillab_report::markup::{Markup, paragraph, section};

use crate::result::{BudgetResult, Topology, TopologyPart};
use crate::tables;

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(result: &BudgetResult) -> Vec<u8> {
    let command = tables::title(result);
    let head = Head {
        command,
        heading: match tables::reproduces(result) {
            true => tables::PAPER,
            false => "Where the time goes",
        },
        partial: result.partial,
        facts: Vec::new(),
        notices: result.notes.clone(),
    };
    plain_document(command, &head, |page| {
        if !result.topologies.is_empty() {
            section(page, "networks", "Round trips through networks", |page| {
                put_stacked(page, result, "at the median", |part| part.at_median_ns);
                put_stacked(page, result, "in the slowest thousandth", |part| {
                    part.in_tail_ns
                });
                tables::networks_table(result, true).put(page);
                figure::put(page, &crate::figure::networks_chart(result));
            });
        }
        section(page, "components", "Components", |page| {
            let text = "Good is up to 1 µs, bad up to 100 µs, ugly beyond, as in the paper.";
            paragraph(page, "explain", text);
            // how each came about is said below the figures
            tables::rows_table(result, false).put(page);
            for chart in crate::figure::components_charts(result) {
                figure::put(page, &chart);
            }
            for row in &result.rows {
                let text = format!(
                    "{}: {}. {}",
                    row.component,
                    row.how,
                    tables::parameters(row)
                );
                paragraph(page, "explain", &text);
            }
        });
        section(page, "earlier", "The earlier study", |page| {
            tables::earlier_table(result).put(page);
        });
    })
}

/// What each part adds, on one scale for all networks.
fn put_stacked(
    page: &mut Markup,
    result: &BudgetResult,
    caption: &str,
    length: impl Fn(&TopologyPart) -> Nanos,
) {
    let whole = |network: &Topology| -> Nanos { network.parts.iter().map(&length).sum() };
    let longest = result
        .topologies
        .iter()
        .map(whole)
        .max()
        .unwrap_or_default();
    let class = |place: usize| format!("cause-{}", place % 8 + 1);
    let legend: Vec<(String, String)> = (result.topologies.iter().take(1))
        .flat_map(|network| network.parts.iter().enumerate())
        .map(|(place, part)| (class(place), part.name.clone()))
        .collect();
    let bars: Vec<Bar> = (result.topologies.iter())
        .map(|network| Bar {
            name: network.name.clone(),
            total: whole(network).to_string(),
            segments: (network.parts.iter().enumerate())
                .map(|(place, part)| Segment {
                    class: class(place),
                    from: None,
                    length: length(part).as_secs_f64() / longest.as_secs_f64().max(1e-12),
                    title: format!("{}: {}", part.name, length(part)),
                    text: None,
                })
                .collect(),
        })
        .collect();
    put_bars(page, "", &legend, &bars, caption);
}
