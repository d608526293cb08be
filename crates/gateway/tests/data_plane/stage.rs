//! Test environment: a gateway, nodes and clients. Every operation blocks, with a limit of ten seconds.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use weirgate_engine::Would;
use weirgate_gateway::{AccessRecord, Clock, Ending, Gateway, Observer, Protocol, ReloadSource};

/// Time limit of every operation, longer than any of them needs. A test that reaches it has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// A gateway that is stopped at the end of its test.
pub(crate) struct Stage {
    pub(crate) gateway: Gateway,
    records: Mutex<Receiver<Record>>,
}

/// Content of an observed record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) class: String,
    pub(crate) protocol: Protocol,
    pub(crate) ending: Ending,
    pub(crate) would: Option<Would>,
    pub(crate) status: u16,
    pub(crate) node: Option<String>,
    pub(crate) retries: u8,
    pub(crate) queue_wait: Duration,
    pub(crate) service_time: Duration,
    pub(crate) total: Duration,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) path: String,
    pub(crate) client: String,
}

struct Tell(Sender<Record>);

impl Observer for Tell {
    fn observe(&self, record: &AccessRecord<'_>) {
        // A test that has ended has dropped the receiver.
        let _ = self.0.send(Record {
            class: record.class_name.to_owned(),
            protocol: record.protocol,
            ending: record.ending,
            would: record.would,
            status: record.status,
            node: record.node.map(str::to_owned),
            retries: record.retries,
            queue_wait: record.queue_wait,
            service_time: record.service_time,
            total: record.total,
            bytes_in: record.bytes_in,
            bytes_out: record.bytes_out,
            path: {
                let query = record.request.query().map_or(String::new(), |query| format!("?{query}"));
                format!("{}{query}", record.request.path())
            },
            client: record.client.to_string(),
        });
    }
}

/// Builds a policy with one upstream of these nodes and appends `rest`.
pub(crate) fn policy(nodes: &[&Node], rest: &str) -> String {
    let nodes: Vec<_> = nodes.iter().map(|n| n.address.to_string()).collect();
    format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 2\nupstreams: {{ web: {{ nodes: [{}] }} }}\n{rest}",
        nodes.join(", ")
    )
}

/// One best-effort class, without load control.
pub(crate) const PLAIN: &str = "discipline: none\nclasses: [{ name: all }]\n";

/// One best-effort class with a window of `window` requests in flight.
pub(crate) fn windowed(window: u32) -> String {
    format!(
        "classes: [{{ name: all }}]\ndiscipline: {{ custom: {{ admit: none, load_control: {{ fixed: {window} }}, precedence: fifo }} }}\n"
    )
}

pub(crate) fn site(text: &str) -> weirgate_config::Site {
    match weirgate_config::load("test.yaml", text) {
        Ok(loaded) => loaded.site,
        Err(errors) => panic!("{errors}"),
    }
}

impl Stage {
    pub(crate) fn open(text: &str) -> Stage {
        let (sender, records) = channel();
        let observers: Vec<Box<dyn Observer>> = vec![Box::new(Tell(sender))];
        let gateway = Gateway::start(site(text), text, ReloadSource::Nowhere, observers).expect("the gateway starts");
        Stage { gateway, records: Mutex::new(records) }
    }

    /// Opens a gateway in front of one node, with `rest` of its policy.
    pub(crate) fn of(node: Node, rest: &str) -> (Node, Stage) {
        let stage = Stage::open(&policy(&[&node], rest));
        (node, stage)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Returns the response to a GET over a new connection.
    pub(crate) fn ask(&self, path: &str) -> Answer {
        self.client().ask(path)
    }

    /// Returns the response to these bytes over a new connection.
    pub(crate) fn exchange(&self, bytes: impl AsRef<[u8]>) -> Answer {
        self.client().exchange(bytes)
    }

    /// Returns the next record.
    pub(crate) fn record(&self) -> Record {
        self.records.lock().expect("no panic").recv_timeout(LIMIT).expect("a record")
    }

    /// Returns the number of requests that wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.gateway.control().snapshot().waiting
    }

    /// Returns whether no request waits and none is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        let snapshot = self.gateway.control().snapshot();
        snapshot.waiting == 0 && snapshot.outstanding == 0
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.gateway.cut();
        self.gateway.join();
    }
}

/// Waits until `holds` returns true, for at most [`LIMIT`].
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !holds() {
        assert!(clock.now().as_secs_f64() < LIMIT.as_secs_f64(), "never: {what}");
        // Leaves the core to the threads that the test waits for.
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A node with responses given by the test.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    calls: Receiver<Call>,
}

/// A request received by a node.
pub(crate) struct Call {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Number of the connection, from 0.
    pub(crate) connection: usize,
    pub(crate) stream: TcpStream,
    next: Sender<()>,
}

impl Node {
    /// Starts a node that reads whole requests and hands each of them to the test.
    pub(crate) fn scripted() -> Node {
        let (sender, calls) = channel();
        let address = serve(move |connection, stream| {
            let mut wire = Wire::new(stream.try_clone()?);
            while let Some((head, body)) = wire.message(true)? {
                let (next, done) = channel();
                let call = Call { head, body, connection, stream: stream.try_clone()?, next };
                if sender.send(call).is_err() || done.recv().is_err() {
                    break;
                }
            }
            let _ = stream.shutdown(Shutdown::Both);
            Ok(())
        });
        Node { address, calls }
    }

    /// Starts a node that answers every request with `answer`.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Node {
        let answer = answer.into();
        Node::replying(move |_, _| answer.clone())
    }

    /// Starts a node that answers every request with the result of `reply` for its head and body.
    pub(crate) fn replying(reply: impl Fn(&str, &[u8]) -> Vec<u8> + Send + Sync + 'static) -> Node {
        let (sender, calls) = channel();
        let address = serve(move |connection, stream| {
            let mut wire = Wire::new(stream.try_clone()?);
            while let Some((head, body)) = wire.message(true)? {
                let answer = reply(&head, &body);
                // Record the call before the response, because a client that has the response may ask for the
                // call at once.
                let (next, _) = channel();
                let _ = sender.send(Call { head, body, connection, stream: stream.try_clone()?, next });
                (&stream).write_all(&answer)?;
                let head = answer.split(|byte| *byte == b'\n').take_while(|line| line.len() > 1);
                if head.into_iter().any(|line| line.eq_ignore_ascii_case(b"connection: close\r")) {
                    return stream.shutdown(std::net::Shutdown::Write);
                }
            }
            Ok(())
        });
        Node { address, calls }
    }

    /// Drops the recorded requests, because each of them holds a socket.
    pub(crate) fn forget(&self) {
        while self.calls.try_recv().is_ok() {}
    }

    /// Starts a node that runs `act` on each connection.
    pub(crate) fn raw(act: impl Fn(usize, &TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Node {
        let (_, calls) = channel();
        Node { address: serve(move |connection, stream| act(connection, &stream)), calls }
    }

    /// Returns a node with an address on which nothing listens.
    pub(crate) fn absent() -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (_, calls) = channel();
        Node { address: listener.local_addr().expect("an address"), calls }
    }

    /// Returns the next request.
    pub(crate) fn call(&self) -> Call {
        self.calls.recv_timeout(LIMIT).expect("a request reaches the node")
    }

    /// Returns whether no request has arrived.
    pub(crate) fn has_no_call(&self) -> bool {
        matches!(self.calls.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty))
    }

    /// Returns the requests that have arrived, without waiting.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        loop {
            match self.calls.recv_timeout(Duration::ZERO) {
                Ok(call) => calls.push(call),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return calls,
            }
        }
    }
}

impl Call {
    pub(crate) fn write(&self, bytes: impl AsRef<[u8]>) {
        (&self.stream).write_all(bytes.as_ref()).expect("the gateway takes the answer");
    }

    /// Answers, and continues with the next request of the connection.
    pub(crate) fn reply(self, bytes: impl AsRef<[u8]>) {
        self.write(bytes);
        let _ = self.next.send(());
    }

    /// Answers `200` with this body.
    pub(crate) fn ok(self, body: &str) {
        self.reply(ok(body));
    }

    /// Returns the value of a header, or `None`.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

/// Builds a whole response.
pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Cuts a body into chunks. `cut` gets the number of bytes written so far, and returns the size of the next chunk and
/// its extension.
pub(crate) fn chunked(body: &[u8], mut cut: impl FnMut(usize) -> (usize, &'static str)) -> Vec<u8> {
    let (mut rest, mut bytes) = (body, Vec::new());
    while !rest.is_empty() {
        let (size, extension) = cut(bytes.len());
        let (chunk, after) = rest.split_at(size.min(rest.len()));
        bytes.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
        rest = after;
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

fn serve(act: impl Fn(usize, TcpStream) -> io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let act = Arc::new(act);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(stream) = stream else { return };
            let act = Arc::clone(&act);
            std::thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                // A test checks the effects of a broken connection itself.
                let _ = act(number, stream);
            });
        }
    });
    address
}

/// A client with one connection.
pub(crate) struct Client {
    wire: Wire,
}

/// A response as the client received it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the gateway accepts");
        stream.set_nodelay(true).expect("a socket");
        Client { wire: Wire::new(stream) }
    }

    /// Connects from another address of the loopback.
    pub(crate) fn from_address(own: [u8; 4], address: SocketAddr) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((own, 0)).into()).expect("the whole of 127/8 is ours");
        socket.connect(&address.into()).expect("the gateway accepts");
        socket.set_tcp_nodelay(true).expect("a socket");
        Client { wire: Wire::new(socket.into()) }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.wire.stream
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire.stream.write_all(bytes.as_ref()).expect("the gateway takes the request");
    }

    pub(crate) fn get(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    }

    /// Sends a GET and returns the next response.
    pub(crate) fn ask(&mut self, path: &str) -> Answer {
        self.get(path);
        self.answer()
    }

    /// Sends bytes and returns the next response.
    pub(crate) fn exchange(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        self.send(bytes);
        self.answer()
    }

    /// Returns the next response. Panics if the connection ends instead.
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer(true).expect("a connection").expect("an answer")
    }

    /// Returns the next response, to a HEAD request.
    pub(crate) fn head_answer(&mut self) -> Answer {
        self.try_answer(false).expect("a connection").expect("an answer")
    }

    fn try_answer(&mut self, body: bool) -> io::Result<Option<Answer>> {
        Ok(self.wire.message(body)?.map(|(head, body)| {
            let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
            Answer { status, head, body }
        }))
    }

    /// Returns whether the gateway has closed the connection and sent nothing more.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.wire.stream.read(&mut byte) {
            Ok(0) => self.wire.buffer.is_empty(),
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    /// Returns all bytes up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.wire.buffer);
        // A reset counts as an end.
        let _ = self.wire.stream.read_to_end(&mut all);
        all
    }

    /// Closes with a reset instead of an orderly end.
    pub(crate) fn reset(self) {
        let socket = socket2::SockRef::from(&self.wire.stream);
        socket.set_linger(Some(Duration::ZERO)).expect("a socket");
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut values = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    values.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim().to_owned())
}

/// Reads messages from a socket.
struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    fn new(stream: TcpStream) -> Wire {
        stream.set_read_timeout(Some(LIMIT)).expect("a socket");
        stream.set_write_timeout(Some(LIMIT)).expect("a socket");
        Wire { stream, buffer: Vec::new() }
    }

    fn more(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        let read = self.stream.read(&mut chunk)?;
        self.buffer.extend_from_slice(&chunk[..read]);
        Ok(read > 0)
    }

    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            if !self.more()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..count).collect())
    }

    fn until(&mut self, end: &[u8]) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|w| w == end) {
                return self.take(at + end.len()).map(Some);
            }
            if !self.more()? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// Returns the next message, or `None` at the end of the connection.
    fn message(&mut self, with_body: bool) -> io::Result<Option<(String, Vec<u8>)>> {
        let Some(head) = self.until(b"\r\n\r\n")? else { return Ok(None) };
        let head = String::from_utf8_lossy(&head).into_owned();
        let is_answer = head.starts_with("HTTP/");
        let bodiless = [" 1", " 204", " 304"].iter().any(|s| is_answer && head[8..].starts_with(s));
        let body = if !with_body || bodiless {
            Vec::new()
        } else if header(&head, "transfer-encoding").is_some_and(|v| v.contains("chunked")) {
            self.chunks()?
        } else if let Some(length) = header(&head, "content-length") {
            self.take(length.parse().expect("a length"))?
        } else if is_answer {
            while self.more()? {}
            std::mem::take(&mut self.buffer)
        } else {
            Vec::new()
        };
        Ok(Some((head, body)))
    }

    /// Reads a chunked body. Trailers are appended to it as `name: value\n`.
    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.until(b"\r\n")?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let text = String::from_utf8_lossy(&line);
            let size =
                usize::from_str_radix(text.trim_end().split(';').next().unwrap_or_default(), 16).expect("a size");
            if size > 0 {
                body.extend(self.take(size)?);
                assert_eq!(self.take(2)?, b"\r\n");
                continue;
            }
            loop {
                let line = self.until(b"\r\n")?.ok_or(io::ErrorKind::UnexpectedEof)?;
                if line == b"\r\n" {
                    return Ok(body);
                }
                body.extend_from_slice(&line[..line.len() - 2]);
                body.push(b'\n');
            }
        }
    }
}
