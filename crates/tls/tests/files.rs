//! Certificates and keys from files: the faults that operators make, and handshakes with the settings that result.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, Issuer, KeyIdMethod,
    KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConnection};
use tempfile::TempDir;
use weirgate_tls::{CertificateFiles, ClientAuth, ClientMode, MinVersion, Named, Part, Server, ServerSettings};

/// An authority, and a folder for the files of its certificates.
struct Site {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Site {
    fn new() -> Site {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let site = Site { folder: TempDir::new().unwrap(), authority };
        fs::write(site.path("ca.pem"), site.authority.pem()).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn signed(&self, names: &[&str], serial: u64) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        (params.signed_by(&key, &self.authority).unwrap(), key)
    }

    /// Writes a certificate and its key.
    fn files(&self, name: &str, names: &[&str]) -> CertificateFiles {
        let (certificate, key) = self.signed(names, 7);
        let files = CertificateFiles {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
            ocsp: None,
            automatic: false,
        };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// Settings of a client that trusts the authority. `own` is its certificate.
    fn client(&self, own: Option<(rcgen::Certificate, KeyPair)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        Arc::new(match own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                config.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
        })
    }
}

fn settings(certificates: Vec<CertificateFiles>) -> ServerSettings {
    ServerSettings { certificates, min_version: MinVersion::Tls12, clients: None, http2: true }
}

fn faults(settings: &ServerSettings) -> Vec<(Part, String)> {
    let found = Server::load(settings, None).expect_err("it has a fault");
    found.into_iter().map(|fault| (fault.part, fault.to_string())).collect()
}

/// Connects a client to a server in memory. Returns the server's certificate and whether the session was resumed.
fn handshake(
    client: &Arc<ClientConfig>,
    server: &Server,
    name: &'static str,
) -> Result<(CertificateDer<'static>, bool), rustls::Error> {
    let mut client = ClientConnection::new(Arc::clone(client), name.try_into().unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::clone(&server.config)).unwrap();
    let mut bytes = Vec::new();
    while client.wants_write() || server.wants_write() {
        bytes.clear();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
        }
        server.process_new_packets()?;
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
        }
        client.process_new_packets()?;
    }
    client.writer().write_all(b"x").unwrap();
    client.write_tls(&mut bytes).unwrap();
    assert_eq!(client.alpn_protocol(), None, "the client has asked for no protocol");
    let _ = server.reader().read(&mut [0; 1]);
    let resumed = client.handshake_kind() == Some(HandshakeKind::Resumed);
    Ok((client.peer_certificates().unwrap()[0].clone().into_owned(), resumed))
}

#[test]
fn names_and_dates_are_read() {
    let site = Site::new();
    let files = site.files("a", &["A.test", "*.a.test"]);
    let server = Server::load(&settings(vec![files]), None).unwrap();
    let [certificate] = server.certificates.all() else { panic!("one certificate") };
    assert_eq!(certificate.names, [Named::Exact("a.test".into()), Named::OneBelow(".a.test".into())]);
    let year = Duration::from_secs(366 * 86_400);
    assert!(certificate.is_valid(SystemTime::UNIX_EPOCH + 50 * year));
    assert!(!certificate.is_valid(SystemTime::UNIX_EPOCH));
}

#[test]
fn every_fault_names_its_file() {
    let site = Site::new();
    let (a, b) = (site.files("a", &["a.test"]), site.files("b", &["b.test"]));
    let crossed = CertificateFiles { key: b.key.clone(), ..a.clone() };
    let swapped = CertificateFiles { certificate: a.key.clone(), key: a.certificate.clone(), ..a.clone() };
    let missing = CertificateFiles { certificate: site.path("no.pem"), ocsp: Some(b.key.clone()), ..b.clone() };
    let found = faults(&settings(vec![b, crossed, swapped, missing]));
    let parts: Vec<Part> = found.iter().map(|(part, _)| *part).collect();
    assert_eq!(parts, [Part::Key(1), Part::Certificate(2), Part::Key(2), Part::Certificate(3), Part::Ocsp(3)]);
    let expected = ["does not belong", "has no certificate", "has no private key", "cannot be read", "OCSP"];
    for ((_, what), expected) in found.iter().zip(expected) {
        assert!(what.contains(expected), "{what}");
    }
}

#[test]
fn files_that_are_not_pem_are_faults() {
    let site = Site::new();
    let files = site.files("a", &["a.test"]);
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    let (certificate, key) = (text(&files.certificate), text(&files.key));
    let broken = |certificate: &str, key: &str| {
        fs::write(&files.certificate, certificate).unwrap();
        fs::write(&files.key, key).unwrap();
        faults(&settings(vec![files.clone()])).remove(0).1
    };
    assert!(broken("", &key).contains("has no certificate"));
    assert!(broken(&certificate[..certificate.len() / 2], &key).contains("no sound PEM file"));
    assert!(broken(&certificate, &key.replace("PRIVATE", "ENCRYPTED PRIVATE")).contains("passphrase"));
    let noise = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(broken(noise, &key).contains("cannot be read"));
    let noise = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert!(broken(&certificate, noise).contains("cannot be used"));
}

#[test]
fn a_client_gets_the_certificate_of_its_name_and_resumes() {
    let site = Site::new();
    let (a, b) = (site.files("a", &["a.test"]), site.files("b", &["*.b.test"]));
    let before = Server::load(&settings(vec![a.clone(), b.clone()]), None).unwrap();
    let client = site.client(None);
    let (first, resumed) = handshake(&client, &before, "a.test").unwrap();
    assert!(!resumed);
    let (second, _) = handshake(&client, &before, "x.b.test").unwrap();
    assert_ne!(first, second);
    assert!(handshake(&client, &before, "c.test").is_err(), "the default certificate does not cover it");
    // A ticket survives a renewal, but not for another listener.
    let renewed = CertificateFiles { ..site.files("a", &["a.test"]) };
    let after = Server::load(&settings(vec![renewed, b]), Some(&before)).unwrap();
    assert_eq!(handshake(&client, &after, "a.test").unwrap(), (first, true));
    let other = Server::load(&settings(vec![a]), None).unwrap();
    assert!(!handshake(&client, &other, "a.test").unwrap().1);
}

#[test]
fn the_lowest_version_can_be_raised() {
    let site = Site::new();
    let mut settings = settings(vec![site.files("a", &["a.test"])]);
    let old = |settings: &ServerSettings| {
        let client = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let mut roots = RootCertStore::empty();
        roots.add(site.authority.der().clone()).unwrap();
        let client = client.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
        let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
        handshake(&client, &Server::load(settings, None).unwrap(), "a.test").is_ok()
    };
    assert!(old(&settings));
    settings.min_version = MinVersion::Tls13;
    assert!(!old(&settings));
}

#[test]
fn clients_are_verified() {
    let site = Site::new();
    let mut settings = settings(vec![site.files("a", &["a.test"])]);
    let load = |settings: &ServerSettings| Server::load(settings, None).unwrap();
    let auth = |mode, crl| Some(ClientAuth { mode, ca: site.path("ca.pem"), crl });
    let connects =
        |settings: &ServerSettings, client: &Arc<ClientConfig>| handshake(client, &load(settings), "a.test").is_ok();
    let stranger = Site::new();
    let nobody = site.client(None);
    let known = site.client(Some(site.signed(&["client.test"], 8)));
    let unknown = site.client(Some(stranger.signed(&["client.test"], 8)));
    let expected = |settings: &ServerSettings| [&nobody, &known, &unknown].map(|client| connects(settings, client));
    assert_eq!(expected(&settings), [true, true, true]);
    settings.clients = auth(ClientMode::Required, None);
    assert_eq!(expected(&settings), [false, true, false]);
    settings.clients = auth(ClientMode::Optional, None);
    assert_eq!(expected(&settings), [true, true, false]);
    let revoked = |serial: u64| {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(serial),
                revocation_time: date_time_ymd(2024, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer: &Issuer<'_, _> = &site.authority;
        fs::write(site.path("crl.pem"), list.signed_by(issuer).unwrap().pem().unwrap()).unwrap();
    };
    revoked(9);
    settings.clients = auth(ClientMode::Required, Some(site.path("crl.pem")));
    assert_eq!(expected(&settings), [false, true, false]);
    revoked(8);
    assert_eq!(expected(&settings), [false, false, false]);
    settings.clients = auth(ClientMode::Required, Some(site.path("ca.pem")));
    assert_eq!(faults(&settings)[0].0, Part::Crl);
}

#[test]
fn a_ticket_does_not_outlive_the_trust_in_its_client() {
    let site = Site::new();
    let mut settings = settings(vec![site.files("a", &["a.test"])]);
    settings.clients = Some(ClientAuth { mode: ClientMode::Required, ca: site.path("ca.pem"), crl: None });
    let before = Server::load(&settings, None).unwrap();
    let client = site.client(Some(site.signed(&["client.test"], 8)));
    assert!(!handshake(&client, &before, "a.test").unwrap().1);
    let same = Server::load(&settings, Some(&before)).unwrap();
    assert!(handshake(&client, &same, "a.test").unwrap().1);
    fs::write(site.path("ca.pem"), Site::new().authority.pem()).unwrap();
    let after = Server::load(&settings, Some(&same)).unwrap();
    assert!(handshake(&client, &after, "a.test").is_err());
}
