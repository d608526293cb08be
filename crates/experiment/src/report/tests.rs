//! Reports of hand-made runs.

use std::time::Duration;

use weirgate_config::{Fault, FaultKind, Published};

use super::*;
use crate::judge::tests::{experiment, of_ten, requests, run, served};
use crate::judge::{judge, judge_against_oracle};
use crate::run::{Run, Sample, Violation};

/// A is served in full, B is short of its rate; the second seed is better.
fn runs() -> [Run; 2] {
    let one = |share| run(vec![requests(0, 90, 0..60, served(30)), requests(1, 250, 0..60, of_ten(share))]);
    let (first, mut second) = (one(7), one(8));
    second.seed = 2;
    [first, second]
}

fn played(runs: &[Run]) -> Played {
    let experiment = experiment();
    let verdicts = runs.iter().map(|run| judge(&experiment, run)).collect();
    let series = runs.first().map(|run| Series::new(&experiment, run));
    let group = Group { discipline: "quorum".into(), verdicts, series };
    Played { experiment, groups: vec![group] }
}

#[test]
fn a_table_of_one_run() {
    let text = text::text(&played(&runs()[..1]));
    let has = |what: &str| assert!(text.contains(what), "{what} is not in {text}");
    has("surge  20–40 s\n  quorum: utilisation 0.00, served/oracle ");
    has("  A           90.0      90.0    90.0  ✔  p95               30.0    400  ✔     0      0");
    has("quorum, seed 1: BROKEN: 3 of 9 guarantees missed\n  before B: served 175.0/s of 20");
    has("(seed 1)");
    assert!(!text.contains(" C "), "C has no traffic: {text}");
}

#[test]
fn several_seeds_are_condensed() {
    let text = text::text(&played(&runs()));
    let has = |what: &str| assert!(text.contains(what), "{what} is not in {text}");
    has("187.5 (175.0–200.0)");
    has("✘ 1/2");
    has("quorum, seeds 1–2: BROKEN: 3 of 18 guarantees missed");
}

#[test]
fn published_figures_and_the_oracle_stand_beside_ours() {
    let mut played = played(&runs()[..1]);
    let figure = |discipline: &str| Published {
        discipline: discipline.into(),
        phase: 1,
        class: 0,
        served_per_s: Some(100.0),
        response_time_ms: Some(25.0),
        shed: None,
    };
    played.experiment.published = vec![figure("quorum"), figure("seda")];
    let verdict = judge_against_oracle(&played.experiment, &runs()[0]);
    played.groups[0].verdicts = vec![verdict];
    let (text, html) = (text::text(&played), html::page(std::slice::from_ref(&played), "weirgate sim 'a<b'"));
    assert!(text.contains("quorum (paper)") && !text.contains("seda") && text.contains("oracle/s"), "{text}");
    assert!(html.contains("<td>100<td>90.0<td>-10 %<td>25<td>30.0<td>+20 %"), "{html}");
    assert!(html.contains("<th>oracle/s") && html.contains("weirgate sim &#39;a&lt;b&#39;"));
}

#[test]
fn violations_are_told_and_nothing_judged_is_no_success() {
    let mut run = run(vec![requests(2, 100, 0..60, of_ten(0))]);
    let text = text::text(&played(std::slice::from_ref(&run)));
    assert!(text.contains("nothing was judged"), "{text}");
    run.violations.push(Violation { at: 1_500_000_000, invariant: "window", what: "12 inside of 10".into() });
    let played = played(&[run]);
    assert!(!played.sound());
    let text = text::text(&played);
    assert!(text.contains(", 1 VIOLATION\n  VIOLATION of window with seed 1, 1.500 s: 12 inside of 10"), "{text}");
    assert!(html::page(&[played], "").contains("1 violation of an invariant"));
}

/// Names that want out of their place, every kind of fault, no samples, no replies: the figure stays a figure.
#[test]
fn a_figure_stands_anything() {
    let mut experiment = experiment();
    experiment.name = "</svg><script>".into();
    experiment.phases[1].name = "a very long name for so short a phase & more, which cannot be shown as a whole".into();
    experiment.phases[1].until = Duration::from_secs(21);
    experiment.machines[0].name = "<m>".into();
    let kinds = [
        FaultKind::Removed,
        FaultKind::Crash,
        FaultKind::Stall,
        FaultKind::Slow(0.2),
        FaultKind::FailFast(0.3),
        FaultKind::LostReports,
        FaultKind::Reload,
    ];
    let fault = |(at, kind): (u64, FaultKind)| Fault {
        at: Duration::from_secs(50 + at),
        until: None,
        kind,
        machines: vec![0, 1],
    };
    experiment.faults = (0..).zip(kinds).map(fault).collect();
    let shed = run(vec![requests(0, 1, 0..60, of_ten(0)), requests(2, 1, 0..60, of_ten(0))]);
    let figure = svg::figure(&experiment, &Series::new(&experiment, &shed));
    let mut sampled = runs()[0].clone();
    let sample = |at: u64| Sample {
        at: at * 500_000_000,
        window: Some(7),
        outstanding: 3,
        waiting: vec![1, 2, 0],
        busy: vec![0.0; 2],
    };
    sampled.samples = (0..=120).map(sample).collect();
    let full = svg::figure(&experiment, &Series::new(&experiment, &sampled));
    let empty = svg::figure(&experiment, &Series::new(&experiment, &run(Vec::new())));
    for figure in [&figure, &full, &empty] {
        assert!(figure.starts_with("<svg") && figure.ends_with("</svg>\n") && figure.matches("</svg>").count() == 1);
        assert!(
            !figure.contains("NaN")
                && !figure.contains("inf\"")
                && !figure.contains("<m>")
                && !figure.contains("<script")
        );
        let opened = figure.matches('<').count();
        assert_eq!(opened, figure.matches("</").count() * 2 + figure.matches("/>").count(), "every tag is closed");
        for told in [
            "out",
            "crashed",
            "stalled",
            "at 20 % of speed",
            "30 % fail at once",
            "health reports lost",
            "policy reloaded",
        ] {
            assert!(figure.contains(told), "{told}");
        }
    }
    assert!(full.contains("\nwindow 7\ninside 3</title>"));
}

#[test]
fn long_runs_get_longer_points() {
    let mut experiment = experiment();
    experiment.phases[2].until = Duration::from_secs(6 * 3600);
    let series = Series::new(&experiment, &runs()[0]);
    assert_eq!((series.step, series.classes[0].offered.len()), (36.0, 600));
    let short = Series::new(&super::tests::experiment(), &runs()[0]);
    assert_eq!((short.step, short.classes.len()), (2.0, 2));
    assert_eq!((short.classes[0].offered[3], short.classes[0].response_ms[3]), (90.0, Some(30.0)));
    assert_eq!((short.classes[1].guaranteed.as_ref().map(|g| g[3]), short.classes[1].limit_ms), (Some(200.0), None));
}
