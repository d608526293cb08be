//! A relay that passes bytes between a client and a node, and reads none of them.
//!
//! It makes the system calls that a proxy cannot do without, an event for each message, one read and one write, and
//! nothing else. So it shows what part of a proxy's CPU time is the kernel's. It is no proxy: every client has a
//! connection to the node of its own, which ends with it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::{EVENTS, READ, accept, receive, send};

/// The token of the listener. Each pair of connections has the two that follow its even number.
const LISTENER: Token = Token(usize::MAX);

/// A client, its connection to the node, and the bytes that each of them has not taken.
struct Pair {
    sides: [TcpStream; 2],
    unsent: [Vec<u8>; 2],
}

struct Relay {
    poll: Poll,
    listener: TcpListener,
    node: SocketAddr,
    pairs: HashMap<usize, Pair>,
    next: usize,
    buffer: Vec<u8>,
}

/// Passes bytes between the clients at `listen` and `node`.
pub(crate) fn run(listen: SocketAddr, node: SocketAddr) -> io::Result<Infallible> {
    let mut relay = Relay {
        poll: Poll::new()?,
        listener: TcpListener::bind(listen)?,
        node,
        pairs: HashMap::new(),
        next: 0,
        buffer: vec![0; READ],
    };
    relay.poll.registry().register(&mut relay.listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(EVENTS);
    loop {
        relay.poll.poll(&mut events, None)?;
        for event in &events {
            match event.token() {
                LISTENER => relay.accept()?,
                Token(token) => relay.pass(token / 2 * 2, token % 2, event.is_readable(), event.is_writable())?,
            }
        }
    }
}

impl Relay {
    fn accept(&mut self) -> io::Result<()> {
        while let Some(mut client) = accept(&self.listener)? {
            let (both, token) = (Interest::READABLE | Interest::WRITABLE, self.next);
            self.next += 2;
            let mut node = TcpStream::connect(self.node)?;
            node.set_nodelay(true)?;
            self.poll.registry().register(&mut node, Token(token + 1), both)?;
            self.poll.registry().register(&mut client, Token(token), both)?;
            self.pairs.insert(token, Pair { sides: [client, node], unsent: [Vec::new(), Vec::new()] });
        }
        Ok(())
    }

    /// Passes on what side `from` of a pair has sent, and what it can take again.
    fn pass(&mut self, pair: usize, from: usize, readable: bool, writable: bool) -> io::Result<()> {
        let Some(Pair { sides, unsent }) = self.pairs.get_mut(&pair) else { return Ok(()) };
        let mut sources = [readable.then_some(from), None];
        if writable && !unsent[from].is_empty() {
            let sent = send(&mut sides[from], &unsent[from])?;
            unsent[from].drain(..sent);
            // The other side may have more, which has waited for this.
            sources[1] = unsent[from].is_empty().then_some(1 - from);
        }
        for source in sources.into_iter().flatten() {
            let target = 1 - source;
            while unsent[target].is_empty() {
                let Some(read) = receive(&mut sides[source], &mut self.buffer)? else { break };
                if read == 0 {
                    // One side has ended, which ends the other.
                    self.pairs.remove(&pair);
                    return Ok(());
                }
                let sent = send(&mut sides[target], &self.buffer[..read])?;
                unsent[target].extend_from_slice(&self.buffer[sent..read]);
                if read < READ {
                    break;
                }
            }
        }
        Ok(())
    }
}
