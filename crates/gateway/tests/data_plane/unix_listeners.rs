//! Listeners on Unix sockets: who may connect, the client of a connection, and the file of the socket.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::{TempDir, tempdir};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use weirgate_gateway::{Gateway, Protocol, ReloadSource};

use crate::http2;
use crate::pki::Pki;
use crate::stage::{LIMIT, Node, PLAIN, Stage, ok, policy, site};

/// Sends `request` and returns everything that comes back. A reset counts as an end.
fn ask(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("the gateway accepts");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream.write_all(request.as_bytes()).expect("the gateway reads");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("text")
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

/// A node, and a path for a socket in a folder that goes with the test.
fn place() -> (Node, TempDir, PathBuf) {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("http.sock");
    (Node::answering(ok("x")), folder, path)
}

/// Returns a policy with these listeners.
fn listening(node: &Node, listen: &str, rest: &str) -> String {
    policy(&[node], &format!("{PLAIN}{rest}")).replacen("127.0.0.1:0", listen, 1)
}

#[test]
fn a_client_on_a_unix_socket_has_no_address() {
    let (node, _folder, path) = place();
    let listen = format!("{{ address: \"unix:{}\", mode: 606 }}", path.display());
    let rest = "trusted_proxies: 127.0.0.0/8\n\
                request_headers: { set: { X-Client: '${client}', X-Port: '${port}', X-Scheme: '${scheme}' } }\n";
    let stage = Stage::open(&listening(&node, &listen, rest));
    assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o606);
    let request = GET.replace("Connection", "X-Forwarded-For: 10.9.9.9\r\nConnection");
    assert!(ask(&path, &request).starts_with("HTTP/1.1 200 "));
    assert_eq!(stage.record().client, "::");
    let call = node.call();
    let found = ["x-forwarded-for", "forwarded", "x-client", "x-port", "x-scheme"].map(|name| call.header(name));
    let forwarded = "for=unknown;host=\"a.test\";proto=http".to_owned();
    assert_eq!(found, [None, Some(forwarded), None, None, Some("http".to_owned())]);
    drop(stage);
    assert!(!path.exists(), "it goes with its gateway");
}

#[test]
fn a_proxy_on_a_unix_socket_states_its_clients() {
    let (node, _folder, path) = place();
    let listen = format!("\"unix:{}\"", path.display());
    let stage = Stage::open(&listening(&node, &listen, "trusted_proxies: unix\n"));
    let request = GET.replace("Connection", "X-Forwarded-For: 10.9.9.9, 192.0.2.7\r\nConnection");
    assert!(ask(&path, &request).starts_with("HTTP/1.1 200 "));
    assert_eq!(stage.record().client, "192.0.2.7");
    let call = node.call();
    assert_eq!(call.header("x-forwarded-for").as_deref(), Some("10.9.9.9, 192.0.2.7"));
}

#[test]
fn a_header_of_the_proxy_protocol_names_the_client() {
    let (node, _folder, path) = place();
    let listen = format!("{{ address: \"unix:{}\", proxy_protocol: unix }}", path.display());
    let stage = Stage::open(&listening(&node, &listen, ""));
    let answer = ask(&path, &format!("PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n{GET}"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(stage.record().client, "192.0.2.7");
    assert_eq!(node.call().header("x-forwarded-for").as_deref(), Some("192.0.2.7"));
    assert!(ask(&path, GET).is_empty(), "a header is due");
}

#[test]
fn classes_and_limits_see_one_source() {
    let (node, folder) = (Node::scripted(), tempdir().expect("a folder"));
    let path = folder.path().join("http.sock");
    let listen = format!("\"unix:{}\"", path.display());
    let text = listening(&node, &listen, "limits: { connections_per_source: 1 }\n")
        .replace("{ name: all }", "{ name: local, match: { source: unix } }, { name: all }");
    let stage = Stage::open(&text);
    let mut first = UnixStream::connect(&path).expect("the gateway accepts");
    first.write_all(GET.as_bytes()).expect("the gateway reads");
    let call = node.call();
    assert!(ask(&path, "").is_empty(), "the second connection is closed");
    call.ok("x");
    assert_eq!(stage.record().class, "local");
}

#[test]
fn a_reload_opens_changes_and_removes_it() {
    let (node, _folder, path) = place();
    let stage = Stage::open(&listening(&node, "127.0.0.1:0", ""));
    let reload = |listen: &str| {
        let text = listening(&node, listen, "");
        stage.gateway.reload_site(site(&text), &text)
    };
    for mode in ["640", "600"] {
        let unix = format!("[127.0.0.1:0, {{ address: \"unix:{}\", mode: {mode} }}]", path.display());
        reload(&unix).expect("a good policy");
        assert_eq!(format!("{:o}", fs::metadata(&path).expect("a file").mode() & 0o777), mode);
        assert!(ask(&path, GET).starts_with("HTTP/1.1 200 "));
    }
    reload("127.0.0.1:0").expect("a good policy");
    assert!(!path.exists());
    fs::write(&path, "precious").expect("a file");
    let refused = reload(&format!("[127.0.0.1:0, \"unix:{}\"]", path.display())).expect_err("there is a file");
    assert!(refused.to_string().contains("another kind of file"), "{refused}");
    assert_eq!(fs::read_to_string(&path).expect("it is left alone"), "precious");
}

#[test]
fn only_the_socket_of_a_process_that_has_ended_is_replaced() {
    let (node, _folder, path) = place();
    let text = listening(&node, &format!("\"unix:{}\"", path.display()), "");
    let start = || Gateway::start(site(&text), &text, ReloadSource::Nowhere, Vec::new());
    let other = UnixListener::bind(&path).expect("a socket");
    let why = start().expect_err("another process listens").to_string();
    assert!(why.contains("cannot listen on unix:"), "{why}");
    drop(other);
    assert!(fs::symlink_metadata(&path).expect("it outlives its process").file_type().is_socket());
    let gateway = start().expect("nothing listens");
    assert!(ask(&path, GET).starts_with("HTTP/1.1 200 "));
    gateway.drain();
    gateway.join();
    assert!(!path.exists());
}

#[test]
fn a_name_outside_the_file_system_is_an_address() {
    use std::os::linux::net::SocketAddrExt as _;
    let node = Node::answering(ok("x"));
    let name = format!("weirgate-test-{}", std::process::id());
    let _stage = Stage::open(&listening(&node, &format!("\"unix:@{name}\""), ""));
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let mut stream = UnixStream::connect_addr(&address).expect("the gateway accepts");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream.write_all(GET.as_bytes()).expect("the gateway reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn a_file_is_set_by_the_process_that_has_taken_over() {
    let (node, _folder, path) = place();
    let mode = || format!("{:o}", fs::metadata(&path).expect("a file").mode() & 0o777);
    let text = |mode| listening(&node, &format!("{{ address: \"unix:{}\", mode: {mode} }}", path.display()), "");
    let stage = Stage::open(&text("600"));
    let hand_over = stage.gateway.begin_hand_over().expect("it serves");
    let mut sockets = hand_over.sockets().expect("enough descriptors").into_iter().map(|(_, socket)| socket);
    let next = text("640");
    let successor =
        Gateway::prepare(site(&next), &next, ReloadSource::Nowhere, Vec::new(), |_| sockets.by_ref().collect())
            .expect("a good policy");
    assert_eq!(mode(), "600", "the old process is in charge, and the new one may still fail");
    hand_over.finish(|| Ok(())).expect("it serves");
    successor.serve();
    assert_eq!(mode(), "640");
    assert!(ask(&path, GET).starts_with("HTTP/1.1 200 "));
    stage.gateway.join();
    successor.drain();
    successor.join();
    assert!(!path.exists());
}

#[test]
fn a_file_that_was_deleted_does_not_prevent_reloads() {
    let (node, _folder, path) = place();
    let text = |mode| listening(&node, &format!("{{ address: \"unix:{}\", mode: {mode} }}", path.display()), "");
    let stage = Stage::open(&text("600"));
    fs::remove_file(&path).expect("it was there");
    stage.gateway.reload_site(site(&text("640")), &text("640")).expect("a good policy");
    // The file of another program is left alone.
    fs::write(&path, "precious").expect("a file");
    let before = fs::metadata(&path).expect("a file").mode();
    stage.gateway.reload_site(site(&text("606")), &text("606")).expect("a good policy");
    assert_eq!(fs::metadata(&path).expect("a file").mode(), before);
}

#[test]
fn a_stop_during_a_hand_over_leaves_the_file() {
    let (node, _folder, path) = place();
    let text = listening(&node, &format!("\"unix:{}\"", path.display()), "");
    let stage = Stage::open(&text);
    let hand_over = stage.gateway.begin_hand_over().expect("it serves");
    let _sockets = hand_over.sockets().expect("enough descriptors");
    // The other process serves from here on, and a second signal stops this one at once.
    let _ = hand_over.finish(|| {
        stage.gateway.cut();
        Ok(())
    });
    stage.gateway.join();
    assert!(path.exists(), "it is the other process's now");
}

#[test]
fn a_hand_over_that_fails_leaves_the_file_to_this_process() {
    let (node, _folder, path) = place();
    let text = listening(&node, &format!("\"unix:{}\"", path.display()), "");
    let stage = Stage::open(&text);
    let hand_over = stage.gateway.begin_hand_over().expect("it serves");
    let failed = hand_over.finish(|| Err(std::io::ErrorKind::BrokenPipe.into()));
    failed.expect_err("the other process has ended");
    assert!(ask(&path, GET).starts_with("HTTP/1.1 200 "));
    drop(stage);
    assert!(!path.exists());
}

#[test]
fn a_client_on_a_unix_socket_shares_a_source_with_no_address() {
    let (node, folder) = (Node::scripted(), tempdir().expect("a folder"));
    let path = folder.path().join("http.sock");
    let listen = format!("[{{ address: \"127.0.0.1:0\", proxy_protocol: 127.0.0.1 }}, \"unix:{}\"]", path.display());
    let stage = Stage::open(&listening(&node, &listen, "limits: { connections_per_source: 1 }\n"));
    let mut first = UnixStream::connect(&path).expect("the gateway accepts");
    first.write_all(GET.as_bytes()).expect("the gateway reads");
    let local = node.call();
    let mut other = stage.client();
    other.send(format!("PROXY TCP6 ::1 ::1 4711 80\r\n{GET}"));
    node.call().ok("x");
    assert_eq!(other.answer().status, 200);
    local.ok("x");
}

#[test]
fn no_header_of_the_proxy_protocol_names_a_client_on_a_unix_socket() {
    let (node, _folder, path) = place();
    let listen = format!("[{{ address: \"127.0.0.1:0\", proxy_protocol: 127.0.0.1 }}, \"unix:{}\"]", path.display());
    let text = listening(&node, &listen, "")
        .replace("{ name: all }", "{ name: local, match: { source: unix } }, { name: all }");
    let stage = Stage::open(&text);
    let mut poser = stage.client();
    poser.send(format!("PROXY TCP6 :: ::1 4711 80\r\n{GET}"));
    assert!(poser.is_closed());
    let mut other = stage.client();
    other.send(format!("PROXY TCP6 ::1 ::1 4711 80\r\n{GET}"));
    assert_eq!((other.answer().status, stage.record().class.as_str()), (200, "all"));
}

#[test]
fn tls_http2_and_redirects_work_as_over_tcp() {
    let (pki, node, folder) = (Pki::new(), Node::answering(ok("x")), tempdir().expect("a folder"));
    let [secure, plain, redirecting] = ["tls", "http", "redirect"].map(|name| folder.path().join(name));
    let listen = format!(
        "[{{ address: \"unix:{}\", tls: {{ certificates: {} }} }}, \"unix:{}\", {{ address: \"unix:{}\", \
         redirect_to_https: 8443 }}]",
        secure.display(),
        pki.certificate("a", &["a.test"]),
        plain.display(),
        redirecting.display()
    );
    let stage = Stage::open(&listening(&node, &listen, ""));
    let open = |protocol: &[u8]| {
        let mut config = pki.client();
        config.alpn_protocols = vec![protocol.to_vec()];
        let secure = secure.clone();
        async move {
            let socket = tokio::net::UnixStream::connect(secure).await?;
            TlsConnector::from(Arc::new(config)).connect("a.test".try_into().expect("a name"), socket).await
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let answer = runtime.block_on(async {
        let mut client = open(b"http/1.1").await.expect("a handshake");
        client.write_all(GET.as_bytes()).await.expect("the gateway reads");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("an orderly end");
        answer
    });
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(http2::Client::over(open(b"h2")).get("/").expect("an answer").text(), "x");
    let mut client = http2::Client::over(tokio::net::UnixStream::connect(&plain));
    assert_eq!(client.get("/").expect("an answer").text(), "x");
    for (protocol, scheme) in [(Protocol::Http11, "https"), (Protocol::Http2, "https"), (Protocol::Http2, "http")] {
        assert_eq!(stage.record().protocol, protocol);
        let call = node.call();
        assert_eq!(call.header("x-forwarded-proto").as_deref(), Some(scheme));
        assert_eq!(call.header("x-forwarded-for"), None);
    }
    let answer = ask(&redirecting, GET);
    assert!(answer.starts_with("HTTP/1.1 308 ") && answer.contains("https://a.test:8443/\r\n"), "{answer}");
}
