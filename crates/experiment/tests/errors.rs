//! Every experiment under `tests/errors/` fails with exactly the messages in the text file of the same name, and wrong
//! overrides are refused. `UPDATE_GOLDEN=1 cargo test -p weirgate-experiment` rewrites the messages. Read the
//! difference before you keep it.

#[path = "../../config/tests/support/golden.rs"]
mod golden;

use std::path::Path;

use weirgate_experiment::{load_experiment, load_experiment_file};
use weirgate_spanned_yaml::overrides::Override;

/// Returns the errors of `quorum-fig9` with `overrides`.
fn refused(overrides: &[&str]) -> String {
    let overrides: Vec<Override> = overrides.iter().map(|text| text.parse().expect("it is an override")).collect();
    match load_experiment_file(Path::new("../../experiments/quorum-fig9.yaml"), &overrides) {
        Ok(_) => panic!("{overrides:?} loads"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn every_broken_experiment_says_what_is_wrong() {
    let load = |name: &str, bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).expect("an experiment is UTF-8");
        load_experiment(name, text, Path::new("tests/errors"), &[])
    };
    golden::every_file_fails(12, load);
}

#[test]
fn a_wrong_override_says_so_by_its_path() {
    for (given, said) in [
        (
            "traffic.A.rate=800",
            "--set traffic.A.rate: traffic[0].rate: `800` has no unit; write `800/s` or `800/min`\n",
        ),
        (
            "policy.discipline=quorun",
            "--set policy.discipline: policy.discipline: `quorun` is unknown; did you mean `quorum`?\n",
        ),
        ("traffic.C.rate=8/s", "--set traffic.C.rate: no item of the list is `C`; did you mean `A`?\n"),
        (
            "traffic.5.rate=8/s",
            "--set traffic.5.rate: the list has 2 items, and none with the number 5; they count from 0\n",
        ),
        (
            "policy.upstreams.cluster.nodes.x9.weight=2",
            "--set policy.upstreams.cluster.nodes.x9.weight: no item of the list is `x9`; there is `n1:80`, `n2:80`, `n3:80`, `n4:80`, `n5:80`, `n6:80`, `n7:80` and `n8:80`\n",
        ),
        (
            "traffic.B.rate.at=5s",
            "--set traffic.B.rate.at: `500/s` is a single value here: it has no `at`; replace the whole by a map: `={ at: … }`\n",
        ),
        ("machines.cpu=4", "--set machines.cpu: machines.cpu: this field is unknown; did you mean `cpus`?\n"),
        ("settle=[1", "--set settle: this `[` is never closed; close it\n"),
        (
            "faults=null",
            "--set faults: there is no `faults` to remove; there is `title`, `policy`, `machines`, `traffic` and `phases`\n",
        ),
        (
            "faults.0.at=5s",
            "--set faults.0.at: faults: this is a map; write a list: each item on its own line behind `- `\n",
        ),
    ] {
        assert_eq!(refused(&[given]), said, "{given}");
    }
    // Errors of the file and of several overrides are reported together.
    let all = refused(&["traffic.A.rate=800", "traffic.B.demand=8"]);
    assert_eq!(all.lines().count(), 2, "{all}");
}

#[test]
fn a_text_without_a_path_or_value_is_no_override() {
    for text in ["", "a", "a=", "=5", "a..b=5", ".a=5", "a.=5", "a[0=5", "a[0]b=5", "\"a=5"] {
        assert!(text.parse::<Override>().is_err(), "{text}");
    }
}
