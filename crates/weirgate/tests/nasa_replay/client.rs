//! The clients: one request per entry over reused connections.

use std::hash::{DefaultHasher, Hasher as _};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use weirgate_clock::within;

use crate::log::Entry;
use crate::origin::MODIFIED;

/// Time limit of one request, far above any actual time.
const PATIENCE: Duration = Duration::from_secs(30);

type Sender = SendRequest<Empty<Bytes>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Bytes of the body.
    pub(crate) bytes: u64,
    /// A hash of the body.
    pub(crate) content: u64,
    /// Fields that describe the body. They must pass unchanged.
    pub(crate) fields: Vec<Option<String>>,
}

/// Clients of one address.
pub(crate) struct Clients {
    address: SocketAddr,
    idle: Mutex<Vec<Sender>>,
}

impl Clients {
    /// Creates clients without connections.
    pub(crate) fn new(address: SocketAddr) -> Clients {
        Clients { address, idle: Mutex::default() }
    }

    /// Sends entry `id` once and reads its reply to the end. There is no retry.
    pub(crate) async fn fetch(&self, id: usize, entry: &Entry) -> Result<Reply, String> {
        within(PATIENCE, self.exchange(id, entry)).await.ok_or("no reply in time")?
    }

    async fn exchange(&self, id: usize, entry: &Entry) -> Result<Reply, String> {
        let mut sender = self.connection().await?;
        let request = request(id, entry)?;
        let response = sender.send_request(request).await.map_err(|e| format!("sending: {e}"))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|e| format!("reading: {e}"))?.to_bytes();
        let mut hasher = DefaultHasher::new();
        hasher.write(&body);
        let field = |name| head.headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        let names =
            [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::ETAG, header::LAST_MODIFIED, header::LOCATION];
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        Ok(Reply {
            status: head.status.as_u16(),
            bytes: body.len() as u64,
            content: hasher.finish(),
            fields: names.into_iter().map(field).collect(),
        })
    }

    /// Returns an idle connection that is still good, or a new one.
    async fn connection(&self) -> Result<Sender, String> {
        loop {
            let known = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut sender) = known else { break };
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        let stream = TcpStream::connect(self.address).await.map_err(|e| format!("connecting: {e}"))?;
        stream.set_nodelay(true).map_err(|e| format!("connecting: {e}"))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| format!("connecting: {e}"))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn request(id: usize, entry: &Entry) -> Result<Request<Empty<Bytes>>, String> {
    let version = match entry.status {
        302 => "moved".to_owned(),
        404 => "none".to_owned(),
        _ => entry.size.to_string(),
    };
    let mut request = Request::builder()
        .method(entry.method.as_str())
        .uri(&entry.url)
        .header(header::HOST, "www.ksc.nasa.gov")
        .header("x-replay-id", id)
        .header("x-replay-version", version);
    if entry.status == 304 {
        request = request.header(header::IF_MODIFIED_SINCE, MODIFIED);
    }
    request.body(Empty::new()).map_err(|e| format!("{}: {e}", entry.url))
}
