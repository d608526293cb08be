//! An authority for tests, the certificates that it signs, and clients that trust it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tokio_rustls::rustls::client::ClientConnection;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, StreamOwned, SupportedProtocolVersion};

use super::stage::LIMIT;

/// A client's connection.
pub(crate) type TlsClient = StreamOwned<ClientConnection, TcpStream>;

pub(crate) struct Pki {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub(crate) fn new() -> Pki {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let folder = TempDir::new().expect("a folder");
        fs::write(folder.path().join("ca.pem"), authority.pem()).expect("a file");
        Pki { folder, authority }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn signed(&self, names: &[&str], common_name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, common_name);
        (params.signed_by(&key, &self.authority).expect("a certificate"), key)
    }

    /// Writes a certificate for `names` and its key, in place of those that are there. Returns the fields of a policy
    /// that name them.
    pub(crate) fn certificate(&self, file: &str, names: &[&str]) -> String {
        let (certificate, key) = self.signed(names, file);
        let [own, secret] = ["pem", "key"].map(|end| self.path(&format!("{file}.{end}")));
        // Replaced as programs that renew certificates do it: by a new file.
        for (path, text) in [(&secret, key.serialize_pem()), (&own, certificate.pem())] {
            let new = path.with_extension("new");
            fs::write(&new, text).expect("a file");
            fs::rename(&new, path).expect("a file");
        }
        format!("{{ certificate: {}, key: {} }}", own.display(), secret.display())
    }

    /// A certificate that began a day ago and is over after `left`.
    fn ending(&self, name: &str, left: Duration) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        let now = weirgate_clock::calendar();
        params.not_before = (now - Duration::from_secs(86_400)).into();
        params.not_after = (now + left).into();
        (params.signed_by(&key, &self.authority).expect("a certificate"), key)
    }

    /// A certificate with its key (PEM) that is over in an hour.
    pub(crate) fn nearly_over(&self, name: &str) -> String {
        let (own, key) = self.ending(name, Duration::from_secs(3600));
        format!("{}{}", own.pem(), key.serialize_pem())
    }

    /// A client that trusts the authority, with a certificate that is over after `left`.
    pub(crate) fn ending_client(&self, left: Duration) -> ClientConfig {
        self.client_with(Some(self.ending("client.test", left)), &[&TLS13, &TLS12])
    }

    /// A client that trusts the authority.
    pub(crate) fn client(&self) -> ClientConfig {
        self.client_with(None, &[&TLS13, &TLS12])
    }

    /// The same with one version of TLS.
    pub(crate) fn client_of(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        self.client_with(None, &[version])
    }

    /// The same with a certificate of the authority for this common name.
    pub(crate) fn known_client(&self, common_name: &str, names: &[&str]) -> ClientConfig {
        self.client_with(Some(self.signed(names, common_name)), &[&TLS13, &TLS12])
    }

    /// A server with a certificate for `names`, which asks clients for a certificate if `asks`.
    pub(crate) fn server(&self, names: &[&str], asks: bool) -> ServerConfig {
        let (certificate, key) = self.signed(names, "node");
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).expect("an authority");
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let clients = match asks {
            true => clients.build().expect("an authority"),
            false => WebPkiClientVerifier::no_client_auth(),
        };
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = config.expect("versions").with_client_cert_verifier(clients);
        config.with_single_cert(vec![certificate.der().clone()], key).expect("a certificate")
    }

    fn client_with(
        &self,
        own: Option<(rcgen::Certificate, KeyPair)>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_protocol_versions(versions).expect("versions").with_root_certificates(roots);
        match own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
                config.with_client_auth_cert(vec![certificate.der().clone()], key).expect("a certificate")
            }
        }
    }
}

/// Connects, and leaves the handshake to the first use.
pub(crate) fn connect(config: ClientConfig, address: SocketAddr, name: &str) -> TlsClient {
    let stream = TcpStream::connect(address).expect("the gateway accepts");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream.set_write_timeout(Some(LIMIT)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    let name = name.to_owned().try_into().expect("a name");
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a client"), stream)
}
