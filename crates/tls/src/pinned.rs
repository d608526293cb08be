//! Verification of a node by its own certificate in the file of authorities.
//!
//! Many internal servers have a certificate that no authority has signed, and that `openssl req -x509` marks as an
//! authority. The rules for chains (RFC 5280 Sec. 6) do not accept it as a server's. An operator who lists it trusts
//! exactly this certificate, as OpenSSL does, so it is accepted if it is valid now and covers the node's name.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use x509_cert::der::Decode as _;

use crate::provider;
use crate::rule::by_rule;

/// Returns a verifier of nodes by authorities, or by being listed. `listed` are the certificates of `roots`, if they
/// come from a file.
///
/// # Errors
/// There are no authorities.
pub(crate) fn verifier(
    roots: RootCertStore,
    listed: Vec<CertificateDer<'static>>,
) -> Result<Arc<dyn ServerCertVerifier>, VerifierBuilderError> {
    let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
    Ok(by_rule(move |certificate, others, name, now| {
        match authorities.verify_server_cert(certificate, others, name, &[], now) {
            Err(_) if listed.iter().any(|listed| listed == certificate) => alone(certificate, name, now),
            verified => verified.map(drop),
        }
    }))
}

/// Checks a certificate that is trusted as it is.
fn alone(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let parsed = x509_cert::Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let validity = parsed.tbs_certificate().validity();
    let now = Duration::from_secs(now.as_secs());
    if now < validity.not_before.to_unix_duration() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.to_unix_duration() {
        return Err(CertificateError::Expired.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    /// A certificate that has signed itself, valid in 2026, marked as an authority.
    fn own(name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    #[test]
    fn a_listed_certificate_is_accepted_for_its_name_and_time() {
        let (listed, other) = (own("node.test"), own("node.test"));
        let mut roots = RootCertStore::empty();
        roots.add(listed.clone()).expect("an authority");
        let pinned = verifier(roots, vec![listed.clone()]).expect("an authority");
        let start = UnixTime::since_unix_epoch(Duration::from_secs(20_454 * DAY));
        let verify = |certificate: &CertificateDer<'_>, name: &'static str, days: u64| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(start.as_secs() + days * DAY));
            pinned.verify_server_cert(certificate, &[], &ServerName::try_from(name).expect("a name"), &[], now)
        };
        assert!(verify(&listed, "node.test", 1).is_ok());
        assert!(verify(&other, "node.test", 1).is_err());
        for (name, days) in [("other.test", 1), ("node.test", 400)] {
            assert!(matches!(verify(&listed, name, days), Err(Error::InvalidCertificate(_))), "{name} {days}");
        }
        let early = UnixTime::since_unix_epoch(Duration::from_secs(start.as_secs() - DAY));
        let name = ServerName::try_from("node.test").expect("a name");
        let early = pinned.verify_server_cert(&listed, &[], &name, &[], early);
        assert_eq!(early.err(), Some(CertificateError::NotValidYet.into()));
    }
}
