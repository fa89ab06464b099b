//! The embedded font: outlines for the PNG, widths for the layout.

use std::sync::LazyLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

static FACE: LazyLock<Option<Face<'static>>> = LazyLock::new(|| {
    // parsing cannot fail: the font is part of the program, and a test draws with it
    Face::parse(include_bytes!("assets/DejaVuSans-subset.ttf"), 0).ok()
});

/// The text's width at one unit of font size, and each glyph with its place.
fn glyphs(text: &str) -> Option<(f64, Vec<(GlyphId, f64)>)> {
    let face = FACE.as_ref()?;
    let em = f64::from(face.units_per_em());
    let mut at = 0.0;
    let mut placed = Vec::new();
    for c in text.chars() {
        let glyph = face
            .glyph_index(c)
            .or_else(|| face.glyph_index('\u{fffd}'))
            .unwrap_or_default();
        placed.push((glyph, at));
        at += f64::from(face.glyph_hor_advance(glyph).unwrap_or(0)) / em;
    }
    Some((at, placed))
}

/// How wide the text is at the given font size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    glyphs(text).map_or(0.0, |(width, _)| width * size)
}

/// Draws the text's outlines with its base line at (`x`, `y`), y downwards.
pub(super) fn outline(text: &str, x: f64, y: f64, size: f64, into: &mut tiny_skia::PathBuilder) {
    let (Some(face), Some((_, placed))) = (FACE.as_ref(), glyphs(text)) else {
        return;
    };
    let scale = size / f64::from(face.units_per_em());
    for (glyph, at) in placed {
        let mut pen = Pen {
            path: into,
            x: (x + at * size) as f32,
            y: y as f32,
            scale: scale as f32,
        };
        // a space has no outline
        let _ = face.outline_glyph(glyph, &mut pen);
    }
}

struct Pen<'a> {
    path: &'a mut tiny_skia::PathBuilder,
    x: f32,
    y: f32,
    scale: f32,
}

impl Pen<'_> {
    fn place(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.scale, self.y - y * self.scale)
    }
}

impl OutlineBuilder for Pen<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.place(x1, y1), self.place(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2)) = (self.place(x1, y1), self.place(x2, y2));
        let (x, y) = self.place(x, y);
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_of_a_figure_is_in_the_font() {
        let face = FACE.as_ref().unwrap();
        for c in "abcXYZ0189 %µ–−×·ρ’“”.,:;()/=≤≥".chars() {
            assert!(face.glyph_index(c).is_some(), "{c:?} is missing");
        }
        assert!(width("wide", 10.0) > width("it", 10.0));
        assert!(width("50 µs", 10.0) > 20.0);
    }
}
