//! An overview of several runs: one row for each experiment and approach, with means over the seeds and how sure they
//! are.
//!
//! The confidence interval is that of the mean at 95 %, by Student's distribution: seeds are few, and a trial is one
//! independent draw of the traffic. Differences from Weirgate are taken seed by seed, because all approaches of a seed
//! get the same requests.

use std::fmt::Write as _;

use weirgate_verdict::Verdict;
use weirgate_verdict::report::{Group, Kept, PhaseRuns, Report};

use super::clients;
use super::run_file::{RunFile, Trial};
use super::totals::sentence;

/// Quantiles of Student's distribution at 97.5 % for 1 to 30 degrees of freedom. More are as good as the normal
/// distribution's 1.96.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Returns the overview as Markdown: the machine of each run, a table, and the result of each run in a sentence.
pub fn overview(runs: &[RunFile]) -> String {
    let mut text = String::from("# Overview of runs\n\n");
    for run in runs {
        let uses: Vec<String> =
            run.machine.cores.iter().map(|of| format!("core {} for {}", of.core, of.used_for)).collect();
        let _ = writeln!(
            text,
            "- **{}** on {}, {}, {}. First run {}.",
            run.experiment.name,
            run.machine.cpu,
            run.machine.kernel,
            uses.join(", "),
            run.date
        );
    }
    text += "\nMeans over the seeds, with the 95 % confidence interval. Requests in time are those of judged phases that were \
             served within the limit of their class. A difference is taken seed by seed.\n\n\
             | experiment | approach | seeds | guarantees held | runs with all held | in time/s | against weirgate | lost or \
             doubled |\n|---|---|---|---|---|---|---|---|\n";
    for run in runs {
        let groups = run.groups();
        for group in &groups {
            row(&mut text, run, group, &groups);
        }
    }
    text.push('\n');
    for run in runs {
        let groups = run.groups();
        let report = Report { outline: &run.experiment, groups: &groups, by: "approach" };
        let _ = writeln!(text, "- **{}.** {}", run.experiment.name, sentence(&report));
        for note in &run.notes {
            let _ = writeln!(text, "  - {note}");
        }
    }
    text.extend(runs.iter().map(clients::markdown));
    text
}

fn row(text: &mut String, run: &RunFile, group: &Group, groups: &[Group]) {
    let Kept { missed, runs: judged } = group.missed();
    let sound = group.verdicts.iter().filter(|verdict| verdict.sound()).count();
    let in_time = |verdict: &Verdict| in_time(run, verdict);
    let ours: Vec<f64> = group.verdicts.iter().map(in_time).collect();
    let reference = groups.iter().find(|other| other.discipline == "weirgate" && other.discipline != group.discipline);
    let against: Vec<f64> = reference.map_or_else(Vec::new, |reference| {
        let of_seed = |seed: u64| reference.verdicts.iter().find(|verdict| verdict.seed == seed).map(in_time);
        let pair = |verdict: &Verdict| Some((in_time(verdict) / of_seed(verdict.seed)? - 1.0) * 100.0);
        group.verdicts.iter().filter_map(pair).filter(|percent| percent.is_finite()).collect()
    });
    let doubtful = |trial: &&Trial| trial.approach == group.discipline && !trial.evidence.doubts().is_empty();
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} of {judged} | {sound} of {} | {} | {} | {} |",
        run.experiment.name,
        group.discipline,
        group.verdicts.len(),
        judged - missed,
        group.verdicts.len(),
        interval(&ours, "", false),
        interval(&against, " %", true),
        match run.trials.iter().filter(doubtful).count() {
            0 => "0".to_owned(),
            trials => format!("in {trials} trials"),
        },
    );
}

/// Returns the requests per second that were served in time in the judged phases of a trial.
fn in_time(run: &RunFile, verdict: &Verdict) -> f64 {
    let (mut served, mut seconds) = (0.0, 0.0);
    for (index, phase) in run.experiment.phases.iter().enumerate().filter(|(_, phase)| phase.judged) {
        let one = std::slice::from_ref(verdict);
        if let Some(rate) = PhaseRuns::new(one, index).in_time() {
            let length = phase.to_s - phase.from_s;
            (served, seconds) = (served + rate.median * length, seconds + length);
        }
    }
    served / seconds
}

/// Returns a mean with its confidence interval, as in `12.3 ± 0.4`. One figure has no interval.
fn interval(figures: &[f64], unit: &str, signed: bool) -> String {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let show = |figure: f64| if signed { format!("{figure:+.1}") } else { format!("{figure:.1}") };
    match figures {
        [] => String::new(),
        [one] => format!("{}{unit}", show(*one)),
        _ => {
            let variance = figures.iter().map(|figure| (figure - mean).powi(2)).sum::<f64>() / (count - 1.0);
            let student = STUDENT.get(figures.len() - 2).copied().unwrap_or(1.96);
            format!("{} ± {:.1}{unit}", show(mean), student * (variance / count).sqrt())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_mean() {
        assert_eq!(interval(&[], "", false), "");
        assert_eq!(interval(&[4.0], " %", true), "+4.0 %");
        // Their standard deviation is 1, and Student's quantile for two degrees of freedom is 4.303.
        assert_eq!(interval(&[1.0, 2.0, 3.0], "", false), "2.0 ± 2.5");
        assert_eq!(interval(&[-1.0, -1.0], " %", true), "-1.0 ± 0.0 %");
    }
}
