//! Files that fail with exactly the messages in the text files of the same names.

#[path = "files.rs"]
pub mod files;

use std::fs;
use std::path::Path;

use weirgate_spanned_yaml::errors::Errors;

/// Compares the messages of at least `min` files in `tests/errors/`, or rewrites them with `UPDATE_GOLDEN=1`.
pub fn every_file_fails<T>(min: usize, load: impl Fn(&str, &[u8]) -> Result<T, Errors>) {
    // Tests run in the crate's directory, so paths in messages are the same everywhere.
    let files = files::yaml(Path::new("tests/errors"));
    assert!(files.len() >= min, "only {} broken files", files.len());
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| v == "1");
    let mut differ = Vec::new();
    for path in files {
        let name = path.file_name().expect("a file has a name").to_string_lossy();
        let said = match load(&name, &fs::read(&path).expect("it is there")) {
            Ok(_) => panic!("{name} loads"),
            Err(errors) => errors.to_string(),
        };
        let golden = path.with_extension("txt");
        if update {
            fs::write(&golden, said).expect("it can be written");
        } else if fs::read_to_string(&golden).unwrap_or_default() != said {
            differ.push(format!("{name} says\n{said}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
