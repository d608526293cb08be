//! Time to read a request: a small head, a browser's head, and a chunked body.
//! Run `cargo bench -p weirgate-http1`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use weirgate_http1::{Event, Limits, Requests};

const SMALL: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const BROWSER: &str = "GET /shop/items/4711?view=full&lang=en HTTP/1.1\r\nHost: www.shop.test\r\n\
    Connection: keep-alive\r\nCache-Control: max-age=0\r\nUpgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; \
    Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\nAccept: text/html,\
    application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate, \
    br\r\nAccept-Language: en-GB,en;q=0.9,de;q=0.8\r\nCookie: session=0123456789abcdef0123456789abcdef; \
    basket=4711,4712; theme=dark\r\nReferer: https://www.shop.test/shop/items\r\n\r\n";

fn heads(c: &mut Criterion) {
    let chunks = format!("1000\r\n{}\r\n", "x".repeat(4096)).repeat(16);
    let chunked = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    for (name, input) in [("small head", SMALL), ("browser's head", BROWSER), ("64 KiB in 16 chunks", &chunked)] {
        let mut requests = Requests::new(Limits { head_bytes: 65_536, fields: 100 });
        c.bench_function(name, |b| b.iter(|| read(&mut requests, black_box(input.as_bytes()))));
    }
}

/// Reads one request to its end.
fn read(requests: &mut Requests, mut rest: &[u8]) {
    loop {
        let bytes = match requests.receive(rest) {
            Ok(Event::Head(bytes) | Event::Skip(bytes)) => bytes,
            Ok(Event::Data { skip, data }) => skip + data,
            Ok(Event::End(bytes)) => return assert_eq!(bytes, rest.len()),
            other => panic!("{other:?}"),
        };
        rest = &rest[bytes..];
    }
}

criterion_group!(benches, heads);
criterion_main!(benches);
