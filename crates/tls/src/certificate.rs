//! A certificate with its chain, its key, and the facts about it that an operator wants to know.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, SubjectAltName};

use crate::file::{self, Fault, Part};
use crate::provider;

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateFiles {
    /// The certificate, followed by those of the authorities up to the root (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
    /// A response of its authority's OCSP server (DER).
    pub ocsp: Option<PathBuf>,
    /// Whether the gateway itself writes the files, when an authority has issued the certificate. Until they can be
    /// used, a listener does without this certificate.
    pub automatic: bool,
}

/// A DNS name in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Named {
    /// This name, in lower case.
    Exact(String),
    /// Every name with one more label before this suffix, which starts with a dot (RFC 9525 Sec. 6.3).
    OneBelow(String),
}

impl Named {
    /// Whether it covers `name`, which is in lower case.
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Named::Exact(own) => own == name,
            Named::OneBelow(suffix) => Named::suffix(name) == Some(suffix),
        }
    }

    /// Returns the part of `name` that a wildcard must have for it.
    pub(crate) fn suffix(name: &str) -> Option<&str> {
        name.find('.').filter(|dot| *dot > 0).and_then(|dot| name.get(dot..))
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Named::Exact(name) => f.write_str(name),
            Named::OneBelow(suffix) => write!(f, "*{suffix}"),
        }
    }
}

/// A certificate that a listener can present.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Its files.
    pub files: CertificateFiles,
    /// The DNS names that it covers. A client that connects by address sends no name.
    pub names: Vec<Named>,
    /// Start of its validity.
    pub not_before: SystemTime,
    /// End of its validity.
    pub not_after: SystemTime,
    /// The chain and the key, for rustls.
    pub(crate) key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Whether it covers `name`, which is in lower case.
    pub fn covers(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.covers(name))
    }

    /// Reads the files of the certificate with index `index`.
    ///
    /// # Errors
    /// A file cannot be read or used, or the key does not belong to the certificate.
    pub fn load(files: &CertificateFiles, index: usize) -> Result<Certificate, Vec<Fault>> {
        let chain = chain(&files.certificate, Part::Certificate(index));
        let key = key(&files.key, Part::Key(index));
        let ocsp = files.ocsp.as_deref().map(|path| ocsp(path, Part::Ocsp(index))).transpose();
        let (chain, key, ocsp) = match (chain, key, ocsp) {
            (Ok(chain), Ok(key), Ok(ocsp)) => (chain, key, ocsp),
            (chain, key, ocsp) => return Err([chain.err(), key.err(), ocsp.err()].into_iter().flatten().collect()),
        };
        let facts = facts(files, &chain, Part::Certificate(index)).map_err(|fault| vec![fault])?;
        let mut certified = certify(files, chain, key, index).map_err(|fault| vec![fault])?;
        certified.ocsp = ocsp;
        let Facts { names, not_before, not_after } = facts;
        Ok(Certificate { files: files.clone(), names, not_before, not_after, key: Arc::new(certified) })
    }

    /// Returns the parts of its renewal identifier: the key identifier of its authority, and its serial number as it
    /// stands in the certificate (RFC 9773 Sec. 4.1). `None` if it names no authority.
    pub fn renewal_id(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let own = x509_cert::Certificate::from_der(self.key.cert.first()?).ok()?;
        let own = own.tbs_certificate();
        let (_, authority) = own.get_extension::<AuthorityKeyIdentifier>().ok()??;
        let serial = own.serial_number().as_bytes();
        let serial = &serial[serial.iter().take_while(|byte| **byte == 0).count()..];
        // A first bit of 1 would make the number negative.
        let zero = serial.first().is_none_or(|first| *first >= 0x80).then_some(0);
        let serial = zero.into_iter().chain(serial.iter().copied()).collect();
        Some((authority.key_identifier?.into_bytes().into(), serial))
    }

    /// Whether it is valid at `time`.
    pub fn is_valid(&self, time: SystemTime) -> bool {
        (self.not_before..=self.not_after).contains(&time)
    }
}

/// Reads a chain. Its first certificate is the own one.
pub(crate) fn chain(path: &Path, part: Part) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let chain: Vec<CertificateDer<'static>> = file::parts(path, part)?;
    match chain.is_empty() {
        false => Ok(chain),
        true => Err(Fault::new(
            part,
            format!("`{}` has no certificate", path.display()),
            "it needs a block `-----BEGIN CERTIFICATE-----`",
        )),
    }
}

/// Reads a private key: the first one of the file.
pub(crate) fn key(path: &Path, part: Part) -> Result<PrivateKeyDer<'static>, Fault> {
    use rustls::pki_types::pem::Error::NoItemsFound;

    let bytes = file::read(path, part)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        let encrypted = bytes.windows(9).any(|window| window == b"ENCRYPTED");
        match error {
            NoItemsFound if encrypted => Fault::new(
                part,
                format!("the key in `{}` is encrypted with a passphrase", path.display()),
                "decrypt it with `openssl pkey` and protect the file by its mode",
            ),
            NoItemsFound => Fault::new(
                part,
                format!("`{}` has no private key", path.display()),
                "it needs a block `-----BEGIN PRIVATE KEY-----`",
            ),
            error => file::not_pem(path, part, &error),
        }
    })
}

/// Reads an OCSP response that says that it is successful (RFC 6960 Sec. 4.2.1). Its other parts are for clients.
fn ocsp(path: &Path, part: Part) -> Result<Vec<u8>, Fault> {
    let bytes = file::read(path, part)?;
    // A sequence of at least 256 bytes that begins with the enumerated value 0.
    match bytes.get(..7) {
        Some([0x30, 0x82, _, _, 0x0a, 0x01, 0x00]) => Ok(bytes),
        _ => Err(Fault::new(
            part,
            format!("`{}` is no successful OCSP response in DER", path.display()),
            "write the file that `openssl ocsp -respout` has written",
        )),
    }
}

/// Joins a chain with its key.
fn certify(
    files: &CertificateFiles,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    index: usize,
) -> Result<CertifiedKey, Fault> {
    let shown = files.key.display();
    let joined = CertifiedKey::from_der(chain, key, &provider());
    joined.map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Fault::new(
            Part::Key(index),
            format!("the key in `{shown}` does not belong to the certificate in `{}`", files.certificate.display()),
            "the own certificate comes first in its file, before those of the authorities",
        ),
        Error::InvalidCertificate(error) => Fault::new(
            Part::Certificate(index),
            format!("the certificate in `{}` cannot be used: {error:?}", files.certificate.display()),
            "it must be an X.509 certificate of version 3",
        ),
        error => Fault::new(
            Part::Key(index),
            format!("the key in `{shown}` cannot be used: {error}"),
            "use RSA with at least 2048 bits, ECDSA over P-256, P-384 or P-521, or Ed25519",
        ),
    })
}

struct Facts {
    names: Vec<Named>,
    not_before: SystemTime,
    not_after: SystemTime,
}

/// Returns the facts about the first certificate of a chain.
fn facts(files: &CertificateFiles, chain: &[CertificateDer<'static>], part: Part) -> Result<Facts, Fault> {
    let own: &[u8] = chain.first().map_or(&[], |own| own);
    let broken = |error: x509_cert::der::Error| {
        let what = format!("the certificate in `{}` cannot be read: {error}", files.certificate.display());
        Fault::new(part, what, "it must be an X.509 certificate of version 3")
    };
    let parsed = x509_cert::Certificate::from_der(own).map_err(broken)?;
    let parsed = parsed.tbs_certificate();
    let names = parsed.get_extension::<SubjectAltName>().map_err(broken)?;
    let names = names.map_or_else(Vec::new, |(_, names)| names.0);
    let time = |since: Duration| UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH);
    Ok(Facts {
        names: names.iter().filter_map(dns_name).collect(),
        not_before: time(parsed.validity().not_before.to_unix_duration()),
        not_after: time(parsed.validity().not_after.to_unix_duration()),
    })
}

fn dns_name(name: &GeneralName) -> Option<Named> {
    let GeneralName::DnsName(name) = name else { return None };
    let name = name.to_string().to_ascii_lowercase();
    Some(match name.strip_prefix('*') {
        Some(suffix) if suffix.starts_with('.') => Named::OneBelow(suffix.to_owned()),
        _ => Named::Exact(name),
    })
}
