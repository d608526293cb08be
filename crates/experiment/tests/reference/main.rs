//! The pages of `docs/reference` are those that the JSON Schemas give. `cargo xtask reference` writes them anew.

mod page;

use std::path::Path;

use page::Page;
use weirgate_config::{page_table_schema, schema};
use weirgate_experiment::experiment_schema;

#[test]
fn the_pages_are_those_of_the_schemas() {
    let (policy, experiment, page_table) = (schema(), experiment_schema(), page_table_schema());
    let policy = Page::new("policy", &policy, None);
    let experiment = Page::new("experiment", &experiment, Some(&policy));
    let page_table = Page::new("page-table", &page_table, Some(&policy));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    for (page, purpose, guide) in [
        (&policy, "The policy file, which `weirgate run` serves", "../guide/policy.md"),
        (&experiment, "The experiment file, which `weirgate sim` and `weirgate lab` play", "../guide/experiments.md"),
        (&page_table, "The page table, which `weirgate probe` writes", "../guide/page-table.md"),
    ] {
        let (file, text) = (folder.join(format!("{}.md", page.name)), page.text(purpose, guide));
        if update {
            std::fs::write(&file, text).expect("the page can be written");
        } else {
            let same = std::fs::read_to_string(&file).is_ok_and(|written| written == text);
            assert!(same, "docs/reference/{}.md is not what the schema gives: run `cargo xtask reference`", page.name);
        }
    }
}
