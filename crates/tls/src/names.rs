//! The choice of a certificate by the name that a client asks for.
//!
//! Source: RFC 6066 Sec. 3. An exact name precedes a wildcard, and a wildcard stands for one label. A client that sends
//! no name, or one that no certificate covers, gets the first certificate. If there is none at all, because an
//! authority has not issued any yet, the handshake fails. Among certificates for the same name, a client gets the first
//! one with a key that it can check. So a name can have an RSA and an ECDSA certificate.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::{Certificate, Named};

/// The certificates of a listener.
#[derive(Debug)]
pub struct Certificates {
    all: Vec<Certificate>,
    /// Indices by exact name.
    exact: HashMap<String, Vec<usize>>,
    /// Indices by the suffix of a wildcard, which starts with a dot.
    one_below: HashMap<String, Vec<usize>>,
}

impl Certificates {
    pub(crate) fn new(all: Vec<Certificate>) -> Certificates {
        let mut certificates = Certificates { all, exact: HashMap::new(), one_below: HashMap::new() };
        for (index, certificate) in certificates.all.iter().enumerate() {
            for name in &certificate.names {
                let (map, name) = match name {
                    Named::Exact(name) => (&mut certificates.exact, name),
                    Named::OneBelow(suffix) => (&mut certificates.one_below, suffix),
                };
                map.entry(name.clone()).or_default().push(index);
            }
        }
        certificates
    }

    /// The certificates, in the order of the policy.
    pub fn all(&self) -> &[Certificate] {
        &self.all
    }

    /// Whether a certificate covers `name`, which is in lower case.
    pub fn covers(&self, name: &str) -> bool {
        self.of(name).next().is_some()
    }

    /// Returns the certificates for `name`, the best one first.
    fn of(&self, name: &str) -> impl Iterator<Item = &Certificate> {
        let wild = Named::suffix(name).and_then(|suffix| self.one_below.get(suffix));
        let found = self.exact.get(name).into_iter().chain(wild).flatten();
        found.filter_map(|index| self.all.get(*index))
    }

    /// Returns the certificate for a client that asks for `name` and can check `schemes`.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<&Certificate> {
        let named = name.into_iter().flat_map(|name| self.of(name));
        let fits = |certificate: &&Certificate| certificate.key.key.choose_scheme(schemes).is_some();
        named.chain(&self.all).find(fits).or(self.all.first())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let chosen = self.choose(name.as_deref(), hello.signature_schemes());
        chosen.map(|certificate| Arc::clone(&certificate.key))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};

    use super::*;
    use crate::certificate::CertificateFiles;

    const ECDSA: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
    const EDDSA: SignatureScheme = SignatureScheme::ED25519;

    fn certificate(names: &[&str], of: &'static SignatureAlgorithm) -> Certificate {
        let key = KeyPair::generate_for(of).expect("a key");
        let names = names.iter().map(|name| match name.strip_prefix('*') {
            Some(suffix) => Named::OneBelow(suffix.to_owned()),
            None => Named::Exact((*name).to_owned()),
        });
        let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let key = crate::provider().key_provider.load_private_key(key).expect("a key");
        Certificate {
            files: CertificateFiles { certificate: "c".into(), key: "k".into(), ocsp: None, automatic: false },
            names: names.collect(),
            not_before: UNIX_EPOCH,
            not_after: UNIX_EPOCH,
            key: Arc::new(CertifiedKey::new(Vec::new(), key)),
        }
    }

    #[test]
    fn an_exact_name_precedes_a_wildcard_and_the_first_is_the_default() {
        let p256 = |names| certificate(names, &PKCS_ECDSA_P256_SHA256);
        let all = vec![p256(&["default.test"]), p256(&["*.a.test", "b.test"]), p256(&["x.a.test"])];
        let certificates = Certificates::new(all);
        let chosen = |name| {
            let chosen = certificates.choose(name, &[ECDSA]).expect("there is one");
            certificates.all.iter().position(|one| std::ptr::eq(one, chosen)).expect("it is one of them")
        };
        assert_eq!(["x.a.test", "y.a.test", "b.test"].map(|name| chosen(Some(name))), [2, 1, 1]);
        assert_eq!(["a.test", ".a.test", "x.y.a.test", "c.test", ""].map(|name| chosen(Some(name))), [0; 5]);
        assert_eq!(chosen(None), 0);
        assert!(certificates.covers("y.a.test") && !certificates.covers("a.test"));
    }

    #[test]
    fn the_key_is_one_that_the_client_can_check() {
        let all = vec![certificate(&["a.test"], &PKCS_ED25519), certificate(&["a.test"], &PKCS_ECDSA_P256_SHA256)];
        let certificates = Certificates::new(all);
        let chosen = |schemes: &[SignatureScheme]| {
            let chosen = certificates.choose(Some("a.test"), schemes).expect("there is one");
            chosen.key.key.algorithm()
        };
        assert_eq!(chosen(&[ECDSA]), rustls::SignatureAlgorithm::ECDSA);
        assert_eq!(chosen(&[ECDSA, EDDSA]), rustls::SignatureAlgorithm::ED25519);
        assert_eq!(chosen(&[]), rustls::SignatureAlgorithm::ED25519);
    }
}
