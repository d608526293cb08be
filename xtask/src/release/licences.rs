//! The licences of the libraries in the program. Most of them ask for their text to come with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo::cargo;
use crate::steps::read;

/// Beginnings of the names of files with a licence.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "copyright"];

/// Returns the name, version, licence and licence texts of each library.
pub(super) fn texts() -> Result<String, String> {
    let target = super::build::target();
    let words = ["tree", "--locked", "--package", "weirgate", "--edges", "normal", "--prefix", "none", "--target"];
    let tree = read(cargo(&words).arg(&target).args(["--format", "{p}\t{l}"]))?;
    let ours = |line: &&str| line.contains("(/");
    let libraries: BTreeSet<&str> = tree.lines().filter(|line| !line.is_empty() && !ours(line)).collect();
    let sources = sources()?;
    let mut all = String::new();
    for library in libraries {
        let (package, licence) = library.split_once('\t').unwrap_or((library, ""));
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        let version = version.trim_start_matches('v');
        all += &format!("== {name} {version}: {}\n", licence.trim_end_matches(" (*)"));
        for folder in &sources {
            all += &files(&folder.join(format!("{name}-{version}")));
        }
    }
    Ok(all)
}

/// Folders where cargo has unpacked libraries, one per registry.
fn sources() -> Result<Vec<PathBuf>, String> {
    let folder = super::build::cargo_home()?.join("registry/src");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Texts of the licences in `folder`.
fn files(folder: &Path) -> String {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<PathBuf> = names
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            path.is_file() && NAMES.iter().any(|start| name.starts_with(start))
        })
        .collect();
    names.sort();
    names
        .iter()
        .filter_map(|path| fs::read(path).ok())
        .map(|text| format!("{}\n", String::from_utf8_lossy(&text)))
        .collect()
}
