//! Connections that carry one request at a time.
//!
//! The task that waits for an answer also drives the connection. So a connection ends at once when that task is
//! dropped, for example at its time limit.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONNECTION;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use weirgate_clock::within;

use crate::address::{Address, Socket};
use crate::message::{Answer, Error, Limits, MAX_HEAD, Request};

/// A connection to a server, opened with the first request and again when the server has closed it.
pub struct Connection {
    address: Address,
    open: Option<Open>,
}

/// An open connection. It is idle while it is not polled.
struct Open {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` after the connection has ended.
    driver: Option<Driver>,
}

type Driver = http1::Connection<TokioIo<Box<dyn Socket>>, Full<Bytes>>;

/// Sends `request` on its own connection and reads the answer.
///
/// # Errors
/// There is no answer within the limits. An answer with any status is not an error.
pub async fn exchange(address: &Address, request: Request, limits: &Limits) -> Result<Answer, Error> {
    Connection::new(address.clone()).send(&closing(request), limits).await
}

/// Sends `request` on its own connection and passes each piece of the body of a success to `take` as it arrives, until
/// `take` breaks. The answer has the body of any other status, and otherwise none.
///
/// # Errors
/// The answer did not end within the limits. Its pieces until then have been passed.
pub async fn exchange_in_pieces(
    address: &Address,
    request: Request,
    limits: &Limits,
    head: impl FnOnce(&Answer),
    take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Answer, Error> {
    let exchange = async {
        let (mut open, response) = Connection::new(address.clone()).ask(&closing(request)).await?;
        if !response.status().is_success() {
            return Ok(open.read(response, limits).await?.0);
        }
        let (parts, mut body) = response.into_parts();
        let answer = Answer { status: parts.status.as_u16(), fields: parts.headers, body: Bytes::new() };
        head(&answer);
        let reading = pieces(&mut body, limits, take);
        drive(&mut open.driver, reading).await?;
        Ok(answer)
    };
    within(limits.time, exchange).await.unwrap_or(Err(Error::Late(limits.time)))
}

/// Sends `request` on the connection that `connecting` opens and returns the status of the answer without reading its
/// body.
///
/// # Errors
/// There is no head of an answer within the limits.
pub async fn status<S>(
    connecting: impl Future<Output = io::Result<S>>,
    request: Request,
    time: Duration,
) -> Result<u16, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let asked = async {
        let socket = connecting.await.map_err(Error::Connect)?;
        let mut open = Open::on(Box::new(socket)).await?;
        Ok(open.ask(closing(request).build()?).await.map_err(|error| Error::in_head(&error))?.status().as_u16())
    };
    within(time, asked).await.unwrap_or(Err(Error::Late(time)))
}

/// Says in `request` that it is the only one on its connection.
fn closing(request: Request) -> Request {
    request.field(CONNECTION.as_str(), "close")
}

impl Connection {
    /// Creates a connection that is not open yet.
    pub fn new(address: Address) -> Connection {
        Connection { address, open: None }
    }

    /// Sends `request` and reads the answer. If a kept connection ends before the answer, a GET or PUT request is
    /// sent once more on a new one, because the server may close an idle connection at any time.
    ///
    /// # Errors
    /// There is no answer within the limits. The next request uses a new connection. An answer with any status is
    /// not an error.
    pub async fn send(&mut self, request: &Request, limits: &Limits) -> Result<Answer, Error> {
        let exchange = async {
            let (mut open, response) = self.ask(request).await?;
            let (answer, is_whole) = open.read(response, limits).await?;
            if is_whole {
                self.open = Some(open);
            }
            Ok(answer)
        };
        within(limits.time, exchange).await.unwrap_or(Err(Error::Late(limits.time)))
    }

    /// Sends `request` and waits for the head of the answer. The open connection is not in `self` meanwhile.
    async fn ask(&mut self, request: &Request) -> Result<(Open, Response<Incoming>), Error> {
        let request = request.build()?;
        if let Some(mut open) = self.open.take()
            && open.is_ready().await
        {
            match open.ask(request.clone()).await {
                Ok(response) => return Ok((open, response)),
                Err(_) if request.method().is_idempotent() => {}
                Err(error) => return Err(Error::in_head(&error)),
            }
        }
        let socket = self.address.connect().await.map_err(Error::Connect)?;
        let mut open = Open::on(socket).await?;
        let response = open.ask(request).await.map_err(|error| Error::in_head(&error))?;
        Ok((open, response))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Open {
    async fn on(socket: Box<dyn Socket>) -> Result<Open, Error> {
        let opened = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(socket)).await;
        let (sender, driver) = opened.map_err(|error| Error::in_head(&error))?;
        Ok(Open { sender, driver: Some(driver) })
    }

    /// Whether it can take a request.
    async fn is_ready(&mut self) -> bool {
        drive(&mut self.driver, self.sender.ready()).await.is_ok()
    }

    async fn ask(&mut self, request: http::Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let Open { sender, driver } = self;
        drive(driver, async {
            sender.ready().await?;
            sender.send_request(request).await
        })
        .await
    }

    /// Reads the rest of an answer. Returns also whether it was read to its end. An answer that is not a success may
    /// be incomplete: its status says more than the reason.
    async fn read(&mut self, response: Response<Incoming>, limits: &Limits) -> Result<(Answer, bool), Error> {
        let (head, mut body) = response.into_parts();
        let mut kept = BytesMut::new();
        let reading = async {
            if body.size_hint().lower() > limits.body {
                return Err(Error::TooLong(limits.body));
            }
            let keep = |data: &[u8]| {
                let room = limits.kept.saturating_sub(kept.len()).min(data.len());
                kept.extend_from_slice(data.get(..room).unwrap_or_default());
                ControlFlow::Continue(())
            };
            pieces(&mut body, limits, keep).await
        };
        let read = drive(&mut self.driver, reading).await;
        let is_whole = read.is_ok();
        if head.status.is_success() {
            read?;
        }
        Ok((Answer { status: head.status.as_u16(), fields: head.headers, body: kept.freeze() }, is_whole))
    }
}

/// Passes the pieces of a body to `take` as they arrive, until it breaks off.
async fn pieces(
    body: &mut Incoming,
    limits: &Limits,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::in_body(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        length += data.len() as u64;
        if length > limits.body {
            return Err(Error::TooLong(limits.body));
        }
        if take(data).is_break() {
            break;
        }
    }
    Ok(())
}

/// Waits for `work`, and drives the connection meanwhile.
async fn drive<T>(driver: &mut Option<Driver>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        // Errors of the connection also reach the work.
        if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(context).is_ready()) {
            *driver = None;
        }
        work.as_mut().poll(context)
    })
    .await
}
