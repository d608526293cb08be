//! Changes of files, by their metadata.
//!
//! Programs that renew certificates replace files, or the links to them. The inode tells a new file even if its time
//! and size are those of the old one.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::Watched;
use crate::file::Fault;

/// State of some files. Equal states have equal contents, unless the clock of the file system is set back.
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

/// Looks at the files of one value, again and again. Changed files are read when they were the same at two looks, so
/// that a certificate is not read before its key has been written. Files that cannot be used are reported once.
#[derive(Debug, Default)]
pub struct Look {
    /// Files that differed from those in force at the last look.
    changed: Option<Stamps>,
    /// Whether they were read, and could not be used.
    refused: bool,
}

impl Look {
    /// Looks at the files of `value`. Returns their new contents, or their faults, if they have changed.
    pub fn at<V: Watched>(&mut self, value: &V) -> Option<Result<V, Vec<Fault>>> {
        let stamps = value.present_stamps();
        if stamps == *value.stamps() {
            *self = Look::default();
            return None;
        }
        if self.changed.as_ref() != Some(&stamps) {
            *self = Look { changed: Some(stamps), refused: false };
            return None;
        }
        if self.refused {
            return None;
        }
        let read = value.again();
        self.refused = read.is_err();
        Some(read)
    }
}
