//! What takes time from a CPU, as a page.

use taillab_model::noise::NoiseResult;

use super::figure;
use super::page::plain_document;
use crate::markup::{Esc, paragraph, put, section};
use crate::noise;

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(result: &NoiseResult) -> Vec<u8> {
    plain_document("taillab noise", |page| {
        let partial = match result.partial {
            true => " <span class=\"verdict notable\">partial</span>",
            false => "",
        };
        put!(
            page,
            "<header>\n<p class=\"eyebrow\">taillab noise</p>\n<h1>What takes time from the \
             CPUs{partial}</h1>\n<p>{}</p>\n<p>Held: {}</p>\n",
            Esc(&noise::clock(result)),
            Esc(&noise::held(result)),
        );
        for note in &result.notes {
            put!(page, "<p class=\"notice notable\">{}</p>\n", Esc(note));
        }
        put!(page, "</header>\n<main>\n");
        section(page, "reads", "Time between two reads", |page| {
            figure::put(page, &noise::chart(result), "");
            noise::rows_table(result).put(page);
            for sentence in &result.comparison {
                paragraph(page, "explain", sentence);
            }
        });
        for (place, row) in result.rows.iter().enumerate() {
            let Some(causes) = &row.causes else { continue };
            let heading = format!("What took it: {}", noise::name(row));
            section(page, &format!("causes-{place}"), &heading, |page| {
                if let Some(whose) = noise::attributed(row) {
                    let text = format!("Of the stolen time {whose}.");
                    paragraph(page, "explain", &text);
                }
                noise::causes_page(causes).put(page);
                noise::longest_table(row, usize::MAX).put(page);
            });
        }
        put!(page, "</main>\n");
    })
}
