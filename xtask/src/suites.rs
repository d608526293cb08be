//! Steps that run tests, and the reading of their output.
//!
//! The integration tests are divided by the name of their target. Those of [`PROCESS_CRATES`] run in `processes`.
//! They start processes or talk over sockets in real time, so they are slow and a busy machine disturbs them. All other
//! tests run in `tests`. Both steps select the whole workspace and name their targets, because cargo would otherwise
//! choose other features for some dependencies and build them twice.
//!
//! A test that cannot run because this machine lacks a program, data or rights prints a line `SKIPPED: reason` on
//! standard error. It writes the line to `std::io::stderr()`, since the test runner holds back the output of
//! `eprintln!` when a test passes. The steps collect these lines, and the summary counts them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, PipeReader};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cargo::cargo;
use crate::steps::{becomes_true, spell};

/// Directories below `crates/` with integration tests that run in the step `processes`.
const PROCESS_CRATES: [&str; 5] = ["coordinator", "emulator", "gateway", "lab", "weirgate"];

/// Seed of the property tests, unless the environment has another one. With it, a change that passes here passes
/// elsewhere too. New cases are found by runs with other seeds, which are not part of the command.
const PROPTEST_SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// The mark of a test that did not run, followed by the reason.
const SKIPPED: &str = "SKIPPED: ";

/// The outcome of a step's tests.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tests {
    pub(crate) passed: usize,
    /// Tests with `#[ignore]`.
    pub(crate) ignored: usize,
    /// Target and name of each failed test, and each target that did not compile.
    pub(crate) failed: Vec<String>,
    /// The reasons of all `SKIPPED:` lines. A reason is listed as often as it was printed.
    pub(crate) skipped: Vec<String>,
    /// Why the step failed, if it did.
    pub(crate) error: Option<String>,
}

/// Unit tests of the libraries.
pub(crate) fn units() -> Tests {
    run(&["--lib".to_owned()])
}

/// All tests but those of [`processes`]. Benchmarks and examples are built and run once each.
pub(crate) fn tests() -> Tests {
    let processes = targets(|name| PROCESS_CRATES.contains(&name));
    let mut words = ["--lib", "--bins", "--examples", "--benches"].map(str::to_owned).to_vec();
    let others = targets(|name| !PROCESS_CRATES.contains(&name));
    words.extend(named(others.difference(&processes)));
    run(&words)
}

/// Integration tests of [`PROCESS_CRATES`].
pub(crate) fn processes() -> Tests {
    let words: Vec<String> = named(targets(|name| PROCESS_CRATES.contains(&name)).iter()).collect();
    run(&words)
}

/// Examples in the documentation, which no other step runs.
pub(crate) fn doctests() -> Tests {
    run(&["--doc".to_owned()])
}

fn named<'a>(names: impl Iterator<Item = &'a String>) -> impl Iterator<Item = String> {
    names.flat_map(|name| ["--test".to_owned(), name.clone()])
}

/// Names of the integration tests of the crates in `wanted` directories: `tests/NAME.rs` and
/// `tests/NAME/main.rs`.
fn targets(wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in crate::repository::files(&["crates"], &["rs"]) {
        let place = crate::repository::relative(&file);
        let name = match place.split('/').collect::<Vec<_>>()[..] {
            ["crates", directory, "tests", file] if wanted(directory) => file.strip_suffix(".rs"),
            ["crates", directory, "tests", name, "main.rs"] if wanted(directory) => Some(name),
            _ => None,
        };
        names.extend(name.map(str::to_owned));
    }
    names
}

/// Runs `cargo test` with `words`, shows its output, and reads it.
fn run(words: &[String]) -> Tests {
    let mut command = cargo(&["test", "--locked", "--workspace", "--no-fail-fast"]);
    command.args(words).current_dir(crate::root());
    let (variable, seed) = PROPTEST_SEED;
    if std::env::var_os(variable).is_none() {
        command.env(variable, seed);
    }
    let line = spell(&command);
    println!("   $ {line}");
    watch(command).unwrap_or_else(|why| Tests { error: Some(format!("`{line}`: {why}")), ..Tests::default() })
}

/// Runs `command` with both outputs in one pipe, so that their lines keep their order.
fn watch(mut command: Command) -> Result<Tests, String> {
    let (output, input) = std::io::pipe().map_err(|e| e.to_string())?;
    command.stdout(input.try_clone().map_err(|e| e.to_string())?).stderr(input);
    let mut child = command.spawn().map_err(|e| format!("cannot be started: {e}"))?;
    // It holds the pipe's other end, which has to close.
    drop(command);
    let reading = Arc::new(Mutex::new(Reading::default()));
    let thread = {
        let reading = Arc::clone(&reading);
        std::thread::spawn(move || read(output, &reading))
    };
    let status = child.wait().map_err(|e| e.to_string())?;
    let ended = becomes_true(|| thread.is_finished());
    let reading = std::mem::take(&mut *reading.lock().unwrap_or_else(PoisonError::into_inner));
    let mut tests = reading.tests;
    if !status.success() {
        tests.error = Some(format!("{} failures, cargo ended with {status}", tests.failed.len()));
    } else if !ended {
        tests.error = Some("a process that a test started is still running".to_owned());
    }
    Ok(tests)
}

/// Shows every line and notes it. A line need not be UTF-8.
fn read(output: PipeReader, reading: &Mutex<Reading>) {
    let mut output = BufReader::new(output);
    let mut bytes = Vec::new();
    while output.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
        let line = String::from_utf8_lossy(&bytes);
        print!("{line}");
        reading.lock().unwrap_or_else(PoisonError::into_inner).note(line.trim_end());
        bytes.clear();
    }
}

/// Reads the output of cargo and of the test runner.
#[derive(Default)]
struct Reading {
    /// The target that runs tests now.
    target: String,
    tests: Tests,
}

impl Reading {
    fn note(&mut self, line: &str) {
        // With one thread the test runner has begun a line of its own: `test NAME ... SKIPPED: reason`.
        if let Some((_, reason)) = line.split_once(SKIPPED) {
            self.tests.skipped.push(reason.to_owned());
        } else if let Some(target) = line.trim_start().strip_prefix("Running ") {
            // `Running tests/NAME.rs (target/debug/deps/NAME-HASH)`, `Running unittests src/lib.rs (…)`
            let program = target.trim_end_matches(')').rsplit('/').next().unwrap_or(target);
            self.target = program.rsplit_once('-').map_or(program, |(name, _)| name).to_owned();
        } else if let Some(target) = line.trim_start().strip_prefix("Doc-tests ") {
            self.target = target.to_owned();
        } else if let Some(name) = line.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED")) {
            self.tests.failed.push(format!("{}: {name}", self.target));
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.tests.passed += count(result, "passed");
            self.tests.ignored += count(result, "ignored");
        } else if line.starts_with("error: could not compile") || line.starts_with("  process didn't exit successfully")
        {
            self.tests.failed.push(line.trim_start().to_owned());
        }
    }
}

/// The number before `word` in `ok. 57 passed; 0 failed; 1 ignored; …`.
fn count(result: &str, word: &str) -> usize {
    let mut words = result.split([' ', ';', '.']);
    let mut before = "";
    words
        .find_map(|next| {
            if next == word {
                before.parse().ok()
            } else {
                before = next;
                None
            }
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_cargo_is_counted() {
        let mut reading = Reading::default();
        for line in [
            "     Running unittests src/lib.rs (target/debug/deps/weirgate_lab-a72bc241801ba312)",
            "test a::b ... ok",
            "test a::panics - should panic ... FAILED",
            "test a::c ... SKIPPED: no wrk",
            "test result: FAILED. 57 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 2.17s",
            "     Running tests/load/main.rs (target/debug/deps/load-b36228f4d5ada9b7)",
            "SKIPPED: no log",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.17s",
            "   Doc-tests weirgate_engine",
            "test src/lib.rs - (line 3) ... FAILED",
            "error: could not compile `weirgate-sim` (test \"runs\") due to 1 previous error",
        ] {
            reading.note(line);
        }
        let failed = [
            "weirgate_lab: a::panics - should panic",
            "weirgate_engine: src/lib.rs - (line 3)",
            "error: could not compile `weirgate-sim` (test \"runs\") due to 1 previous error",
        ];
        let skipped = vec!["no wrk".to_owned(), "no log".to_owned()];
        let failed = failed.map(str::to_owned).to_vec();
        assert_eq!(reading.tests, Tests { passed: 60, ignored: 2, failed, skipped, error: None });
    }

    #[test]
    fn crates_that_start_processes_exist_and_have_tests() {
        for name in PROCESS_CRATES {
            assert!(!targets(|directory| directory == name).is_empty(), "crates/{name}/tests");
        }
        assert!(targets(|directory| directory == "weirgate").contains("command"), "tests/command/main.rs");
    }

    #[test]
    fn a_failing_command_is_an_error_and_its_lines_are_read() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'SKIPPED: no data' >&2; echo 'test a ... FAILED'; exit 101"]);
        let tests = watch(command).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((tests.skipped, tests.failed), (vec!["no data".to_owned()], vec![": a".to_owned()]));
        assert!(tests.error.is_some_and(|error| error.starts_with("1 failures")));
    }
}
