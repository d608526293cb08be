//! The TLS handshake of a connection, and the party that it proves.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weirgate_tls::trust::why;
use weirgate_tls::{ClientMode, LiveTrust, Party};

/// Returns the answer to a request that is not encrypted, with this text.
pub fn without_tls(text: &str) -> String {
    let fields = "connection: close\r\ncontent-type: text/plain";
    format!("HTTP/1.1 400 Bad Request\r\n{fields}\r\ncontent-length: {}\r\n\r\n{text}", text.len())
}

/// Accepts TLS. Returns also the party of the client's certificate, if it has one.
///
/// # Errors
/// The reason for people.
pub(crate) async fn accept(
    mut stream: TcpStream,
    trust: &Arc<LiveTrust>,
    clients: ClientMode,
) -> Result<(TlsStream<TcpStream>, Option<Party>), String> {
    // A frame of TLS begins with the number of its kind, and a method with a letter.
    let mut first = [0];
    if stream.peek(&mut first).await.map_err(|error| error.to_string())? == 1 && first[0].is_ascii_uppercase() {
        // The client may have left.
        let answer = without_tls("this port speaks mutual TLS: use https:// and a certificate\n");
        let _ = stream.write_all(answer.as_bytes()).await;
        return Err("a request without TLS".to_owned());
    }
    let trust = trust.now();
    let accepted = TlsAcceptor::from(trust.server(clients)).accept(stream).await;
    let stream = accepted.map_err(|error| why(&error))?;
    let party = trust.party(stream.get_ref().1.peer_certificates())?;
    Ok((stream, party))
}
