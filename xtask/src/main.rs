//! What people and CI run: `cargo xtask test`, `lint`, `deny`, `bench`, or any single step by name.
//!
//! Plain Rust and the toolchain are enough to start; a step that needs more installs it or says how.

mod architecture;
mod cargo;
mod clock;
mod packages;
mod repository;
mod steps;

use std::path::Path;
use std::process::ExitCode;

use steps::Step;

const PACKAGES: Step = Step { name: "packages", title: "Debian packages for tests", run: packages::install };
const FORMAT: Step = Step { name: "format", title: "formatting", run: cargo::format };
const CLIPPY: Step = Step { name: "clippy", title: "clippy, warnings denied", run: cargo::clippy };
const ARCHITECTURE: Step =
    Step { name: "architecture", title: "dependencies between crates, purity of the engine", run: architecture::check };
const REPOSITORY: Step = Step { name: "repository", title: "rules for files", run: repository::check };
const TESTS: Step = Step { name: "tests", title: "tests of every crate", run: cargo::tests };
const DOCTESTS: Step = Step { name: "doctests", title: "examples in the documentation", run: cargo::doctests };
const DOCS: Step = Step { name: "docs", title: "documentation, warnings denied", run: cargo::docs };
const DENY: Step = Step { name: "deny", title: "bans, licences and sources of dependencies", run: cargo::deny };
const BENCHES: Step = Step { name: "benches", title: "criterion benchmarks", run: cargo::benches };

/// Everything that must hold, cheapest first.
const TEST: [Step; 9] = [PACKAGES, FORMAT, REPOSITORY, ARCHITECTURE, CLIPPY, TESTS, DOCTESTS, DOCS, DENY];
/// What can be said without running anything.
const LINT: [Step; 5] = [FORMAT, REPOSITORY, ARCHITECTURE, CLIPPY, DOCS];
const BENCH: [Step; 1] = [BENCHES];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test"] => steps::run(&TEST),
        ["lint"] => steps::run(&LINT),
        ["bench"] => steps::run(&BENCH),
        [name] => match TEST.iter().chain(&BENCH).find(|step| step.name == *name) {
            Some(step) => steps::run(std::slice::from_ref(step)),
            None => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    println!("cargo xtask test    everything that must hold: {}", names(&TEST));
    println!("cargo xtask lint    what needs no running: {}", names(&LINT));
    println!("cargo xtask bench   every benchmark: {}", names(&BENCH));
    println!("cargo xtask STEP    one of those steps alone");
    ExitCode::from(2)
}

fn names(steps: &[Step]) -> String {
    steps.iter().map(|step| step.name).collect::<Vec<_>>().join(", ")
}

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}
