//! What takes time from a CPU, as a page.

use taillab_report::figures::counted;
use taillab_report::html::figure;
use taillab_report::html::page::{Head, plain_document};
use taillab_report::markup::{paragraph, section};

use crate::result::NoiseResult;
use crate::{tables, texts, worst};

/// Of the loops that ran at the same time, how many get a section of their own: the worst.
const SECTIONS: usize = 8;

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(result: &NoiseResult) -> Vec<u8> {
    let head = Head {
        command: "taillab noise",
        heading: "What takes time from the CPUs",
        partial: result.partial,
        facts: vec![
            texts::clock(result),
            format!("Held: {}", texts::held(result)),
        ],
        notices: result.notes.clone(),
    };
    plain_document(head.command, &head, |page| {
        section(page, "reads", "Time between two reads", |page| {
            figure::put(page, &crate::figure::chart(result));
            tables::rows_table(&result.rows).put(page);
            for sentence in &result.comparison {
                paragraph(page, "explain", sentence);
            }
        });
        let shown = worst::worst(&result.rows, SECTIONS);
        for (place, row) in shown.iter().enumerate() {
            let Some(causes) = row.causes.as_deref().filter(|causes| !causes.is_empty()) else {
                continue;
            };
            let heading = format!("What took it: {}", texts::name(row));
            section(page, &format!("causes-{place}"), &heading, |page| {
                if let Some(whose) = texts::attributed(row) {
                    let text = format!("Of the stolen time {whose}.");
                    paragraph(page, "explain", &text);
                }
                tables::causes_page(causes).put(page);
                tables::longest_table(row, usize::MAX).put(page);
            });
        }
        let left = worst::not_shown(&result.rows, &shown);
        if left > 0 {
            section(page, "causes-others", "What took it: other loops", |page| {
                let left = counted(left as u64, "other loop is", "other loops are");
                let text = format!("The causes of {left} in the JSON.");
                paragraph(page, "explain", &text);
            });
        }
    })
}
