//! Every figure is within its band: asserts the table of `weirgate bands`. Figures that are skipped are
//! written to standard error, past the test runner.

use std::io::Write as _;

use weirgate_sim::bands::{Figure, Found, Source, Stored, Table, figures, measure};

/// Targets that the default discipline does not reach yet. The list may only shrink: a target that is
/// reached must leave it.
const NOT_REACHED: [&str; 2] = ["Table 3: A: mean response time, ms", "Table 3: C: mean response time, ms"];

/// A band outside the targets that the default discipline lost when owed requests no longer waited for its
/// window: windows per resource gain less from a page table.
const LOST: [&str; 1] = ["(page table): throughput with the table over throughput without it"];

/// Measures the figures that `wanted` selects and reports the skipped ones.
fn measured(wanted: impl Fn(&Figure) -> bool) -> Table {
    let table = measure(figures().into_iter().filter(wanted).collect(), None, |_, _| ());
    for (figure, found) in table.rows() {
        if let Found::Skipped(why) = found {
            // The test runner captures the output of macros.
            let line = format!("SKIPPED: {}, {}: {}: {why}\n", figure.paper, figure.figure, figure.what);
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }
    assert!(table.counts().0 > 0, "nothing was measured");
    table
}

#[test]
fn every_figure_of_the_papers_is_within_its_band() {
    let table = measured(|figure| figure.source != Source::Target);
    let outside = table.rows().filter(|(figure, found)| found.holds(&figure.band) == Some(false));
    let outside: Vec<String> = outside.map(|(figure, _)| format!("{}: {}", figure.figure, figure.what)).collect();
    assert_eq!(outside, LOST, "{}", table.outside().join("\n"));
}

#[test]
fn the_default_discipline_reaches_its_targets() {
    let table = measured(|figure| figure.source == Source::Target);
    let outside = table.rows().filter(|(figure, found)| found.holds(&figure.band) == Some(false));
    let outside: Vec<String> = outside.map(|(figure, _)| format!("{}: {}", figure.figure, figure.what)).collect();
    assert_eq!(outside, NOT_REACHED, "{}", table.outside().join("\n"));
}

/// The page of stored runs has the table that `weirgate bands --runs bench/runs --format markdown` prints.
#[test]
fn the_page_of_stored_runs_says_what_they_say() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (table, _) = Stored::read(&root.join("bench/runs")).expect("stored runs").measure(figures());
    assert!(table.counts().0 > 0, "nothing is stored");
    let page = root.join("docs/evidence/papers.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let (words, _) = text.split_once("\n### ").expect("a table after the words");
    let expected = format!("{words}\n{}", table.markdown());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&page, &expected).expect("written");
    } else {
        assert!(text == expected, "docs/evidence/papers.md differs: UPDATE_GOLDEN=1 writes it anew");
    }
}
