//! Reports of hand-made runs.

use std::time::Duration;

use weirgate_experiment::{Fault, FaultKind, Page, Published, Record, Run, Sample, Source, Violation};

use super::*;
use crate::judge::tests::{experiment, of_ten, requests, run, served};
use crate::judge::{judge, judge_against_oracle};

/// A is served in full, and B is below its rate. The second seed is better.
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
    run.violations.push(Violation { at: 1_500_000_000, invariant: "window", what: "12 in flight of 10".into() });
    let played = played(&[run]);
    assert!(!played.sound());
    let text = text::text(&played);
    assert!(text.contains(", 1 VIOLATION\n  VIOLATION of window with seed 1, 1.500 s: 12 in flight of 10"), "{text}");
    assert!(html::page(&[played], "").contains("1 violation of an invariant"));
}

/// Checks that `figure` is one SVG with all tags closed and without values that are not numbers.
pub(super) fn sound(figure: &str) {
    assert!(figure.starts_with("<svg") && figure.ends_with("</svg>\n") && figure.matches("</svg>").count() == 1);
    let strange = ["NaN", "inf", "<m>", "<script"];
    assert!(strange.iter().all(|strange| !figure.contains(strange)), "{figure}");
    let opened = figure.matches('<').count();
    assert_eq!(opened, figure.matches("</").count() * 2 + figure.matches("/>").count(), "every tag is closed");
}

/// Names that try to break out of their place, every kind of fault, no samples, no replies: the figure must
/// stay well-formed.
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
        FaultKind::Restart { follows: true },
    ];
    let fault = |(at, kind): (u64, FaultKind)| Fault::plain(kind, Duration::from_secs(50 + at), None, &[0, 1]);
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
        disk: vec![0.0; 2],
        link: vec![0.0; 2],
        ..Sample::default()
    };
    sampled.samples = (0..=120).map(sample).collect();
    let full = svg::figure(&experiment, &Series::new(&experiment, &sampled));
    let empty = svg::figure(&experiment, &Series::new(&experiment, &run(Vec::new())));
    for figure in [&figure, &full, &empty] {
        sound(figure);
        for told in [
            "out", "crashed", "stalled", "at 20 % of speed", "30 % fail at once", "health reports lost",
            "policy reloaded",
        ] {
            assert!(figure.contains(told), "{told}");
        }
    }
    assert!(full.contains("\nwindow 7\nin flight 3</title>"));
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

#[test]
fn another_policy_draws_other_promises() {
    let mut experiment = experiment();
    let at = experiment.phases[0].until;
    let mut policy = experiment.site.policy.clone();
    let guarantee = &mut policy.classes[0].guarantee;
    let limit = guarantee.response_time.as_mut().expect("a limit");
    (guarantee.throughput, limit.limit) = (Some(40.0), Duration::from_millis(250));
    experiment.reloads =
        vec![weirgate_experiment::Reload { at, policy, position: weirgate_config::Position::new(1, 1) }];
    let run = &runs()[0];
    let series = Series::new(&experiment, run);
    let class = &series.classes[0];
    let guaranteed = class.guaranteed.as_ref().expect("a rate");
    let from = (at.as_secs_f64() / series.step) as usize;
    let first = experiment.site.policy.classes[0].guarantee.throughput.expect("a rate");
    assert!(guaranteed[..from].iter().all(|rate| (rate - first).abs() < 1e-9), "{guaranteed:?}");
    assert!(guaranteed[from..].iter().all(|rate| (rate - 40.0).abs() < 1e-9), "{guaranteed:?}");
    assert_eq!(
        (class.limit_ms, class.later_limits_ms.as_slice()),
        (Some(400.0), &[(at.as_secs_f64(), Some(250.0))][..])
    );
    let figure = svg::figure(&experiment, &series);
    sound(&figure);
    assert!(figure.contains("A p95 ≤ 400 ms") && figure.contains("A p95 ≤ 250 ms"), "{figure}");
}

/// The phases are points in another order than that of their positions. One of them is not a point.
fn curve() -> Played {
    let of = |seed: u64, slow: u64| {
        let mut run = run(vec![
            requests(0, 90, 0..20, served(30)),
            requests(0, 90, 20..40, served(slow)),
            requests(1, 250, 0..40, of_ten(7 + seed)),
        ]);
        run.seed = seed;
        run
    };
    let mut experiment = experiment();
    experiment.axis = Some("<m> clients".into());
    experiment.phases[0].x = Some(800.0);
    experiment.phases[1].x = Some(2.5);
    experiment.phases[2].judged = false;
    experiment.phases[2].x = Some(900.0);
    let at = |phase, response_time_ms, shed| Published {
        discipline: "quorum".into(),
        phase,
        class: 0,
        served_per_s: None,
        response_time_ms,
        shed,
    };
    experiment.published = vec![at(0, Some(45.0), Some(0.25)), at(1, None, Some(0.0))];
    let runs = [of(1, 6000), of(2, 5000)];
    let verdicts = runs.iter().map(|run| judge(&experiment, run)).collect();
    let series = Some(Series::new(&experiment, &runs[0]));
    Played { experiment, groups: vec![Group { discipline: "quorum".into(), verdicts, series }] }
}

#[test]
fn a_curve_is_a_table_over_its_axis() {
    let text = text::text(&curve());
    let table = "
quorum over <m> clients, medians
  <m> clients   A/s         p95, ms         shed, %    B/s     avg, ms  shed, %
          2.5  87.0  ✘ 1/2   5500.0  ✘ 2/2      0.0  212.5  ✔     20.0     15.0
        paper                                   0.0
          800  90.0  ✔         30.0  ✔          0.0  212.5  ✔     20.0     15.0
        paper                  45.0            25.0

after  40–60 s, not judged
";
    assert!(text.contains(table), "{text}");
    assert!(!text.contains("before  0–20 s") && text.contains("  surge A: p95 6000.00 of 400 ms (2 seeds, worst 1)"));
}

#[test]
fn a_curve_is_drawn_with_its_band_and_the_published_points() {
    let mut played = curve();
    let figure = svg::played(&played).expect("a figure");
    sound(&figure);
    let has = |what: &str| assert!(figure.contains(what), "{what} is not in {figure}");
    has("quorum, seeds 1–2: requests served per second, response time and percentage shed at 2 points from 2.5 to 800");
    has("Response time (avg, p95), ms, log");
    has(
        "\nA: 87.0 (84.0–90.0)/s served of 90.0/s owed, p95 5500.0 (5000.0–6000.0) ms, 0.0 % shed\n  published: 0 % shed",
    );
    has("published: 45 ms, 25 % shed");
    has("A p95 ≤ 400 ms");
    // The legend's mark, then two and one of A's points.
    assert_eq!((figure.matches("plain paper").count(), figure.matches("paper c0").count()), (1, 3));
    assert_eq!(figure.matches("class=\"band c").count(), 6, "two classes in three panels");
    let page = html::page(std::slice::from_ref(&played), "");
    let heads = ["<h2>Over &lt;m&gt; clients", "<b>2.5</b>", "<h2>Over time", "<h2>Verdicts", "<th>shed, %, paper"];
    let places = heads.map(|head| page.find(head).unwrap_or_else(|| panic!("{head} is not in {page}")));
    assert!(places.is_sorted(), "{places:?}");
    assert!(page.contains("<td>25<td>0.0<td>-25.0 points") && page.contains("<td>0<td>0.0<td>+0.0 points"), "{page}");

    // With another group the panels are stacked, on the same axes.
    let mut other = played.groups[0].clone();
    other.discipline = "none".into();
    other.verdicts.truncate(1);
    other.verdicts[0].phases[0].classes[0].part.served_per_s = 700.0;
    played.groups.push(other);
    let page = html::page(&[played], "");
    let figures = page.split("<svg").skip(1).take(2).filter_map(|rest| rest.split("</svg>").next());
    let figures: Vec<&str> = figures.collect();
    assert!(figures.iter().all(|figure| figure.contains("viewBox=\"0 0 500") && figure.contains(">800</text>")));
    assert!(!figures[1].contains("class=\"band") && !figures[1].contains("paper c"), "{}", figures[1]);
}

/// Nothing served, one point alone, no axis, nothing judged on it.
#[test]
fn a_curve_may_have_gaps_and_be_none() {
    let mut played = curve();
    for verdict in &mut played.groups[0].verdicts {
        verdict.phases[1].classes[0].part.response_ms = None;
        verdict.phases[1].classes[0].part.ceiling.as_mut().expect("it has one").value_ms = None;
    }
    let figure = svg::played(&played).expect("a figure");
    sound(&figure);
    assert!(figure.contains("A: 87.0 (84.0–90.0)/s served of 90.0/s owed, 0.0 % shed"), "{figure}");
    played.experiment.phases[0].x = None;
    sound(&svg::played(&played).expect("one point"));
    let over_time = |played: &Played| svg::played(played).is_some_and(|figure| figure.contains("over time"));
    for verdict in &mut played.groups[0].verdicts {
        verdict.phases[1].judged = false;
    }
    assert!(over_time(&played) && !text::text(&played).contains("quorum over"));
    let mut none = curve();
    none.experiment.axis = None;
    assert!(over_time(&none) && text::text(&none).contains("before  0–20 s"));
}

/// Nine of ten pages of A are complete and the tenth is rejected. The response time is that of a page, in
/// every report format.
#[test]
fn pages_have_a_table_of_their_own() {
    let mut experiment = experiment();
    let objects = Source::Objects { page: 0, count: weirgate_experiment::Counts::Fixed(1), connections: 2 };
    let embedded = weirgate_experiment::Traffic { source: objects, ..experiment.traffic[0].clone() };
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
    // Requests are counted as before: two for each page.
    assert_eq!((part.offered_per_s, part.served_per_s, part.shed.count), (20.0, 19.0, 15));
    let told = part.pages.expect("pages");
    assert_eq!((told.offered_per_s, told.complete_per_s, told.rejected, told.rejected_share), (10.0, 9.0, 15, 0.1));
    let ceiling = part.ceiling.as_ref().and_then(|ceiling| ceiling.value_ms);
    assert_eq!((ceiling, part.response_ms.map(|times| times.mean)), (Some(50.0), Some(50.0)));
    let series = Series::new(&experiment, &run);
    assert_eq!(series.classes[0].response_ms[5], Some(50.0));
    let mut played = Played {
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
    // The points of a curve have a table of pages too.
    played.experiment.axis = Some("clients".into());
    (0..).zip(&mut played.experiment.phases).for_each(|(at, phase)| phase.x = Some(f64::from(at)));
    let text = text::text(&played);
    assert!(text.contains("\nsurge\n  pages of  pages/s"), "{text}");
    assert!(!text::text(&super::tests::played(&runs())).contains("pages of"));
}
