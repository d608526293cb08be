//! An authority, the certificate of the gateway, and those of two clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub(super) struct Pki {
    folder: PathBuf,
    /// For a client without a certificate, for alice and for bob.
    clients: [ClientConfig; 3],
}

impl Pki {
    /// Writes all files into `folder`. The gateway's certificate is for `names`.
    pub(super) fn new(folder: &Path, names: &[&str]) -> Pki {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("a file");
        write("ca.pem", authority.pem());
        let signed = |file: &str, names: &[&str]| {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
            params.as_mut().expect("names").distinguished_name.push(DnType::CommonName, file);
            let certificate = params.expect("names").signed_by(&key, &authority).expect("a certificate");
            write(&format!("{file}.pem"), certificate.pem());
            write(&format!("{file}.key"), key.serialize_pem());
            (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).expect("a key"))
        };
        signed("gateway", names);
        let client = |own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>| {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der().clone()).expect("an authority");
            let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
            let config = config.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
            match own {
                None => config.with_no_client_auth(),
                Some((own, key)) => config.with_client_auth_cert(vec![own], key).expect("a certificate"),
            }
        };
        let clients = [
            client(None),
            client(Some(signed("alice", &["a.alice.test", "x.test"]))),
            client(Some(signed("bob", &["b.test"]))),
        ];
        Pki { folder: folder.to_owned(), clients }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The settings of a client with the certificate of this name.
    pub(super) fn client(&self, name: Option<&str>) -> ClientConfig {
        let [anybody, alice, bob] = &self.clients;
        match name {
            None => anybody,
            Some("alice") => alice,
            Some(_) => bob,
        }
        .clone()
    }
}
