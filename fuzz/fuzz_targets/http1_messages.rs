//! Any bytes as the input of a client connection and of a connection to a node, in any pieces. The result must not
//! depend on the pieces, and the first head must mean the same to `httparse`, in both directions.
#![no_main]

#[path = "../../crates/http1/tests/oracle/against.rs"]
mod against;

use libfuzzer_sys::fuzz_target;
use weirgate_http1::{Event, Fault, Limits, Requests, Responses};

const LIMITS: Limits = Limits { head_bytes: 1024, fields: 16 };

/// Bytes of heads, of bodies and of trailers, and the fault that ended them.
type Seen = (Vec<usize>, Vec<u8>, Vec<u8>, Option<Fault>);

/// Reads `input` in pieces of `piece` bytes. `receive` returns the next event and the trailers so far.
fn read(input: &[u8], piece: usize, mut receive: impl FnMut(&[u8]) -> (Result<Event, Fault>, Vec<u8>)) -> Seen {
    let (mut heads, mut body, mut trailers, mut waiting) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for part in input.chunks(piece.max(1)) {
        waiting.extend_from_slice(part);
        loop {
            let (event, section) = receive(&waiting);
            match event {
                Ok(Event::More | Event::Hold) => break,
                Ok(Event::Skip(bytes)) => drop(waiting.drain(..bytes)),
                Ok(Event::Head(bytes)) => {
                    heads.push(bytes);
                    drop(waiting.drain(..bytes));
                }
                Ok(Event::Data { skip, data }) => {
                    drop(waiting.drain(..skip));
                    body.extend(waiting.drain(..data));
                }
                Ok(Event::End(bytes)) => {
                    drop(waiting.drain(..bytes));
                    trailers.extend(section);
                }
                Err(fault) => return (heads, body, trailers, Some(fault)),
            }
        }
    }
    (heads, body, trailers, None)
}

fn requests(input: &[u8], piece: usize) -> Seen {
    let mut requests = Requests::new(LIMITS);
    read(input, piece, |waiting| (requests.receive(waiting), requests.trailers().to_vec()))
}

fn responses(input: &[u8], piece: usize) -> Seen {
    let mut responses = Responses::new(LIMITS);
    responses.expect("GET");
    read(input, piece, |waiting| (responses.receive(waiting), responses.trailers().to_vec()))
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, input)) = data.split_first() else { return };
    let piece = usize::from(piece);
    assert_eq!(requests(input, piece), requests(input, usize::MAX));
    assert_eq!(responses(input, piece), responses(input, usize::MAX));
    against::request(input, LIMITS);
    against::response(input, LIMITS);

    let mut requests = Requests::new(LIMITS);
    if let Ok(Event::Head(bytes)) = requests.receive(input) {
        let head = requests.take_head();
        if requests.receive(b"") == Ok(Event::End(0)) {
            // The rest of the input, and a request that repeats the fields, read as without the request before.
            requests.keep_head(head.clone());
            let fields = input.iter().position(|&b| b == b'\n').map_or(bytes, |feed| feed + 1);
            let other = [b"POST /other HTTP/1.0\r\n", &input[fields..]].concat();
            let next = if piece % 2 == 0 { &input[bytes..] } else { &other };
            let mut fresh = Requests::new(LIMITS);
            let event = fresh.receive(next);
            assert_eq!(requests.receive_after(&input[..bytes], next), event);
            if let Ok(Event::Head(_)) = event {
                assert_eq!(requests.head(), fresh.head());
            }
        }
    }
});
