//! A relay that passes bytes between clients and nodes, and reads none of them.
//!
//! It makes the system calls that a proxy cannot do without, an event for each message, one read and one write, and
//! nothing else. So it shows what part of a proxy's CPU time is the kernel's. It is no proxy: every client has
//! connections to the nodes of its own, one to each, which end with it. Its requests go over them in turn. What it
//! sends first after an answer is taken for a request, and all that comes back before that for the answer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::{EVENTS, READ, accept, receive, send};

/// The token of the listener. The connections of a client have a number of tokens in a row, beginning with its own.
const LISTENER: Token = Token(usize::MAX);

/// A client and its connections to the nodes.
struct Client {
    /// The client's own connection, and those to the nodes.
    sides: Vec<TcpStream>,
    /// Bytes for the client, and for the node of the present request, that are still to be sent.
    unsent: [Vec<u8>; 2],
    /// The connection of the present request.
    node: usize,
    /// Whether bytes of its answer have come.
    answered: bool,
}

struct Relay {
    poll: Poll,
    listener: TcpListener,
    nodes: Vec<SocketAddr>,
    clients: HashMap<usize, Client>,
    next: usize,
    buffer: Vec<u8>,
}

/// Passes bytes between the clients at `listen` and `nodes`, which must not be empty.
pub(crate) fn run(listen: SocketAddr, nodes: Vec<SocketAddr>) -> io::Result<Infallible> {
    let mut relay = Relay {
        poll: Poll::new()?,
        listener: TcpListener::bind(listen)?,
        nodes,
        clients: HashMap::new(),
        next: 0,
        buffer: vec![0; READ],
    };
    relay.poll.registry().register(&mut relay.listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(EVENTS);
    let of_client = relay.nodes.len() + 1;
    loop {
        relay.poll.poll(&mut events, None)?;
        for event in &events {
            match event.token() {
                LISTENER => relay.accept()?,
                Token(token) => {
                    let (client, side) = (token / of_client, token % of_client);
                    relay.pass(client, side, event.is_readable(), event.is_writable())?;
                }
            }
        }
    }
}

impl Relay {
    fn accept(&mut self) -> io::Result<()> {
        while let Some(client) = accept(&self.listener)? {
            let mut sides = vec![client];
            for node in &self.nodes {
                let node = TcpStream::connect(*node)?;
                node.set_nodelay(true)?;
                sides.push(node);
            }
            let first = self.next * sides.len();
            for (at, side) in sides.iter_mut().enumerate() {
                self.poll.registry().register(side, Token(first + at), Interest::READABLE | Interest::WRITABLE)?;
            }
            let unsent = [Vec::new(), Vec::new()];
            self.clients.insert(self.next, Client { sides, unsent, node: 1, answered: false });
            self.next += 1;
        }
        Ok(())
    }

    /// Passes on what a side of a client has sent, and what it can take again.
    fn pass(&mut self, number: usize, from: usize, readable: bool, writable: bool) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        let of_node = usize::from(from != 0);
        let mut sources = [readable.then_some(from), None];
        if writable && (from == 0 || from == client.node) && !client.unsent[of_node].is_empty() {
            let sent = send(&mut client.sides[from], &client.unsent[of_node])?;
            client.unsent[of_node].drain(..sent);
            // The other side may have more, which has waited for this.
            let other = if from == 0 { client.node } else { 0 };
            sources[1] = client.unsent[of_node].is_empty().then_some(other);
        }
        for source in sources.into_iter().flatten() {
            let of_target = usize::from(source == 0);
            while client.unsent[of_target].is_empty() {
                let Some(read) = receive(&mut client.sides[source], &mut self.buffer)? else { break };
                if read == 0 {
                    // One side has ended, which ends the others.
                    self.clients.remove(&number);
                    return Ok(());
                }
                if source == 0 && std::mem::take(&mut client.answered) {
                    client.node = client.node % self.nodes.len() + 1;
                }
                client.answered |= source != 0;
                let target = if source == 0 { client.node } else { 0 };
                let sent = send(&mut client.sides[target], &self.buffer[..read])?;
                client.unsent[of_target].extend_from_slice(&self.buffer[sent..read]);
                if read < READ {
                    break;
                }
            }
        }
        Ok(())
    }
}
