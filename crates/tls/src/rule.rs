//! Verification of servers by a rule of ours.
//!
//! The rule decides about the certificate, and rustls checks that the server has its key. A rule that accepts every
//! certificate still leaves this check.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::provider;

/// Returns a verifier with this rule. It gets the server's certificate, the others that it sent, the name that the
/// client wants, and the time.
pub(crate) fn by_rule<R>(rule: R) -> Arc<dyn ServerCertVerifier>
where
    R: Fn(&CertificateDer<'_>, &[CertificateDer<'_>], &ServerName<'_>, UnixTime) -> Result<(), Error>,
    R: Send + Sync + 'static,
{
    Arc::new(ByRule(rule))
}

struct ByRule<R>(R);

impl<R> fmt::Debug for ByRule<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByRule")
    }
}

impl<R> ServerCertVerifier for ByRule<R>
where
    R: Fn(&CertificateDer<'_>, &[CertificateDer<'_>], &ServerName<'_>, UnixTime) -> Result<(), Error> + Send + Sync,
{
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        (self.0)(certificate, others, name, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
