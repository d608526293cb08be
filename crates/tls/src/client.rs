//! The settings of rustls for connections to nodes.
//!
//! A node's certificate is verified against the authorities of the system or of a file, and must cover the node's name
//! (RFC 9525).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use crate::certificate::{self, Certificate, CertificateFiles};
use crate::file::{Fault, Part};
use crate::rule::by_rule;
use crate::server::{ALPN, roots};
use crate::stamp::Stamps;
use crate::{Watched, pinned, provider};

/// The settings of connections to nodes, with the names of their files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientSettings {
    /// Authorities that sign the nodes' certificates (PEM). `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// The name that the certificates must cover, and that nodes are asked for. `None` means the host of the node's
    /// address.
    pub server_name: Option<String>,
    /// The gateway's own certificate.
    pub own: Option<CertificateFiles>,
    /// Whether the nodes' certificates are verified.
    pub verify: bool,
}

/// The settings of connections to nodes, with the contents of their files.
#[derive(Clone, Debug)]
pub struct Client {
    /// For rustls.
    pub config: Arc<ClientConfig>,
    settings: ClientSettings,
    stamps: Stamps,
}

impl Client {
    /// Reads all files of `settings`. Sessions are not resumed across changes of files.
    ///
    /// # Errors
    /// All faults of all files.
    pub fn load(settings: &ClientSettings) -> Result<Client, Vec<Fault>> {
        let stamps = stamps(settings);
        let mut faults = Vec::new();
        let verifier = verifier(settings).map_err(|fault| faults.push(fault)).ok();
        let own = settings.own.as_ref().map(|files| Certificate::load(files, 0)).transpose();
        let own = own.map_err(|found| faults.extend(found)).ok().flatten();
        let Some(verifier) = verifier.filter(|_| faults.is_empty()) else { return Err(faults) };
        let config = ClientConfig::builder_with_provider(provider());
        let config = config.with_safe_default_protocol_versions().map_err(|error| vec![Fault::odd(&error)])?;
        let config = config.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some(own) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.key))),
        };
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
        Ok(Client { config: Arc::new(config), settings: settings.clone(), stamps })
    }

    /// Returns the settings for clients that speak HTTP/1.1 only.
    pub fn http1(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// Returns the name that the certificate of the node at `address` (`host:port`) must cover. `None` if the host is
    /// no name that a certificate can have.
    pub fn server_name(&self, address: &str) -> Option<ServerName<'static>> {
        match &self.settings.server_name {
            Some(name) => ServerName::try_from(name.clone()).ok(),
            None => server_name(address),
        }
    }
}

/// Returns a client of HTTP/1.1 over TLS that trusts the authorities in the file `ca`, or those of the system.
///
/// # Errors
/// There are none, or the file cannot be used: all faults.
pub fn https(ca: Option<&Path>) -> Result<Arc<ClientConfig>, Vec<Fault>> {
    let settings = ClientSettings { ca: ca.map(Path::to_owned), server_name: None, own: None, verify: true };
    Ok(Client::load(&settings)?.http1())
}

/// Returns the host of `host:port` as a name that a certificate can have. `None` if it is none.
pub fn server_name(address: &str) -> Option<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host).ok().map(|name| name.to_owned())
}

/// Whether a certificate can be for `name`.
pub fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

impl Watched for Client {
    fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    fn present_stamps(&self) -> Stamps {
        stamps(&self.settings)
    }

    fn again(&self) -> Result<Client, Vec<Fault>> {
        Client::load(&self.settings)
    }
}

/// The authorities of the system change with its updates, and are read again only with a reload.
fn stamps(settings: &ClientSettings) -> Stamps {
    let own = settings.own.iter().flat_map(|files| [&files.certificate, &files.key]);
    Stamps::of(own.chain(&settings.ca).map(PathBuf::as_path))
}

fn verifier(settings: &ClientSettings) -> Result<Arc<dyn ServerCertVerifier>, Fault> {
    if !settings.verify {
        // The node still has to have the key of its certificate.
        return Ok(by_rule(|_, _, _, _| Ok(())));
    }
    let (roots, listed) = match &settings.ca {
        Some(path) => (roots(path)?, certificate::chain(path, Part::Ca)?),
        None => (system_roots()?, Vec::new()),
    };
    pinned::verifier(roots, listed).map_err(|error| Fault::odd(&error))
}

fn system_roots() -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    // Some systems have authorities that rustls does not read, for example of version 1.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        false => Ok(roots),
        true => Err(Fault::new(
            Part::Ca,
            "this system has no authorities to verify nodes with",
            "install its package `ca-certificates`, or write `ca:`",
        )),
    }
}
