//! Changes of files, by their metadata.
//!
//! Programs that renew certificates replace files, or the links to them. The inode tells a new file even if its time
//! and size are those of the old one.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// State of some files. Equal states have equal contents, unless somebody sets back the clock of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps(Vec<Option<Stamp>>);

/// State of a file: device, inode, size, and the time of its last change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

impl Stamps {
    /// Looks at files. Links are followed. A file that is not there has a state as well.
    pub(crate) fn of<'p>(paths: impl Iterator<Item = &'p Path>) -> Stamps {
        let stamp = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        };
        Stamps(paths.map(stamp).collect())
    }
}
