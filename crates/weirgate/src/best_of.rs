//! Disciplines of `weirgate sim` that are chosen afterwards: the best of several, found by trying.
//!
//! They are baselines. Nobody can configure them in advance, because the best is known only after the run.
//!
//! - `NAME=A,B,C` is the best of the disciplines A, B and C: an operator who retunes once the load is known.
//! - `best-fixed` is the best window of a fixed size. Requests are predicted and ordered as under `weirgate`, so a
//!   comparison shows the cost and the gain of searching for the window.

use weirgate_experiment::{Experiment, under_discipline};
use weirgate_spanned_yaml::overrides::Override;
use weirgate_verdict::Verdict;
use weirgate_verdict::report::Group;

const BEST_FIXED: &str = "best-fixed";

/// The window sizes that are tried, from one slot to more than any experiment needs. From 2 to 512 each is
/// at most one and a half times the one before. Near its best a window's throughput changes by less than a
/// percent over such a step.
const WINDOWS: [u32; 24] =
    [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096];

/// A discipline of the command line, or several of which the best is shown.
#[derive(Clone, Debug)]
pub(crate) struct Choice<T> {
    /// The name of the choice. `None` for a single discipline, which has its own.
    name: Option<String>,
    /// One for each discipline: first the changes that select it, then the experiment with them.
    pub(crate) each: Vec<T>,
}

impl Choice<Vec<Override>> {
    /// Returns the choice that `text` names.
    fn parse(text: &str) -> Choice<Vec<Override>> {
        if text == BEST_FIXED {
            return Choice { name: Some(text.to_owned()), each: WINDOWS.iter().map(|window| fixed(*window)).collect() };
        }
        let word = |name: &str| name.chars().all(|letter| letter.is_alphanumeric() || "-_.".contains(letter));
        match text.split_once('=') {
            Some((name, disciplines)) if word(name) => {
                let each = disciplines.split(',').map(|name| vec![under_discipline(name)]).collect();
                Choice { name: Some(name.to_owned()), each }
            }
            _ => Choice { name: None, each: vec![vec![under_discipline(text)]] },
        }
    }

    /// Returns the experiments that `load` makes of the changes.
    ///
    /// # Errors
    /// The first error of `load`.
    pub(crate) fn load<E>(
        self,
        load: impl FnMut(Vec<Override>) -> Result<Experiment, E>,
    ) -> Result<Choice<Experiment>, E> {
        let each = self.each.into_iter().map(load).collect::<Result<_, E>>()?;
        Ok(Choice { name: self.name, each })
    }
}

impl Choice<Experiment> {
    /// Returns the best of `groups`, one for each discipline. Of those that miss the fewest guarantees over all seeds,
    /// that is the one that serves the largest share of the possible load.
    ///
    /// It is named after the choice and the discipline: `best-fixed (24)`.
    pub(crate) fn best(&self, groups: Vec<Group>) -> Option<Group> {
        let scored = groups.into_iter().map(|group| (score(&group.verdicts), group));
        let (_, mut best) = scored.max_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
        if let Some(name) = &self.name {
            best.discipline = format!("{name} ({})", best.discipline);
            for verdict in &mut best.verdicts {
                verdict.discipline.clone_from(&best.discipline);
            }
        }
        Some(best)
    }
}

/// Returns the choices that the command line names. Without a name it is the file's own discipline.
pub(crate) fn choices(disciplines: &[String]) -> Vec<Choice<Vec<Override>>> {
    match disciplines {
        [] => vec![Choice { name: None, each: vec![Vec::new()] }],
        names => names.iter().map(|name| Choice::parse(name)).collect(),
    }
}

/// Returns the changes that select a window of this size.
fn fixed(window: u32) -> Vec<Override> {
    let custom = format!("{{custom: {{admit: predict, load_control: {{fixed: {window}}}, precedence: tokens}}}}");
    vec![Override::new(&format!("disciplines.{window}"), &custom), under_discipline(&window.to_string())]
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
    fn a_name_is_one_discipline_a_list_of_them_or_every_window() {
        let read = |names: &[&str]| -> Vec<(Option<String>, usize)> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            choices(&names).into_iter().map(|choice| (choice.name, choice.each.len())).collect()
        };
        assert_eq!(read(&[]), [(None, 1)]);
        let named = |name: &str, count| (Some(name.to_owned()), count);
        assert_eq!(
            read(&["quorum", "retuned=slots,aimd,none", BEST_FIXED]),
            [(None, 1), named("retuned", 3), named(BEST_FIXED, WINDOWS.len())]
        );
        // A discipline may be written in full.
        assert_eq!(read(&["{ custom: { admit: codel, precedence: fifo } }"]), [(None, 1)]);
        assert!(WINDOWS.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= 2 * pair[0]));
    }
}
