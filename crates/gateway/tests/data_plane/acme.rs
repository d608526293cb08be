//! Certificates from an authority: pebble, the test server of Let's Encrypt, and its name server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use weirgate_gateway::{Ending, HandshakeFailure};
use weirgate_tls::{Client, ClientSettings};

use super::pki::{Pki, connect};
use super::stage::{Node, PLAIN, Stage, ok, wait_until};

/// The authority, until this is dropped.
struct Pebble {
    running: Vec<Child>,
    folder: tempfile::TempDir,
    directory: SocketAddr,
    /// Ports that it checks names at.
    http: SocketAddr,
    https: SocketAddr,
}

fn free_address() -> SocketAddr {
    weirgate_emulator::free_address().expect("a free port")
}

impl Pebble {
    /// Starts it. `rest` are more fields of its file. Returns `None` without the program, which is told.
    fn start(pki: &Pki, rest: &str) -> Option<Pebble> {
        let folder = tempfile::tempdir().expect("a folder");
        let _ = pki.certificate("pebble", &["127.0.0.1"]);
        let [directory, names, manage, http, https] = std::array::from_fn(|_| free_address());
        let config = format!(
            r#"{{"pebble": {{ "listenAddress": "{directory}", "certificate": "{}", "privateKey": "{}",
            "httpPort": {}, "tlsPort": {} {rest} }} }}"#,
            pki.path("pebble.pem").display(),
            pki.path("pebble.key").display(),
            http.port(),
            https.port(),
        );
        fs::write(folder.path().join("pebble.json"), config).expect("a file");
        let mut pebble = Pebble { running: Vec::new(), folder, directory, http, https };
        let dns = names.to_string();
        let off = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""];
        pebble
            .run("pebble-challtestsrv", &[&["-dns01", &dns, "-management", &manage.to_string()][..], &off].concat())?;
        pebble.run("pebble", &["-strict", "-dnsserver", &dns, "-config", "pebble.json"])?;
        wait_until("pebble serves", || [directory, names].iter().all(|address| TcpStream::connect(address).is_ok()));
        Some(pebble)
    }

    fn run(&mut self, program: &str, arguments: &[&str]) -> Option<()> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        // It would wait before each check, and refuse some requests at random.
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0");
        match command.spawn() {
            Ok(child) => self.running.push(child),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {program} cannot be started: {error}");
                return None;
            }
        }
        Some(())
    }

    /// A policy with a listener for each check, and these certificates of the authority.
    fn policy(&self, pki: &Pki, node: &Node, (acme, certificates): (&str, &str)) -> String {
        policy(
            &format!("{}, {{ address: \"{}\", tls: {{ certificates: {certificates} }} }}", self.http, self.https),
            node,
            &format!("directory: \"https://{}/dir\", ca: {}, {acme}", self.directory, pki.path("ca.pem").display()),
            &self.storage(),
        )
    }

    fn storage(&self) -> PathBuf {
        self.folder.path().join("acme")
    }

    /// The file of the account or of a certificate.
    fn file(&self, name: &str) -> PathBuf {
        self.storage().join(format!("127.0.0.1-{}-dir", self.directory.port())).join(name)
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn policy(listeners: &str, node: &Node, acme: &str, storage: &Path) -> String {
    format!(
        "listen: [{listeners}]\nadmin: off\nthreads: 2\nacme: {{ terms_agreed: true, storage: {}, {acme} }}\n\
         upstreams: {{ web: {{ nodes: \"{}\" }} }}\n{PLAIN}",
        storage.display(),
        node.address
    )
}

/// The certificate that a client gets for a name. `None` if the handshake fails.
fn served(address: SocketAddr, name: &str) -> Option<Vec<u8>> {
    let settings = ClientSettings { ca: None, server_name: None, own: None, verify: false };
    let mut config = (*Client::load(&settings).expect("no files").config).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut client = connect(config, address, name);
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n").as_bytes()).ok()?;
    let mut first = [0; 15];
    client.read_exact(&mut first).ok()?;
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    Some(client.conn.peer_certificates()?.first()?.to_vec())
}

fn in_file(path: &Path) -> Option<Vec<u8>> {
    Some(CertificateDer::from_pem_file(path).ok()?.to_vec())
}

fn issued(stage: &Stage) -> Vec<u64> {
    stage.gateway.acme().iter().map(|one| one.issued).collect()
}

#[test]
fn certificates_are_ordered_once_kept_and_renewed() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let Some(pebble) = Pebble::start(&pki, "") else { return };
    let certificates = "[{ names: [a.test, www.a.test] }, { names: b.test }]";
    for (challenge, file, name) in [("tls-alpn-01", "a.test.pem", "www.a.test"), ("http-01", "b.test.pem", "b.test")] {
        let text = pebble.policy(&pki, &node, (&format!("challenges: {challenge}"), certificates));
        let stage = Stage::open(&text);
        wait_until(challenge, || issued(&stage) == [1, 1]);
        assert!(stage.gateway.acme().iter().all(|one| one.error.is_none() && one.not_after_seconds.is_some()));
        assert!(served(pebble.https, name).is_some_and(|found| Some(found) == in_file(&pebble.file(file))));
        let account = fs::read(pebble.file("account.json")).expect("an account");
        drop(stage);

        // A new process has them at once, and orders nothing.
        let stage = Stage::open(&text);
        assert!(served(pebble.https, name) == in_file(&pebble.file(file)));
        assert_eq!(issued(&stage), [0, 0]);
        assert_eq!(fs::read(pebble.file("account.json")).expect("an account"), account);
        let mode = fs::metadata(pebble.file("account.json")).expect("an account").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(stage);

        // One that is nearly over is served, and renewed. No connection fails meanwhile.
        fs::write(pebble.file(file), pki.nearly_over(name)).expect("a file");
        let old = in_file(&pebble.file(file));
        let stage = Stage::open(&text);
        let mut both = Vec::new();
        wait_until("the renewed certificate", || {
            let found = served(pebble.https, name);
            assert!(found.is_some());
            if !both.contains(&found) {
                both.push(found);
            }
            both.last() != Some(&old)
        });
        wait_until("its count", || issued(&stage).iter().sum::<u64>() == 1);
        assert!(both.last() == Some(&in_file(&pebble.file(file))) && both.len() == 2);
        drop(stage);
        fs::remove_dir_all(pebble.storage()).expect("a folder");
    }
}

#[test]
fn an_authority_may_want_to_know_its_customers() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let keys = r#", "externalAccountBindingRequired": true, "externalAccountMACKeys": { "kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W" }"#;
    let Some(pebble) = Pebble::start(&pki, keys) else { return };
    let stage = Stage::open(&pebble.policy(&pki, &node, ("contact: ops@a.test", "{ names: a.test }")));
    wait_until("a refusal", || {
        let error = stage.gateway.acme().pop().and_then(|one| one.error);
        error.is_some_and(|error| error.contains("external account") || error.contains("externalAccount"))
    });
    drop(stage);
    let key = pki.path("eab");
    fs::write(&key, "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\n").expect("a file");
    let acme = format!("contact: ops@a.test, external_account: {{ key_id: kid-1, key_file: {} }}", key.display());
    let stage = Stage::open(&pebble.policy(&pki, &node, (&acme, "{ names: a.test }")));
    wait_until("a certificate", || issued(&stage) == [1]);
}

#[test]
fn a_check_that_fails_is_told_and_the_next_attempt_waits() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let Some(mut pebble) = Pebble::start(&pki, "") else { return };
    // The authority checks at other ports than those of the gateway.
    (pebble.http, pebble.https) = (free_address(), free_address());
    let text = pebble.policy(&pki, &node, ("challenges: http-01", "{ names: a.test }"));
    let stage = Stage::open(&text);
    wait_until("a failure", || stage.gateway.acme()[0].failures == 1);
    let state = stage.gateway.acme().remove(0);
    let error = state.error.expect("an error");
    assert!(error.starts_with("http-01: ") && error.contains("connection refused"), "{error}");
    assert!((40.0..76.0).contains(&state.next_order_in_seconds), "{}", state.next_order_in_seconds);
    assert_eq!((state.issued, state.not_after_seconds), (0, None));
}

#[test]
fn a_listener_without_a_certificate_refuses_and_all_others_work() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let own = pki.certificate("own", &["own.test"]);
    let folder = tempfile::tempdir().expect("a folder");
    let addresses: [SocketAddr; 3] = std::array::from_fn(|_| free_address());
    let tls = |nth: usize, certificates: &str| {
        format!("{{ address: \"{}\", tls: {{ certificates: {certificates} }} }}", addresses[nth])
    };
    let one = "{ names: a.test }";
    let listeners = format!("{}, {}, {}", tls(0, one), tls(1, &format!("[{one}, {own}]")), addresses[2]);
    // Nothing listens there.
    let acme = format!("directory: \"https://{}/dir\"", free_address());
    let stage = Stage::open(&policy(&listeners, &node, &acme, folder.path()));
    assert_eq!(served(addresses[0], "a.test"), None);
    wait_until("a refusal", || {
        let mut failures = stage.gateway.counters().handshakes.failures();
        failures.any(|failure| failure == (HandshakeFailure::NoCertificate, 1))
    });
    let own = in_file(&pki.path("own.pem"));
    assert!(["own.test", "a.test"].iter().all(|name| served(addresses[1], name) == own));
    wait_until("a failure", || stage.gateway.acme()[0].failures == 1);
    // Tokens that are not of this gateway are requests like all others.
    let mut client = super::stage::Client::connect(addresses[2]);
    assert_eq!(client.ask("/.well-known/acme-challenge/token").text(), "x");
    wait_until("its record", || stage.record().ending == Ending::Served);
}
