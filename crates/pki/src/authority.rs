//! The folder of an authority: issue, renewal and revocation of its parties' certificates.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use weirgate_files::{PRIVATE, PUBLIC};
use weirgate_tls::trust::{CA, CERTIFICATE, CRL, KEY};
use weirgate_tls::{Party, Role, is_party_name, is_server_name, is_site};

use crate::file;
use crate::index::{Entry, Index, seconds};
use crate::sign::{Signer, fresh_serial};

/// Subfolder with the trust folders of all parties.
pub const ISSUED: &str = "issued";

/// File with the key of the authority.
const CA_KEY: &str = "ca.key";

/// File with the record of all certificates.
const INDEX: &str = "index.json";

/// Default validity of certificates in days, as that of `consul tls` and `nomad tls`. A lost key is revoked, so a short
/// validity is no protection, and a long one would leave renewal unpractised.
pub const DEFAULT_DAYS: u32 = 365;

/// Maximum validity in days, that of an authority by default.
pub const MAX_DAYS: u32 = 3_650;

/// Part of its lifetime that is left when a certificate is due for renewal, as ACME clients renew.
const DUE: u32 = 3;

const DAY: Duration = Duration::from_secs(86_400);

/// The folder of an authority, which no other process changes meanwhile.
pub struct Authority {
    folder: PathBuf,
    signer: Signer,
    index: Index,
    now: SystemTime,
    _lock: File,
}

/// State of a party's last certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is valid.
    Valid,
    /// It is valid and should be renewed, because less than a third of its lifetime is left.
    Due,
    /// It has expired.
    Expired,
}

impl Authority {
    /// Makes an authority for `site` in `folder`, valid for `days` from `now` on.
    ///
    /// # Errors
    /// The folder has an authority already, the name cannot be one, or a file cannot be written.
    pub fn create(folder: &Path, site: &str, days: u32, now: SystemTime) -> Result<Authority, String> {
        if !is_site(site) {
            return Err(format!("{site:?} is not a valid name; use letters in lower case, digits, `-`, `_` and `.`"));
        }
        if let Some(there) = [CA_KEY, CA, INDEX].map(|name| folder.join(name)).iter().find(|path| path.exists()) {
            let shown = there.display();
            return Err(format!("{shown} is there already: an authority is never replaced; choose another --folder"));
        }
        file::folder(&folder.join(ISSUED))?;
        let lock = lock(folder)?;
        let (signer, signed) = Signer::create(site, now, DAY * days)?;
        let mut authority = Authority { folder: folder.to_owned(), signer, index: Index::new(), now, _lock: lock };
        // The key is last: without it there is no authority yet.
        file::write(&folder.join(CA), PUBLIC, &signed.certificate)?;
        authority.revocations()?;
        file::write(&folder.join(CA_KEY), PRIVATE, &signed.key)?;
        Ok(authority)
    }

    /// Opens the authority in `folder` at `now`.
    ///
    /// # Errors
    /// There is none, it is damaged, or another process works on it.
    pub fn open(folder: &Path, now: SystemTime) -> Result<Authority, String> {
        if !folder.join(CA_KEY).exists() {
            return Err(format!("`{}` has no authority; make one with `weirgate pki init`", folder.display()));
        }
        let lock = lock(folder)?;
        let (certificate, key) = (file::read(&folder.join(CA))?, file::read(&folder.join(CA_KEY))?);
        let signer = Signer::read(folder, &certificate, &key)?;
        let index = Index::read(&folder.join(INDEX))?;
        Ok(Authority { folder: folder.to_owned(), signer, index, now, _lock: lock })
    }

    /// Returns the name of the site.
    pub fn site(&self) -> &str {
        &self.signer.site
    }

    /// Returns the end of the authority's own validity.
    pub fn not_after(&self) -> SystemTime {
        self.signer.not_after
    }

    /// Returns the last certificate of each party that has one.
    pub fn current(&self) -> impl Iterator<Item = &Entry> {
        self.index.current()
    }

    /// Returns the number of certificates that are revoked and have not expired.
    pub fn revoked(&self) -> usize {
        self.index.certificates.iter().filter(|entry| entry.revoked.is_some()).count()
    }

    /// Returns the state of a certificate.
    pub fn status(&self, entry: &Entry) -> Status {
        let left = entry.expiry().duration_since(self.now).unwrap_or_default().as_secs();
        match left {
            0 => Status::Expired,
            left if left < entry.expires.saturating_sub(entry.issued) / u64::from(DUE) => Status::Due,
            _ => Status::Valid,
        }
    }

    /// Issues the first certificate of a party, valid for `days`. It also covers `hosts`: names and addresses for
    /// clients that compare them, such as curl. Returns the party's trust folder.
    ///
    /// # Errors
    /// The party has a certificate, a name cannot be one, or a file cannot be written.
    pub fn issue(&mut self, role: Role, name: &str, hosts: &[String], days: u32) -> Result<PathBuf, String> {
        if !is_party_name(name) {
            return Err(format!("{name:?} is not a valid name; use letters, digits, `-`, `_` and `.`, at most 64"));
        }
        if let Some(host) = hosts.iter().find(|host| !is_server_name(host)) {
            return Err(format!("{host:?} is neither a host name nor an IP address"));
        }
        if let Some(there) = self.index.current().find(|entry| entry.role == role.as_str() && entry.name == name) {
            let until =
                if there.is_valid(self.now) { "has a certificate" } else { "has a certificate that has expired" };
            return Err(format!("{role} {name} {until}: `weirgate pki renew {role} {name}` replaces it"));
        }
        self.sign(role, name, hosts, days)
    }

    /// Replaces the certificate of a party and its key, with the same hosts and the same lifetime. Earlier certificates
    /// stay valid until they expire. Returns the trust folder.
    ///
    /// # Errors
    /// The party has no certificate, or a file cannot be written.
    pub fn renew(&mut self, role: Role, name: &str) -> Result<PathBuf, String> {
        let found = self.index.current().find(|entry| entry.role == role.as_str() && entry.name == name).cloned();
        let entry = found.ok_or_else(|| self.unknown(role, name))?;
        let days = entry.expires.saturating_sub(entry.issued) / DAY.as_secs();
        self.sign(role, name, &entry.hosts, u32::try_from(days).unwrap_or(MAX_DAYS).max(1))
    }

    /// Revokes all certificates of a party, and removes its trust folder. The revocation list of every other trust
    /// folder is replaced. Returns the number of certificates.
    ///
    /// # Errors
    /// The party has no certificate that counts, or a file cannot be written.
    pub fn revoke(&mut self, role: Role, name: &str) -> Result<usize, String> {
        let now = self.now;
        let all = self.index.certificates.iter_mut();
        let theirs = all.filter(|entry| entry.role == role.as_str() && entry.name == name && entry.is_valid(now));
        let revoked = theirs.map(|entry| entry.revoked = Some(seconds(now))).count();
        if revoked == 0 {
            return Err(self.unknown(role, name));
        }
        self.revocations()?;
        let folder = self.folder_of(role, name);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", folder.display())),
            _ => Ok(revoked),
        }
    }

    /// Returns the trust folder of a party.
    pub fn folder_of(&self, role: Role, name: &str) -> PathBuf {
        self.folder.join(ISSUED).join(format!("{role}-{name}"))
    }

    fn unknown(&self, role: Role, name: &str) -> String {
        format!("{role} {name} has no certificate of `{}`; `weirgate pki show` lists all", self.folder.display())
    }

    fn sign(&mut self, role: Role, name: &str, hosts: &[String], days: u32) -> Result<PathBuf, String> {
        let expires = self.now + DAY * days.clamp(1, MAX_DAYS);
        if expires > self.signer.not_after {
            let left = self.signer.not_after.duration_since(self.now).unwrap_or_default().as_secs() / DAY.as_secs();
            return Err(format!(
                "the authority itself is valid for {left} days only; use fewer --days, or make a new authority in another \
                 folder and let `ca.crt` have both for a while"
            ));
        }
        let entry = Entry {
            serial: fresh_serial()?,
            role: role.as_str().to_owned(),
            name: name.to_owned(),
            hosts: hosts.to_vec(),
            issued: seconds(self.now),
            expires: seconds(expires),
            revoked: None,
        };
        let party = Party { site: self.signer.site.clone(), role, name: name.to_owned() };
        let signed = self.signer.issue(&party, &entry, self.now)?;
        // First, so that every certificate can be revoked.
        self.index.certificates.push(entry);
        self.index.write(&self.folder.join(INDEX), self.now)?;
        let folder = self.folder_of(role, name);
        file::folder(&folder)?;
        file::write(&folder.join(KEY), PRIVATE, &signed.key)?;
        file::write(&folder.join(CERTIFICATE), PUBLIC, &signed.certificate)?;
        for name in [CA, CRL] {
            file::write(&folder.join(name), PUBLIC, &file::read(&self.folder.join(name))?)?;
        }
        Ok(folder)
    }

    /// Writes the index and the revocation list, here and in all trust folders.
    fn revocations(&mut self) -> Result<(), String> {
        self.index.crl_number += 1;
        self.index.write(&self.folder.join(INDEX), self.now)?;
        let revoked: Vec<&Entry> = self.index.certificates.iter().filter(|entry| entry.revoked.is_some()).collect();
        let list = self.signer.revocations(self.index.crl_number, &revoked, self.now)?;
        file::write(&self.folder.join(CRL), PUBLIC, &list)?;
        let issued = self.folder.join(ISSUED);
        let folders = fs::read_dir(&issued).map_err(|error| format!("{}: {error}", issued.display()))?;
        for folder in folders.flatten().map(|entry| entry.path()).filter(|path| path.join(CERTIFICATE).exists()) {
            file::write(&folder.join(CRL), PUBLIC, &list)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Keeps other processes from changing the folder. The kernel releases the lock at the end of this one.
fn lock(folder: &Path) -> Result<File, String> {
    let shown = folder.display();
    let lock = File::open(folder).map_err(|error| format!("{shown}: {error}"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(format!("another `weirgate pki` works on `{shown}`; try again")),
        Err(TryLockError::Error(error)) => Err(format!("{shown}: {error}")),
    }
}
