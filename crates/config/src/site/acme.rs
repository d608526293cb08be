//! The authority that issues certificates, and the certificates that are wanted of it.

use std::path::PathBuf;

use weirgate_tls::CertificateFiles;

/// The authority that issues certificates (ACME), and the certificates that it shall issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// URL of its directory.
    pub directory: String,
    /// Folder for the account and the certificates of this directory.
    pub storage: PathBuf,
    /// E-mail addresses for the account.
    pub contact: Vec<String>,
    /// Authorities of the directory's own certificate (PEM). `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// The identifier of the key of an account outside of ACME, and the file with the key in base64url.
    pub external_account: Option<(String, PathBuf)>,
    /// The challenges that are answered, at least one. Attempts take turns.
    pub challenges: Vec<Challenge>,
    /// The certificates, each once.
    pub certificates: Vec<AcmeCertificate>,
}

/// A certificate that an authority issues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeCertificate {
    /// The names that it covers, in lower case.
    pub names: Vec<String>,
    /// Where it is kept.
    pub files: CertificateFiles,
}

/// The way in which an authority checks a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// By a page on port 80 (RFC 8555 Sec. 8.3).
    Http01,
    /// By a handshake on port 443 (RFC 8737).
    TlsAlpn01,
}
