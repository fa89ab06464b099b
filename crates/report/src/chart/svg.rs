//! A scene as SVG: a separate file, or a plot on a page that stretches to any width.

use super::scene::{Anchor, Area, CURVE_WIDTH, Ink, Mark, Scene, dashes};
use crate::chart::figure::Chart;
use crate::markup::{Esc, Markup, put};

/// Units of the curves' own coordinates, in both directions.
const SIDE: f64 = 1000.0;

impl Chart {
    /// The chart as an SVG file.
    pub fn svg(&self) -> Vec<u8> {
        document(&Scene::of(self)).into_bytes()
    }
}

/// A separate file, on white.
fn document(scene: &Scene) -> String {
    let mut svg = Markup(String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"));
    let (width, height) = (scene.width, scene.height);
    put!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" \
         role=\"img\" font-family=\"'DejaVu Sans', Verdana, sans-serif\" width=\"{width}\" \
         height=\"{height:.0}\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        Esc(&scene.title)
    );
    for mark in &scene.around {
        put_mark(&mut svg, mark, &|units| format!("{units:.1}"));
    }
    let [x, y, width, height] = scene.area;
    put!(
        svg,
        "<svg x=\"{x}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height}\" overflow=\"visible\">\n"
    );
    put_plot(&mut svg, scene);
    put!(svg, "</svg>\n</svg>\n");
    svg.0
}

/// The plot. All positions are shares of the enclosing element; the curves are in an SVG of
/// [`SIDE`] × [`SIDE`] units that is stretched over it.
pub(crate) fn put_plot(svg: &mut Markup, scene: &Scene) {
    let (curves, others): (Vec<&Mark>, Vec<&Mark>) =
        scene.plot.iter().partition(|mark| is_stretched(mark));
    let on_top = |mark: &&&Mark| matches!(mark, Mark::Disc { .. } | Mark::Bar { .. });
    let percent = |share: f64| format!("{:.3}%", 100.0 * share);
    put!(svg, "<g class=\"ticks\">\n");
    for mark in others.iter().filter(|mark| !on_top(mark)) {
        put_mark(svg, mark, &percent);
    }
    put!(
        svg,
        "</g>\n<svg class=\"curves\" width=\"100%\" height=\"100%\" viewBox=\"0 0 {SIDE} {SIDE}\" \
         preserveAspectRatio=\"none\">\n"
    );
    for mark in curves {
        put_mark(svg, mark, &percent);
    }
    put!(svg, "</svg>\n");
    for mark in others.iter().filter(on_top) {
        put_mark(svg, mark, &percent);
    }
}

/// Whether a mark has many points, which are written in units of [`SIDE`] to keep them short.
const fn is_stretched(mark: &Mark) -> bool {
    let is_curve = matches!(
        mark,
        Mark::Line {
            ink: Ink::Curve(_),
            ..
        }
    );
    is_curve || matches!(mark, Mark::Cells { .. })
}

/// One mark. Page styles override the colours by class.
fn put_mark(svg: &mut Markup, mark: &Mark, place: &impl Fn(f64) -> String) {
    match mark {
        Mark::Line {
            points,
            ink,
            width,
            dashes,
            class,
        } => {
            let look = look(*ink, *width, dashes);
            if !class.is_empty() && matches!(ink, Ink::Curve(_)) {
                put_curve(svg, points, class, &look);
            } else if let [from, to] = points.as_slice() {
                let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(place);
                put!(
                    svg,
                    "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" \
                     {look}/>\n"
                );
            }
        }
        Mark::Disc {
            centre: (x, y),
            radius,
            ink,
            class,
        } => {
            let ([x, y], fill) = ([*x, *y].map(place), colour(*ink));
            put!(
                svg,
                "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{fill}\"/>\n"
            );
        }
        Mark::Bar {
            area: [left, top, right, bottom],
            ink,
            class,
            title,
        } => {
            let [x, y, width, height] = [*left, *top, right - left, bottom - top].map(place);
            let (fill, title) = (colour(*ink), Esc(title));
            put!(
                svg,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" \
                 height=\"{height}\" fill=\"{fill}\"><title>{title}</title></rect>\n"
            );
        }
        Mark::Cells { areas, ink, class } => put_cells(svg, areas, *ink, class),
        Mark::Text {
            at: (x, y),
            offset: (dx, dy),
            anchor,
            size,
            ink,
            class,
            text,
        } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let ([x, y], fill, text) = ([*x, *y].map(place), colour(*ink), Esc(text));
            put!(
                svg,
                "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" dx=\"{dx}\" dy=\"{dy}\" \
                 font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{text}</text>\n"
            );
        }
    }
}

fn put_curve(svg: &mut Markup, points: &[(f64, f64)], class: &str, look: &str) {
    put!(
        svg,
        "<path class=\"curve {class}\" fill=\"none\" stroke-linejoin=\"round\" \
         vector-effect=\"non-scaling-stroke\" {look} d=\""
    );
    for (i, (x, y)) in points.iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        put!(svg, "{command}{:.1} {:.1}", SIDE * x, SIDE * y);
    }
    put!(svg, "\"/>\n");
}

fn put_cells(svg: &mut Markup, areas: &[Area], ink: Ink, class: &str) {
    /// Neighbours overlap by this much, so that the background does not show between them.
    const OVERLAP: f64 = 0.3;
    let fill = colour(ink);
    put!(svg, "<path class=\"{class}\" fill=\"{fill}\" d=\"");
    for area in areas {
        let [left, top, right, bottom] = area.map(|share| SIDE * share);
        let right = right + OVERLAP;
        put!(svg, "M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}z");
    }
    put!(svg, "\"/>\n");
}

/// The stroke of a line as attributes.
fn look(ink: Ink, width: f64, dashes: &[f64]) -> String {
    let lengths: Vec<String> = dashes.iter().map(f64::to_string).collect();
    let dashes = match lengths.is_empty() {
        true => "none".to_owned(),
        false => lengths.join(" "),
    };
    let colour = colour(ink);
    format!("stroke=\"{colour}\" stroke-width=\"{width}\" stroke-dasharray=\"{dashes}\"")
}

/// The stroke of the n-th curve as attributes.
pub(crate) fn curve_look(n: usize) -> String {
    look(Ink::Curve(n), CURVE_WIDTH, dashes(n))
}

fn colour(ink: Ink) -> String {
    let [red, green, blue] = ink.rgb();
    format!("#{red:02x}{green:02x}{blue:02x}")
}
