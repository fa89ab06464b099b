//! The five stages: their part at each percentile, and their own distributions.

use taillab_model::Stage;
use taillab_model::summary::ServerResult;

use super::bars::{Bar, Segment, put_bars};
use crate::figures::{micros_f64, percent, quantile_name};
use crate::markup::{Markup, put, section};
use crate::stages::{application, at_percentiles, distributions, span, upstreams};

/// Segments narrower than this have no room for their share as text.
const ROOM_FOR_TEXT: f64 = 0.12;

pub(super) fn put(page: &mut Markup, result: &ServerResult) {
    section(page, "stages", "Where the time goes", |page| {
        if !result.stages_at.is_empty() {
            put_shares(page, result);
            at_percentiles(result).put(page);
            if let Some(table) = application(result) {
                put!(page, "<h3>What the server did between T4 and T5</h3>\n");
                table.put(page);
            }
        }
        if let Some(table) = upstreams(result) {
            put!(page, "<h3>Other servers that it asks</h3>\n");
            table.put(page);
        }
        put!(page, "<h3>Each stage by itself</h3>\n");
        distributions(result).put(page);
    });
}

fn put_shares(page: &mut Markup, result: &ServerResult) {
    let legend = Stage::ALL.map(|stage| {
        let label = format!("{} {}", span(stage), stage.label());
        (stage.key().to_owned(), label)
    });
    let mut bars = Vec::new();
    for at in result.stages_at.iter().filter(|at| at.requests > 0) {
        let total: f64 = at.mean_stage_ns.iter().sum();
        let mut segments = Vec::new();
        for (stage, ns) in Stage::ALL.into_iter().zip(at.mean_stage_ns) {
            let share = if total > 0.0 { ns / total } else { 0.0 };
            let (what, time) = (span(stage), micros_f64(ns));
            segments.push(Segment {
                class: stage.key().to_owned(),
                from: None,
                length: share,
                title: format!("{what} {}: {time} µs, {}", stage.label(), percent(share, 1)),
                text: (share >= ROOM_FOR_TEXT).then(|| percent(share, 0)),
            });
        }
        bars.push(Bar {
            name: quantile_name(at.q),
            total: format!("{} µs", micros_f64(at.mean_sojourn_ns)),
            segments,
        });
    }
    let caption = "Mean stages of the complete requests around each percentile of the sojourn, as \
                   shares of it. The time at the right is their mean sojourn.";
    put_bars(page, "", &legend, &bars, caption);
}
