//! The memory limit of the process's own group.
//!
//! A limit applies to a group with all its descendants, so the lowest one on the way to the root counts. Inside a
//! container the path in `/proc/self/cgroup` may lead out of the visible tree. Then the root of the tree is the group.

use std::fs;
use std::path::{Path, PathBuf};

use crate::mounts::{MOUNTS, Mounts};

/// Groups of the process, one line for each tree (see cgroups(7)).
const OWN: &str = "/proc/self/cgroup";

/// Limits from here on mean none. Without a limit, v1 shows the largest multiple of a page.
const NO_LIMIT: u64 = 1 << 60;

/// Returns the lowest memory limit of the process's group and the groups above it, in bytes. `None` if there is no
/// limit, or no control group of the memory controller.
pub fn memory_limit() -> Option<u64> {
    let (own, mounts) = (fs::read_to_string(OWN).ok()?, fs::read_to_string(MOUNTS).ok()?);
    limit(&own, &Mounts::parse(&mounts))
}

fn limit(own: &str, mounts: &Mounts) -> Option<u64> {
    let groups = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let v1 = controllers.split(',').any(|controller| controller == "memory");
        let (tree, file) = if v1 {
            (mounts.v1.get("memory")?, "memory.limit_in_bytes")
        } else if number == "0" && controllers.is_empty() {
            (mounts.v2.as_ref()?, "memory.max")
        } else {
            return None;
        };
        lowest(tree, &group(tree, path), file)
    });
    groups.min()
}

/// Returns the directory of a group.
fn group(tree: &Path, path: &str) -> PathBuf {
    let group = tree.join(path.trim_start_matches('/'));
    if group.is_dir() { group } else { tree.to_owned() }
}

/// Returns the lowest limit in `file` from `group` up to the root of the tree.
fn lowest(tree: &Path, group: &Path, file: &str) -> Option<u64> {
    let above = group.ancestors().take_while(|directory| directory.starts_with(tree));
    let limits = above.filter_map(|directory| fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok());
    limits.filter(|&limit: &u64| limit < NO_LIMIT).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::{TempDir, tempdir};

    fn tree(files: &[(&str, &str)]) -> TempDir {
        let scratch = tempdir().expect("a directory");
        for (file, text) in files {
            let file = scratch.path().join(file);
            fs::create_dir_all(file.parent().expect("it is below the root")).expect("a directory");
            fs::write(file, text).expect("a file");
        }
        scratch
    }

    #[test]
    fn the_lowest_limit_up_to_the_root_counts() {
        let root = tree(&[
            ("v2/memory.max", "max\n"),
            ("v2/a/memory.max", "1000\n"),
            ("v2/a/b/memory.max", "2000\n"),
            ("v2/c/memory.max", "max\n"),
        ]);
        let mounts = Mounts { v2: Some(root.path().join("v2")), ..Mounts::default() };
        assert_eq!(limit("0::/a/b\n", &mounts), Some(1000));
        assert_eq!(limit("0::/c\n", &mounts), None);
        assert_eq!(limit("0::/\n", &mounts), None);
    }

    #[test]
    fn a_path_that_is_not_visible_is_the_root() {
        let root = tree(&[("v2/memory.max", "5000\n")]);
        let mounts = Mounts { v2: Some(root.path().join("v2")), ..Mounts::default() };
        assert_eq!(limit("0::/system.slice/docker-1.scope\n", &mounts), Some(5000));
        assert_eq!(limit("", &mounts), None);
    }

    #[test]
    fn version_1_has_a_number_for_no_limit() {
        let root = tree(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/a/memory.limit_in_bytes", "100663296\n"),
        ]);
        let v1 = [("memory".to_owned(), root.path().join("memory"))].into();
        let mounts = Mounts { v1, v2: None };
        assert_eq!(limit("4:memory:/a\n3:cpu,cpuacct:/b\n0::/c\n", &mounts), Some(100_663_296));
        assert_eq!(limit("4:memory:/\n", &mounts), None);
    }
}
