//! The TLS handshake of a connection, and the party that it proves.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weirgate_tls::trust::why;
use weirgate_tls::{ClientMode, LiveTrust, Party};

/// Answer to a request that is not encrypted.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n\
    content-length: 60\r\n\r\nthis port speaks mutual TLS: use https:// and a certificate\n";

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
        let _ = stream.write_all(PLAIN_HTTP).await;
        return Err("a request without TLS".to_owned());
    }
    let trust = trust.now();
    let accepted = TlsAcceptor::from(trust.server(clients)).accept(stream).await;
    let stream = accepted.map_err(|error| why(&error))?;
    let party = trust.party(stream.get_ref().1.peer_certificates())?;
    Ok((stream, party))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_plain_http_has_its_length() {
        let text = std::str::from_utf8(PLAIN_HTTP).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head} {}", body.len());
    }
}
