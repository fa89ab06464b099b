//! A scene as PNG.

use tiny_skia::{
    Color, FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash,
    Transform,
};

use super::figure::Chart;
use super::font;
use super::scene::{Anchor, Area, Ink, Mark, Scene};
use crate::error::ReportError;

/// Pixels for each unit of the scene: sharp on screens and in print.
const PIXELS: f32 = 2.0;

impl Chart {
    /// The chart as a picture with two pixels for each unit of the SVG.
    ///
    /// # Errors
    /// [`ReportError::Format`] when it is too large for the rasteriser.
    pub fn png(&self) -> Result<Vec<u8>, ReportError> {
        encode(&Scene::of(self))
    }
}

/// The picture on white.
fn encode(scene: &Scene) -> Result<Vec<u8>, ReportError> {
    let defect = |cause: String| ReportError::Format {
        output: "the figure (PNG)",
        cause,
    };
    let pixels = |length: f64| (length * f64::from(PIXELS)).ceil() as u32;
    let mut pixmap = Pixmap::new(pixels(scene.width), pixels(scene.height))
        .ok_or_else(|| defect(format!("{} × {} units", scene.width, scene.height)))?;
    pixmap.fill(Color::WHITE);
    for mark in &scene.around {
        draw(&mut pixmap, mark, &|at| at);
    }
    let [left, top, width, height] = scene.area;
    for mark in &scene.plot {
        draw(&mut pixmap, mark, &|(x, y)| {
            (left + x * width, top + y * height)
        });
    }
    pixmap.encode_png().map_err(|e| defect(e.to_string()))
}

fn draw(pixmap: &mut Pixmap, mark: &Mark, place: &impl Fn((f64, f64)) -> (f64, f64)) {
    let scale = Transform::from_scale(PIXELS, PIXELS);
    match mark {
        Mark::Line {
            points,
            ink,
            width,
            dashes,
            ..
        } => {
            let mut path = PathBuilder::new();
            for (i, (x, y)) in points.iter().map(|at| place(*at)).enumerate() {
                if i == 0 {
                    path.move_to(x as f32, y as f32);
                } else {
                    path.line_to(x as f32, y as f32);
                }
            }
            let dash = dashes.iter().map(|length| *length as f32).collect();
            let stroke = Stroke {
                width: *width as f32,
                line_join: LineJoin::Round,
                dash: StrokeDash::new(dash, 0.0),
                ..Stroke::default()
            };
            if let Some(path) = path.finish() {
                pixmap.stroke_path(&path, &paint(*ink), &stroke, scale, None);
            }
        }
        Mark::Disc {
            centre,
            radius,
            ink,
            ..
        } => {
            let (x, y) = place(*centre);
            let disc = PathBuilder::from_circle(x as f32, y as f32, *radius as f32);
            fill(pixmap, disc, *ink, scale);
        }
        Mark::Bar { area, ink, .. } => fill(pixmap, path_of(&[*area], place), *ink, scale),
        Mark::Cells { areas, ink, .. } => fill(pixmap, path_of(areas, place), *ink, scale),
        Mark::Text {
            at,
            offset,
            anchor,
            size,
            ink,
            text,
            ..
        } => {
            let (x, y) = place(*at);
            let back = match anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => 0.5,
                Anchor::End => 1.0,
            };
            let left = x + offset.0 - back * font::width(text, *size);
            let mut letters = PathBuilder::new();
            font::outline(text, left, y + offset.1, *size, &mut letters);
            fill(pixmap, letters.finish(), *ink, scale);
        }
    }
}

fn path_of(areas: &[Area], place: &impl Fn((f64, f64)) -> (f64, f64)) -> Option<Path> {
    let mut path = PathBuilder::new();
    for &[left, top, right, bottom] in areas {
        let ((left, top), (right, bottom)) = (place((left, top)), place((right, bottom)));
        let [left, top, right, bottom] = [left, top, right, bottom].map(|at| at as f32);
        if let Some(area) = Rect::from_ltrb(left, top, right, bottom) {
            path.push_rect(area);
        }
    }
    path.finish()
}

fn fill(pixmap: &mut Pixmap, path: Option<Path>, ink: Ink, scale: Transform) {
    if let Some(path) = path {
        pixmap.fill_path(&path, &paint(ink), FillRule::Winding, scale, None);
    }
}

fn paint(ink: Ink) -> Paint<'static> {
    let [red, green, blue] = ink.rgb();
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, 255);
    paint.anti_alias = true;
    paint
}
