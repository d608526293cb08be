//! The record of all certificates that an authority has issued and that have not expired.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weirgate_files::PRIVATE;

use crate::file;

/// Version of the file. It increases when a field changes its meaning.
const VERSION: u32 = 1;

/// All certificates of an authority, in the order of their issue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Index {
    version: u32,
    /// Number of the last revocation list (RFC 5280 Sec. 5.2.3).
    pub(crate) crl_number: u64,
    pub(crate) certificates: Vec<Entry>,
}

/// A certificate. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its serial number in hex.
    pub serial: String,
    /// The role of its party.
    pub role: String,
    /// The name of its party.
    pub name: String,
    /// Host names and addresses, for clients that compare them.
    pub hosts: Vec<String>,
    /// Time of issue.
    pub issued: u64,
    /// End of its validity.
    pub expires: u64,
    /// Time of its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
}

impl Entry {
    /// Returns the end of its validity.
    pub fn expiry(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.expires)
    }

    /// Whether it counts at `now`: it has not expired and is not revoked.
    pub fn is_valid(&self, now: SystemTime) -> bool {
        self.revoked.is_none() && now < self.expiry()
    }
}

/// Returns a time as seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { version: VERSION, crl_number: 0, certificates: Vec::new() }
    }

    pub(crate) fn read(path: &Path) -> Result<Index, String> {
        let index: Index = serde_json::from_str(&file::read(path)?)
            .map_err(|error| format!("{}: this is not the index of an authority: {error}", path.display()))?;
        match index.version {
            VERSION => Ok(index),
            other => Err(format!("{}: it has version {other}, and this program reads {VERSION}", path.display())),
        }
    }

    /// Writes the record. Expired certificates are left out, except the last one of a party if it was not revoked: a
    /// renewal repeats it.
    pub(crate) fn write(&mut self, path: &Path, now: SystemTime) -> Result<(), String> {
        let last: Vec<bool> = (0..self.certificates.len()).map(|at| self.is_last(at)).collect();
        let mut last = last.into_iter();
        self.certificates
            .retain(|entry| last.next().unwrap_or(true) && entry.revoked.is_none() || now < entry.expiry());
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        file::write(path, PRIVATE, &(text + "\n"))
    }

    fn is_last(&self, at: usize) -> bool {
        let after = self.certificates.get(at + 1..).unwrap_or_default();
        self.certificates.get(at).is_some_and(|one| !after.iter().any(|b| (&b.role, &b.name) == (&one.role, &one.name)))
    }

    /// Returns the last certificate of each party, unless it was revoked.
    pub(crate) fn current(&self) -> impl Iterator<Item = &Entry> {
        let last = self.certificates.iter().enumerate().filter(|(at, _)| self.is_last(*at));
        last.map(|(_, entry)| entry).filter(|entry| entry.revoked.is_none())
    }
}
