//! A coordinator that is controlled by the test.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use weirgate_wire::{Hello, NodeReport, NodeShares};

use crate::head::head;

/// Time limit of an agent's report, which comes every quarter of a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time after which a request for shares is answered without any.
const HOLD: Duration = Duration::from_secs(1);

/// A coordinator, which closes all connections when it is dropped.
pub(crate) struct Coordinator {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The thread that accepts connections and owns the listening socket.
    accepting: Option<JoinHandle<()>>,
    sessions: mpsc::Receiver<(u64, Hello)>,
    reports: mpsc::Receiver<(u64, NodeReport)>,
    /// The session of the last [`Coordinator::session`].
    session: u64,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    opened: AtomicU64,
    /// The newest shares, and the session that they are for.
    shares: Mutex<Option<(u64, NodeShares)>>,
    new: Condvar,
    streams: Mutex<Vec<TcpStream>>,
}

/// A message of a connection to the test.
#[derive(Clone)]
struct Told {
    sessions: mpsc::Sender<(u64, Hello)>,
    reports: mpsc::Sender<(u64, NodeReport)>,
}

impl Coordinator {
    /// Listens at the address to which agents connect.
    pub(crate) fn start(address: SocketAddr) -> Coordinator {
        Coordinator::on(TcpListener::bind(address).expect("the address is free"))
    }

    pub(crate) fn on(listener: TcpListener) -> Coordinator {
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared::default());
        let ((heard, sessions), (said, reports)) = (mpsc::channel(), mpsc::channel());
        let (inner, told) = (Arc::clone(&shared), Told { sessions: heard, reports: said });
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if inner.ended.load(Ordering::SeqCst) {
                    return;
                }
                inner.streams.lock().expect("no panic").push(stream.try_clone().expect("a file descriptor"));
                let (inner, told) = (Arc::clone(&inner), told.clone());
                // An agent that leaves ends its connection with an error.
                std::thread::spawn(move || {
                    let _ = serve(stream, &inner, &told);
                });
            }
        });
        Coordinator { address, shared, accepting: Some(accepting), sessions, reports, session: 0 }
    }

    /// Waits for the next session of an agent. Earlier sessions are heard no more.
    pub(crate) fn session(&mut self) -> Hello {
        let (session, hello) = self.sessions.recv_timeout(PATIENCE).expect("an agent dials");
        self.session = session;
        hello
    }

    /// Returns the next report of the session.
    pub(crate) fn report(&mut self) -> NodeReport {
        loop {
            let (session, report) = self.reports.recv_timeout(PATIENCE).expect("the agent reports");
            if session == self.session {
                return report;
            }
        }
    }

    /// Returns the next report from a window under the shares of `run`.
    pub(crate) fn report_of(&mut self, run: u64) -> NodeReport {
        // An agent first reports its measurements from before the shares came, which is at most a few
        // windows.
        (0..10)
            .map(|_| self.report())
            .find(|report| report.measured.run == run)
            .expect("the shares are in force by now")
    }

    pub(crate) fn shares(&self, run: u64, shares: &[f64]) {
        let shares = NodeShares { run, shares: shares.to_vec() };
        *self.shared.shares.lock().expect("no panic") = Some((self.session, shares));
        self.shared.new.notify_all();
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.new.notify_all();
        // Wakes the thread that accepts, which closes the listening socket.
        drop(TcpStream::connect(self.address));
        // Until it has ended, the address is not free for the next coordinator.
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for stream in self.shared.streams.lock().expect("no panic").drain(..) {
            // The agent may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Answers the requests of one connection.
fn serve(mut stream: TcpStream, shared: &Shared, told: &Told) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let head = head(&mut reader).ok()?;
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        let target = head.split(' ').nth(1)?;
        let parts: Vec<&str> = target.trim_start_matches("/reserves/sessions").split('/').skip(1).collect();
        let answer = match parts.as_slice() {
            [] => {
                let session = shared.opened.fetch_add(1, Ordering::SeqCst) + 1;
                told.sessions.send((session, serde_json::from_slice(&body).expect("a greeting"))).ok()?;
                answer("201 Created", &format!("{{\"session\":\"{session}\"}}"))
            }
            // As a real coordinator answers: the session is one of the process before.
            [session, ..] if session.parse::<u64>().ok()? > shared.opened.load(Ordering::SeqCst) => {
                answer("404 Not Found", "")
            }
            [session, "reports", _] => {
                let report = serde_json::from_slice(&body).expect("a report");
                told.reports.send((session.parse().ok()?, report)).ok()?;
                answer("204 No Content", "")
            }
            [session, query] => {
                let after = query.strip_prefix("shares?after=")?.parse().ok()?;
                match next(shared, session.parse().ok()?, after) {
                    Some(shares) => answer("200 OK", &serde_json::to_string(&shares).ok()?),
                    None => answer("204 No Content", ""),
                }
            }
            _ => panic!("no such page: {head}"),
        };
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

/// Waits for shares of this session that are newer than those of the run `after`.
fn next(shared: &Shared, session: u64, after: u64) -> Option<NodeShares> {
    let is_new = |(of, shares): &(u64, NodeShares)| *of == session && shares.run > after;
    let shares = shared.shares.lock().expect("no panic");
    let waits = |shares: &mut Option<(u64, NodeShares)>| {
        !shares.as_ref().is_some_and(is_new) && !shared.ended.load(Ordering::SeqCst)
    };
    let (shares, _) = shared.new.wait_timeout_while(shares, HOLD, waits).expect("no panic");
    shares.clone().filter(is_new).map(|(_, shares)| shares)
}

fn answer(status: &str, body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    format!("HTTP/1.1 {status}\r\n{length}\r\n{body}")
}
