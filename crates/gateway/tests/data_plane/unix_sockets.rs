//! Unix sockets of nodes.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, channel};

use weirgate_gateway::Ending;

use crate::stage::{PLAIN, Stage, ok};

/// Starts a node on a socket at `path` that answers every request. Returns the heads of the requests, each with the
/// number of its connection.
fn node(path: &std::path::Path) -> Receiver<(usize, String)> {
    serve(UnixListener::bind(path).expect("a socket"))
}

fn serve(listener: UnixListener) -> Receiver<(usize, String)> {
    let (sender, heads) = channel();
    std::thread::spawn(move || {
        for (connection, stream) in listener.incoming().enumerate() {
            let (Ok(mut stream), sender) = (stream, sender.clone()) else { return };
            std::thread::spawn(move || {
                let (mut bytes, mut head) = ([0; 4096], String::new());
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    head += &String::from_utf8_lossy(bytes.get(..read).unwrap_or_default());
                    if !head.ends_with("\r\n\r\n") {
                        continue;
                    }
                    let whole = std::mem::take(&mut head);
                    if sender.send((connection, whole)).is_err() || stream.write_all(&ok("x")).is_err() {
                        return;
                    }
                }
            });
        }
    });
    heads
}

fn open(path: &std::path::Path, upstream: &str) -> Stage {
    let path = path.display();
    Stage::open(&format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 1\nupstreams: {{ web: {{ nodes: [\"unix:{path}\"]{upstream} }} }}\n{PLAIN}"
    ))
}

#[test]
fn a_node_with_a_unix_socket_serves_over_kept_connections() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("App.sock");
    let heads = node(&path);
    let stage = open(&path, "");
    let mut client = stage.client();
    for request in ["GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET /2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"] {
        assert_eq!(client.exchange(request).status, 200);
        assert_eq!(stage.record().node, Some(format!("unix:{}", path.display())));
    }
    let [(first, with_host), (second, without)] = [(); 2].map(|()| heads.recv().expect("a request"));
    assert_eq!((first, second), (0, 0), "the connection is kept");
    assert!(with_host.to_ascii_lowercase().contains("\r\nhost: a.test\r\n"), "{with_host}");
    assert!(without.contains("\r\nhost: localhost\r\n"), "{without}");
}

#[test]
fn a_node_with_a_name_outside_the_file_system_serves() {
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("weirgate-node-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let heads = serve(UnixListener::bind_addr(&address).expect("a socket"));
    let stage = open(std::path::Path::new(&format!("@{name}")), ", health_check: { path: /health, interval: 50ms }");
    assert_eq!(stage.ask("/1").status, 200);
    assert_eq!(stage.record().node, Some(format!("unix:@{name}")));
    let mut expected = ["GET /1 ", "GET /health "].to_vec();
    while !expected.is_empty() {
        let (_, head) = heads.recv().expect("a request");
        expected.retain(|line| !head.starts_with(line));
    }
}

#[test]
fn health_checks_and_the_proxy_protocol_go_over_a_unix_socket() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("app.sock");
    let heads = node(&path);
    let _stage = open(&path, ", proxy_protocol: v1, health_check: { path: /health, interval: 50ms, timeout: 50ms }");
    let (_, head) = heads.recv().expect("a check");
    assert!(head.starts_with("PROXY UNKNOWN\r\nGET /health HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("\r\nhost: localhost\r\n"), "{head}");
}

#[test]
fn a_socket_that_is_not_there_is_an_unavailable_node() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("app.sock");
    let stage = open(&path, "");
    let mut client = stage.client();
    assert_eq!(client.ask("/").status, 502);
    assert_eq!(stage.record().ending, Ending::Failed("destination_unavailable"));
    // A socket outlives its process.
    drop(UnixListener::bind(&path).expect("a socket"));
    assert_eq!(client.ask("/").status, 502);
    assert_eq!(stage.record().ending, Ending::Failed("connection_refused"));
}
