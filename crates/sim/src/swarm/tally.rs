//! The result of a swarm: misses per thousand runs, by family and kind, and the worst seeds.

use std::fmt;

use serde::Serialize;

use super::family::Family;
use super::outcome::{Lapse, Missed, Outcome};

/// Number of the worst seeds that are kept.
const WORST: usize = 10;

/// The result of a swarm.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// One row per family that was played, in the order of [`Family::ALL`].
    pub families: Vec<Row>,
    /// All seeds with violations or panics, in rising order.
    pub unsafe_seeds: Vec<u64>,
    /// The seeds with the largest misses, worst first.
    pub worst: Vec<Outcome>,
    /// Number of attempts that were played.
    pub requests: u64,
}

/// The counts of one family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The family.
    pub family: Family,
    /// Number of scenarios played.
    pub runs: u64,
    /// Number of scenarios with at least one miss that counts.
    pub runs_with_misses: u64,
    /// Misses by kind, in the order of [`Lapse::ALL`].
    pub misses: [u64; Lapse::ALL.len()],
    /// Number of scenarios with a violation.
    pub violations: u64,
    /// Number of scenarios that panicked.
    pub panics: u64,
}

impl Tally {
    /// Counts one outcome. The order does not matter.
    pub fn add(&mut self, outcome: &Outcome) {
        let at = self.families.partition_point(|row| row.family < outcome.family);
        if self.families.get(at).is_none_or(|row| row.family != outcome.family) {
            self.families.insert(at, Row::new(outcome.family));
        }
        let row = &mut self.families[at];
        row.runs += 1;
        row.runs_with_misses += u64::from(outcome.lapses().next().is_some());
        row.violations += u64::from(!outcome.violations.is_empty());
        row.panics += u64::from(outcome.panic.is_some());
        for (count, kind) in row.misses.iter_mut().zip(Lapse::ALL) {
            *count += outcome.misses.iter().filter(|missed| missed.kind == kind).count() as u64;
        }
        self.requests += outcome.requests;
        if outcome.is_unsafe() {
            let at = self.unsafe_seeds.partition_point(|seed| *seed < outcome.seed);
            self.unsafe_seeds.insert(at, outcome.seed);
        }
        if outcome.lapses().next().is_some() {
            self.worst.push(outcome.clone());
            self.worst.sort_by(|a, b| by(b).total_cmp(&by(a)).then(a.seed.cmp(&b.seed)));
            self.worst.truncate(WORST);
        }
    }

    /// Returns the sum over all families, or `None` if nothing was played.
    pub fn total(&self) -> Option<Row> {
        let first = self.families.first()?;
        let mut total = Row::new(first.family);
        for row in &self.families {
            total.runs += row.runs;
            total.runs_with_misses += row.runs_with_misses;
            total.violations += row.violations;
            total.panics += row.panics;
            total.misses.iter_mut().zip(row.misses).for_each(|(sum, n)| *sum += n);
        }
        Some(total)
    }

    /// Returns the number of misses that count.
    pub fn misses(&self) -> u64 {
        let counted = |row: &Row| {
            row.misses.iter().zip(Lapse::ALL).filter(|(_, kind)| kind.counts()).map(|(n, _)| n).sum::<u64>()
        };
        self.families.iter().map(counted).sum()
    }
}

/// Returns the severity of an outcome: the sum of its relative misses.
fn by(outcome: &Outcome) -> f64 {
    outcome.lapses().map(|missed| missed.by).sum()
}

impl Row {
    fn new(family: Family) -> Row {
        Row { family, runs: 0, runs_with_misses: 0, misses: [0; Lapse::ALL.len()], violations: 0, panics: 0 }
    }
}

impl fmt::Display for Tally {
    /// Writes the table, then the worst seeds. A line feed ends each line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(total) = self.total() else { return writeln!(f, "nothing was played") };
        write!(f, "misses per 1,000 runs\n{:18} {:>6} {:>10}", "family", "runs", "with any")?;
        for kind in Lapse::ALL {
            write!(f, " {:>1$}", kind.as_str(), width(kind))?;
        }
        writeln!(f, " {:>10} {:>7}", "violations", "panics")?;
        for row in &self.families {
            line(f, row.family.as_str(), row)?;
        }
        line(f, "all", &total)?;
        if !self.worst.is_empty() {
            writeln!(f, "\nworst seeds")?;
        }
        for outcome in &self.worst {
            writeln!(f, "{:>8} {}: {}", outcome.seed, outcome.family, outcome.about)?;
            let mut lapses: Vec<&Missed> = outcome.lapses().collect();
            lapses.sort_by(|a, b| b.by.total_cmp(&a.by));
            for missed in lapses.iter().take(2) {
                writeln!(f, "         {missed}")?;
            }
            if lapses.len() > 2 {
                writeln!(f, "         and {} more", lapses.len() - 2)?;
            }
        }
        Ok(())
    }
}

fn width(kind: Lapse) -> usize {
    kind.as_str().len().max(8)
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, row: &Row) -> fmt::Result {
    let rate = |count: u64| count as f64 * 1e3 / row.runs.max(1) as f64;
    write!(f, "{name:18} {:>6} {:>10.1}", row.runs, rate(row.runs_with_misses))?;
    for (count, kind) in row.misses.iter().zip(Lapse::ALL) {
        write!(f, " {:>1$.1}", rate(*count), width(kind))?;
    }
    writeln!(f, " {:>10} {:>7}", row.violations, row.panics)
}

impl fmt::Display for Missed {
    /// Writes a line such as `floor of c1 in event: 180.0/s of 200.0/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missed { kind, class, phase, promised, got, .. } = self;
        write!(f, "{} of {class} in {phase}: ", kind.as_str())?;
        match kind {
            Lapse::Floor => write!(f, "{got:.1}/s of {promised:.1}/s"),
            Lapse::Ceiling | Lapse::CeilingBeyond => write!(f, "{got:.0} ms, promised {promised:.0} ms"),
            Lapse::Avoidable => write!(f, "{:.2} % of the owed requests", got * 100.0),
            Lapse::WrongSheds => write!(f, "{:.2} % of all classes within their guarantee", got * 100.0),
            Lapse::Starved => write!(f, "nothing for {got:.1} s"),
            Lapse::Turns => write!(f, "{got:.2} node-seconds of others before it, at most {promised:.2}"),
            Lapse::Shares => write!(f, "{got:.3} node-seconds by weight, others {promised:.3}"),
            Lapse::Unused => {
                write!(f, "{:.0} % of the machines in use, at least {:.0} %", got * 100.0, promised * 100.0)
            }
            Lapse::Settling | Lapse::Excused => write!(f, "{got:.1}, promised {promised:.1}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::Rotation;
    use super::*;

    fn outcome(seed: u64, kinds: &[Lapse], by: f64) -> Outcome {
        let missed = |kind: &Lapse| Missed {
            kind: *kind,
            class: "c1".to_owned(),
            phase: "event".to_owned(),
            promised: 100.0,
            got: 100.0 * (1.0 - by),
            by,
        };
        Outcome {
            seed,
            family: Rotation::Classic.family_of(seed),
            about: "a test".to_owned(),
            requests: 10,
            misses: kinds.iter().map(missed).collect(),
            violations: Vec::new(),
            panic: None,
        }
    }

    #[test]
    fn outcomes_are_counted_by_family_and_kind_in_any_order() {
        let mut outcomes = vec![
            outcome(18, &[Lapse::Floor, Lapse::Ceiling], 0.1),
            outcome(0, &[], 0.0),
            outcome(1, &[Lapse::Excused], 0.9),
            Outcome { panic: Some("no".to_owned()), ..outcome(36, &[], 0.0) },
            outcome(3, &[Lapse::Floor], 0.5),
        ];
        let tally = |outcomes: &[Outcome]| {
            let mut tally = Tally::default();
            outcomes.iter().for_each(|outcome| tally.add(outcome));
            tally
        };
        let forth = tally(&outcomes);
        outcomes.reverse();
        assert_eq!(forth.to_string(), tally(&outcomes).to_string());
        assert_eq!(forth.families[0].misses, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((forth.families[0].runs, forth.families[0].runs_with_misses), (3, 1));
        assert_eq!((forth.misses(), forth.unsafe_seeds.as_slice()), (3, [36].as_slice()));
        assert_eq!(forth.worst.iter().map(|o| o.seed).collect::<Vec<_>>(), [3, 18]);
        assert_eq!(forth.total().map(|all| all.runs), Some(5));
    }
}
