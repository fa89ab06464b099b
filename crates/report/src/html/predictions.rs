//! How well the replay fits, and what each change is predicted to give.

use taillab_model::explanation::Prediction;

use crate::causes::{fit_table, predictions_table};
use crate::document::Document;
use crate::explained;
use crate::markup::{Markup, paragraph, put_details, section};

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    if document.report.server.explanation.is_none() || !document.is_compared() {
        return;
    }
    section(page, "predictions", "What would help", |page| {
        let fit = document.report.server.model_fit.as_ref();
        let class = match fit {
            Some(fit) if fit.good => "explain",
            _ => "notice notable",
        };
        let text = explained::fit_sentence(fit, &document.report.verdict);
        paragraph(page, class, &text);
        if let Some(fit) = fit {
            let summary = "The replay against the measurement";
            put_details(page, summary, |page| fit_table(fit).put(page));
        }
        let predictions: Vec<&Prediction> = document.report.server.predictions.iter().collect();
        if !predictions.is_empty() {
            predictions_table(&predictions).put(page);
        }
    });
}
