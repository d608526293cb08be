//! Links and paths in Markdown lead to files, folders and headings that exist.
//!
//! Paths are those in inline code that begin with a folder of the repository. Names for many files (`NAME.yaml`,
//! `*.rs`) are not paths.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::repository::{relative, text};

/// Folders of the repository.
const FOLDERS: [&str; 8] = ["bench/", "crates/", "docs/", "experiments/", "fuzz/", "packaging/", "policies/", "xtask/"];

/// Record of changes: the files that it names may be gone.
const HISTORY: &str = "CHANGELOG.md";

/// Checks `pages`.
pub(crate) fn check(pages: &[&PathBuf], faults: &mut Vec<String>) -> Result<(), String> {
    for page in pages {
        let place = relative(page);
        for (number, line) in prose(&text(page)?) {
            for link in links(line) {
                let (path, heading) = link.split_once('#').unwrap_or((link, ""));
                let file = if path.is_empty() { (*page).clone() } else { page.with_file_name(path) };
                let is_page = file.extension().is_some_and(|extension| extension == "md");
                if !file.exists() {
                    faults.push(format!("{place}:{number}: the link to {link} leads nowhere"));
                } else if is_page && !heading.is_empty() && !headings(&text(&file)?).contains(heading) {
                    faults.push(format!("{place}:{number}: {} has no heading #{heading}", relative(&file)));
                }
            }
            let gone = paths(line).filter(|path| place != HISTORY && !crate::root().join(path).exists());
            faults.extend(gone.map(|path| format!("{place}:{number}: there is no {path}")));
        }
    }
    Ok(())
}

/// Lines outside of blocks of code, with their numbers from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let outside = |(index, line): (usize, &'_ str)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some(index + 1)
    };
    let numbers: Vec<Option<usize>> = text.lines().enumerate().map(outside).collect();
    numbers.into_iter().zip(text.lines()).filter_map(|(number, line)| Some((number?, line))).collect()
}

/// Targets of links to files of the repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// Paths of the repository in inline code.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_./-".contains(c);
    let codes = line.split('`').skip(1).step_by(2);
    codes.filter(move |code| FOLDERS.iter().any(|folder| code.starts_with(folder)) && code.chars().all(plain))
}

/// Anchors of a page's headings, as GitHub and mdBook make them.
fn headings(text: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| {
        let mut name = String::new();
        // Only the text of a link counts.
        for part in heading.split("](") {
            let part = if name.is_empty() { part } else { part.split_once(')').map_or("", |(_, rest)| rest) };
            name.extend(part.chars().filter(|c| c.is_alphanumeric() || "_- ".contains(*c)));
        }
        name.trim().to_lowercase().replace(' ', "-")
    };
    let lines = prose(text).into_iter().map(|(_, line)| line).filter(|line| line.starts_with('#'));
    lines.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_paths_and_headings_are_found() {
        let text = "# The `a`, and [b](c.md)\nSee [d](e.md#f), [g](http://h) and `docs/i.md`, `docs/*.md`.\n```\n# [j](k)\n```\n";
        let lines: Vec<&str> = prose(text).into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines.iter().flat_map(|line| links(line)).collect::<Vec<_>>(), ["c.md", "e.md#f"]);
        assert_eq!(lines.iter().flat_map(|line| paths(line)).collect::<Vec<_>>(), ["docs/i.md"]);
        assert_eq!(headings(text).into_iter().collect::<Vec<_>>(), ["the-a-and-b"]);
    }
}
