//! The demo without a terminal: a line per second.

use std::time::Duration;

use weirgate_emulator::clock;

use super::progress::{Doing, Progress, millis};
use super::put;
use super::scenario::Scenario;
use super::signals::Stop;
use super::stage::Stage;

/// New points are looked for so often.
const LOOK: Duration = Duration::from_millis(50);

/// Follows the run to its end.
pub(crate) fn follow(scenario: &Scenario, stage: &Stage, progress: &mut Progress, stop: &Stop) {
    put(&header(scenario));
    loop {
        let finished = stage.clients().is_finished();
        if stop.asked() {
            stage.clients().stop();
        }
        if progress.look(scenario, stage) {
            put(&line(scenario, progress));
        }
        if finished {
            return;
        }
        clock::pause(LOOK);
    }
}

/// Names over the columns of [`line()`].
fn header(scenario: &Scenario) -> String {
    let mut text = format!("{:>9} {:<10}", "time", "phase");
    for class in &scenario.plan.classes {
        let statistic = class.guarantee.response_time.map_or("p95".to_owned(), |(which, _)| which.to_string());
        text += &format!(" | {:<6} {:>5} {:>5} {:>8} {:<6}", class.name, "asked", "shed", statistic, "");
    }
    text += " | window waiting\n";
    text
}

/// The last point in one line.
fn line(scenario: &Scenario, progress: &Progress) -> String {
    let phase = &scenario.plan.phases[progress.phase()].name;
    let (at, all) = (progress.at().as_secs_f64(), scenario.plan.length().as_secs_f64());
    let mut text = format!("{at:>4.0}/{all:.0} s {phase:<10}");
    for class in 0..scenario.plan.classes.len() {
        let doing = progress.doing(scenario, class);
        let response = doing.response.map_or("-".to_owned(), millis);
        text += &format!(
            " | {:>4.0}/s {:>5.0} {:>5.0} {:>8} {:<6}",
            doing.served,
            doing.asked,
            doing.shed + doing.failed,
            response,
            mark(&doing)
        );
    }
    let window = progress.gateway.window.map_or("-".to_owned(), |w| w.to_string());
    text += &format!(" | {window:>6} {:>7}\n", progress.gateway.waiting);
    text
}

/// `ok`, `MISSED`, or nothing where nothing is promised.
fn mark(doing: &Doing) -> &'static str {
    match (doing.floor_held, doing.ceiling_held) {
        (Some(false), _) | (_, Some(false)) => "MISSED",
        (None, None) => "",
        _ => "ok",
    }
}
