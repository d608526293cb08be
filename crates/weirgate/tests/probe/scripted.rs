//! A server with exactly defined costs per page, and its agent: counters that grow with each request by
//! exactly that cost.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Use of CPU, disk and bandwidth by a request for a page.
pub(crate) type Cost = [f64; 3];

/// A page that costs only the first times, as it is made once for all clients, and the number of those
/// times.
pub(crate) const MADE_ONCE: (&str, u32) = ("/once", 5);

/// A page that is answered this number of times, and then no more. The crawl and a first look at it take 18
/// requests.
pub(crate) const TIRED: (&str, u32) = ("/tired", 20);

/// A page: its status, its body, and its cost.
pub(crate) struct Page(pub(crate) u16, pub(crate) &'static str, pub(crate) Cost);

/// The server. It ends with the test's process.
#[derive(Clone)]
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    used: Cost,
    requests: BTreeMap<String, u32>,
    /// Whether the agent leaves out the capacity.
    is_silent: bool,
    /// Requests by page that accept a compressed answer.
    zipped: BTreeMap<String, u32>,
    /// Number of requests until pages are no longer answered. The agent continues.
    dies_after: Option<u32>,
    /// Number of requests until the gate opens, and the channel that reports it once.
    gate: Option<(u32, std::sync::mpsc::Sender<()>)>,
}

impl Scripted {
    /// Starts the server. Pages that are not in the list are not found and cost nothing. `/weirgate/report`
    /// belongs to its agent.
    pub(crate) fn start(pages: &'static [(&'static str, Page)]) -> Scripted {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let server = Scripted { address, seen: Arc::default() };
        let accepting = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = accepting.clone();
                thread::spawn(move || server.serve(stream, pages));
            }
        });
        server
    }

    pub(crate) fn requests(&self, path: &str) -> u32 {
        self.seen.lock().expect("no thread has panicked").requests.get(path).copied().unwrap_or(0)
    }

    /// From now on its agent reports the use but not the capacity.
    pub(crate) fn tells_no_capacity(&self) {
        self.seen.lock().expect("no thread has panicked").is_silent = true;
    }

    /// Returns the number of requests for a page that accept a compressed answer.
    pub(crate) fn zipped(&self, path: &str) -> u32 {
        self.seen.lock().expect("no thread has panicked").zipped.get(path).copied().unwrap_or(0)
    }

    /// Answers `count` more requests for pages, and then none. `None` removes the limit.
    pub(crate) fn dies_after(&self, count: Option<u32>) {
        self.seen.lock().expect("no thread has panicked").dies_after = count;
    }

    /// Returns a channel that reports when `count` more requests have arrived.
    pub(crate) fn after(&self, count: u32) -> std::sync::mpsc::Receiver<()> {
        let (tell, told) = std::sync::mpsc::channel();
        self.seen.lock().expect("no thread has panicked").gate = Some((count, tell));
        told
    }

    fn serve(&self, mut stream: TcpStream, pages: &'static [(&'static str, Page)]) {
        let mut buffer = Vec::new();
        loop {
            while !buffer.windows(4).any(|end| end == b"\r\n\r\n") {
                let mut bytes = [0; 1024];
                match stream.read(&mut bytes) {
                    Ok(read) if read > 0 => buffer.extend_from_slice(&bytes[..read]),
                    _ => return,
                }
            }
            let head = String::from_utf8_lossy(&buffer).into_owned();
            buffer.clear();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let (answer, close) = match path {
                "/weirgate/report" => (self.report(), true),
                _ if !self.lives() => return,
                _ => (self.page(path, pages), false),
            };
            if head.contains("accept-encoding: gzip") {
                *self.seen.lock().expect("no thread has panicked").zipped.entry(path.to_owned()).or_default() += 1;
            }
            if stream.write_all(answer.as_bytes()).is_err() || close {
                return;
            }
        }
    }

    fn lives(&self) -> bool {
        let mut seen = self.seen.lock().expect("no thread has panicked");
        let lives = seen.dies_after != Some(0);
        seen.dies_after = seen.dies_after.map(|left| left.saturating_sub(1));
        lives
    }

    fn report(&self) -> String {
        let seen = self.seen.lock().expect("no thread has panicked");
        let resources = ["cpu", "disk", "bandwidth"].iter().zip(seen.used).zip([1u32, 100_000_000, 10_000_000]);
        let usage = resources.map(|((name, used), capacity)| match seen.is_silent {
            true => format!(r#""{name}":{{"used":{used}}}"#),
            false => format!(r#""{name}":{{"used":{used},"capacity":{capacity}}}"#),
        });
        let usage = usage.collect::<Vec<_>>().join(",");
        let body = format!(r#"{{"version":1,"active":{{"static":0,"dynamic":0}},"usage":{{{usage}}}}}"#);
        format!("HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    fn page(&self, path: &str, pages: &'static [(&'static str, Page)]) -> String {
        let page = pages.iter().find(|(known, _)| *known == path).map(|(_, page)| page);
        let Page(status, body, cost) = page.unwrap_or(&Page(404, "", [0.0; 3]));
        let mut seen = self.seen.lock().expect("no thread has panicked");
        let times = seen.requests.entry(path.to_owned()).or_default();
        *times += 1;
        let status = if path == TIRED.0 && *times > TIRED.1 { &503 } else { status };
        let is_made = path != MADE_ONCE.0 || *times <= MADE_ONCE.1;
        for (used, cost) in seen.used.iter_mut().zip(cost) {
            *used += if is_made { *cost } else { 0.0 };
        }
        if let Some((left, tell)) = seen.gate.as_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                // The test may have continued already.
                let _ = tell.send(());
                seen.gate = None;
            }
        }
        let kind = if body.starts_with('<') { "text/html" } else { "text/plain" };
        let location = if *status == 302 { format!("location: {body}\r\n") } else { String::new() };
        format!("HTTP/1.1 {status} X\r\n{location}content-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }
}
