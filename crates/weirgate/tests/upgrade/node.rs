//! A node that answers `ok`, echoes bytes at `/echo`, and answers `/slow` when it is told to.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::head::head;

/// A running node.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    arrived: Receiver<()>,
    go: Sender<()>,
}

impl Node {
    pub(crate) fn start() -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let ((arrive, arrived), (go, told)) = (channel(), channel());
        let told = Arc::new(Mutex::new(told));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (arrive, told) = (arrive.clone(), Arc::clone(&told));
                std::thread::spawn(move || serve(stream, &arrive, &told));
            }
        });
        Node { address, arrived, go }
    }

    /// Waits until a request for `/slow` has arrived.
    pub(crate) fn slow_request(&self) {
        self.arrived.recv_timeout(Duration::from_secs(60)).expect("a request");
    }

    pub(crate) fn let_slow_request_go(&self) {
        self.go.send(()).expect("it waits");
    }
}

/// Serves a connection until it ends.
fn serve(mut stream: TcpStream, arrive: &Sender<()>, told: &Mutex<Receiver<()>>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    loop {
        let head = head(&mut lines).ok()?;
        if head.starts_with("GET /echo ") {
            let granted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.write_all(granted.as_bytes()).ok()?;
            std::io::copy(&mut lines, &mut stream).ok()?;
            return None;
        }
        if head.starts_with("GET /slow ") {
            arrive.send(()).ok()?;
            told.lock().ok()?.recv().ok()?;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").ok()?;
    }
}
