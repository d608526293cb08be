//! The tasks of people and CI: `cargo xtask test`, `quick`, `lint`, `bench`, or any single step.
//!
//! Plain Rust and the toolchain are enough to start. A step that needs more installs it or says how.

mod architecture;
mod cargo;
mod classes;
mod comments;
mod edge;
mod endurance;
mod exchange;
mod instructions;
mod links;
mod memory;
mod packages;
mod packaging;
mod prose;
mod proxy_cpu;
mod release;
mod repository;
mod steps;
mod suites;
mod tls;
mod viewers;

use std::path::Path;
use std::process::ExitCode;

use steps::Step;

const PACKAGES: Step = Step::new("packages", "Debian packages for tests", packages::install);
const FORMAT: Step = Step::new("format", "formatting", cargo::format);
const REPOSITORY: Step = Step::new("repository", "rules for files", repository::check);
const ARCHITECTURE: Step =
    Step::new("architecture", "dependencies between crates, purity of the engine", architecture::check);
const PACKAGING: Step = Step::new("packaging", "units for systemd, and their copies in the guide", packaging::check);
const CLIPPY: Step = Step::new("clippy", "clippy, warnings denied", cargo::clippy);
const UNITS: Step = Step::tests("units", "unit tests of the libraries", suites::units);
const TESTS: Step = Step::tests("tests", "all tests but those of processes", suites::tests);
const PROCESSES: Step = Step::tests("processes", "tests that start processes or talk over sockets", suites::processes);
const DOCTESTS: Step = Step::tests("doctests", "examples in the documentation", suites::doctests);
const DOCS: Step = Step::new("docs", "documentation, warnings denied", cargo::docs);
const DENY: Step = Step::new("deny", "bans, licences and sources of dependencies", cargo::deny);
const PROSE: Step = Step::new("prose", "words that make comments and documentation hard to read", prose::print);
const REFERENCE: Step = Step::new("reference", "the reference pages, from the schemas", cargo::reference);
const CRITERION: Step = Step::new("bench criterion", "criterion benchmarks", cargo::benches);
const PROXY_CPU: Step =
    Step::new("bench proxy-cpu", "CPU time of a request, compared with other proxies", proxy_cpu::run);

const INSTRUCTIONS: Step = Step::new(
    "bench instructions",
    "instructions of a request, with budgets, compared with other proxies",
    instructions::run,
);

const MEMORY: Step = Step::new("bench memory", "memory of a connection, and what is given back", memory::run);

const CLASSES: Step =
    Step::new("bench classes", "start, reloads and memory with 10,000 classes, two minutes", classes::run);

const VIEWERS: Step =
    Step::new("bench viewers", "CPU time of the live page, with 200 classes and ten viewers", viewers::run);

const DOOR: Step = Step::new("bench door", "a guaranteed class beside hostile clients, ten minutes", endurance::door);
const FLOOD: Step =
    Step::new("bench flood", "refusals a second, and their cost for a guaranteed class", endurance::flood);
const SOAK: Step = Step::new("bench soak", "half load with reloads and crashes, half an hour", endurance::soak);

const EDGE: Step =
    Step::new("bench edge", "protocols, TLS and hostile clients, by other people's programs, half an hour", edge::run);

const TLS: Step = Step::new("bench tls", "cost of TLS, compared with other proxies, half an hour", tls::run);

/// Everything that must hold, cheapest first.
const TEST: [Step; 11] =
    [PACKAGES, FORMAT, REPOSITORY, ARCHITECTURE, PACKAGING, CLIPPY, TESTS, PROCESSES, DOCTESTS, DOCS, DENY];
/// The part of it that takes less than two minutes once everything is built.
const QUICK: [Step; 6] = [FORMAT, REPOSITORY, ARCHITECTURE, PACKAGING, CLIPPY, UNITS];
/// The part of it that runs nothing.
const LINT: [Step; 6] = [FORMAT, REPOSITORY, ARCHITECTURE, PACKAGING, CLIPPY, DOCS];
/// Long measurements, for comparison.
const BENCH: [Step; 11] = [CRITERION, INSTRUCTIONS, MEMORY, CLASSES, VIEWERS, PROXY_CPU, TLS, DOOR, FLOOD, SOAK, EDGE];
const RELEASE: Step = Step::new("release", "packages, an image, the list of parts and their checksums", release::run);

const TRAIN: Step = Step::new("train", "the profile by which the compiler optimises a release", release::train);

/// Steps that belong to no group but `quick`.
const ALONE: [Step; 5] = [UNITS, PROSE, REFERENCE, RELEASE, TRAIN];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Options follow the name of a step. The step reads them itself.
    let name: Vec<&str> = words.iter().map(String::as_str).take_while(|word| !word.starts_with("--")).collect();
    match name.join(" ").as_str() {
        "test" => steps::run(&TEST),
        "quick" => quick(),
        "lint" => steps::run(&LINT),
        "bench" => steps::run(&BENCH),
        command => match TEST.iter().chain(&BENCH).chain(&ALONE).find(|step| step.command == command) {
            Some(step) => steps::run(std::slice::from_ref(step)),
            None => usage(),
        },
    }
}

/// Runs [`QUICK`] and lists the steps of [`TEST`] that it does without.
fn quick() -> ExitCode {
    let code = steps::run(&QUICK);
    let left_out = TEST.iter().filter(|step| QUICK.iter().all(|quick| quick.command != step.command));
    let left_out: Vec<&str> = left_out.map(|step| step.command).collect();
    println!("quick left out: {}. Of `tests` it ran the libraries' unit tests alone.", left_out.join(", "));
    println!("`cargo xtask test` runs everything.");
    code
}

fn usage() -> ExitCode {
    println!("cargo xtask test     everything that must hold: {}", list(&TEST));
    println!("cargo xtask quick    less than two minutes of it, once built: {}", list(&QUICK));
    println!("cargo xtask lint     the part that runs nothing: {}", list(&LINT));
    println!("cargo xtask bench    every benchmark: {}", list(&BENCH));
    println!("cargo xtask prose    a table of words that make text hard to read");
    println!("cargo xtask reference  the pages of docs/reference, written from the schemas");
    println!("cargo xtask release  packages in target/dist; --check tries them, --again builds them twice");
    println!("cargo xtask train    the profile by which the compiler optimises a release");
    println!("cargo xtask STEP     one of these steps alone");
    ExitCode::from(2)
}

fn list(steps: &[Step]) -> String {
    steps.iter().map(|step| step.command).collect::<Vec<_>>().join(", ")
}

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}
