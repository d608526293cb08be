//! Reports of hand-made runs: their content, their form on disk, and the comparison of two.

mod compare;
mod directory;
mod hand_made;
mod page;
mod stored;
mod text;

use std::path::Path;

/// Asserts that `text` equals the file of this name next to the tests.
/// `UPDATE_GOLDEN=1 cargo test -p weirgate-lab` rewrites those files. Read the difference before you keep it.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| v == "1") {
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name} differs; UPDATE_GOLDEN=1 rewrites it. Now it is:\n{text}");
}
