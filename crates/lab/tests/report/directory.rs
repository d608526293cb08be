//! A run on disk: a written run reads back unchanged, and a broken one is refused.

use std::fs;

use proptest::prelude::*;
use tempfile::tempdir;
use weirgate_lab::report::{Ids, RunFile, configuration, default_directory, page, read, write};
use weirgate_verdict::{ResponseTimes, ViolationFound, Word};

use crate::hand_made::run;

/// Returns the hand-made run with other numbers, at least one in every kind of field.
fn altered(exact: &[f64], thousandths: &[i64], counts: &[u64], word: &str) -> RunFile {
    let mut run = run();
    let (mut exact, mut rounded) = (exact.iter().copied().cycle(), thousandths.iter().map(|n| *n as f64 / 1e3).cycle());
    let mut counts = counts.iter().copied().cycle();
    let (mut exact, mut rounded) = (|| exact.next().unwrap_or(0.0), || rounded.next().unwrap_or(0.0));
    let mut count = || counts.next().unwrap_or(0);
    run.experiment.title = word.into();
    run.experiment_file = word.into();
    run.time_compression = exact();
    run.experiment.phases[1].to_s = exact();
    run.experiment.faults[0].to_s = None;
    run.experiment.classes[0].response_time = Some((word.into(), exact()));
    run.machine.memory_mib = count();
    for trial in &mut run.trials {
        trial.version = word.into();
        let evidence = &mut trial.evidence;
        (evidence.sent, evidence.cut) = (count(), count());
        evidence.lost = Ids { count: count(), examples: vec![word.into(), String::new()] };
        evidence.node_late_ms.max = exact();
        evidence.gateway_cpu_us = None;
        trial.latency[0].p99_9 = exact();
        if let Some(series) = &mut trial.series {
            series.classes[0].served = vec![exact(), exact()];
            series.classes[0].response_ms = vec![None, Some(exact())];
            series.classes[0].guaranteed = None;
            series.window = vec![(exact(), exact())];
        }
        let verdict = &mut trial.verdict;
        verdict.verdict = Word::Broken;
        verdict.violations = vec![ViolationFound { at_s: exact(), invariant: word.into(), what: word.into() }];
        let phase = &mut verdict.phases[2];
        (phase.utilisation, phase.served_over_oracle) = (rounded(), None);
        let class = &mut phase.classes[1];
        class.part.served_per_s = rounded();
        class.oracle_served_per_s = Some(rounded());
        class.reaction_s = None;
        class.part.shed.wrong = count();
        class.settling.response_ms = Some(ResponseTimes { mean: rounded(), ..ResponseTimes::default() });
    }
    run
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Exact to the last bit, except for verdicts: their numbers have three decimals.
    #[test]
    fn what_is_written_is_read(
        exact in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO, 1..9),
        thousandths in prop::collection::vec(-1_000_000_000_000_i64..1_000_000_000_000, 1..9),
        counts in prop::collection::vec(any::<u64>(), 1..9),
        word in any::<String>(),
    ) {
        let directory = tempdir().expect("a directory");
        let run = altered(&exact, &thousandths, &counts, &word);
        write(directory.path(), &run).expect("it can be written");
        prop_assert_eq!(read(directory.path()).expect("it can be read"), run);
    }
}

#[test]
fn a_directory_has_its_files_and_can_be_made_again() {
    let directory = tempdir().expect("a directory");
    let mut run = run();
    // A number with more than three decimals: the page shows the written number, not the one in memory.
    run.trials[0].verdict.phases[1].classes[0].part.served_per_s = 120.049_999_9;
    write(directory.path(), &run).expect("it can be written");
    let mut names: Vec<_> =
        fs::read_dir(directory.path()).expect("it is there").map(|e| e.expect("a file").file_name()).collect();
    names.sort();
    assert_eq!(names, ["experiment.yaml", "index.html", "latency.csv", "run.json"]);
    let text = |name: &str| fs::read_to_string(directory.path().join(name)).expect("it is text");
    assert_eq!(text("experiment.yaml"), run.experiment_file);
    let csv = text("latency.csv");
    assert_eq!(
        csv.lines().take(2).collect::<Vec<_>>(),
        [
            "approach,seed,phase,class,count,p50_ms,p90_ms,p95_ms,p99_ms,p99.9_ms,max_ms",
            "weirgate,1,calm,A,2000,11.000,20.000,40.000,60.000,61.500,80.062"
        ]
    );
    assert_eq!(csv.lines().count(), 6);
    let again = read(directory.path()).expect("it can be read");
    assert_eq!(text("index.html"), page(&again));
    write(directory.path(), &again).expect("it can be made again");
    assert_eq!(read(directory.path()).expect("it can be read"), again);
}

#[test]
fn configurations_are_collected_by_approach() {
    let directory = tempdir().expect("a directory");
    assert_eq!(configuration(directory.path()).expect("nothing is no error"), []);
    let put = |path: &str, bytes: &[u8]| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
        fs::write(path, bytes).expect("it can be written");
    };
    put("config/quorum/policy.yaml", b"classes: []\n");
    put("config/proxy:limit=4/conf.d/a.cfg", b"a");
    put("config/proxy:limit=4/binary", &[0xff]);
    put("config/proxy:limit=4/long.log", &vec![b'x'; 70_000]);
    put("config/stray", b"of no approach");
    let files = configuration(directory.path()).expect("they can be read");
    let files: Vec<_> = files.iter().map(|f| (f.approach.as_str(), f.path.as_str(), f.text.as_deref())).collect();
    assert_eq!(
        files,
        [
            ("proxy:limit=4", "config/proxy:limit=4/binary", None),
            ("proxy:limit=4", "config/proxy:limit=4/conf.d/a.cfg", Some("a")),
            ("proxy:limit=4", "config/proxy:limit=4/long.log", None),
            ("quorum", "config/quorum/policy.yaml", Some("classes: []\n")),
        ]
    );
    assert_eq!(
        default_directory("2026-11-22T03:39:04Z", "quorum-fig9").to_str(),
        Some("lab-runs/2026-11-22T033904Z-quorum-fig9")
    );
}

#[test]
fn broken_files_are_refused_with_their_place() {
    let directory = tempdir().expect("a directory");
    write(directory.path(), &run()).expect("it can be written");
    let path = directory.path().join("run.json");
    let sound = fs::read_to_string(&path).expect("it can be read");
    let told = |text: &str| {
        fs::write(&path, text).expect("it can be written");
        let error = read(directory.path()).expect_err("it is refused");
        error.strip_prefix(&path.display().to_string()).expect("it begins with the path").to_owned()
    };
    let with = |what: &str, instead: &str| {
        assert!(sound.contains(what), "{what}");
        told(&sound.replacen(what, instead, 1))
    };
    assert_eq!(
        with("\"version\": 1", "\"version\": 7"),
        ":2:3: this file has version 7 of the format, and this program reads version 1: use the weirgate that wrote it"
    );
    assert_eq!(with("\"memory_mib\": 8192", "\"memory_mib\": -1"), ":15:20: invalid value: integer `-1`, expected u64");
    assert_eq!(with("\"kernel\": \"Linux 6.1\",", ""), ":16:3: missing field `kernel`");
    let half = &sound[..sound.len() / 2];
    let end = (half.lines().count(), half.lines().last().map_or(0, str::len));
    assert!(told(half).starts_with(&format!(":{}:{}: EOF while parsing", end.0, end.1)));
    assert_eq!(
        with("\"seed\": 2", "\"seed\": 1"),
        ": trials[1] (weirgate, seed 1) is listed twice, but a seed counts \
        once"
    );
    assert_eq!(
        with("\"name\": \"calm\"", "\"name\": \"storm\""),
        ": trials[0] (weirgate, seed 1) has phases that are not the experiment's"
    );
    assert_eq!(
        with("\"class\": \"B\"", "\"class\": \"C\""),
        ": trials[1] (weirgate, seed 2) has classes that are not those of trials[0]"
    );
    assert_eq!(
        with("\"step\": 2.0", "\"step\": 0.0"),
        ": trials[0] (weirgate, seed 1) has a series without length: `step` and `length` must be above 0 s"
    );
    let mut run = run();
    run.trials[0].evidence.node_late_ms.max = f64::NAN;
    let error = write(directory.path(), &run).expect_err("NaN is no figure");
    assert!(error.starts_with("run.json, as it would be written:") && error.contains("expected f64"), "{error}");
}
