//! Patterns of group names: `system.slice/gold.service`, `docker/*silver*`.

use std::fs;
use std::io;
use std::path::Path;

/// Maximum number of groups that a class may have on a node. Each group is read four times a second.
pub const MAX_GROUPS: usize = 1000;

/// A group's path in which `*` matches any text within one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Parses a path relative to the root of the groups.
    ///
    /// # Errors
    /// The path could lead out of the root, or has an empty level.
    pub fn new(text: &str) -> Result<Pattern, String> {
        let odd = |level: &str| level.is_empty() || level == "." || level == ".." || level.contains('\0');
        match text.split('/').find(|level| odd(level)) {
            Some(level) => Err(format!(
                "{text:?} has a level {level:?}: write the group's path below the root of its hierarchy, such as \
                 system.slice/gold.service"
            )),
            None => Ok(Pattern(text.to_owned())),
        }
    }

    /// Returns the pattern as it was written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns the sorted names of at most [`MAX_GROUPS`] groups below `root` that match.
    ///
    /// # Errors
    /// A directory cannot be listed.
    pub fn find(&self, root: &Path) -> Result<Vec<String>, String> {
        let mut found = vec![String::new()];
        for level in self.0.split('/') {
            let mut deeper = Vec::new();
            for group in &found {
                let directory = root.join(group);
                let join = |name: &str| if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") };
                if !level.contains('*') {
                    if directory.join(level).is_dir() {
                        deeper.push(join(level));
                    }
                    continue;
                }
                let names = children(&directory);
                let names = names.map_err(|error| format!("{}: cannot be listed: {error}", directory.display()))?;
                deeper
                    .extend(names.iter().filter(|name| fits(level.as_bytes(), name.as_bytes())).map(|name| join(name)));
            }
            deeper.sort_unstable();
            deeper.truncate(MAX_GROUPS);
            found = deeper;
        }
        Ok(found)
    }
}

/// Returns the names of a group's children, or none if the group is gone.
pub(super) fn children(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    // A policy cannot contain names that are not UTF-8.
    Ok(directories.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Returns whether `text` matches `pattern`, in which `*` matches any text and every other byte matches
/// itself. Takes O(pattern × text) at worst, because only the last `*` is ever extended.
pub fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut at) = (0, 0);
    // The position after the last `*`, and the end of the text that this `*` matches so far.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match (pattern.get(p), star) {
            (Some(b'*'), _) => {
                p += 1;
                star = Some((p, at));
            }
            (Some(byte), _) if text.get(at) == Some(byte) => {
                p += 1;
                at += 1;
            }
            (_, Some((behind, stretched))) => {
                star = Some((behind, stretched + 1));
                (p, at) = (behind, stretched + 1);
            }
            (_, None) => return false,
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn stars_stay_within_their_level() {
        let scratch = tempdir().expect("a directory");
        for group in ["system.slice/gold.service", "docker/1-silver-a", "docker/2-silver-b", "docker/bronze/silver"] {
            fs::create_dir_all(scratch.path().join(group)).expect("a directory");
        }
        fs::write(scratch.path().join("docker/silver.txt"), "").expect("a file");
        for (pattern, groups) in [
            ("system.slice/gold.service", vec!["system.slice/gold.service"]),
            ("docker/*silver*", vec!["docker/1-silver-a", "docker/2-silver-b"]),
            ("*/*", vec!["docker/1-silver-a", "docker/2-silver-b", "docker/bronze", "system.slice/gold.service"]),
            ("docker/*/silver", vec!["docker/bronze/silver"]),
            ("docker/silver.txt", vec![]),
            ("docker/*.txt", vec![]),
            ("nowhere/*", vec![]),
            ("nowhere", vec![]),
        ] {
            assert_eq!(
                Pattern::new(pattern).expect("sound").find(scratch.path()),
                Ok(groups.iter().map(ToString::to_string).collect()),
                "{pattern}"
            );
        }
    }

    #[test]
    fn no_pattern_leads_outside() {
        for pattern in ["", "/", "/a", "a/", "a//b", "../a", "a/../../b", "."] {
            assert!(Pattern::new(pattern).expect_err(pattern).contains("has a level"), "{pattern}");
        }
    }
}
