//! Horizontal bars of segments, with a legend.

use crate::markup::{Esc, Markup, patch, put};

/// A row: its name, the bar and a total at the right.
pub struct Bar {
    /// At its left.
    pub name: String,
    /// At its right.
    pub total: String,
    /// From left to right.
    pub segments: Vec<Segment>,
}

/// A piece of a bar.
pub struct Segment {
    /// Class of its colour in the style sheet.
    pub class: String,
    /// Where it begins, as a share of the bar; `None` follows the segment before.
    pub from: Option<f64>,
    /// Share of the bar.
    pub length: f64,
    /// Shown when the pointer is over it.
    pub title: String,
    /// Shown in it, where there is room.
    pub text: Option<String>,
}

/// A figure of several bars; the legend has a class and a label for each kind of segment.
pub fn put_bars(
    page: &mut Markup,
    class: &str,
    legend: &[(String, String)],
    bars: &[Bar],
    caption: &str,
) {
    put!(page, "<figure class=\"stages {class}\">\n");
    put_legend(page, legend);
    put!(page, "<div class=\"rows {class}\">\n");
    for bar in bars {
        let label = format!("{}: {}", bar.name, bar.total);
        put_bar(page, &bar.name, &label, &bar.segments);
        put!(page, "<span class=\"total\">{}</span></div>\n", bar.total);
    }
    put!(
        page,
        "</div>\n<figcaption>{caption}</figcaption>\n</figure>\n"
    );
}

/// Patches of colour with their meanings.
pub fn put_legend<C: AsRef<str>, L: AsRef<str>>(page: &mut Markup, legend: &[(C, L)]) {
    put!(page, "<ul class=\"legend\">\n");
    for (class, label) in legend {
        let (patch, label) = (patch(class.as_ref()), Esc(label.as_ref()));
        put!(page, "<li>{patch} {label}</li>\n");
    }
    put!(page, "</ul>\n");
}

/// A row with a bar; the caller ends the row.
pub fn put_bar(page: &mut Markup, name: &str, label: &str, segments: &[Segment]) {
    put!(
        page,
        "<div class=\"row\"><span class=\"name\">{}</span>\
         <svg class=\"bar\" role=\"img\" aria-label=\"{}\">\n",
        Esc(name),
        Esc(label)
    );
    let mut left = 0.0;
    for segment in segments {
        let (class, length) = (&segment.class, segment.length);
        left = segment.from.unwrap_or(left);
        put!(
            page,
            "<rect class=\"{class}\" x=\"{:.3}%\" width=\"{:.3}%\" height=\"100%\">\
             <title>{}</title></rect>\n",
            100.0 * left,
            100.0 * length,
            Esc(&segment.title)
        );
        if let Some(text) = &segment.text {
            put!(
                page,
                "<text class=\"on-{class}\" x=\"{:.3}%\" y=\"50%\" dy=\"0.35em\">{text}</text>\n",
                100.0 * (left + length / 2.0),
            );
        }
        left += length;
    }
    put!(page, "</svg>");
}
