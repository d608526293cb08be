//! Runs steps one after another, says what it does and how long each took, and stops at the first
//! failure with the command that repeats only that step.

use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::clock::Stopwatch;

/// One thing to do.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// Behind `cargo xtask`, runs it alone.
    pub(crate) command: &'static str,
    /// What the progress line says.
    pub(crate) title: &'static str,
    /// Does it; the error says what is wrong and how to mend it.
    pub(crate) run: fn() -> Result<(), String>,
}

impl Step {
    pub(crate) const fn new(command: &'static str, title: &'static str, run: fn() -> Result<(), String>) -> Step {
        Step { command, title, run }
    }
}

/// Runs `steps` in order and prints a summary.
pub(crate) fn run(steps: &[Step]) -> ExitCode {
    let whole = Stopwatch::start();
    let mut done: Vec<(&str, Duration)> = Vec::new();
    for step in steps {
        println!("== {}", step.title);
        let watch = Stopwatch::start();
        let result = (step.run)();
        let took = watch.elapsed();
        if let Err(why) = result {
            summarise(&done, whole.elapsed());
            println!("FAILED {} after {}: {why}", step.title, seconds(took));
            println!("to repeat only this step: cargo xtask {}", step.command);
            return ExitCode::FAILURE;
        }
        println!("-- {} took {}", step.title, seconds(took));
        done.push((step.title, took));
    }
    summarise(&done, whole.elapsed());
    println!("all {} steps passed", steps.len());
    ExitCode::SUCCESS
}

fn summarise(done: &[(&str, Duration)], whole: Duration) {
    println!("== summary");
    for (title, took) in done {
        println!("   ok {:>9}  {title}", seconds(*took));
    }
    println!("      {:>9}  in all", seconds(whole));
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

/// Runs `command` in the repository's root with its output on the terminal.
pub(crate) fn show(command: &mut Command) -> Result<(), String> {
    let line = spell(command);
    println!("   $ {line}");
    let status = command.current_dir(crate::root()).status().map_err(|e| format!("cannot start `{line}`: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` ended with {status}")) }
}

/// Runs `command` in the repository's root and returns what it printed.
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

/// `command` as one would type it; the programs used here need no quoting.
fn spell(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
