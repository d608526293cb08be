//! The demo without a terminal: a line per second.

use std::time::Duration;

use weirgate_lab::trial::{Outcome, Trial};

use super::progress::{Doing, Progress, millis, statistic};
use super::put;
use super::signals::Stop;

/// Time between two lines.
const LINE: Duration = Duration::from_secs(1);

/// Plays the trial and prints its progress.
pub(crate) fn follow(trial: &Trial<'_>, progress: &mut Progress, stop: &Stop) -> Result<Outcome, String> {
    let mut next = Duration::ZERO;
    super::play(trial, progress, stop, |progress| {
        if progress.points.is_empty() {
            put(&format!("{}\n\n{}", progress.addresses, header(progress)));
            next = LINE;
        } else if progress.at() >= next {
            put(&line(progress));
            while next <= progress.at() {
                next += LINE;
            }
        }
    })
}

/// Returns the names of the columns of [`line()`].
fn header(progress: &Progress) -> String {
    let mut text = format!("{:>9} {:<10}", "time", "phase");
    for row in 0..progress.rows() {
        let statistic = statistic(&progress.guarantee(row));
        text += &format!(" | {:<6} {:>5} {:>5} {:>8} {:<6}", progress.name(row), "sent", "shed", statistic, "");
    }
    text += " | window waiting\n";
    text
}

/// Returns the last look as one line.
fn line(progress: &Progress) -> String {
    let phase = &progress.experiment.phases[progress.phase()].name;
    let (at, all) = (progress.at().as_secs_f64(), progress.experiment.duration().as_secs_f64());
    let mut text = format!("{at:>4.0}/{all:.0} s {phase:<10}");
    for row in 0..progress.rows() {
        let doing = progress.doing(row);
        let response = doing.response.map_or("-".to_owned(), millis);
        text += &format!(
            " | {:>4.0}/s {:>5.0} {:>5.0} {:>8} {:<6}",
            doing.served,
            doing.sent,
            doing.shed + doing.failed,
            response,
            mark(&doing)
        );
    }
    let window = progress.state.window.map_or("-".to_owned(), |window| window.to_string());
    text += &format!(" | {window:>6} {:>7}\n", progress.state.waiting.iter().sum::<u32>());
    text
}

/// Returns `ok` or `MISSED`, or nothing for a class without a guarantee.
fn mark(doing: &Doing) -> &'static str {
    match (doing.floor_held, doing.ceiling_held) {
        (Some(false), _) | (_, Some(false)) => "MISSED",
        (None, None) => "",
        _ => "ok",
    }
}
