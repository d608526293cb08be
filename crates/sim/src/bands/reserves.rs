//! Cluster Reserves (Aron, Druschel and Zwaenepoel, SIGMETRICS 2000): Table 3 and Figs. 4 to 15.
//!
//! Every figure has one seed, because shares are counted and not drawn. For Table 3, two facts are unknown:
//! the number of requests of each log, and how close together requests for one file come. The bands are
//! wide there, but the order of the disciplines is certain.

use super::Figure;
use super::play::{Data, Play, Played};

const PAPER: &str = "Cluster Reserves";

/// Gives each class of Table 3 a node of its own.
const ALONE: &[&str] = &[
    "policy.classes.log1.upstream=one",
    "policy.classes.log2.upstream=two",
    "policy.classes.log3.upstream=three",
    "policy.classes.log4.upstream=four",
];

const WRR: &[&str] = &["policy.upstreams.web.dispatch=least_loaded"];

pub(super) fn figures() -> Vec<Figure> {
    let mut figures = table3();
    figures.extend(shares());
    figures.extend(lard());
    figures
}

/// Plays an experiment with the discipline of its file.
fn play(experiment: &'static str) -> Play {
    Play::of(experiment, "")
}

fn figure(
    name: &'static str,
    what: impl Into<String>,
    discipline: &'static str,
    plays: &[Play],
    reading: impl Fn(&[&Played]) -> Option<f64> + Send + Sync + 'static,
) -> Figure {
    Figure { discipline, ..Figure::new((PAPER, name), what, plays, reading) }
}

fn table3() -> Vec<Figure> {
    let (disjoint, wrr, lard) =
        (play("reserves-table3").with(ALONE), play("reserves-table3").with(WRR), play("reserves-table3"));
    let rate = |runs: &[&Played]| runs.first()?.served_last();
    let cpu = |runs: &[&Played]| Some(runs.first()?.verdict.phases.last()?.utilisation * 100.0);
    let over = |runs: &[&Played]| match runs {
        [more, less] => Some(more.served_last()? / less.served_last()?),
        _ => None,
    };
    let one = std::slice::from_ref;
    let real = [&lard, &wrr, &disjoint].map(|play| play.clone().from(Data::NasaLog));
    vec![
        figure("Table 3", "connections/s", "disjoint nodes", one(&disjoint), rate)
            .printed(252.0)
            .within(202.0..=302.0, "synthetic logs, shares of the requests unknown: 20 %"),
        figure("Table 3", "CPU, %", "disjoint nodes", one(&disjoint), cpu)
            .printed(15.0)
            .within(10.0..=20.0, "5 points, as for the rate"),
        figure("Table 3", "connections/s", "WRR", one(&wrr), rate).printed(517.0).within(
            330.0..=620.0,
            "the value of four equal caches depends on how close together the requests for one file come",
        ),
        figure("Table 3", "connections/s", "LARD", one(&lard), rate)
            .printed(1214.0)
            .within(1032.0..=1396.0, "synthetic logs, with the printed shape: 15 %"),
        figure("Table 3", "CPU, %", "LARD", one(&lard), cpu)
            .printed(60.0)
            .within(50.0..=70.0, "10 points, as for the rate"),
        figure("Table 3", "WRR over disjoint nodes", "WRR", &[wrr.clone(), disjoint.clone()], over)
            .printed(517.0 / 252.0)
            .within(1.3..=4.0, "only the order is certain. Noise stays below 1.3"),
        figure("Table 3", "LARD over WRR", "LARD", &[lard.clone(), wrr.clone()], over)
            .printed(1214.0 / 517.0)
            .within(1.3..=4.0, "only the order is certain. Noise stays below 1.3"),
        figure("Table 3", "LARD over disjoint nodes", "LARD", &[lard.clone(), disjoint.clone()], over)
            .printed(1214.0 / 252.0)
            .within(4.0..=7.0, "the paper's 4.8, with the bands of both rates"),
        figure("Table 3", "files of a real log: LARD over WRR", "LARD", &real[..2], over)
            .within(1.0..=10.0, "the order alone, because another share of another log fits into memory"),
        figure("Table 3", "files of a real log: WRR over disjoint nodes", "WRR", &real[1..], over)
            .within(1.0..=10.0, "the order alone, because another share of another log fits into memory"),
    ]
}

/// Reads the smallest (`false`) or largest (`true`) share of the classes `from..to` in the phase with this
/// index.
fn share(phase: usize, from: usize, to: usize, largest: bool) -> impl Fn(&[&Played]) -> Option<f64> + Send + Sync {
    move |runs| {
        let shares = runs.first()?.shares(phase);
        let of = shares.get(from..to)?.iter().copied();
        if largest { of.reduce(f64::max) } else { of.reduce(f64::min) }
    }
}

fn shares() -> Vec<Figure> {
    let balanced = [play("reserves-balanced")];
    let geographic = [play("reserves-geographic")];
    let sparse = [play("reserves-sparse")];
    let still = [play("reserves-sparse").with(&["reserves.on_demand=false"])];
    let mut figures = Vec::new();
    let mut both = |name,
                    what: &str,
                    who,
                    plays: &[Play],
                    (phase, from, to): (usize, usize, usize),
                    printed,
                    band: std::ops::RangeInclusive<f64>,
                    why| {
        for (which, largest) in [("min", false), ("max", true)] {
            // One class has one share.
            if to - from == 1 && largest {
                continue;
            }
            let what = if to - from == 1 { what.to_owned() } else { format!("{what}, {which}") };
            let figure = figure(name, what, who, plays, share(phase, from, to, largest));
            figures.push(figure.printed(printed).within(band.clone(), why));
        }
    };
    let half = "half a point: the 250 ms windows of the trackers";
    both(
        "Figs. 4, 5",
        "share of a class, all busy everywhere, %",
        "coordinator",
        &balanced,
        (0, 0, 5),
        20.0,
        19.5..=20.5,
        half,
    );
    both(
        "Figs. 6, 7",
        "share of class 1 on two of four nodes, %",
        "shares of nodes",
        &geographic,
        (0, 0, 1),
        10.0,
        9.5..=10.5,
        half,
    );
    both(
        "Figs. 6, 7",
        "share of the other classes, %",
        "shares of nodes",
        &geographic,
        (0, 1, 5),
        22.5,
        22.0..=23.0,
        half,
    );
    both(
        "Figs. 8, 9",
        "share of class 1 on two of four nodes, %",
        "coordinator",
        &geographic,
        (1, 0, 1),
        20.0,
        18.5..=20.5,
        "it keeps 1 % of the nodes without requests of it, and a move takes some windows",
    );
    both("Figs. 8, 9", "share of the other classes, %", "coordinator", &geographic, (1, 1, 5), 20.0, 19.5..=20.5, half);
    both(
        "Figs. 10, 11",
        "share of class 1, one request at a time, %",
        "shares of nodes",
        &still,
        (0, 0, 1),
        5.0,
        4.7..=5.3,
        "a quarter of one node, for 20 requests of ten seconds each",
    );
    both(
        "Figs. 12, 13",
        "share of class 1, one request at a time, %",
        "coordinator on demand",
        &sparse,
        (0, 0, 1),
        20.0,
        17.5..=20.5,
        "its maximum is 77 % of one node while it keeps 1 % of the others (19.25 %). A move every ten seconds costs \
         the rest",
    );
    both(
        "Figs. 12, 13",
        "share of the other classes, %",
        "coordinator on demand",
        &sparse,
        (0, 1, 5),
        20.0,
        19.5..=21.0,
        half,
    );
    figures.push(
        figure("Figs. 12, 13", "requests of ten seconds served in 200 s", "coordinator on demand", &sparse, |runs| {
            runs.first()?.served.first().map(|served| *served as f64)
        })
        .within(12.0..=20.0, "at most 20, at full speed. 12 show that the share moves with each request"),
    );
    figures
}

fn lard() -> Vec<Figure> {
    let without = [play("reserves-lard3").with(&["reserves=null"])];
    let with = [play("reserves-lard3")];
    // 2 ms each on four CPUs, in percent.
    let used = |class: usize| {
        move |runs: &[&Played]| {
            let classes = &runs.first()?.verdict.phases.get(1)?.classes;
            Some(classes.get(class)?.part.served_per_s * 0.002 / 4.0 * 100.0)
        }
    };
    let logs = "the requests of the paper's three logs are unknown. Its text says only: more or less than a third";
    vec![
        figure("Fig. 14", "use of class 1 without reserves, %", "LARD", &without, used(0))
            .said("more than 33")
            .within(34.0..=55.0, logs),
        figure("Fig. 14", "use of class 2 without reserves, %", "LARD", &without, used(1))
            .said("less than 33")
            .within(10.0..=32.0, logs),
        figure("Fig. 15", "share of a class with reserves, min, %", "LARD, coordinator", &with, share(1, 0, 3, false))
            .printed(33.3)
            .within(
                31.0..=36.0,
                "2.5 points: LARD moves files and their load, and the coordinator follows some windows later",
            ),
        figure("Fig. 15", "share of a class with reserves, max, %", "LARD, coordinator", &with, share(1, 0, 3, true))
            .printed(33.3)
            .within(
                31.0..=36.0,
                "2.5 points: LARD moves files and their load, and the coordinator follows some windows later",
            ),
    ]
}
