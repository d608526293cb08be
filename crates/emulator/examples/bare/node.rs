//! A node whose answers cost it as little as possible.
//!
//! Load and node share a core, beside that of the proxy. A proxy is only busy all the time if they need less time for
//! a request than it does. A web server as the node needs more: then every proxy that is fast waits for it, finds one
//! or two requests whenever it wakes up, and pays for waking up as often as there are requests.
//!
//! A request has no body, and a client sends the next one after the answer, as proxies do. No answer ends a connection.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::{EVENTS, READ, receive, send};

/// The token of the first listener. The others count down from it, and the connections count up from zero.
const LISTENER: usize = usize::MAX;

/// Sizes of the two pages in bytes: of `/large`, and of every other path.
const LARGE: usize = 10 << 20;
const SMALL: usize = 1024;

struct Client {
    stream: TcpStream,
    /// The beginning of a request whose end has not arrived.
    received: Vec<u8>,
    /// The bytes of an answer that have not been sent.
    unsent: &'static [u8],
}

/// Answers the requests at all addresses of `listen`.
pub(crate) fn run(listen: &[SocketAddr]) -> io::Result<Infallible> {
    let (small, large) = (page(SMALL), page(LARGE));
    let mut poll = Poll::new()?;
    let mut listeners = listen.iter().map(|at| TcpListener::bind(*at)).collect::<io::Result<Vec<_>>>()?;
    for (at, listener) in listeners.iter_mut().enumerate() {
        poll.registry().register(listener, Token(LISTENER - at), Interest::READABLE)?;
    }
    let (mut clients, mut next) = (HashMap::new(), 0);
    let (mut events, mut buffer) = (Events::with_capacity(EVENTS), vec![0; READ]);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if let Some(listener) = listeners.get(LISTENER - event.token().0) {
                accept(listener, &poll, &mut clients, &mut next)?;
            } else if let Some(client) = clients.get_mut(&event.token().0)
                && client.serve(small, large, &mut buffer)?.is_none()
            {
                clients.remove(&event.token().0);
            }
        }
    }
}

/// Returns an answer with a page of this size. It lives as long as the program.
fn page(bytes: usize) -> &'static [u8] {
    let mut page =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    page.resize(page.len() + bytes, b'w');
    page.leak()
}

fn accept(
    listener: &TcpListener,
    poll: &Poll,
    clients: &mut HashMap<usize, Client>,
    next: &mut usize,
) -> io::Result<()> {
    while let Some(mut stream) = crate::accept(listener)? {
        poll.registry().register(&mut stream, Token(*next), Interest::READABLE | Interest::WRITABLE)?;
        clients.insert(*next, Client { stream, received: Vec::new(), unsent: &[] });
        *next += 1;
    }
    Ok(())
}

impl Client {
    /// Sends and reads as far as both go now. Returns `None` if the connection has ended.
    fn serve(&mut self, small: &'static [u8], large: &'static [u8], buffer: &mut [u8]) -> io::Result<Option<()>> {
        let mut more = true;
        loop {
            if !self.unsent.is_empty() {
                self.unsent = &self.unsent[send(&mut self.stream, self.unsent)?..];
            }
            if !self.unsent.is_empty() || !more {
                return Ok(Some(()));
            }
            let read = match receive(&mut self.stream, buffer)? {
                None => return Ok(Some(())),
                Some(0) => return Ok(None),
                Some(read) => read,
            };
            more = read == buffer.len();
            self.received.extend_from_slice(&buffer[..read]);
            if self.received.ends_with(b"\r\n\r\n") {
                self.unsent = if self.received.starts_with(b"GET /large ") { large } else { small };
                self.received.clear();
            }
        }
    }
}
