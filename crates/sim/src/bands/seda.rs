//! SEDA's differentiated queues (Le Baron and Elkan): its two sets of experiments, Fig. 1 (a) and (b).
//!
//! The paper's figure is a picture. The values here are those that its text names. Every figure has one
//! seed, because these experiments draw almost nothing.

use super::play::{Play, Played};
use super::read::{extreme, mean, refused_after, shed};
use super::{Figure, Reading};

pub(super) fn figures() -> Vec<Figure> {
    let set1 = [Play::of("seda-set1", "seda")];
    let set2 = [Play::of("seda-set2", "seda")];
    let one = |what: &str, reading: Reading| Figure::new(("SEDA", "Fig. 1 (a), set 1"), what, &set1, reading);
    let two = |what: &str, reading: Reading| Figure::new(("SEDA", "Fig. 1 (b), set 2"), what, &set2, reading);
    let answers = |largest: bool| move |runs: &[&Played]| answers(runs, largest);
    vec![
        one("answers, min from 50 clients on, 1/s", Box::new(answers(false)))
            .printed(50.0)
            .within(49.0..=51.0, "a bottleneck of 20 ms does 50/s. One answer per second for the network and the \
                                  border of a phase"),
        one("answers, max from 50 clients on, 1/s", Box::new(answers(true)))
            .printed(50.0)
            .within(49.0..=51.0, "a bottleneck of 20 ms does 50/s and no more"),
        one("basic refused, max up to 50 clients, %", Box::new(extreme("basic", [0.0, 50.0], shed, true)))
            .printed(0.0)
            .within(0.0..=0.0, "50 clients cannot fill a queue of 50"),
        one("basic refused, min at 200 to 400 clients, %", Box::new(extreme("basic", [200.0, 400.0], shed, false)))
            .said("more than 90")
            .within(90.0..=100.0, "as the paper says. Our refusals take no time, so refused clients return sooner"),
        one("premium refused, max at 200 to 300 clients, %", Box::new(extreme("premium", [200.0, 300.0], shed, true)))
            .printed(0.0)
            .within(0.0..=0.5, "none, or one by chance"),
        one("basic refused, min from 450 clients on, %", Box::new(extreme("basic", [450.0, 800.0], shed, false)))
            .printed(100.0)
            .within(99.5..=100.0, "one request in a phase may meet a short queue"),
        one("premium refused at 800 clients, %", Box::new(extreme("premium", [800.0, 800.0], shed, true)))
            .said("some from 400 clients on")
            .within(50.0..=100.0, "departs: ours begin at 500, when premium clients alone fill the queue, and a refused client is back after 20 ms"),
        one("premium's mean time, max from 450 clients on, ms", Box::new(extreme("premium", [450.0, 800.0], mean, true)))
            .printed(2000.0)
            .within(1900.0..=2100.0, "at most 100 requests of 20 ms wait. 5 % for the one in flight and the border of \
                                      a phase"),
        one("basic's mean time over premium's, at 75 to 150 clients", Box::new(ratio))
            .said("about 2")
            .within(1.7..=3.1, "a basic request goes round the queue once. The length of the queue then depends on \
                                both classes"),
        one("refused after, 95th percentile, max, ms", Box::new(extreme("basic", [50.0, 800.0], refused_after, true)))
            .said("at once")
            .within(0.0..=5.0, "milliseconds: refusals do not wait in the queue"),
        two("premium refused, max, %", Box::new(extreme("premium", [0.0, 400.0], shed, true)))
            .printed(0.0)
            .within(0.0..=0.0, "25 clients cannot fill a queue of 100"),
        two("premium's mean time, max over min from 75 to 400 clients", Box::new(flat))
            .said("hardly changes")
            .within(1.0..=1.15, "15 %: basic requests take their part of the queue but do not change its length"),
        two("basic refused, min above 100 clients, %", Box::new(extreme("basic", [110.0, 400.0], shed, false)))
            .said("90 and more")
            .within(90.0..=100.0, "the share that the paper names, and more"),
    ]
}

/// Returns the smallest or largest number of answers per second of both classes, from 50 clients on.
fn answers(runs: &[&Played], largest: bool) -> Option<f64> {
    let run = runs.first()?;
    let points = run.experiment.phases.iter().zip(&run.verdict.phases).filter(|(p, _)| p.x.is_some_and(|x| x >= 50.0));
    let all = points.map(|(_, phase)| phase.classes.iter().map(|class| class.part.served_per_s).sum::<f64>());
    if largest { all.reduce(f64::max) } else { all.reduce(f64::min) }
}

/// Returns the mean time of basic requests over that of premium ones, for client counts at which both are
/// served.
fn ratio(runs: &[&Played]) -> Option<f64> {
    let run = runs.first()?;
    let (basic, _) = run.over("basic", [75.0, 150.0], mean)?;
    let (premium, _) = run.over("premium", [75.0, 150.0], mean)?;
    Some(basic / premium)
}

fn flat(runs: &[&Played]) -> Option<f64> {
    let (min, max) = runs.first()?.over("premium", [75.0, 400.0], mean)?;
    Some(max / min)
}
