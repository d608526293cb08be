//! A coordinator that is controlled by the test.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use weirgate_wire::{CoordinatorLink, FromAgent, FromCoordinator, Lines, NodeReport, Token};

/// Time limit of an agent's line, which comes every quarter of a second.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Connection {
    stream: TcpStream,
    lines: Lines,
    link: CoordinatorLink,
    pub(crate) node: String,
}

/// Listens at the address to which agents connect.
pub(crate) fn listen(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address).expect("the address is free")
}

impl Connection {
    /// Accepts the next agent that connects, once both have proven that they have the token.
    pub(crate) fn accept(listener: &TcpListener, token: &Path) -> Connection {
        let (mut stream, _) = listener.accept().expect("an agent dials");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let token = Token::find("test", Some(token), None).expect("a sound token");
        let mut lines = Lines::default();
        let greeting = CoordinatorLink::greeting(&line(&mut stream, &mut lines)).expect("a greeting");
        let (challenged, challenge) = CoordinatorLink::coordinator(token.as_ref(), &greeting, [7; 16]);
        stream.write_all(challenge.as_bytes()).expect("it listens");
        let link = challenged.proven(&line(&mut stream, &mut lines)).expect("the agent has the token");
        Connection { stream, lines, link, node: greeting.node }
    }

    pub(crate) fn report(&mut self) -> NodeReport {
        let line = line(&mut self.stream, &mut self.lines);
        match self.link.open(&line).expect("a sealed line") {
            FromAgent::Report(report) => report,
            other => panic!("no report: {other:?}"),
        }
    }

    /// Returns the next report from a window under the shares of `run`.
    pub(crate) fn report_of(&mut self, run: u64) -> NodeReport {
        // An agent first reports its measurements from before the shares came, which is at most a few
        // windows.
        (0..10).map(|_| self.report()).find(|report| report.run == run).expect("the shares are in force by now")
    }

    pub(crate) fn shares(&mut self, run: u64, shares: &[f64]) {
        let line = self.link.seal(&FromCoordinator::Shares { run, shares: shares.to_vec() });
        self.stream.write_all(line.as_bytes()).expect("it listens");
    }
}

fn line(stream: &mut TcpStream, lines: &mut Lines) -> Vec<u8> {
    loop {
        if let Some(line) = lines.next_line().expect("lines are short") {
            return line.to_vec();
        }
        let mut bytes = [0; 4096];
        let read = match stream.read(&mut bytes) {
            // A signal came first: nothing was read.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.expect("the agent speaks"),
        };
        assert!(read > 0, "the agent closed the connection");
        lines.push(&bytes[..read]);
    }
}
