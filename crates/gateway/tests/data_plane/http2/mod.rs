//! Clients that speak HTTP/2.

mod floods;
mod health;
mod lifetime;
mod messages;
mod nodes;
mod streams;
pub(crate) mod websockets;
mod wire;

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::stage::LIMIT;

/// A client of the `h2` library. Every operation blocks, with the limit of all operations.
pub(crate) struct Client {
    runtime: tokio::runtime::Handle,
    send: SendRequest<Bytes>,
    /// Ends the thread that drives the connection.
    _end: tokio::sync::oneshot::Sender<()>,
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) head: Response<()>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Whole {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).and_then(|value| value.to_str().ok())
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::over(tokio::net::TcpStream::connect(address))
    }

    /// Speaks HTTP/2 over the connection that `open` opens.
    pub(crate) fn over<T>(open: impl Future<Output = std::io::Result<T>>) -> Client
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        let (end, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || runtime.block_on(ended));
        let (send, connection) = handle.block_on(async {
            let socket = open.await.expect("the gateway accepts");
            h2::client::Builder::new().handshake(socket).await.expect("a connection")
        });
        handle.spawn(connection);
        Client { runtime: handle, send, _end: end }
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { weirgate_clock::within(LIMIT, work).await.expect("within the limit") })
    }

    /// Begins a request.
    pub(crate) fn begin(&mut self, request: Request<()>, ended: bool) -> (ResponseFuture, SendStream<Bytes>) {
        let send = self.send.clone();
        let mut send = self.wait(send.ready()).expect("another stream");
        send.send_request(request, ended).expect("a request")
    }

    /// Waits for a response.
    pub(crate) fn finish(&self, response: ResponseFuture) -> Result<Whole, h2::Error> {
        self.wait(async {
            let (head, mut incoming) = response.await?.into_parts();
            let mut body = Vec::new();
            while let Some(piece) = incoming.data().await {
                let piece = piece?;
                incoming.flow_control().release_capacity(piece.len())?;
                body.extend_from_slice(&piece);
            }
            let trailers = incoming.trailers().await?;
            Ok(Whole { head: Response::from_parts(head, ()), body, trailers })
        })
    }

    /// Waits for the head of a response.
    pub(crate) fn head(&self, response: ResponseFuture) -> Result<Response<RecvStream>, h2::Error> {
        self.wait(response)
    }

    /// Asks, and waits for the response.
    pub(crate) fn ask(&mut self, request: Request<()>) -> Result<Whole, h2::Error> {
        let (response, _) = self.begin(request, true);
        self.finish(response)
    }

    /// Begins a request on a connection that may have ended.
    pub(crate) fn try_get(&mut self) -> Result<(), h2::Error> {
        let send = self.send.clone();
        self.wait(send.ready()).map(|_| ())
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Whole, h2::Error> {
        self.ask(get(path))
    }
}

pub(crate) fn get(path: &str) -> Request<()> {
    request("GET", path).body(()).expect("it is sound")
}

pub(crate) fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("http://a.test{path}"))
}
