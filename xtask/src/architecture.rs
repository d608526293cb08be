//! Allowed dependencies between crates, and words that the engine must not contain.
//!
//! Dependencies point inward: `{engine, spanned-yaml, wire} ← config ← {gateway, experiment ← verdict ← {sim, lab}} ←
//! replay ← weirgate`, `wire ← {agent, probe}`, and `config ← advice`. The engine is a pure state machine, so that
//! gateway, simulator and fuzzers run the very same code. It has no dependency, no clock, no I/O and no unsafe code.

use std::path::Path;
use std::process::Command;

use crate::repository::{files, relative};
use crate::steps::read;

/// Per crate the workspace crates that its code (not its tests) may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("weirgate-cgroup", &[]),
    ("weirgate-clock", &[]),
    ("weirgate-emulator", &[]),
    ("weirgate-engine", &[]),
    ("weirgate-files", &[]),
    ("weirgate-listening", &[]),
    ("weirgate-log", &["weirgate-clock"]),
    ("weirgate-memory", &[]),
    ("weirgate-http-client", &["weirgate-clock", "weirgate-tls"]),
    ("weirgate-http-server", &["weirgate-clock", "weirgate-http1", "weirgate-listening", "weirgate-tls"]),
    ("weirgate-etcd", &["weirgate-clock", "weirgate-http-client"]),
    ("weirgate-http1", &[]),
    ("weirgate-pages", &[]),
    ("weirgate-reserves", &["weirgate-wire"]),
    ("weirgate-site", &["weirgate-engine"]),
    ("weirgate-spanned-yaml", &[]),
    ("weirgate-tls", &[]),
    ("weirgate-pki", &["weirgate-clock", "weirgate-files", "weirgate-tls"]),
    ("weirgate-wire", &[]),
    (
        "weirgate-config",
        &[
            "weirgate-clock", "weirgate-engine", "weirgate-listening", "weirgate-log", "weirgate-pages",
            "weirgate-reserves", "weirgate-site", "weirgate-spanned-yaml", "weirgate-tls", "weirgate-wire",
        ],
    ),
    (
        "weirgate-experiment",
        &[
            "weirgate-clock", "weirgate-config", "weirgate-emulator", "weirgate-engine", "weirgate-spanned-yaml",
            "weirgate-wire",
        ],
    ),
    (
        "weirgate-verdict",
        &[
            "weirgate-config", "weirgate-engine", "weirgate-experiment", "weirgate-pages", "weirgate-reserves",
            "weirgate-wire",
        ],
    ),
    (
        "weirgate-agent",
        &[
            "weirgate-cgroup", "weirgate-clock", "weirgate-files", "weirgate-http-client", "weirgate-http-server",
            "weirgate-reserves", "weirgate-tls", "weirgate-wire",
        ],
    ),
    (
        "weirgate-coordinator",
        &[
            "weirgate-clock", "weirgate-config", "weirgate-http-server", "weirgate-listening", "weirgate-reserves",
            "weirgate-tls", "weirgate-wire",
        ],
    ),
    (
        "weirgate-probe",
        &["weirgate-clock", "weirgate-files", "weirgate-http-client", "weirgate-pages", "weirgate-wire"],
    ),
    (
        "weirgate-advice",
        &["weirgate-clock", "weirgate-config", "weirgate-engine", "weirgate-spanned-yaml", "weirgate-wire"],
    ),
    (
        "weirgate-acme",
        &[
            "weirgate-clock", "weirgate-config", "weirgate-files", "weirgate-http-client", "weirgate-log",
            "weirgate-tls", "weirgate-wire",
        ],
    ),
    (
        "weirgate-sharing",
        &[
            "weirgate-clock", "weirgate-config", "weirgate-engine", "weirgate-etcd", "weirgate-http-client",
            "weirgate-http-server", "weirgate-listening", "weirgate-log", "weirgate-site", "weirgate-spanned-yaml",
            "weirgate-tls", "weirgate-wire",
        ],
    ),
    ("weirgate-discovery", &["weirgate-config", "weirgate-engine", "weirgate-http-client"]),
    (
        "weirgate-gateway",
        &[
            "weirgate-acme", "weirgate-cgroup", "weirgate-clock", "weirgate-config", "weirgate-discovery",
            "weirgate-engine", "weirgate-files", "weirgate-http-client", "weirgate-http-server", "weirgate-http1",
            "weirgate-listening", "weirgate-log", "weirgate-pages", "weirgate-sharing", "weirgate-spanned-yaml",
            "weirgate-tls", "weirgate-wire",
        ],
    ),
    (
        "weirgate-sim",
        &[
            "weirgate-config", "weirgate-emulator", "weirgate-engine", "weirgate-experiment", "weirgate-pages",
            "weirgate-reserves", "weirgate-site", "weirgate-spanned-yaml", "weirgate-verdict", "weirgate-wire",
        ],
    ),
    (
        "weirgate-lab",
        &[
            "weirgate-cgroup", "weirgate-config", "weirgate-emulator", "weirgate-engine", "weirgate-experiment",
            "weirgate-files", "weirgate-http-client", "weirgate-spanned-yaml", "weirgate-verdict", "weirgate-wire",
        ],
    ),
    (
        "weirgate-replay",
        &[
            "weirgate-clock", "weirgate-config", "weirgate-emulator", "weirgate-engine", "weirgate-experiment",
            "weirgate-gateway", "weirgate-pages", "weirgate-sim", "weirgate-spanned-yaml", "weirgate-tls",
            "weirgate-verdict", "weirgate-wire",
        ],
    ),
    (
        "weirgate-endurance",
        &[
            "weirgate-clock", "weirgate-emulator", "weirgate-experiment", "weirgate-http-client", "weirgate-lab",
            "weirgate-spanned-yaml",
        ],
    ),
    (
        "weirgate",
        &[
            "weirgate-advice", "weirgate-agent", "weirgate-clock", "weirgate-config", "weirgate-engine",
            "weirgate-experiment", "weirgate-files", "weirgate-gateway", "weirgate-listening", "weirgate-log",
            "weirgate-http-client", "weirgate-http-server", "weirgate-lab", "weirgate-coordinator", "weirgate-memory",
            "weirgate-pages", "weirgate-pki", "weirgate-probe", "weirgate-replay", "weirgate-reserves", "weirgate-sim",
            "weirgate-spanned-yaml", "weirgate-tls", "weirgate-verdict", "weirgate-wire",
        ],
    ),
];

/// Words that the engine's source must not contain, because each would make it more than a state machine.
const IMPURE: [(&str, &str); 13] = [
    ("unsafe ", "unsafe code"),
    ("Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("RandomState", "entropy"),
    ("HashMap::new", "a randomly keyed hasher"),
    ("HashSet::new", "a randomly keyed hasher"),
    ("std::net", "sockets"),
    ("std::fs", "files"),
    ("std::io", "input and output"),
    ("std::env", "the environment"),
    ("std::thread", "threads"),
    ("println!", "output"),
    ("async fn", "an async runtime"),
];

/// Checks both rules.
pub(crate) fn check() -> Result<(), String> {
    let mut faults = Vec::new();
    for manifest in files(&["crates", "experiments"], &["toml"]).iter().filter(|path| path.ends_with("Cargo.toml")) {
        dependencies(manifest, &mut faults)?;
    }
    engine(&mut faults)?;
    crate::repository::report(&faults)
}

/// The direct dependencies of the crate with this manifest against [`ALLOWED`].
fn dependencies(manifest: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    let text = std::fs::read_to_string(manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("name = "))
        .map(|name| name.trim_matches('"').to_owned())
        .ok_or_else(|| format!("{}: no line `name = \"…\"`", relative(manifest)))?;
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        faults.push(format!("crate {name} is unknown: say in xtask/src/architecture.rs what it may depend on"));
        return Ok(());
    };
    let direct = direct(&name)?;
    for dependency in direct.iter().filter(|d| d.starts_with("weirgate")) {
        if !allowed.contains(&dependency.as_str()) {
            faults.push(format!("{name} depends on {dependency}; it may depend on: {}", allowed.join(", ")));
        }
    }
    if name == "weirgate-engine" && !direct.is_empty() {
        faults.push(format!("weirgate-engine must depend on nothing; it depends on {}", direct.join(", ")));
    }
    println!("   {name}: {} direct dependencies", direct.len());
    Ok(())
}

/// Names of the direct dependencies of `name`, without those of its tests.
fn direct(name: &str) -> Result<Vec<String>, String> {
    let tree = read(
        Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--package", name, "--depth", "1", "--prefix", "none", "--format", "{p}"])
            .args(["--edges", "normal,build", "--target", "all", "--all-features"]),
    )?;
    // The first line is the crate itself.
    Ok(tree.lines().skip(1).filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// The engine's source against [`IMPURE`].
fn engine(faults: &mut Vec<String>) -> Result<(), String> {
    let sources = files(&["crates/engine/src"], &["rs"]);
    for source in &sources {
        if source.ends_with("clock.rs") {
            faults.push(format!("{}: the engine has no clock; time is handed to it", relative(source)));
        }
        let text = std::fs::read_to_string(source).map_err(|e| format!("{}: {e}", source.display()))?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for (word, what) in IMPURE.iter().filter(|(word, _)| line.contains(word)) {
                let place = format!("{}:{}", relative(source), number + 1);
                faults.push(format!("{place}: `{}` brings {what} into the engine", word.trim()));
            }
        }
    }
    println!("   the engine's {} files are free of clocks, entropy, I/O and unsafe code", sources.len());
    Ok(())
}
