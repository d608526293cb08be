//! Rules for the repository that no compiler checks.
//!
//! Files stay short enough to be read whole, every module names its purpose, file names name the
//! contents, comments are statements of readable width, links lead somewhere, and nothing is left for later.

use std::path::{Path, PathBuf};

use crate::comments::{self, Comment};
use crate::links;

/// Widest comment line, which is also rustfmt's width of code. rustfmt does not wrap comments.
const MAX_COLUMNS: usize = 120;

/// Committed runs. Their files are as the programs wrote them, so rules for prose do not apply.
pub(crate) const RUNS: &str = "bench/runs/";

/// Maximum number of lines of a source file. Longer files have more than one purpose.
const MAX_LINES: usize = 600;

/// Module names that do not tell the contents.
const EMPTY_NAMES: [&str; 7] = ["utils", "util", "common", "helpers", "helper", "misc", "manager"];

/// Marks of unfinished work, written in two parts so that this file does not hold them.
const UNFINISHED: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!("), concat!("unimple", "mented!(")];

/// Checks every rule.
pub(crate) fn check() -> Result<(), String> {
    let mut faults = Vec::new();
    let sources = files(&["crates", "experiments", "xtask"], &["rs"]);
    for source in &sources {
        let text = text(source)?;
        let lines = text.lines().count();
        let place = relative(source);
        let in_src = place.split('/').any(|part| part == "src");
        if lines > MAX_LINES {
            faults.push(format!("{place}: {lines} lines, at most {MAX_LINES}: split it by purpose"));
        }
        if in_src && !text.starts_with("//!") {
            faults.push(format!("{place}: must begin with `//!` and say what the module does"));
        }
        if place.split(['/', '.']).any(|part| EMPTY_NAMES.contains(&part)) {
            faults.push(format!("{place}: the name says nothing; name it after what is inside"));
        }
    }
    let everything =
        files(&["."], &["rs", "md", "toml", "yaml", "yml", "sh", "cfg", "conf", "php", "html", "js", "css"]);
    for file in &everything {
        for (number, line) in text(file)?.lines().enumerate() {
            for word in UNFINISHED.iter().filter(|word| line.contains(*word)) {
                faults.push(format!("{}:{}: {word}: finish it or leave it out", relative(file), number + 1));
            }
        }
    }
    for file in everything.iter().filter(|file| !written_by_programs(&relative(file))) {
        prose(&relative(file), &text(file)?, &mut faults);
    }
    let pages = everything.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    links::check(&pages.filter(|page| !relative(page).starts_with(RUNS)).collect::<Vec<_>>(), &mut faults)?;
    println!("   {} source files, {} files in all", sources.len(), everything.len());
    report(&faults)
}

/// True for committed runs and for expected output of tests: their comments are not written by hand.
fn written_by_programs(place: &str) -> bool {
    place.starts_with(RUNS) || place.split('/').any(|part| part == "golden")
}

/// Checks the comments of the file at `place`, which contains `text`.
fn prose(place: &str, text: &str, faults: &mut Vec<String>) {
    let comments = match place.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "rs" => comments::rust(text),
        "yaml" | "yml" | "toml" => comments::hash(text),
        _ => return,
    };
    // One long word, such as an address, cannot be wrapped.
    for comment in comments.iter().filter(|c| c.columns > MAX_COLUMNS && c.text.trim().contains(' ')) {
        let Comment { line, columns, .. } = comment;
        faults.push(format!("{place}:{line}: {columns} columns, at most {MAX_COLUMNS}: wrap the comment"));
    }
    for comment in comments::questions(&comments) {
        faults.push(format!("{place}:{}: the documentation ends in a question: write a statement", comment.line));
    }
}

/// Turns faults into one error that lists all of them.
pub(crate) fn report(faults: &[String]) -> Result<(), String> {
    for fault in faults {
        println!("   {fault}");
    }
    if faults.is_empty() { Ok(()) } else { Err(format!("{} rules are broken, see above", faults.len())) }
}

/// Files below `directories` of the repository with one of `extensions`, in order of their names.
/// Build products and hidden directories are left out.
pub(crate) fn files(directories: &[&str], extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = directories.iter().map(|d| crate::root().join(d)).collect();
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && name != "node_modules" && !name.to_string_lossy().starts_with('.') {
                    left.push(path);
                }
            } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// `path` as seen from the repository's root.
pub(crate) fn relative(path: &Path) -> String {
    let text = path.strip_prefix(crate::root()).unwrap_or(path).to_string_lossy().into_owned();
    text.strip_prefix("./").map(str::to_owned).unwrap_or(text)
}

/// Text of the file at `path`.
pub(crate) fn text(path: &Path) -> Result<String, String> {
    // Test inputs need not be UTF-8.
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", relative(path)))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
