//! Every policy under `policies/` loads, and every one under `tests/errors/` fails with exactly the messages in the
//! text file of the same name. `UPDATE_GOLDEN=1 cargo test -p weirgate-config` rewrites these messages. Read the
//! difference before you keep it.

#[path = "support/golden.rs"]
mod golden;

use std::path::Path;

use golden::files::yaml;
use weirgate_config::{load_bytes, load_file};

#[test]
fn every_example_loads_without_a_warning() {
    let files = yaml(Path::new("../../policies"));
    assert!(files.len() >= 6, "only {} examples", files.len());
    for path in files {
        let loaded = load_file(&path).unwrap_or_else(|errors| panic!("{errors}"));
        let mut warnings = loaded.warning_lines("it");
        // The keys beside the examples are examples, too, and are said to be.
        warnings.retain(|warning| !warning.contains("is that of Weirgate's examples"));
        assert_eq!(warnings, Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn every_broken_policy_says_what_is_wrong() {
    golden::every_file_fails(30, load_bytes);
}
