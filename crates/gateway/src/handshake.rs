//! The TLS handshake of a client connection.
//!
//! The first message of the client is read before any cryptography. It is bounded, and due within `timeouts.header`
//! from the acceptance of the connection, as a first head is. A connection in its handshake counts as idle: if capacity
//! is short, it is closed in favour of others. The cryptography of a handshake takes as long as several requests, so
//! handshakes of a thread take turns with all other work: between two of them every other connection gets a turn.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_rustls::StartHandshake;
use tokio_rustls::rustls::server::{Accepted, Acceptor};
use tokio_rustls::rustls::{Error, HandshakeKind, PeerIncompatible, ProtocolVersion, ServerConfig};
use tokio_rustls::server::TlsStream;
use weirgate_http_server::without_tls;
use weirgate_http1::Limits;
use weirgate_tls::{Identity, Server};

use crate::client_stream::ClientStream;
use crate::io::Io;
use crate::socket::Socket;
use crate::stream_state::{StreamState, Untimely};

/// Maximum size of a client's first message with its frames, in bytes. With a post-quantum key and a ticket that holds
/// a chain of certificates it has a few thousand.
const MAX_HELLO: usize = 16 * 1024;

/// Maximum number of bytes that TLS keeps for a client that does not read. It is one frame, because a slow client must
/// take it within `body_progress`.
const UNSENT: usize = 16 * 1024;

/// Facts about the TLS of a client connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Version: `1.2` or `1.3`.
    pub version: &'static str,
    /// The name that the client asked for, in lower case.
    pub sni: Option<String>,
    /// The client's certificate, which was verified.
    pub identity: Option<Identity>,
}

weirgate_engine::named! {
    /// Why a handshake failed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum HandshakeFailure {
        /// It took too long.
        Timeout = "timeout",
        /// The client left, or was idle while capacity was short.
        Closed = "closed",
        /// The client began with a request that is not encrypted.
        PlainHttp = "plain_http",
        /// The first message is too long.
        TooLong = "too_long",
        /// The client knows no version of TLS that is accepted.
        Version = "version",
        /// Client and listener have no cipher or key exchange in common.
        Cipher = "cipher",
        /// Client and listener have no protocol inside TLS in common.
        Protocol = "protocol",
        /// The client has no certificate, or one that is not valid.
        ClientCertificate = "client_certificate",
        /// The listener has no certificate, because an authority has not issued any yet.
        NoCertificate = "no_certificate",
        /// The client refused, for example because it does not trust the certificate.
        Alert = "alert",
        /// The client broke the protocol.
        Malformed = "malformed",
    }
}

impl HandshakeFailure {
    fn of(error: &io::Error) -> HandshakeFailure {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        inner.map_or(HandshakeFailure::Closed, HandshakeFailure::of_tls)
    }

    fn of_tls(error: &Error) -> HandshakeFailure {
        match error {
            // Clients of TLS 1.1 and older do not name their signature algorithms.
            Error::PeerIncompatible(
                PeerIncompatible::SignatureAlgorithmsExtensionRequired
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::Tls13RequiredForQuic,
            ) => HandshakeFailure::Version,
            Error::PeerIncompatible(_) => HandshakeFailure::Cipher,
            Error::NoApplicationProtocol => HandshakeFailure::Protocol,
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented | Error::InvalidCertRevocationList(_) => {
                HandshakeFailure::ClientCertificate
            }
            Error::AlertReceived(_) => HandshakeFailure::Alert,
            _ => HandshakeFailure::Malformed,
        }
    }
}

impl From<Untimely> for HandshakeFailure {
    fn from(why: Untimely) -> HandshakeFailure {
        match why {
            Untimely::Late => HandshakeFailure::Timeout,
            Untimely::Closing => HandshakeFailure::Closed,
        }
    }
}

/// Counts of handshakes.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// Number of full handshakes.
    pub full: AtomicU64,
    /// Number of resumed sessions.
    pub resumed: AtomicU64,
    failed: [AtomicU64; HandshakeFailure::ALL.len()],
}

impl Handshakes {
    fn fail(&self, failure: HandshakeFailure) {
        if let Some(count) = self.failed.get(failure as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of handshakes that failed, by reason.
    pub fn failures(&self) -> impl Iterator<Item = (HandshakeFailure, u64)> {
        HandshakeFailure::ALL.into_iter().zip(self.failed.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

/// A handshake that failed. With its socket, if the client is to be told.
type Failed = (HandshakeFailure, Option<Socket>);

/// Accepts TLS on a connection. Returns `None` if the handshake failed, which is counted and told to the client, or if
/// it was the check of an authority (`tls-alpn-01`).
pub(crate) async fn accept(conn: &Rc<StreamState>, io: Socket, server: Arc<Server>) -> Option<Io> {
    let count = &conn.worker.shared.counters.handshakes;
    match shake(conn, io, server).await {
        Ok(None) => None,
        Ok(Some((stream, tls))) => {
            let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
            if resumed { &count.resumed } else { &count.full }.fetch_add(1, Ordering::Relaxed);
            let _ = conn.tls.set(Box::new(tls));
            Some(Io::Tls(Box::new(stream.into())))
        }
        Err((failure, io)) => {
            count.fail(failure);
            // The client may still be sending. It could not read the alert if the connection were reset.
            if let Some(io) = io {
                let mut stream =
                    ClientStream::new(Io::Plain(io), conn, Limits { head_bytes: 0, fields: 0 }, BytesMut::new());
                if failure == HandshakeFailure::PlainHttp {
                    let answer = without_tls("this port speaks TLS: write https:// here\n");
                    stream.send_last(answer.as_bytes()).await;
                }
                stream.linger().await;
            }
            None
        }
    }
}

async fn shake(
    conn: &Rc<StreamState>,
    mut io: Socket,
    server: Arc<Server>,
) -> Result<Option<(TlsStream<Socket>, ClientTls)>, Failed> {
    let hello = match read_hello(conn, &mut io).await {
        Ok(hello) => hello,
        Err(Broken::Alert(failure)) => return Err((failure, Some(io))),
        Err(Broken::Silent(failure)) => return Err((failure, None)),
    };
    if let Some(check) = conn.worker.shared.acme.challenges.handshake(&hello.client_hello()) {
        finish(conn, io, hello, check).await?;
        return Ok(None);
    }
    let stream = finish(conn, io, hello, Arc::clone(&server.config)).await.map_err(|(failure, io)| {
        let none = server.certificates.all().is_empty() && failure == HandshakeFailure::Malformed;
        (if none { HandshakeFailure::NoCertificate } else { failure }, io)
    })?;
    let tls = facts(&stream).map_err(|failure| (failure, None))?;
    Ok(Some((stream, tls)))
}

/// How a client's first message ends.
enum Broken {
    /// The client is told.
    Alert(HandshakeFailure),
    /// Nothing more is sent.
    Silent(HandshakeFailure),
}

/// Reads the first message.
async fn read_hello(conn: &Rc<StreamState>, io: &mut Socket) -> Result<Accepted, Broken> {
    let mut acceptor = Acceptor::default();
    let mut read = 0;
    let hello = poll_fn(|cx| {
        loop {
            let mut scratch = conn.worker.scratch.borrow_mut();
            let room = scratch.len().min(MAX_HELLO + 1 - read);
            let mut buffer = ReadBuf::new(scratch.get_mut(..room).unwrap_or_default());
            match Pin::new(&mut *io).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Err(Broken::Silent(HandshakeFailure::Closed))),
                Poll::Pending => return Poll::Pending,
            }
            let mut bytes = buffer.filled();
            // A frame of TLS begins with the number of its kind, and a method with a letter.
            if read == 0 && bytes.first().is_some_and(u8::is_ascii_uppercase) {
                return Poll::Ready(Err(Broken::Alert(HandshakeFailure::PlainHttp)));
            }
            read += bytes.len();
            while !bytes.is_empty() {
                if acceptor.read_tls(&mut bytes).is_err() {
                    return Poll::Ready(Err(Broken::Alert(HandshakeFailure::TooLong)));
                }
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => return Poll::Ready(Ok(accepted)),
                Ok(None) if read > MAX_HELLO => {
                    return Poll::Ready(Err(Broken::Alert(HandshakeFailure::TooLong)));
                }
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let mut bytes = Vec::new();
                    let _ = alert.write_all(&mut bytes);
                    // The socket is empty, so it takes an alert at once.
                    let _ = io.try_write(&bytes);
                    return Poll::Ready(Err(Broken::Alert(HandshakeFailure::of_tls(&error))));
                }
            }
        }
    });
    conn.in_time(hello).await.map_err(|why| Broken::Silent(why.into()))?
}

/// Answers the first message and completes the handshake.
async fn finish(
    conn: &Rc<StreamState>,
    io: Socket,
    hello: Accepted,
    config: Arc<ServerConfig>,
) -> Result<TlsStream<Socket>, Failed> {
    let silent = |failure| (failure, None);
    let untimely = |why: Untimely| silent(why.into());
    let turn = conn.in_time(conn.worker.handshakes.acquire()).await.map_err(untimely)?;
    let limited = |session: &mut tokio_rustls::rustls::ServerConnection| session.set_buffer_limit(Some(UNSENT));
    let accept = StartHandshake::from_parts(hello, io).into_stream_with(config, limited);
    let mut accept = pin!(accept.into_fallible());
    let first = poll_fn(|cx| Poll::Ready(accept.as_mut().poll(cx))).await;
    tokio::task::yield_now().await;
    drop(turn);
    let done = match first {
        Poll::Ready(done) => done,
        Poll::Pending => conn.in_time(accept).await.map_err(untimely)?,
    };
    done.map_err(|(error, io)| match HandshakeFailure::of(&error) {
        HandshakeFailure::Closed => silent(HandshakeFailure::Closed),
        failure => (failure, Some(io)),
    })
}

/// Returns the facts about a connection.
fn facts(stream: &TlsStream<Socket>) -> Result<ClientTls, HandshakeFailure> {
    let (_, session) = stream.get_ref();
    let own = session.peer_certificates().and_then(<[_]>::first);
    // rustls does not look at the dates again when it resumes a session, and each one has new tickets.
    let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
    if resumed && own.is_some_and(|own| weirgate_tls::has_ended(own, weirgate_clock::calendar())) {
        return Err(HandshakeFailure::ClientCertificate);
    }
    let identity = own.map(|own| Identity::of(own).ok_or(HandshakeFailure::ClientCertificate)).transpose()?;
    Ok(ClientTls {
        version: if session.protocol_version() == Some(ProtocolVersion::TLSv1_3) { "1.3" } else { "1.2" },
        sni: session.server_name().map(str::to_ascii_lowercase),
        identity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_under_their_own_words() {
        let counts = Handshakes::default();
        for failure in HandshakeFailure::ALL {
            counts.fail(failure);
        }
        assert!(counts.failures().all(|(_, count)| count == 1));
        let words: std::collections::BTreeSet<_> = counts.failures().map(|(failure, _)| failure.as_str()).collect();
        assert_eq!(words.len(), HandshakeFailure::ALL.len());
    }
}
