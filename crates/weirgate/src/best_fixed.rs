//! The word `best-fixed` of `weirgate sim`: the best window of a fixed size, found by trying.
//!
//! It is a baseline, not a discipline. You cannot configure it in advance, because the best size is known
//! only after the run. Requests are predicted and ordered as under `weirgate`, so a comparison shows the
//! cost and the gain of searching for the window.

use weirgate_experiment::under_discipline;
use weirgate_spanned_yaml::overrides::Override;
use weirgate_verdict::Verdict;
use weirgate_verdict::report::Group;

const WORD: &str = "best-fixed";

/// The window sizes that are tried, from one slot to more than any experiment needs. From 2 to 512 each is
/// at most one and a half times the one before. Near its best a window's throughput changes by less than a
/// percent over such a step.
const WINDOWS: [u32; 24] =
    [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096];

/// Returns for each of these names the experiments to play, as changes of the file: one, or one per window. Without
/// names it is the file's own discipline.
pub(crate) fn expanded(disciplines: &[String]) -> Vec<Vec<Vec<Override>>> {
    let experiments = |name: &String| match name.as_str() {
        WORD => WINDOWS.iter().map(|window| vec![under_discipline(&custom(*window))]).collect(),
        name => vec![vec![under_discipline(name)]],
    };
    if disciplines.is_empty() { vec![vec![Vec::new()]] } else { disciplines.iter().map(experiments).collect() }
}

fn custom(window: u32) -> String {
    format!("{{custom: {{admit: predict, load_control: {{fixed: {window}}}, precedence: tokens}}}}")
}

/// Returns the only one of `groups`, or the best if it has one group for each window in order. Of the groups that miss
/// the fewest guarantees over all seeds, that is the one that serves the largest share of the possible load.
pub(crate) fn best(mut groups: Vec<Group>) -> Option<Group> {
    if groups.len() == 1 {
        return groups.pop();
    }
    let scored = groups.into_iter().zip(WINDOWS).map(|(group, window)| (score(&group.verdicts), window, group));
    let (_, window, mut group) = scored.max_by(|(a, ..), (b, ..)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
    group.discipline = format!("{WORD} ({window})");
    for verdict in &mut group.verdicts {
        verdict.discipline.clone_from(&group.discipline);
    }
    Some(group)
}

/// Returns minus the number of missed guarantees, and the served share of the possible load, weighted by
/// seconds.
fn score(verdicts: &[Verdict]) -> (i64, f64) {
    let missed: usize = verdicts.iter().map(|verdict| verdict.misses().count()).sum();
    let phases = verdicts.iter().flat_map(|verdict| &verdict.phases).filter(|phase| phase.judged);
    let served = phases.map(|phase| phase.served_over_oracle.unwrap_or(1.0) * (phase.to_s - phase.judged_from_s));
    (-(missed as i64), served.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_every_window_and_others_are_themselves() {
        let counts = |names: &[&str]| -> Vec<usize> {
            expanded(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).iter().map(Vec::len).collect()
        };
        assert_eq!((counts(&[]), counts(&["quorum", WORD])), (vec![1], vec![1, WINDOWS.len()]));
        assert!(WINDOWS.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= 2 * pair[0]));
    }
}
