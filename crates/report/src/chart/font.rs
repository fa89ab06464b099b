//! How wide letters are, for the layout: the reader's font is not known, and this one is the first that an SVG asks for.

/// Units of a font size.
const EM: f64 = 2_048.0;

/// The widths of DejaVu Sans 2.37 in units of its font size, each with the letters of that width.
const WIDTHS: [(u16, &str); 54] = [
    (563, "'"),
    (569, "ijlìíîï"),
    (604, "IJÌÍÎÏ"),
    (651, " ,.\u{a0}·‘’"),
    (690, "/:;\\|"),
    (721, "f"),
    (739, "-"),
    (799, "()[]"),
    (803, "t"),
    (821, "!"),
    (842, "r"),
    (942, "\""),
    (1_024, "*_`–"),
    (1_061, "“”"),
    (1_067, "s"),
    (1_075, "z"),
    (1_087, "?"),
    (1_126, "cç"),
    (1_141, "L"),
    (1_178, "F"),
    (1_186, "k"),
    (1_212, "vxyýÿ"),
    (1_235, "P"),
    (1_239, "Þ"),
    (1_251, "TYÝ"),
    (1_253, "oðòóôõöø"),
    (1_255, "aàáâãäå"),
    (1_260, "eèéêë"),
    (1_290, "ß"),
    (1_294, "EÈÉÊË"),
    (1_298, "hnuñùúûü"),
    (1_300, "Sbdgpqþρ"),
    (1_303, "$0123456789{}µμ"),
    (1_343, "K"),
    (1_401, "AVÀÁÂÃÄÅ"),
    (1_403, "XZ"),
    (1_405, "B"),
    (1_423, "R"),
    (1_430, "CÇ"),
    (1_499, "UÙÚÛÜ"),
    (1_532, "NÑ"),
    (1_540, "H"),
    (1_577, "D"),
    (1_587, "GÐ"),
    (1_597, "&"),
    (1_612, "OQÒÓÔÕÖØ"),
    (1_675, "w"),
    (1_716, "#+<=>^~±×÷−≤≥"),
    (1_767, "M"),
    (1_946, "%"),
    (1_995, "mÆ"),
    (2_011, "æ"),
    (2_025, "W"),
    (2_048, "@—…"),
];

/// The width of a letter that is not in the table.
const OTHER: u16 = 2_100;

fn units(letter: char) -> u16 {
    let found = WIDTHS.iter().find(|(_, letters)| letters.contains(letter));
    found.map_or(OTHER, |(units, _)| *units)
}

/// How wide the text is at the given font size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let units: f64 = text.chars().map(|letter| f64::from(units(letter))).sum();
    size * units / EM
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_letter_of_a_figure_has_one_width() {
        let letters: Vec<char> = WIDTHS.iter().flat_map(|(_, all)| all.chars()).collect();
        let once: HashSet<char> = letters.iter().copied().collect();
        assert_eq!(once.len(), letters.len());
        for letter in "abcXYZ0189 %µ–−×·ρ’“”.,:;()/=≤≥".chars() {
            assert!(once.contains(&letter), "{letter:?} is missing");
        }
        assert!(width("wide", 10.0) > width("it", 10.0));
        assert!(width("50 µs", 10.0) > 20.0);
    }
}
