//! The identity in a client's certificate.
//!
//! Sources: RFC 5280 Sec. 4.1.2.6 and 4.2.1.6, RFC 4514 (subjects as text).

use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::certificate;
use crate::file::Part;

/// Maximum number of alternative names that are kept. Certificates of clients have one or a few.
const MAX_NAMES: usize = 100;

/// The identity in the verified certificate of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The subject, such as `CN=alice,O=Example`.
    pub subject: String,
    /// The subject's common name.
    pub common_name: Option<String>,
    /// Alternative names: DNS names, e-mail addresses, URIs and IP addresses.
    pub names: Vec<String>,
}

impl Identity {
    /// Reads the first certificate of a PEM file.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate.
    pub fn read(path: &Path) -> Result<Identity, String> {
        let chain = certificate::chain(path, Part::Certificate(0)).map_err(|fault| fault.to_string())?;
        let read = chain.first().and_then(Identity::of);
        read.ok_or_else(|| format!("the certificate in `{}` cannot be read", path.display()))
    }

    /// Reads a certificate. Returns `None` if it cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Identity> {
        let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
        let parsed = parsed.tbs_certificate();
        let names = parsed.get_extension::<SubjectAltName>().ok()?.map_or_else(Vec::new, |(_, names)| names.0);
        Some(Identity {
            subject: parsed.subject().to_string(),
            common_name: parsed.subject().common_name().ok()?.map(|name| name.value().into_owned()),
            names: names.iter().filter_map(text).take(MAX_NAMES).collect(),
        })
    }
}

/// Whether the validity of a certificate has ended at `time`, or it cannot be read.
pub fn has_ended(certificate: &CertificateDer<'_>, time: SystemTime) -> bool {
    let end = x509_cert::Certificate::from_der(certificate)
        .ok()
        .and_then(|parsed| UNIX_EPOCH.checked_add(parsed.tbs_certificate().validity().not_after.to_unix_duration()));
    end.is_none_or(|end| end < time)
}

/// Returns a name as text. Kinds that no rule asks for have none.
fn text(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.to_string().to_ascii_lowercase()),
        GeneralName::Rfc822Name(name) | GeneralName::UniformResourceIdentifier(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => match bytes.as_bytes() {
            bytes @ &[_, _, _, _] => <[u8; 4]>::try_from(bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            bytes => <[u8; 16]>::try_from(bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn subject_and_names_are_read() {
        let mut params = CertificateParams::new(vec!["Web.test".to_owned(), "192.0.2.7".to_owned()]).expect("names");
        params.subject_alt_names.push(SanType::Rfc822Name("a@b.test".try_into().expect("ASCII")));
        params.subject_alt_names.push(SanType::URI("spiffe://site/web".try_into().expect("ASCII")));
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, "alice");
        let own = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
        let found = Identity::of(own.der()).expect("it is sound");
        assert_eq!(found.subject, "CN=alice,O=Example\\, Inc.");
        assert_eq!(found.common_name.as_deref(), Some("alice"));
        assert_eq!(found.names, ["web.test", "192.0.2.7", "a@b.test", "spiffe://site/web"]);
    }

    #[test]
    fn broken_certificates_have_no_identity() {
        for bytes in [&b""[..], b"0", b"\x30\x82\xff\xff", &[0x30; 64]] {
            assert_eq!(Identity::of(&CertificateDer::from(bytes)), None);
        }
    }
}
