//! Which loops to show where a machine has many CPUs.

use taillab_model::noise::NoiseRow;

/// The loops of each phase, which began together.
pub(super) fn phases(rows: &[NoiseRow]) -> impl Iterator<Item = &[NoiseRow]> {
    rows.chunk_by(|a, b| a.began_ns == b.began_ns)
}

/// At most this number of loops of each phase, in order of their CPUs: the one with the longest gap, and
/// those that lost the largest share of their time.
pub(crate) fn worst(rows: &[NoiseRow], most: usize) -> Vec<&NoiseRow> {
    let mut shown = Vec::new();
    for phase in phases(rows) {
        let mut of_phase: Vec<&NoiseRow> = phase.iter().collect();
        if of_phase.len() > most {
            of_phase.sort_by(|a, b| b.stolen_share.total_cmp(&a.stolen_share));
            // of equals the first
            let places = (0..of_phase.len()).rev();
            let longest = places.max_by_key(|&place| of_phase[place].reads.max);
            if let Some(place) = longest {
                of_phase[..=place].rotate_right(1);
            }
            of_phase.truncate(most);
            of_phase.sort_by_key(|row| row.cpu);
        }
        shown.extend(of_phase);
    }
    shown
}

/// How many loops with causes are not among those that are shown.
pub(crate) fn not_shown(rows: &[NoiseRow], shown: &[&NoiseRow]) -> usize {
    let with_causes = rows.iter().filter(|row| has_causes(row)).count();
    with_causes - shown.iter().filter(|row| has_causes(row)).count()
}

fn has_causes(row: &NoiseRow) -> bool {
    row.causes.as_ref().is_some_and(|causes| !causes.is_empty())
}
