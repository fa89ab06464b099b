//! A scene as SVG.

use super::layout::{Anchor, Ink, Mark, Scene};
use crate::html::markup::{Esc, Markup, put};

/// A file of its own, on white.
pub(super) fn document(scene: &Scene) -> String {
    let mut svg = Markup(String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"));
    write(&mut svg, scene, true);
    svg.0
}

/// An element of a page.
pub(super) fn element(scene: &Scene) -> String {
    let mut svg = Markup::default();
    write(&mut svg, scene, false);
    svg.0
}

fn write(svg: &mut Markup, scene: &Scene, alone: bool) {
    let (width, height) = (scene.width, scene.height);
    put!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {width} {height:.0}\" \
         role=\"img\" font-family=\"'DejaVu Sans', Verdana, sans-serif\""
    );
    if alone {
        put!(svg, " width=\"{width}\" height=\"{height:.0}\"");
    }
    put!(svg, ">\n<title>{}</title>\n", Esc(&scene.title));
    if alone {
        put!(
            svg,
            "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
    }
    for mark in &scene.marks {
        put_mark(svg, mark);
    }
    put!(svg, "</svg>\n");
}

fn put_mark(svg: &mut Markup, mark: &Mark) {
    match mark {
        Mark::Line {
            points,
            ink,
            width,
            dashes,
        } => {
            put!(
                svg,
                "<path class=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" \
                 stroke-linejoin=\"round\"",
                class(*ink),
                colour(*ink)
            );
            if !dashes.is_empty() {
                let lengths: Vec<String> = dashes.iter().map(f64::to_string).collect();
                put!(svg, " stroke-dasharray=\"{}\"", lengths.join(" "));
            }
            put!(svg, " d=\"");
            for (i, (x, y)) in points.iter().enumerate() {
                put!(svg, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
            }
            put!(svg, "\"/>\n");
        }
        Mark::Disc {
            centre: (x, y),
            radius,
            ink,
        } => put!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{}\"/>\n",
            colour(*ink)
        ),
        Mark::Text {
            at: (x, y),
            anchor,
            size,
            ink,
            text,
        } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            put!(
                svg,
                "<text class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" \
                 text-anchor=\"{anchor}\" fill=\"{}\">{}</text>\n",
                class(*ink),
                colour(*ink),
                Esc(text)
            );
        }
    }
}

/// For a page's style sheet, which knows whether the page is dark.
const fn class(ink: Ink) -> &'static str {
    match ink {
        Ink::Text => "ink",
        Ink::Quiet => "soft",
        Ink::Grid => "grid",
        Ink::Frame => "frame",
        Ink::Curve(_) => "line",
    }
}

fn colour(ink: Ink) -> String {
    let [red, green, blue] = ink.rgb();
    format!("#{red:02x}{green:02x}{blue:02x}")
}
