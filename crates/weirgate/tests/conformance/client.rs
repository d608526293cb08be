//! The client: sends raw bytes from its own address and reads the answers strictly.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use weirgate_clock::within;

use crate::message::{Body, Form, Request, chunks, find};
use crate::reading::{End, read};
use crate::{PATIENCE, SILENCE};

/// The request that must get its own answer after any other bytes.
pub(crate) const MARKER: &[u8] = b"POST /marker HTTP/1.1\r\nHost: marker.test\r\nContent-Length: 6\r\n\r\nmarker";

/// One connection from the client's side.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// All bytes that were sent.
    pub(crate) sent: Vec<u8>,
    /// Final answers in order.
    pub(crate) answers: Vec<Answer>,
    /// Whether the proxy ended the connection.
    pub(crate) closed: bool,
    /// Bytes that are no answer.
    pub(crate) garbage: Option<String>,
}

/// A final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The number that the node gave it. `None` if the proxy answered by itself.
    pub(crate) number: Option<usize>,
}

/// A proxy and the time limit of its answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) patience: Duration,
}

/// The way in which the marker follows a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// After the answers, if the connection may serve another request.
    WhenIdle,
    /// At once, in one write with the payload.
    AtOnce,
}

/// Sends `payload` from `lane` and reads until every answer has come, the proxy has closed, or nothing more
/// can come.
pub(crate) async fn exchange(proxy: Target, lane: Ipv4Addr, payload: &[u8], follow: Follow) -> Exchange {
    let mut sent = payload.to_vec();
    if follow == Follow::AtOnce {
        sent.extend_from_slice(MARKER);
    }
    let mut client = Client::connect(proxy, lane).await;
    client.send(&sent).await;
    client.collect(&sent).await;
    if follow == Follow::WhenIdle && !client.closed && matches!(read(&sent).end, End::Idle) {
        client.send(MARKER).await;
        sent.extend_from_slice(MARKER);
        client.collect(&sent).await;
    }
    Exchange { sent, answers: client.answers, closed: client.closed, garbage: client.garbage }
}

struct Client {
    stream: TcpStream,
    patience: Duration,
    bytes: Vec<u8>,
    answers: Vec<Answer>,
    closed: bool,
    garbage: Option<String>,
}

impl Client {
    async fn connect(proxy: Target, lane: Ipv4Addr) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((lane, 0).into()).expect("every address of 127.0.0.0/8 is ours");
        let stream =
            within(PATIENCE, socket.connect(proxy.address)).await.expect("the proxy accepts").expect("it is there");
        Client {
            stream,
            patience: proxy.patience,
            bytes: Vec::new(),
            answers: Vec::new(),
            closed: false,
            garbage: None,
        }
    }

    /// Sends `bytes`. If the proxy has closed already, reading its answers shows it.
    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads the answers that `sent` must get, within their time limits.
    async fn collect(&mut self, sent: &[u8]) {
        let reading = read(sent);
        while self.answers.len() < reading.requests.len() && self.next(&reading.requests, self.patience).await {}
        match reading.end {
            End::Idle => {}
            // An answer may come or not, but it must not be that of a whole request.
            End::Open(_) => while self.next(&reading.requests, SILENCE).await {},
            End::Closed | End::Malformed(_) => while self.next(&reading.requests, self.patience).await {},
        }
    }

    /// Reads one answer. Returns false if none came in time, the proxy closed, or the bytes are no answer.
    async fn next(&mut self, requests: &[Request], limit: Duration) -> bool {
        if self.closed || self.garbage.is_some() {
            return false;
        }
        let bodiless = requests.get(self.answers.len()).is_some_and(|request| request.method == "HEAD");
        loop {
            match parse(&self.bytes, bodiless, self.closed) {
                Ok(Some((answer, used))) => {
                    self.bytes.drain(..used);
                    if answer.status >= 200 {
                        self.answers.push(answer);
                        return true;
                    }
                    continue;
                }
                Ok(None) if self.closed => {
                    if !self.bytes.is_empty() {
                        self.garbage = Some(format!("cut off: {}", self.bytes.escape_ascii()));
                    }
                    return false;
                }
                Ok(None) => {}
                Err(why) => {
                    self.garbage = Some(format!("{why}: {}", self.bytes.escape_ascii()));
                    return false;
                }
            }
            match within(limit, self.stream.read_buf(&mut self.bytes)).await {
                None => return false,
                Some(read) => self.closed = read.unwrap_or(0) == 0,
            }
        }
    }
}

/// Reads the first answer of `bytes`. `Ok(None)` means that it is not yet whole. A proxy's own error may
/// end with the connection (`closed`), and may lack its body if it answers a `HEAD` that it did not accept.
fn parse(bytes: &[u8], bodiless: bool, closed: bool) -> Result<Option<(Answer, usize)>, String> {
    let Some(length) = find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&bytes[..length]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1.1 ").or(line.strip_prefix("HTTP/1.0 ")))
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse().ok())
        .ok_or("no status line")?;
    let fields: Vec<(String, &str)> = lines
        .map(|line| line.split_once(':').map(|(n, v)| (n.to_ascii_lowercase(), v.trim())).ok_or("no field"))
        .collect::<Result<_, _>>()?;
    let value = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
    let number = value("x-number").map(|n| n.parse().map_err(|_| "no number")).transpose()?;
    let answer = Answer { status, number };
    let body = &bytes[length + 4..];
    if bodiless || status < 200 || status == 204 || status == 304 {
        return Ok(Some((answer, length + 4)));
    }
    if value("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
        return match chunks(body, Form::Received, &mut Vec::new()) {
            Body::Whole(used) => Ok(Some((answer, length + 4 + used))),
            Body::Part => Ok(None),
            Body::Malformed(why) => Err(why),
        };
    }
    match value("content-length").map(str::parse::<usize>) {
        Some(Ok(n)) if body.len() >= n => Ok(Some((answer, length + 4 + n))),
        Some(Ok(_)) if closed && number.is_none() && body.is_empty() => Ok(Some((answer, length + 4))),
        Some(Ok(_)) => Ok(None),
        Some(Err(_)) => Err("Content-Length is no number".into()),
        None if closed => Ok(Some((answer, bytes.len()))),
        None => Ok(None),
    }
}
