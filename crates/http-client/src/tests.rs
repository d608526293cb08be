//! Exchanges with scripted servers.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::{Address, Answer, Connection, Error, Limits, MAX_HEAD, Request, blocking};

const LIMITS: Limits = Limits::new(Duration::from_secs(20), 1000);

fn head(stream: &mut impl std::io::Read) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.extend(byte);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Starts a server that plays `script` on each connection.
fn server(script: impl Fn(TcpStream) + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp(listener.local_addr().expect("its address").to_string());
    std::thread::spawn(move || listener.incoming().flatten().for_each(script));
    address
}

/// Asks a server that sends `answer` to a request and closes the connection.
fn ask(answer: impl Into<Vec<u8>>) -> Result<Answer, Error> {
    let answer = answer.into();
    let address = server(move |mut stream| {
        head(&mut stream);
        let _ = stream.write_all(&answer);
    });
    blocking::exchange(&address, Request::get("a.test", "/"), &LIMITS)
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

#[test]
fn a_body_ends_with_its_length_its_last_chunk_or_the_connection() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n\r\n{}{",
        "HTTP/1.1 200 OK\r\nx: y\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;a=b\r\n}\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nX: y\r\n\r\n{}",
    ] {
        let answer = ask(answer).and_then(Answer::ok).expect("an answer");
        assert_eq!((answer.text().as_str(), answer.field("x")), ("{}", Some("y")));
    }
}

#[test]
fn what_is_no_answer_is_named() {
    let many = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(4 * MAX_HEAD));
    let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(1001));
    for (answer, problem) in [
        ("SSH-2.0-OpenSSH\r\n", "the answer is not HTTP/1"),
        ("HTTP/2.0 200 OK\r\n\r\n", "the answer is not HTTP/1"),
        ("HTTP/1.1 200 OK\r\nContent-Length: -9\r\n\r\n{}", "the answer is not HTTP/1"),
        ("", "the connection was closed before the end of the answer's head"),
        ("HTTP/1.1 200 OK\r\nX:", "the connection was closed before the end of the answer's head"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "the connection was closed before the end of the answer"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
            "the connection was closed before the end of the answer",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "the answer is longer than 1000 bytes"),
        (&long, "the answer is longer than 1000 bytes"),
        (&many, "the head of the answer is longer than 65536 bytes or has more than 100 fields"),
        ("HTTP/1.1 404 No\r\nContent-Length: 1001\r\n\r\n", "the answer has status 404"),
    ] {
        let error = ask(answer).and_then(Answer::ok).expect_err(problem);
        assert_eq!(error.to_string(), problem);
    }
}

#[test]
fn a_failure_has_its_body() {
    let answer = ask("HTTP/1.1 409 No\r\nContent-Length: 9\r\n\r\nbusy").expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (409, "busy"));
}

#[test]
fn a_silent_server_and_an_absent_one() {
    let silent = server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let limits = Limits::new(Duration::from_millis(20), 10);
    let error = blocking::exchange(&silent, Request::get("a.test", "/"), &limits).expect_err("it is silent");
    assert_eq!(error.to_string(), "no whole answer within 0.02 s");
    let absent = Address::Unix("/nowhere/socket".into());
    let error = blocking::exchange(&absent, Request::get("a.test", "/"), &limits).expect_err("it is not there");
    assert!(matches!(error, Error::Connect(_)), "{error}");
}

#[test]
fn a_request_has_its_fields_and_body() {
    let path = std::env::temp_dir().join(format!("weirgate-http-client-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let (head, mut body) = (head(&mut stream), [0; 2]);
        stream.read_exact(&mut body).expect("a body");
        stream.write_all(b"HTTP/1.1 204 OK\r\n\r\n").expect("it reads");
        head + &String::from_utf8_lossy(&body)
    });
    let request = Request::post("a.test", "/p?q=1", "ok").field("x", "y").authorization("Bearer t0ken");
    assert!(!format!("{request:?}").contains("t0ken"), "{request:?}");
    let answer = blocking::exchange(&Address::Unix(path.clone()), request, &LIMITS).expect("an answer");
    assert_eq!(answer.status, 204);
    let sent = server.join().expect("it ended");
    let fields = "host: a.test\r\ncontent-length: 2\r\nx: y\r\nauthorization: Bearer t0ken\r\nconnection: close\r\n";
    assert_eq!(sent, format!("POST /p?q=1 HTTP/1.1\r\n{fields}\r\nok"));
    let _ = std::fs::remove_file(path);
}

#[test]
fn mistakes_in_a_request_are_said_when_it_is_sent() {
    for request in [Request::get("a.test", "/a b"), Request::get("a\n", "/"), Request::get("a", "/").field("x y", "")] {
        let error = blocking::exchange(&Address::Tcp(String::new()), request, &LIMITS).expect_err("a mistake");
        assert!(matches!(error, Error::Request(_)), "{error}");
    }
}

#[test]
fn characters_that_a_target_must_not_have_are_encoded() {
    let request = Request::get("a.test", "/<a>`?\"b\"=<c>").build().expect("a request");
    assert_eq!(request.uri(), "/%3Ca%3E%60?%22b%22=%3Cc%3E");
    for character in (0x21..0x7f).map(char::from).filter(|&character| character != '#') {
        assert!(Request::get("a.test", &format!("/{character}?{character}")).build().is_ok(), "{character}");
    }
}

#[test]
fn a_kept_connection_carries_more_requests_and_is_replaced_when_it_ends() {
    // Each connection carries two requests.
    let address = server(|mut stream| {
        let port = stream.peer_addr().expect("a peer").port().to_string();
        for _ in 0..2 {
            head(&mut stream);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{port}", port.len());
        }
    });
    on_runtime(async {
        let mut connection = Connection::new(address);
        let mut ports = Vec::new();
        for _ in 0..4 {
            let answer = connection.send(&Request::get("a.test", "/"), &LIMITS).await.expect("an answer");
            ports.push(answer.text());
        }
        assert!(ports[0] == ports[1] && ports[1] != ports[2] && ports[2] == ports[3], "{ports:?}");
    });
}

#[test]
fn a_body_can_be_discarded_and_left_unread() {
    let address = server(|mut stream| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nContent-Length: 4\r\n\r\nbody");
    });
    on_runtime(async {
        let limits = Limits { kept: 2, ..LIMITS };
        let answer = crate::exchange(&address, Request::get("a.test", "/"), &limits).await.expect("an answer");
        assert_eq!(answer.text(), "bo");
        let crate::Address::Tcp(address) = address else { panic!("it is a TCP address") };
        let connecting = tokio::net::TcpStream::connect(address);
        let status = crate::status(connecting, Request::get("a.test", "/"), LIMITS.time).await;
        assert_eq!(status.expect("a status"), 302);
    });
}

#[test]
fn a_body_is_passed_on_as_it_arrives() {
    // The server sends the second piece only after the first one has been passed on.
    let (passed, next) = std::sync::mpsc::channel();
    let next = std::sync::Mutex::new(next);
    let address = server(move |mut stream| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        let _ = next.lock().expect("no panic").recv();
        let _ = stream.write_all(b"3\r\ntwo\r\n0\r\n\r\n");
    });
    let (mut field, mut pieces) = (None, Vec::new());
    let take = |piece: &[u8]| {
        pieces.extend_from_slice(piece);
        let _ = passed.send(());
        ControlFlow::Continue(())
    };
    let request = Request::get("a.test", "/");
    let seen = |answer: &Answer| field = answer.field("x").map(str::to_owned);
    let answer = blocking::exchange_in_pieces(&address, request.clone(), &LIMITS, seen, take).expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (200, ""));
    assert_eq!((field.as_deref(), pieces.as_slice()), (Some("y"), b"onetwo".as_slice()));
    let answer = blocking::exchange_in_pieces(&address, request, &LIMITS, |_| (), |_| ControlFlow::Break(()));
    assert_eq!(answer.expect("an answer").status, 200);
}

#[test]
fn the_body_of_a_refusal_is_kept_and_not_passed_on() {
    let address = server(|mut stream| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone");
    });
    let take = |_: &[u8]| -> ControlFlow<()> { panic!("it is no success") };
    let answer = blocking::exchange_in_pieces(&address, Request::get("a.test", "/"), &LIMITS, |_| (), take);
    let answer = answer.expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (404, "gone"));
}
