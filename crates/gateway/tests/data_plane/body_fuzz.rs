//! Bodies of any length and framing, in pieces of any size: every byte arrives, in both directions and over every
//! protocol. What a body consists of depends on nothing that the gateway reads at once.

use std::sync::{Arc, Mutex};

use weirgate_gateway::Ending;

use crate::draw::Draw;
use crate::http2;
use crate::stage::{Node, PLAIN, Stage, chunked};

/// Number of responses, each for a client of every protocol.
const RESPONSES: usize = 40;

impl Draw {
    /// A body from nothing to several reads of 64 KiB, often as long as a limit inside the gateway or one byte off it.
    fn body(&mut self) -> Vec<u8> {
        let length = match self.below(4) {
            0 => self.below(3),
            1 => [4096, 8192, 65_536, 131_072][self.below(4)] + self.below(3) - 1,
            _ => self.below(400_000),
        };
        (0..length).map(|_| b'a' + (self.next() % 26) as u8).collect()
    }

    /// Chunks of `body`, all of about one size or each of another, some with an extension, and a last one.
    fn chunks(&mut self, body: &[u8]) -> Vec<u8> {
        let typical = [1, 54, 4096, 8192, 65_536, 200_000][self.below(6)];
        let (even, extended) = (self.below(2) == 0, self.below(4) == 0);
        chunked(body, |written| {
            let size = if even { typical } else { 1 + self.below(2 * typical) };
            // A chunk of one byte has six bytes of framing, so these bodies are cut coarsely after a while.
            let size = if written > 500_000 { size.max(8192) } else { size };
            // All extensions of a body may have 4 KiB together.
            (size, if extended && written < 4000 { ";a=b" } else { "" })
        })
    }

    /// A message with `body`: its first line, the field for its length, and the body in that framing.
    fn framed(&mut self, first: &str, body: &[u8], until_close: bool) -> Vec<u8> {
        let (field, bytes) = match self.below(if until_close { 3 } else { 2 }) {
            0 => (format!("Content-Length: {}", body.len()), body.to_vec()),
            1 => ("Transfer-Encoding: chunked".to_owned(), self.chunks(body)),
            _ => ("Connection: close".to_owned(), body.to_vec()),
        };
        [format!("{first}\r\n{field}\r\n\r\n").as_bytes(), &bytes].concat()
    }
}

#[test]
fn responses_arrive_as_they_were_sent() {
    let mut draw = Draw::seeded();
    let answer = Arc::new(Mutex::new(Vec::new()));
    let given = Arc::clone(&answer);
    let (_node, stage) =
        Stage::of(Node::replying(move |_, _| given.lock().expect("no test has panicked").clone()), PLAIN);
    let mut new = http2::Client::connect(stage.address());
    for turn in 0..RESPONSES {
        let body = draw.body();
        let message = draw.framed("HTTP/1.1 200 OK", &body, true);
        let what = format!(
            "response {turn} of {} bytes: {}",
            body.len(),
            String::from_utf8_lossy(&message[..80.min(message.len())])
        );
        answer.lock().expect("no test has panicked").clone_from(&message);
        for protocol in ["1.1", "1.0"] {
            let mut client = stage.client();
            client.send(format!("GET / HTTP/{protocol}\r\nHost: a\r\n\r\n"));
            assert!(client.answer().body == body, "HTTP/{protocol}, {what}");
            let record = stage.record();
            assert_eq!((record.ending, record.bytes_out), (Ending::Served, body.len() as u64), "{what}");
        }
        let whole = new.get("/").unwrap_or_else(|error| panic!("HTTP/2, {what}: {error}"));
        assert!(whole.body == body, "HTTP/2, {what}");
        assert_eq!(stage.record().ending, Ending::Served, "HTTP/2, {what}");
    }
}

#[test]
fn requests_arrive_as_they_were_sent() {
    let mut draw = Draw::seeded();
    let (_node, stage) = Stage::of(Node::replying(|_, body| crate::stage::ok(&String::from_utf8_lossy(body))), PLAIN);
    let mut client = stage.client();
    for turn in 0..RESPONSES {
        let body = draw.body();
        let message = draw.framed("POST / HTTP/1.1\r\nHost: a", &body, false);
        // In pieces as a client on a bad line sends them. The node repeats the body.
        for piece in draw.pieces(&message) {
            client.send(piece);
        }
        let answer = client.answer();
        assert!(
            answer.body == body,
            "request {turn} of {} bytes: {} of {} bytes are back",
            body.len(),
            answer.head,
            answer.body.len()
        );
        assert_eq!(stage.record().ending, Ending::Served, "request {turn}");
    }
}
