//! Comparisons of two runs.

use tempfile::tempdir;
use weirgate_lab::report::{RESPONSE_BAND, SERVED_BAND, Side, compare, write};
use weirgate_verdict::Verdict;
use weirgate_verdict::report::json;

use crate::golden;
use crate::hand_made::{run, verdict};

fn side(name: &str, verdicts: Vec<Verdict>) -> Side {
    let verdicts = verdicts.into_iter().map(|verdict| (verdict.discipline.clone(), verdict)).collect();
    Side { name: name.into(), verdicts }
}

/// Returns which of four numbers are out of band in `calm`: served rate and response time of A, then those of B.
fn out(a: (f64, f64), b: f64) -> [bool; 4] {
    let one = side("one", vec![verdict("weirgate", 1, (100.0, 40.0), 100.0)]);
    let two = side("two", vec![verdict("weirgate", 1, a, b)]);
    let comparison = compare(&one, &two);
    let rows: Vec<_> = comparison.rows.iter().filter(|row| row.phase == "calm").collect();
    assert_eq!(rows.len(), 2);
    let response = |index: usize| rows[index].response.is_some_and(|gap| gap.out());
    [rows[0].served.out(), response(0), rows[1].served.out(), response(1)]
}

#[test]
fn exactly_what_is_out_of_band_is_marked() {
    assert_eq!((SERVED_BAND, RESPONSE_BAND), (3.0, 15.0));
    assert_eq!(out((100.0, 40.0), 100.0), [false; 4]);
    assert_eq!(out((103.0, 46.0), 97.0), [false; 4], "just at the bands");
    assert_eq!(out((103.1, 40.0), 100.0), [true, false, false, false]);
    assert_eq!(out((100.0, 46.1), 100.0), [false, true, false, false]);
    assert_eq!(out((100.0, 33.9), 96.9), [false, true, true, false]);
    assert_eq!(out((100.0, 40.0), 0.0), [false, false, true, false], "nothing is not close to anything");
}

#[test]
fn a_warm_up_is_shown_and_never_out_of_band() {
    let one = side("one", vec![verdict("weirgate", 1, (100.0, 40.0), 100.0)]);
    let two = side("two", vec![verdict("weirgate", 1, (200.0, 90.0), 200.0)]);
    let comparison = compare(&one, &two);
    let out: Vec<(&str, &str)> = comparison.out().map(|row| (row.phase.as_str(), row.class.as_str())).collect();
    assert_eq!(out, [("calm", "A"), ("calm", "B"), ("node-out", "A"), ("node-out", "B")]);
    assert_eq!(comparison.rows.len(), 6);
}

#[test]
fn what_one_side_lacks_is_named() {
    let (mut one, mut two) =
        (verdict("weirgate", 1, (100.0, 40.0), 100.0), verdict("weirgate", 1, (100.0, 40.0), 100.0));
    one.phases[0].name = "first".into();
    two.phases[1].classes[1].class = "C".into();
    one.phases[2].classes[1].part.ceiling = None;
    let comparison = compare(
        &side("one", vec![one, verdict("quorum", 1, (1.0, 1.0), 1.0)]),
        &side("two", vec![two, verdict("proxy", 1, (1.0, 1.0), 1.0)]),
    );
    let missing: Vec<(usize, &str)> = comparison.missing.iter().map(|m| (m.side, m.what.as_str())).collect();
    assert_eq!(
        missing,
        [
            (0, "hand-made: weirgate, phase first"),
            (0, "hand-made: weirgate, phase calm, class B"),
            (1, "hand-made: weirgate, phase calm, class C"),
            (1, "hand-made: weirgate, phase warm-up"),
            (0, "hand-made: quorum"),
            (1, "hand-made: proxy"),
        ]
    );
    assert_eq!(comparison.out().count(), 0);
    let text = comparison.text();
    assert!(text.contains("only in B: hand-made: proxy\n"), "{text}");
    let nothing = compare(&side("one", Vec::new()), &side("two", Vec::new())).text();
    assert!(nothing.ends_with("nothing to compare: no approach, phase and class is in both\n"), "{nothing}");
}

#[test]
fn a_statistic_of_another_kind_is_not_compared() {
    let (one, mut two) = (verdict("weirgate", 1, (100.0, 40.0), 100.0), verdict("weirgate", 1, (100.0, 40.0), 100.0));
    two.phases[1].classes[0].part.ceiling.as_mut().expect("it has one").statistic = "avg".into();
    let comparison = compare(&side("one", vec![one]), &side("two", vec![two]));
    let row = comparison.rows.iter().find(|row| row.phase == "calm" && row.class == "A").expect("the row");
    assert_eq!((row.statistic.as_str(), row.response), ("p95/avg", None));
}

/// A run directory compared with the output of `weirgate sim --format json`, which is one verdict or a list of them.
#[test]
fn a_run_of_the_lab_against_the_simulator() {
    let directory = tempdir().expect("a directory");
    write(directory.path(), &run()).expect("it can be written");
    let lab = Side { name: "lab".into(), ..Side::read(directory.path()).expect("it can be read") };
    let same = Side::read(&directory.path().join("run.json")).expect("its file too");
    assert_eq!(lab.verdicts, same.verdicts);
    let path = directory.path().join("sim.json");
    let read = |verdicts: &[&Verdict]| {
        std::fs::write(&path, json::text(verdicts)).expect("it can be written");
        Side { name: "simulator".into(), ..Side::read(&path).expect("it can be read") }
    };
    let (one, two) = (verdict("weirgate", 1, (119.0, 34.0), 110.0), verdict("quorum", 1, (124.0, 40.0), 110.0));
    let comparison = compare(&lab, &read(&[&one]));
    assert_eq!((comparison.rows.len(), comparison.missing.len()), (6, 2));
    golden("compare.txt", &compare(&lab, &read(&[&one, &two])).text());
}

#[test]
fn what_is_neither_is_refused_with_its_place() {
    let directory = tempdir().expect("a directory");
    let path = directory.path().join("x.json");
    let told = |text: &str| {
        std::fs::write(&path, text).expect("it can be written");
        let error = Side::read(&path).expect_err("it is refused");
        error.strip_prefix(&path.display().to_string()).expect("it begins with the path").to_owned()
    };
    assert!(told("{}").starts_with(":1:1: neither a `run.json` nor a verdict"));
    assert_eq!(told("[\n 7]"), ":2:2: invalid type: integer `7`, expected struct Verdict");
    assert_eq!(told(""), ":1:0: EOF while parsing a value");
    assert_eq!(told("{\"trials\": []}"), ":1:14: missing field `version`");
    let error = Side::read(&directory.path().join("none")).expect_err("it is not there");
    assert!(error.contains("none cannot be read: No such file"), "{error}");
}
