//! Runs steps one after another, prints a table of all of them, and repeats every failure at the end.
//!
//! A step that fails does not stop the ones after it: one run shows everything that has to be corrected.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::time::Duration;

use weirgate_clock::Clock;

use crate::suites::Tests;

/// Time limit of a server's start and of a thread's end: ten times the time that they need.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds. Returns false if it does not within [`PATIENCE`].
pub(crate) fn becomes_true(condition: impl FnMut() -> bool) -> bool {
    weirgate_clock::becomes_true(PATIENCE, condition)
}

/// One thing to do.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// Behind `cargo xtask`, runs it alone.
    pub(crate) command: &'static str,
    /// Text of the progress line.
    pub(crate) title: &'static str,
    run: Run,
}

#[derive(Clone, Copy)]
enum Run {
    /// The error says which rule is broken and how to correct it.
    Check(fn() -> Result<(), String>),
    /// Runs tests, of which some may be skipped.
    Tests(fn() -> Tests),
}

impl Step {
    /// A step that passes or fails as a whole.
    pub(crate) const fn new(command: &'static str, title: &'static str, run: fn() -> Result<(), String>) -> Step {
        Step { command, title, run: Run::Check(run) }
    }

    /// A step that runs tests and counts them.
    pub(crate) const fn tests(command: &'static str, title: &'static str, run: fn() -> Tests) -> Step {
        Step { command, title, run: Run::Tests(run) }
    }
}

/// A step that has run.
struct Done {
    command: &'static str,
    took: Duration,
    tests: Tests,
}

impl Done {
    /// The last column of the table.
    fn result(&self) -> String {
        let Tests { passed, ignored, failed, skipped, error } = &self.tests;
        let mut counts = Vec::new();
        for (count, word) in [(*passed, "passed"), (failed.len(), "failed"), (*ignored, "ignored")] {
            if count > 0 {
                counts.push(format!("{count} {word}"));
            }
        }
        if !skipped.is_empty() {
            counts.push(format!("{} SKIPPED", skipped.len()));
        }
        let verdict = if error.is_some() { "FAILED" } else { "passed" };
        if counts.is_empty() { verdict.to_owned() } else { format!("{verdict}: {}", counts.join(", ")) }
    }
}

/// Runs all `steps` in order, then prints the table, the skipped tests and the failures.
pub(crate) fn run(steps: &[Step]) -> ExitCode {
    let whole = Clock::start();
    let mut done = Vec::new();
    for step in steps {
        println!("== {}", step.title);
        let watch = Clock::start();
        let tests = match step.run {
            Run::Check(check) => Tests { error: check().err(), ..Tests::default() },
            Run::Tests(tests) => tests(),
        };
        let step = Done { command: step.command, took: watch.now(), tests };
        println!("-- {}: {} in {:.1} s", step.command, step.result(), step.took.as_secs_f64());
        done.push(step);
    }
    print!("{}", summary(&done, whole.now()));
    if done.iter().all(|step| step.tests.error.is_none()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The table, then the skipped tests, then the failures: the last lines are the ones that matter most.
fn summary(done: &[Done], whole: Duration) -> String {
    let width = done.iter().map(|step| step.command.len()).max().unwrap_or(0).max("in all".len());
    let mut text = format!("== summary\n   {:width$}  seconds  result\n", "step");
    for step in done {
        text += &format!("   {:width$}  {:7.1}  {}\n", step.command, step.took.as_secs_f64(), step.result());
    }
    text += &format!("   {:width$}  {:7.1}\n", "in all", whole.as_secs_f64());
    let skipped: Vec<&String> = done.iter().flat_map(|step| &step.tests.skipped).collect();
    if !skipped.is_empty() {
        text += &format!("== SKIPPED {} times: these tests did NOT run\n", skipped.len());
        for (index, reason) in skipped.iter().enumerate().filter(|(index, r)| !skipped[..*index].contains(r)) {
            let times = skipped[index..].iter().filter(|other| other == &reason).count();
            text += &format!("   {times} × {reason}\n");
        }
    }
    let failures: Vec<(&Done, &String)> =
        done.iter().filter_map(|step| step.tests.error.as_ref().map(|error| (step, error))).collect();
    if failures.is_empty() {
        return text + &format!("all {} steps passed\n", done.len());
    }
    text += &format!("== FAILED: {} of {} steps\n", failures.len(), done.len());
    for (step, error) in failures {
        text += &format!("   {}: {error}\n", step.command);
        for test in &step.tests.failed {
            text += &format!("      {test}\n");
        }
        text += &format!("      to repeat only this step: cargo xtask {}\n", step.command);
    }
    text
}

/// Returns Cargo's folder for artefacts.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// Builds `packages` with the profile `release`, and returns the folder with the programs.
pub(crate) fn built(packages: &[&str]) -> Result<PathBuf, String> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    show(Command::new(env!("CARGO")).args(["build", "--locked", "--release"]).args(packages))?;
    Ok(target().join("release"))
}

/// Returns the folder in which a benchmark of this name stores what it measures today.
pub(crate) fn run_folder(name: &str) -> Result<PathBuf, String> {
    let date = read(Command::new("date").arg("+%Y-%m-%d"))?;
    Ok(crate::root().join(format!("bench/runs/{}-{name}", date.trim())))
}

/// Returns a folder that is not there yet, for a benchmark that stores all that it measures at once. The second run of
/// a day then leaves the first one alone.
pub(crate) fn new_run_folder(name: &str) -> Result<PathBuf, String> {
    let mut folder = run_folder(name)?;
    for run in 2.. {
        if !folder.exists() {
            break;
        }
        folder = run_folder(&format!("{name}-{run}"))?;
    }
    Ok(folder)
}

/// Returns the number that follows the only option of a benchmark, or `default` without it.
pub(crate) fn asked<T: FromStr<Err: Display>>(option: &str, default: T) -> Result<T, String> {
    let words: Vec<String> = std::env::args().skip(3).collect();
    match words.as_slice() {
        [] => Ok(default),
        [name, value] if name == option => value.parse().map_err(|e| format!("{option} {value}: {e}")),
        _ => Err(format!("{:?} is unknown: there is only {option} N", words.join(" "))),
    }
}

/// Calls `work` with a new folder for temporary files, and removes it. `of` is a part of its name.
pub(crate) fn within<T>(of: &str, work: impl FnOnce(&Path) -> Result<T, String>) -> Result<T, String> {
    let folder = std::env::temp_dir().join(format!("weirgate-{of}-{}", std::process::id()));
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let result = work(&folder);
    let removed = std::fs::remove_dir_all(&folder).map_err(failed);
    let result = result?;
    removed.map(|()| result)
}

/// Runs `command` in the repository's root with its output on the terminal.
pub(crate) fn show(command: &mut Command) -> Result<(), String> {
    let line = spell(command);
    println!("   $ {line}");
    let status = command.current_dir(crate::root()).status().map_err(|e| format!("cannot start `{line}`: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` ended with {status}")) }
}

/// Runs `command` in the repository's root and returns its output.
pub(crate) fn read(command: &mut Command) -> Result<String, String> {
    let line = spell(command);
    let output = command.current_dir(crate::root()).output().map_err(|e| format!("cannot start `{line}`: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{line}` ended with {}: {}", output.status, errors.trim()))
    }
}

/// `command` as one would type it. The programs used here need no quoting.
pub(crate) fn spell(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(command: &'static str, tests: Tests) -> Done {
        Done { command, took: Duration::from_millis(1250), tests }
    }

    #[test]
    fn every_failure_and_every_skipped_test_is_in_the_summary() {
        let skipped = vec!["no wrk".to_owned(), "no log".to_owned(), "no wrk".to_owned()];
        let tests = Tests { passed: 7, ignored: 1, skipped, ..Tests::default() };
        let failed = vec!["lab: a_test".to_owned()];
        let processes = Tests { passed: 2, failed, error: Some("1 test failed".to_owned()), ..Tests::default() };
        let format = Tests { error: Some("run cargo fmt".to_owned()), ..Tests::default() };
        let all = [done("format", format), done("tests", tests), done("processes", processes)];
        let expected = "\
== summary
   step       seconds  result
   format         1.2  FAILED
   tests          1.2  passed: 7 passed, 1 ignored, 3 SKIPPED
   processes      1.2  FAILED: 2 passed, 1 failed
   in all         4.0
== SKIPPED 3 times: these tests did NOT run
   2 × no wrk
   1 × no log
== FAILED: 2 of 3 steps
   format: run cargo fmt
      to repeat only this step: cargo xtask format
   processes: 1 test failed
      lab: a_test
      to repeat only this step: cargo xtask processes
";
        assert_eq!(summary(&all, Duration::from_secs(4)), expected);
    }
}
