//! The admin API over mutual TLS: certificates, roles and tokens, and files that change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weirgate_http_client::{Address, Answer, Limits, Request, blocking};
use weirgate_pki::Authority;
use weirgate_tls::{LiveTrust, Role, Wanted};

use crate::{Running, Start, TOKEN, exchange, node};

/// An authority in the folder of a test, with the trust folder of its gateway.
struct Pki {
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Pki {
    fn new() -> Pki {
        let folder = tempfile::tempdir().expect("a directory");
        let authority = Authority::create(&folder.path().join("pki"), "test", 365, weirgate_clock::calendar());
        let mut pki = Pki { authority: authority.expect("an authority"), folder };
        pki.authority.issue(Role::Gateway, "gw", &["localhost".to_owned()], 30).expect("a certificate");
        pki
    }

    fn path(&self, party: &str) -> PathBuf {
        self.folder.path().join("pki/issued").join(party)
    }

    fn trust(&mut self, role: Role, name: &str) -> Arc<LiveTrust> {
        let folder = self.authority.issue(role, name, &[], 30).expect("a certificate");
        load(&folder, role)
    }

    /// Starts a gateway with an admin API over TLS.
    fn start(&self, token: bool) -> Running {
        let policy = format!("trust: {}\nclasses: [{{ name: other }}]\n", self.path("gateway-gw").display());
        Start { policy: &policy, token, ..Start::default() }.before(node())
    }
}

fn load(folder: &Path, role: Role) -> Arc<LiveTrust> {
    Arc::new(LiveTrust::load(folder, &[role], None).expect("a trust folder"))
}

fn ask(running: &Running, trust: &Arc<LiveTrust>, request: Request) -> Result<Answer, String> {
    let wanted = Wanted { role: Role::Gateway, name: None };
    let address = Address::Trusted(running.admin.to_string(), Arc::clone(trust), wanted);
    let limits = Limits::new(Duration::from_secs(20), 1 << 20);
    blocking::exchange(&address, request, &limits).map_err(|error| error.to_string())
}

fn get(running: &Running, trust: &Arc<LiveTrust>, path: &str) -> Result<u16, String> {
    ask(running, trust, Request::get("localhost", path)).map(|answer| answer.status)
}

fn post(running: &Running, trust: &Arc<LiveTrust>, path: &str) -> Result<u16, String> {
    let request = Request::post("localhost", path, "{}").field("content-type", "application/json");
    ask(running, trust, request).map(|answer| answer.status)
}

#[test]
fn a1_a_certificate_may_do_what_its_role_may() {
    let mut pki = Pki::new();
    let running = pki.start(false);
    let [operator, monitor, agent] = [Role::Operator, Role::Monitor, Role::Agent].map(|role| pki.trust(role, "one"));
    assert_eq!((get(&running, &operator, "/policy"), post(&running, &operator, "/reload")), (Ok(200), Ok(200)));
    assert_eq!((get(&running, &monitor, "/metrics"), post(&running, &monitor, "/reload")), (Ok(200), Ok(403)));
    assert_eq!((get(&running, &agent, "/policy"), post(&running, &agent, "/drain")), (Ok(403), Ok(403)));
    assert_eq!((running.version(), get(&running, &agent, "/ready")), (2, Ok(200)));
    let metrics = ask(&running, &monitor, Request::get("localhost", "/metrics")).expect("an answer").text();
    let own = format!("certificate=\"{}/tls.crt\"", pki.path("gateway-gw").display());
    assert!(metrics.lines().any(|line| line.contains("tls_certificate_not_after") && line.contains(&own)), "{metrics}");
}

#[test]
fn a1_another_gateway_may_read_what_was_learned_and_nothing_else() {
    let mut pki = Pki::new();
    let running = pki.start(false);
    let other = pki.trust(Role::Gateway, "gw2");
    assert_eq!(get(&running, &other, "/learned"), Ok(200));
    for path in ["/snapshot", "/nodes", "/policy", "/events", "/tap", "/metrics", "/learned/"] {
        assert_eq!(get(&running, &other, path), Ok(403), "{path}");
    }
    assert_eq!(post(&running, &other, "/learned"), Ok(403));
    assert_eq!(post(&running, &other, "/drain"), Ok(403));
}

#[test]
fn a1_without_a_certificate_of_the_site_nothing_is_shown() {
    let mut pki = Pki::new();
    let running = pki.start(false);
    let plain = exchange(running.admin, b"GET /policy HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(plain.status == 400 && plain.body.contains("this port speaks mutual TLS"), "{plain:?}");
    let foreign = Pki::new().trust(Role::Operator, "one");
    let said = get(&running, &foreign, "/policy").expect_err("another authority");
    assert!(said.contains("its certificate is of another authority"), "{said}");
    // A certificate of an agent does not make a gateway.
    let agent = pki.trust(Role::Agent, "n1");
    let wanted = Wanted { role: Role::Coordinator, name: None };
    let address = Address::Trusted(running.admin.to_string(), agent, wanted);
    let limits = Limits::new(Duration::from_secs(20), 1 << 20);
    let said =
        blocking::exchange(&address, Request::get("localhost", "/"), &limits).expect_err("a gateway").to_string();
    assert!(said.contains("this is gateway gw, and a coordinator was expected"), "{said}");
}

#[test]
fn a1_a_token_is_for_clients_without_a_certificate() {
    let pki = Pki::new();
    let running = pki.start(true);
    // Such a client knows the authority and the name of the machine, as curl with `--cacert` does.
    let status = |path: &str, token: Option<&str>| {
        let roots = anonymous(&pki.path("gateway-gw").join("ca.crt"));
        let head = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\n");
        anonymous_status(roots, running.admin, &request)
    };
    assert_eq!((status("/ready", None), status("/policy", None)), (200, 401));
    assert_eq!((status("/policy", Some(TOKEN)), status("/policy", Some("x"))), (200, 401));
}

/// Returns the settings of a client that has no certificate, and compares the name of the host.
fn anonymous(ca: &Path) -> tokio_rustls::rustls::ClientConfig {
    use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).expect("a file")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions");
    config.with_root_certificates(roots).with_no_client_auth()
}

fn anonymous_status(config: tokio_rustls::rustls::ClientConfig, address: std::net::SocketAddr, request: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    use tokio_rustls::rustls::{ClientConnection, StreamOwned};

    let name = "localhost".to_owned().try_into().expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = StreamOwned::new(client, crate::connect(address));
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("it answers");
    std::str::from_utf8(&answer[9..]).ok().and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn g1_renewed_and_revoked_certificates_count_without_a_reload() {
    let mut pki = Pki::new();
    let running = pki.start(false);
    let operator = pki.trust(Role::Operator, "one");
    let lost = pki.trust(Role::Operator, "two");
    assert_eq!((get(&running, &operator, "/policy"), get(&running, &lost, "/policy")), (Ok(200), Ok(200)));
    pki.authority.revoke(Role::Operator, "two").expect("it had one");
    pki.authority.renew(Role::Gateway, "gw").expect("it had one");
    // Changed files count when two looks have found them the same.
    (0..2).for_each(|_| running.gateway.look_at_certificates());
    let said = get(&running, &lost, "/policy").expect_err("it is revoked");
    assert!(said.contains("this certificate is revoked") || said.contains("closed"), "{said}");
    assert_eq!(get(&running, &operator, "/policy"), Ok(200));

    // The files of another party change nothing.
    let other = pki.authority.issue(Role::Gateway, "other", &[], 30).expect("a certificate");
    for file in ["tls.key", "tls.crt"] {
        fs::copy(other.join(file), pki.path("gateway-gw").join(file)).expect("a copy");
    }
    (0..2).for_each(|_| running.gateway.look_at_certificates());
    let wanted = Wanted { role: Role::Gateway, name: Some("gw".to_owned()) };
    let address = Address::Trusted(running.admin.to_string(), Arc::clone(&operator), wanted);
    let limits = Limits::new(Duration::from_secs(20), 1 << 20);
    assert_eq!(blocking::exchange(&address, Request::get("localhost", "/ready"), &limits).expect("gw").status, 200);
}
