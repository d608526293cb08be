//! Every policy under `policies/` loads, and every one under `tests/errors/` fails with exactly the messages in the
//! text file of the same name. `UPDATE_GOLDEN=1 cargo test -p weirgate-config` rewrites these messages. Read the
//! difference before you keep it.

use std::fs;
use std::path::{Path, PathBuf};

use weirgate_config::{load_bytes, load_file};

/// The directory `path`, counted from this crate.
fn directory(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the files of `folder` with the extension `yaml`, sorted.
fn yaml(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    files
}

#[test]
fn every_example_loads_without_a_warning() {
    let files = yaml(&directory("../../policies"));
    assert!(files.len() >= 6, "only {} examples", files.len());
    for path in files {
        let loaded = load_file(&path, false).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loaded.warning_lines("it"), Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn every_broken_policy_says_what_is_wrong() {
    let files = yaml(&directory("tests/errors"));
    assert!(files.len() >= 30, "only {} broken policies", files.len());
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| v == "1");
    let mut differ = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy();
        let said = match load_bytes(&name, &fs::read(&path).unwrap(), false) {
            Ok(_) => panic!("{name} loads"),
            Err(errors) => errors.to_string(),
        };
        let golden = path.with_extension("txt");
        if update {
            fs::write(&golden, said).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != said {
            differ.push(format!("{name} says\n{said}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
