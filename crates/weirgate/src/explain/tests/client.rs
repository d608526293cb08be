//! A client that sends a request as `explain` is asked about it, over each protocol.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

use super::*;

/// How a request is sent.
pub(super) struct Way {
    /// Whether over HTTP/2. A request that HTTP/2 cannot express is sent over HTTP/1.1.
    pub(super) http2: bool,
    /// Whether its body is sent in chunks.
    pub(super) chunked: bool,
    /// TLS, with the client's certificate or without one.
    pub(super) tls: Option<ClientConfig>,
}

/// Sends a request from its client's address, and waits until it has been answered.
pub(super) async fn send(args: &Explain, way: Way, gateway: SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::new(args.client.expect("each request has one"), 0)).expect("an address of the loopback");
    let socket = socket.connect(gateway).await.expect("the gateway accepts");
    let request = way.http2.then(|| http2_request(args)).flatten();
    let Some(mut tls) = way.tls else {
        return exchange(socket, args, request, way.chunked).await;
    };
    if request.is_some() {
        tls.alpn_protocols = vec![b"h2".to_vec()];
    }
    let name = args.sni.clone().expect("TLS has a name").try_into().expect("a name");
    let socket = TlsConnector::from(Arc::new(tls)).connect(name, socket).await.expect("a handshake");
    exchange(socket, args, request, way.chunked).await;
}

/// The request over HTTP/2, if it can be expressed there.
fn http2_request(args: &Explain) -> Option<http::Request<()>> {
    let mut host = None;
    let mut request = http::Request::builder().method(args.method.as_str());
    for field in &args.headers {
        let (name, value) = field.split_once(": ").expect("a field");
        match name.to_ascii_lowercase().as_str() {
            "host" => host = Some(value),
            "connection" if value == "close" => {}
            "connection" => return None,
            name => request = request.header(name, value),
        }
    }
    let scheme = if args.sni.is_some() { "https" } else { "http" };
    let path = args.url.strip_prefix('/')?;
    let uri = http::Uri::builder().scheme(scheme).authority(host?).path_and_query(format!("/{path}")).build().ok()?;
    request.uri(uri).body(()).ok()
}

async fn exchange<T>(mut socket: T, args: &Explain, request: Option<http::Request<()>>, chunked: bool)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let body = args.body.clone().unwrap_or_default();
    if let Some(request) = request {
        let (mut send, connection) = h2::client::handshake(socket).await.expect("a connection");
        let connection = tokio::spawn(connection);
        let (response, mut outgoing) = send.send_request(request, body.is_empty()).expect("a request");
        if !body.is_empty() {
            // A request that is refused at once takes no body.
            let _ = outgoing.send_data(Bytes::from(body), true);
        }
        response.await.expect("an answer");
        drop((send, outgoing));
        connection.abort();
        return;
    }
    let framing = match (body.is_empty(), chunked) {
        (true, _) => String::new(),
        (false, true) => "\r\nTransfer-Encoding: chunked".to_owned(),
        (false, false) => format!("\r\nContent-Length: {}", body.len()),
    };
    let body = match chunked && !body.is_empty() {
        // In two chunks, so that the gateway has to join them.
        true => {
            let (first, second) = body.split_at(1);
            let rest = if second.is_empty() { String::new() } else { format!("{:x}\r\n{second}\r\n", second.len()) };
            format!("1\r\n{first}\r\n{rest}0\r\n\r\n")
        }
        false => body,
    };
    let head = format!("{} {} HTTP/1.1\r\n{}{framing}\r\n\r\n", args.method, args.url, args.headers.join("\r\n"));
    socket.write_all(format!("{head}{body}").as_bytes()).await.expect("the gateway reads");
    let mut response = Vec::new();
    // With TLS the connection may end without saying so.
    let _ = socket.read_to_end(&mut response).await;
    assert!(response.starts_with(b"HTTP/1.1 "), "{args:?}");
}
