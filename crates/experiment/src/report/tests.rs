//! Reports of hand-made runs.

use std::time::Duration;

use weirgate_config::{Fault, FaultKind, Published, Source};

use super::*;
use crate::judge::tests::{experiment, of_ten, requests, run, served};
use crate::judge::{judge, judge_against_oracle};
use crate::run::{Page, Record, Run, Sample, Violation};

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

/// Nine of ten pages of A complete, the tenth rejected: as long as a page takes, and said in every form.
#[test]
fn pages_have_a_table_of_their_own() {
    let mut experiment = experiment();
    let objects = Source::Objects { page: 0, count: weirgate_config::Counts::Fixed(1), connections: 2 };
    let embedded = weirgate_config::Traffic { source: objects, ..experiment.traffic[0].clone() };
    experiment.traffic.push(embedded);
    let mut of_pages = requests(0, 10, 0..60, served(30));
    let mut embedded = requests(3, 10, 0..60, of_ten(9));
    for (number, (own, object)) in (0..).zip(of_pages.iter_mut().zip(&mut embedded)) {
        (own.page, object.page) = (Some(number), Some(number));
        object.arrived = own.ended;
        object.ended += own.ended - own.arrived;
    }
    let page = |(own, object): (&Record, &Record)| Page {
        traffic: 0,
        fate: object.fate,
        arrived: own.arrived,
        ended: object.ended,
        objects: 1,
    };
    let pages = of_pages.iter().zip(&embedded).map(page).collect();
    let run = Run { pages, ..run(vec![of_pages, embedded]) };
    let verdict = judge(&experiment, &run);
    let part = &verdict.phases[1].classes[0].part;
    // Requests are counted as ever: two for each page.
    assert_eq!((part.offered_per_s, part.served_per_s, part.shed.count), (20.0, 19.0, 15));
    let told = part.pages.expect("pages");
    assert_eq!((told.offered_per_s, told.complete_per_s, told.rejected, told.rejected_share), (10.0, 9.0, 15, 0.1));
    let ceiling = part.ceiling.as_ref().and_then(|ceiling| ceiling.value_ms);
    assert_eq!((ceiling, part.response_ms.map(|times| times.mean)), (Some(50.0), Some(50.0)));
    let series = Series::new(&experiment, &run);
    assert_eq!(series.classes[0].response_ms[5], Some(50.0));
    let played = Played {
        experiment,
        groups: vec![Group { discipline: "quorum".into(), verdicts: vec![verdict.clone()], series: Some(series) }],
    };
    let (text, html) = (text::text(&played), html::page(std::slice::from_ref(&played), ""));
    for has in ["p95 page", "  pages of  pages/s  complete/s  rejected  rejected, %  failed  left\n"] {
        assert!(text.contains(has), "{has} is not in {text}");
    }
    assert!(text.contains("  A            10.0         9.0        15         10.0       0     0\n"), "{text}");
    assert!(html.contains("<h2>Pages</h2>") && html.contains("<td>10.0<td>9.0<td>15<td>10.0<td>0<td>0</tr>"), "{html}");
    let json = json::text(&[&verdict]);
    assert!(json.contains("\"rejected_share\": 0.1") && json.matches("\"pages\"").count() == 6, "{json}");
    assert!(!text::text(&super::tests::played(&runs())).contains("pages of"));
}
