//! The settings of rustls for a listener.
//!
//! Only TLS 1.2 with forward secrecy and authenticated encryption, and TLS 1.3. Sessions are resumed by
//! tickets, so that nothing is kept per client. Their key belongs to one listener and changes every six hours (rustls).
//! 0-RTT data is not accepted, because it can be replayed (RFC 8446 Sec. 8).

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use crate::certificate::{self, Certificate, CertificateFiles};
use crate::file::{self, Fault, Part};
use crate::names::Certificates;
use crate::stamp::Stamps;
use crate::{Watched, provider};

/// Protocols that a listener offers inside TLS (RFC 7301), the preferred one first. `h2` only if it is switched on.
pub const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The lowest version of TLS that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

impl MinVersion {
    fn versions(self) -> Vec<&'static SupportedProtocolVersion> {
        match self {
            MinVersion::Tls12 => vec![&version::TLS13, &version::TLS12],
            MinVersion::Tls13 => vec![&version::TLS13],
        }
    }
}

/// Whether clients must have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMode {
    /// Every client needs one.
    Required,
    /// A client may have none. A certificate that is not valid ends the handshake.
    Optional,
}

/// The check of clients' certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// Whether clients must have one.
    pub mode: ClientMode,
    /// Authorities that sign them (PEM).
    pub ca: PathBuf,
    /// Revocation lists of all these authorities (PEM).
    pub crl: Option<PathBuf>,
}

/// The settings of a listener, with the names of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The certificates. The first one is the default.
    pub certificates: Vec<CertificateFiles>,
    /// The lowest version of TLS.
    pub min_version: MinVersion,
    /// The check of clients' certificates. `None` asks for none.
    pub clients: Option<ClientAuth>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

impl ServerSettings {
    /// Returns the present state of the files.
    fn stamps(&self) -> Stamps {
        let own = self
            .certificates
            .iter()
            .flat_map(|files| [Some(&files.certificate), Some(&files.key), files.ocsp.as_ref()].into_iter().flatten());
        let clients = self.clients.iter().flat_map(|clients| [Some(&clients.ca), clients.crl.as_ref()]);
        Stamps::of(own.chain(clients.flatten()).map(PathBuf::as_path))
    }
}

/// The settings of a listener, with the contents of its files.
#[derive(Clone, Debug)]
pub struct Server {
    settings: ServerSettings,
    stamps: Stamps,
    /// The certificates.
    pub certificates: Arc<Certificates>,
    /// For rustls.
    pub config: Arc<ServerConfig>,
    /// What decides about clients' certificates: a ticket must not outlive it.
    trust: ClientTrust,
    tickets: Arc<dyn ProducesTickets>,
}

/// The contents of the files that decide about clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientTrust {
    required: bool,
    ca: Vec<u8>,
    crl: Vec<u8>,
}

impl Server {
    /// Reads all files of `settings`. Certificates that the gateway writes itself may be missing. The keys of tickets
    /// are those of `before`, the same listener with its previous files, unless other clients are trusted now.
    ///
    /// # Errors
    /// All faults of all files.
    pub fn load(settings: &ServerSettings, before: Option<&Server>) -> Result<Server, Vec<Fault>> {
        let stamps = settings.stamps();
        let mut faults = Vec::new();
        let mut certificates = Vec::new();
        for (index, files) in settings.certificates.iter().enumerate() {
            match Certificate::load(files, index) {
                Ok(certificate) => certificates.push(certificate),
                Err(_) if files.automatic => {}
                Err(found) => faults.extend(found),
            }
        }
        let clients = settings.clients.as_ref().map(verifier).transpose();
        let clients = clients.map_err(|fault| faults.push(fault)).ok().flatten();
        if !faults.is_empty() {
            return Err(faults);
        }
        let (verifier, trust) =
            clients.unwrap_or_else(|| (WebPkiClientVerifier::no_client_auth(), ClientTrust::default()));
        let kept = before.filter(|before| before.trust == trust).map(|before| Arc::clone(&before.tickets));
        let tickets = match kept {
            Some(tickets) => tickets,
            None => Ticketer::new().map_err(|error| vec![Fault::odd(&error)])?,
        };
        let certificates = Arc::new(Certificates::new(certificates));
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&settings.min_version.versions())
            .map_err(|error| vec![Fault::odd(&error)])?;
        let resolver: Arc<Certificates> = Arc::clone(&certificates);
        let mut config = config.with_client_cert_verifier(verifier).with_cert_resolver(resolver);
        let offered = if settings.http2 { &ALPN[..] } else { &ALPN[1..] };
        config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&tickets);
        // AES first. A client that could choose would choose how much of the gateway's time a byte costs.
        config.ignore_client_order = true;
        let settings = settings.clone();
        Ok(Server { settings, stamps, certificates, config: Arc::new(config), trust, tickets })
    }
}

impl Watched for Server {
    fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    fn present_stamps(&self) -> Stamps {
        self.settings.stamps()
    }

    fn again(&self) -> Result<Server, Vec<Fault>> {
        Server::load(&self.settings, Some(self))
    }
}

/// Returns the check of clients' certificates, and the contents of its files.
pub(crate) fn verifier(clients: &ClientAuth) -> Result<(Arc<dyn ClientCertVerifier>, ClientTrust), Fault> {
    let roots = Arc::new(roots(&clients.ca)?);
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let mut trust = ClientTrust {
        required: clients.mode == ClientMode::Required,
        ca: file::read(&clients.ca, Part::Ca)?,
        crl: Vec::new(),
    };
    if let Some(path) = &clients.crl {
        let lists: Vec<CertificateRevocationListDer<'static>> = file::parts(path, Part::Crl)?;
        if lists.is_empty() {
            let what = format!("`{}` has no revocation list", path.display());
            return Err(Fault::new(Part::Crl, what, "it needs a block `-----BEGIN X509 CRL-----`"));
        }
        builder = builder.with_crls(lists);
        trust.crl = file::read(path, Part::Crl)?;
    }
    if clients.mode == ClientMode::Optional {
        builder = builder.allow_unauthenticated();
    }
    let verifier = builder.build().map_err(|error| {
        let part = if clients.crl.is_some() { Part::Crl } else { Part::Ca };
        Fault::new(
            part,
            format!("clients cannot be verified: {error}"),
            "check the authorities and their revocation lists",
        )
    })?;
    Ok((verifier, trust))
}

/// Reads the certificates of authorities.
pub(crate) fn roots(path: &std::path::Path) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    for authority in certificate::chain(path, Part::Ca)? {
        roots.add(authority).map_err(|error| {
            let what = format!("an authority in `{}` cannot be used: {error}", path.display());
            Fault::new(Part::Ca, what, "it must be an X.509 certificate of version 3")
        })?;
    }
    Ok(roots)
}
