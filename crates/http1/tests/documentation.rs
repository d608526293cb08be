//! The page about accepted and refused input lists every fault.

use weirgate_http1::Fault;

#[test]
fn the_page_lists_every_fault_with_its_source() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/http.md");
    let page = std::fs::read_to_string(page).expect("the page is in the repository");
    // A request has no status, so the page does not list that fault among the refused requests.
    for fault in Fault::ALL.iter().filter(|&&fault| fault != Fault::Status) {
        let start = format!("| {} | {} | ", fault.status(), fault.text());
        let line = page.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("docs/guide/http.md has no line {start}"));
        assert!(line.ends_with(&format!(" | {} |", fault.source())), "{line}");
    }
}
