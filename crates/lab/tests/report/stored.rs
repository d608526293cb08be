//! The pages of `docs/evidence` say what the stored runs of campaigns say.

use std::path::Path;

use weirgate_lab::report::{self, RunFile};

/// The page of the campaign on real servers ends with the overview that
/// `weirgate lab real --output bench/runs/2026-11-27-real --print` prints.
#[test]
fn the_page_of_the_campaign_says_what_its_runs_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("bench/runs/2026-11-27-real");
    let entries = std::fs::read_dir(&folder).expect("stored runs").map(|entry| entry.expect("an entry").path());
    let mut folders: Vec<_> = entries.filter(|path| path.join("run.json").exists()).collect();
    folders.sort();
    let runs: Vec<RunFile> = folders.iter().map(|path| report::read(path).expect("a run")).collect();
    assert!(!runs.is_empty(), "nothing is stored");
    let overview = report::overview(&runs);
    let (_, tables) = overview.split_once('\n').expect("a heading and tables");
    let page = root.join("docs/evidence/real.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let (words, _) = text.split_once("\n## All figures\n").expect("tables after the words");
    let expected = format!("{words}\n## All figures\n{tables}");
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::write(&page, &expected).expect("written");
    } else {
        assert!(text == expected, "docs/evidence/real.md differs: UPDATE_GOLDEN=1 writes it anew");
    }
}
