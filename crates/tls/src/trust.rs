//! The files by which the processes of a site trust one another: the authority, the certificate of this process with
//! its key, and the revocation list.
//!
//! All of it is in one folder, the *trust folder*. Its files have the names of a TLS secret of Kubernetes, so that a
//! mounted secret is a trust folder as it is: [`CA`], [`CERTIFICATE`], [`KEY`] and, if there is one, [`CRL`].
//!
//! Both sides of a connection present a certificate and check the other one in the same way: its signatures, its dates,
//! the revocation list, and the site that it names. Departure from RFC 9525: a client does not compare the name with
//! the address that it has connected to, but with the [`Party`] that it wants. So a certificate stays valid when a node
//! moves, and an agent cannot pose as the coordinator. TLS 1.3 only. Sessions are not resumed, so that every connection
//! meets the present revocation list.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, ServerConfig, version};

use crate::certificate::{Certificate, CertificateFiles};
use crate::file::{Fault, Part, told};
use crate::party::{Party, Role, Wanted};
use crate::rule::by_rule;
use crate::server::{ALPN, ClientAuth, ClientMode, verifier};
use crate::stamp::{Look, Stamps};
use crate::{Watched, provider};

/// File with the authorities of the site (PEM).
pub const CA: &str = "ca.crt";

/// File with the own certificate, followed by those of authorities below those of the site (PEM).
pub const CERTIFICATE: &str = "tls.crt";

/// File with the own key (PEM).
pub const KEY: &str = "tls.key";

/// File with the revocation list of the authority (PEM). It may be missing.
pub const CRL: &str = "ca.crl";

/// Interval between two looks at the files. Renewed certificates and revocation lists are in force within twice this
/// time.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The contents of a trust folder.
#[derive(Clone, Debug)]
pub struct Trust {
    folder: PathBuf,
    stamps: Stamps,
    own: Party,
    certificate: Certificate,
    client: Arc<ClientConfig>,
    servers: [Arc<ServerConfig>; 2],
}

impl Trust {
    /// Reads the files of `folder`.
    ///
    /// # Errors
    /// All faults of all files. A certificate of this process that has expired is not a fault, because other parts of
    /// the process work without it: see [`Trust::certificate`].
    pub fn load(folder: &Path) -> Result<Trust, Vec<Fault>> {
        let stamps = stamps(folder);
        if !folder.is_dir() {
            let what = format!("`{}` is no folder", folder.display());
            let hint = "make one with `weirgate pki issue`, and copy it to this machine";
            return Err(vec![Fault::new(Part::Certificate(0), what, hint)]);
        }
        let files = CertificateFiles {
            certificate: folder.join(CERTIFICATE),
            key: folder.join(KEY),
            ocsp: None,
            automatic: false,
        };
        let crl = Some(folder.join(CRL)).filter(|crl| crl.exists());
        let peers = |mode, crl: &Option<PathBuf>| {
            let clients = ClientAuth { mode, ca: folder.join(CA), crl: crl.clone() };
            verifier(&clients).map(|(verifier, _)| verifier)
        };
        let own = Certificate::load(&files, 0);
        let (own, required, optional) = match (own, peers(ClientMode::Required, &crl)) {
            (Ok(own), Ok(required)) => (own, required, peers(ClientMode::Optional, &crl).map_err(|fault| vec![fault])?),
            (own, peers) => {
                let fault = peers.err();
                return Err(own.err().unwrap_or_default().into_iter().chain(fault).collect());
            }
        };
        let party = check(folder, &own, &*peers(ClientMode::Required, &None).map_err(|fault| vec![fault])?);
        let party = party.map_err(|fault| vec![fault])?;
        let odd = |error: Error| vec![Fault::odd(&error)];
        let client = ClientConfig::builder_with_provider(provider());
        let client = client.with_protocol_versions(&[&version::TLS13]).map_err(odd)?;
        // Servers are accepted by the same rules as clients: the authority, the dates and the revocation list decide.
        // The client checks the party.
        let peers = Arc::clone(&required);
        let rule = by_rule(move |own, others, _, now| peers.verify_client_cert(own, others, now).map(drop));
        let client = client.dangerous().with_custom_certificate_verifier(rule);
        let mut client = client.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&own.key))));
        client.resumption = Resumption::disabled();
        client.alpn_protocols = http1();
        let server = |peers| {
            let server = ServerConfig::builder_with_provider(provider());
            let server = server.with_protocol_versions(&[&version::TLS13]).map_err(odd)?;
            let server = server.with_client_cert_verifier(peers);
            let mut server = server.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&own.key))));
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
            server.alpn_protocols = http1();
            Ok::<_, Vec<Fault>>(Arc::new(server))
        };
        let servers = [server(required)?, server(optional)?];
        Ok(Trust { folder: folder.to_owned(), stamps, own: party, certificate: own, client: Arc::new(client), servers })
    }

    /// Returns the party of the own certificate.
    pub fn own(&self) -> &Party {
        &self.own
    }

    /// Returns the own certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the settings of connections to other parties. The caller checks the other party with
    /// [`Trust::reached`].
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// Returns the settings of listeners. [`Trust::party`] returns the party of a connection.
    pub fn server(&self, clients: ClientMode) -> Arc<ServerConfig> {
        let [required, optional] = &self.servers;
        Arc::clone(match clients {
            ClientMode::Required => required,
            ClientMode::Optional => optional,
        })
    }

    /// Returns the other party of a connection from its verified certificates. `None` if it has none.
    ///
    /// # Errors
    /// The certificate is for no party of this site.
    pub fn party(&self, certificates: Option<&[CertificateDer<'_>]>) -> Result<Option<Party>, String> {
        let Some(certificate) = certificates.and_then(<[_]>::first) else { return Ok(None) };
        let party = Party::of(certificate)?;
        if party.site == self.own.site {
            return Ok(Some(party));
        }
        Err(format!("the certificate of {party} is of the site {:?}, and this is {:?}", party.site, self.own.site))
    }

    /// Checks by its verified certificates whether a server is the wanted party.
    ///
    /// # Errors
    /// It is another party.
    pub fn reached(&self, wanted: &Wanted, certificates: Option<&[CertificateDer<'_>]>) -> Result<(), String> {
        match self.party(certificates)? {
            Some(party) if wanted.is(&party) => Ok(()),
            Some(party) => Err(format!("this is {party}, and {wanted} was expected")),
            None => Err("it has no certificate".to_owned()),
        }
    }
}

impl Watched for Trust {
    fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    fn present_stamps(&self) -> Stamps {
        stamps(&self.folder)
    }

    fn again(&self) -> Result<Trust, Vec<Fault>> {
        Trust::load(&self.folder)
    }
}

/// The trust of a process. It follows changes of its files.
#[derive(Debug)]
pub struct LiveTrust {
    in_force: RwLock<Arc<Trust>>,
    look: Mutex<Look>,
}

impl LiveTrust {
    /// Reads the files of `folder`, for a process that is a party with one of `roles`, and with `name` if it is given.
    ///
    /// # Errors
    /// The faults of all files, one a line. The files are for another party.
    pub fn load(folder: &Path, roles: &[Role], name: Option<&str>) -> Result<LiveTrust, String> {
        let lines = |faults: Vec<Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let trust = Trust::load(folder).map_err(lines)?;
        let own = &trust.own;
        if !roles.contains(&own.role) || name.is_some_and(|name| name != own.name) {
            let role = roles.first().map_or("", |role| role.as_str());
            let wanted = format!("{role} {}", name.unwrap_or("NAME"));
            let shown = folder.join(CERTIFICATE);
            return Err(format!(
                "`{}` is for {own}, and this process is {wanted}; issue one with `weirgate pki issue {wanted}`",
                shown.display()
            ));
        }
        Ok(LiveTrust { in_force: RwLock::new(Arc::new(trust)), look: Mutex::default() })
    }

    /// Returns the trust in force.
    pub fn now(&self) -> Arc<Trust> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the files, and puts changed ones in force. Call it every [`LOOK_EVERY`]. Returns a line for the
    /// operator about a change, which is an error if the files cannot be used. A party never changes: files for another
    /// one cannot be used.
    pub fn look(&self) -> Option<Result<String, String>> {
        let now = self.now();
        let found = self.look.lock().unwrap_or_else(PoisonError::into_inner).at(&*now)?;
        let shown = now.folder.display();
        let refused =
            |why: &str| Some(Err(format!("`{shown}` has changed and cannot be used: {why}; the old one stays")));
        match found {
            Ok(new) if new.own != now.own => {
                refused(&format!("it is for {}, and this is {}", new.own.uri(), now.own.uri()))
            }
            Ok(new) => {
                *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                Some(Ok(format!("`{shown}` has changed and is in force")))
            }
            Err(faults) => refused(&told(&faults)),
        }
    }
}

/// Whether a connection to `address`, which is `host:port`, stays on this machine and needs no trust. Only the name
/// decides, because the address that it resolves to may change.
pub fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Describes why the other side of a connection is refused, or refuses this one.
pub fn why(error: &io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else { return error.to_string() };
    match tls {
        Error::NoCertificatesPresented => "it has no certificate".to_owned(),
        Error::InvalidCertificate(error) => match error {
            // Two authorities of one name differ in their signatures only.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is of another authority".to_owned()
            }
            CertificateError::Revoked => "its certificate is revoked".to_owned(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".to_owned()
            }
            other => format!("its certificate is not valid: {other}"),
        },
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => "it asks for a certificate".to_owned(),
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                "it does not know the authority of this certificate".to_owned()
            }
            AlertDescription::CertificateRevoked => "this certificate is revoked".to_owned(),
            AlertDescription::CertificateExpired => "this certificate has expired".to_owned(),
            other => format!("it refuses the handshake: {other:?}"),
        },
        Error::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        other => format!("the handshake failed: {other}"),
    }
}

/// Returns the party of the own certificate, which the authority of the folder must have signed.
fn check(folder: &Path, own: &Certificate, peers: &dyn ClientCertVerifier) -> Result<Party, Fault> {
    let shown = folder.join(CERTIFICATE);
    let fault = |what: String| {
        let hint = "issue one with `weirgate pki issue`, and copy its whole folder";
        Fault::new(Part::Certificate(0), format!("`{}`: {what}", shown.display()), hint)
    };
    let chain = &own.key.cert;
    let Some((first, others)) = chain.split_first() else { return Err(fault("there is no certificate".to_owned())) };
    let party = Party::of(first).map_err(fault)?;
    // In the middle of its validity: whether it has expired is no question of whether the files belong together.
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let middle = UnixTime::since_unix_epoch((since(own.not_before) + since(own.not_after)) / 2);
    peers.verify_client_cert(first, others, middle).map_err(|error| match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            fault(format!("the certificate is not signed by the authority in `{CA}` beside it"))
        }
        error => fault(format!("other parties would refuse the certificate: {error}")),
    })?;
    Ok(party)
}

fn stamps(folder: &Path) -> Stamps {
    let paths = [CA, CERTIFICATE, KEY, CRL].map(|name| folder.join(name));
    Stamps::of(paths.iter().map(PathBuf::as_path))
}

/// Returns the only protocol inside TLS.
fn http1() -> Vec<Vec<u8>> {
    ALPN.iter().skip(1).map(|protocol| protocol.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine() {
        for (address, local) in [
            ("127.0.0.1:9903", true),
            ("[::1]:9903", true),
            ("localhost:9903", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.9:9903", false),
            ("coordinator.internal:9903", false),
        ] {
            assert_eq!(is_local(address), local, "{address}");
        }
    }
}
