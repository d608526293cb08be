//! The answers that an authority asks for to check that a name leads here.
//!
//! Sources: RFC 8555 Sec. 8.3 (`http-01`), RFC 8737 (`tls-alpn-01`). Answers exist only while an order waits for its
//! checks. Everything else is served as always: a request for another token goes to the nodes, which may have clients
//! of ACME of their own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ClientHello;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

/// Path of the page for a token (RFC 8555 Sec. 8.3).
const PATH: &str = "/.well-known/acme-challenge/";

/// Protocol of the handshake (RFC 8737 Sec. 6.2).
const PROTOCOL: &[u8] = b"acme-tls/1";

/// The answers that are expected now.
#[derive(Debug, Default)]
pub struct Challenges {
    /// Whether there are any, so that requests and handshakes take no lock otherwise.
    any: AtomicBool,
    expected: RwLock<Expected>,
}

#[derive(Debug, Default)]
struct Expected {
    /// Pages by token.
    pages: BTreeMap<String, String>,
    /// Handshakes by name.
    handshakes: BTreeMap<String, Arc<ServerConfig>>,
}

impl Challenges {
    /// Returns the page for a request without TLS. `path` is called only if an authority may ask.
    pub fn page<'a>(&self, path: impl FnOnce() -> &'a str) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let token = path().strip_prefix(PATH)?;
        self.expected.read().unwrap_or_else(PoisonError::into_inner).pages.get(token).cloned()
    }

    /// Returns the settings for a handshake that an authority has begun. The connection is of no use afterwards.
    pub fn handshake(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        if !self.any.load(Ordering::Acquire) || !hello.alpn()?.eq([PROTOCOL]) {
            return None;
        }
        let name = hello.server_name()?.to_ascii_lowercase();
        self.expected.read().unwrap_or_else(PoisonError::into_inner).handshakes.get(&name).cloned()
    }

    /// Expects a request for `token`.
    pub(crate) fn expect_page(&self, token: &str, page: &str) {
        self.expect(|expected| drop(expected.pages.insert(token.to_owned(), page.to_owned())));
    }

    /// Expects a handshake for `name`. `digest` has 32 bytes.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub(crate) fn expect_handshake(&self, name: &str, digest: &[u8]) -> Result<(), String> {
        let config = handshake(name, digest)?;
        self.expect(|expected| drop(expected.handshakes.insert(name.to_owned(), config)));
        Ok(())
    }

    fn expect(&self, change: impl FnOnce(&mut Expected)) {
        change(&mut self.expected.write().unwrap_or_else(PoisonError::into_inner));
        self.any.store(true, Ordering::Release);
    }

    /// Expects nothing more.
    pub(crate) fn clear(&self) {
        self.any.store(false, Ordering::Release);
        *self.expected.write().unwrap_or_else(PoisonError::into_inner) = Expected::default();
    }
}

/// Returns the settings of a handshake with a self-signed certificate for `name` that has the digest of the answer
/// (RFC 8737 Sec. 3). Clients are not asked for certificates.
fn handshake(name: &str, digest: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let text = |error: &dyn std::fmt::Display| format!("no certificate for the challenge can be made: {error}");
    let digest: &[u8; 32] = digest.try_into().map_err(|error| text(&error))?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(|error| text(&error))?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().map_err(|error| text(&error))?;
    let own = params.self_signed(&key).map_err(|error| text(&error))?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = weirgate_tls::provider();
    let key = provider.key_provider.load_private_key(key).map_err(|error| text(&error))?;
    // rustls would check the certificate, and does not know its critical extension.
    let own = SingleCertAndKey::from(CertifiedKey::new(vec![own.der().clone()], key));
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().map_err(|error| text(&error))?;
    let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(own));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_tokens_are_answered_while_they_are_expected() {
        let challenges = Challenges::default();
        assert_eq!(challenges.page(|| "/.well-known/acme-challenge/a"), None);
        challenges.expect_page("a", "a.thumb");
        assert_eq!(challenges.page(|| "/.well-known/acme-challenge/a").as_deref(), Some("a.thumb"));
        for path in ["/.well-known/acme-challenge/", "/.well-known/acme-challenge/b", "/a", "a", ""] {
            assert_eq!(challenges.page(|| path), None, "{path}");
        }
        challenges.clear();
        assert_eq!(challenges.page(|| "/.well-known/acme-challenge/a"), None);
    }

    #[test]
    fn a_digest_of_another_length_is_an_error() {
        assert!(handshake("a.test", &[0; 32]).is_ok());
        assert!(handshake("a.test", &[0; 31]).is_err());
    }
}
