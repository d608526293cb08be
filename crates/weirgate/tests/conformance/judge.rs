//! Judges whether the handling of a payload was safe.
//!
//! It is safe under these rules. Every whole request at the node is one that the client sent, in order and
//! unchanged. A request that was cut off was never answered. Every answer belongs to the request in its
//! place. A malformed request got a 4xx or 5xx and the end of its connection. A marker sent afterwards got
//! its own answer.

use crate::client::{Exchange, MARKER};
use crate::message::Request;
use crate::reading::{End, Reading, read};
use crate::recorder::Record;

/// Field names that a gateway may add, change or drop. All other fields pass unchanged.
const OWN_FIELDS: [&str; 18] = [
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "expect", "upgrade", "keep-alive",
    "via", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-request-id",
    "traceparent", "tracestate",
];

/// Returns all faults of `exchange` and of the two markers that followed it on a new connection, given the
/// node's record of them.
pub(crate) fn judge(exchange: &Exchange, markers: &Exchange, record: &Record) -> Vec<String> {
    let reading = read(&exchange.sent);
    let mut faults: Vec<String> =
        record.violations.iter().map(|v| format!("the node got no plain request: {v}")).collect();
    faults.extend(exchange.garbage.iter().map(|g| format!("the client got no answer but {g}")));
    let after = read(&[MARKER, MARKER].concat()).requests;
    forwarded(&reading, &after, record, &mut faults);
    answers(&reading, exchange, record, &mut faults);
    ending(&reading, exchange, &mut faults);
    for (marker, answer) in after.iter().zip(markers.answers.iter().map(Some).chain(std::iter::repeat(None))) {
        let own = answer.filter(|a| a.status == 200).and_then(|a| record.requests.get(a.number?));
        if !own.is_some_and(|request| same(request, marker)) {
            faults.push(format!("a marker on a new connection got {answer:?}"));
        }
    }
    faults
}

/// Whole requests at the node must be among those sent, in order. A part of a request at the node must be
/// the beginning of a sent one.
fn forwarded(reading: &Reading, after: &[Request], record: &Record, faults: &mut Vec<String>) {
    let mut sent = reading.requests.iter().chain(after);
    for request in &record.requests {
        if !sent.any(|original| same(request, original)) {
            faults.push(format!("the node got what was never sent: {request:?}"));
            return;
        }
    }
    let unfinished = match &reading.end {
        End::Open(head) | End::Malformed(head) => head.as_ref(),
        End::Idle | End::Closed => None,
    };
    for part in &record.cut {
        let beginning = |original: &Request| {
            same_head(part, original) && original.body.starts_with(&part.body) && !original.body.is_empty()
                || same_head(part, original) && part.body.is_empty()
        };
        if !reading.requests.iter().chain(unfinished).any(beginning) {
            faults.push(format!("the node got the beginning of what was never sent: {part:?}"));
        }
    }
}

/// Each answer belongs to the request in its place.
fn answers(reading: &Reading, exchange: &Exchange, record: &Record, faults: &mut Vec<String>) {
    let mut last = None;
    for (place, answer) in exchange.answers.iter().enumerate() {
        let Some(number) = answer.number else {
            if answer.status < 400 {
                faults.push(format!("answer {place} has status {} and is from no node", answer.status));
            }
            continue;
        };
        let right = match (record.requests.get(number), reading.requests.get(place)) {
            (Some(got), Some(sent)) => same(got, sent) && last < Some(number),
            _ => false,
        };
        if !right {
            faults.push(format!("answer {place} belongs to the node's request {number}, which is another one"));
        }
        last = Some(number);
    }
}

/// Whole requests are answered, and unreadable bytes end the connection.
fn ending(reading: &Reading, exchange: &Exchange, faults: &mut Vec<String>) {
    let (sent, answered) = (reading.requests.len(), exchange.answers.len());
    if answered < sent && !exchange.closed {
        faults.push(format!("{answered} answers for {sent} requests"));
    }
    if answered == 0 && exchange.closed && sent > 0 {
        faults.push("closed without an answer".into());
    }
    if answered > sent + 1 {
        faults.push(format!("{answered} answers for {sent} requests and an unreadable rest"));
    }
    match &reading.end {
        End::Idle if answered > sent => faults.push("more answers than requests".into()),
        End::Closed if !exchange.closed => faults.push("the connection outlives the request that ends it".into()),
        End::Malformed(_) if !exchange.closed => faults.push("open after what cannot be read".into()),
        End::Malformed(_) if answered <= sent && exchange.answers.iter().all(|a| a.number.is_some()) => {
            faults.push("closed without saying why".into())
        }
        _ => {}
    }
}

/// Returns whether the requests are the same, except for changes that a gateway may make.
fn same(got: &Request, sent: &Request) -> bool {
    same_head(got, sent) && got.body == sent.body
}

fn same_head(got: &Request, sent: &Request) -> bool {
    let host = |request: &Request| {
        let named = authority(&request.target).or_else(|| request.values("host").next().map(<[u8]>::to_vec));
        named.map(|name| name.to_ascii_lowercase())
    };
    let kept = |(name, value): &(String, Vec<u8>)| {
        OWN_FIELDS.contains(&name.as_str()) || sent.values(name).any(|original| original == value)
    };
    got.method == sent.method
        && plain(&got.target) == plain(&sent.target)
        && host(sent).is_none_or(|name| host(got) == Some(name))
        && got.fields.iter().all(kept)
}

/// Returns the authority of a target in absolute form.
fn authority(target: &[u8]) -> Option<Vec<u8>> {
    let at = crate::message::find(target, b"://").filter(|_| !target.starts_with(b"/"))? + 3;
    let end = target[at..].iter().position(|b| b"/?#".contains(b)).map_or(target.len(), |n| at + n);
    Some(target[at..end].to_vec())
}

/// Returns path and query in one spelling: decoded, without scheme, authority, fragment, dot segments and
/// empty segments. Targets that differ only in these mean the same, and a gateway may choose among them.
fn plain(target: &[u8]) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
    let start = authority(target).map_or(0, |name| crate::message::find(target, b"://").unwrap_or(0) + 3 + name.len());
    let whole = target[start..].split(|b| *b == b'#').next().unwrap_or_default();
    let (path, query) = match whole.iter().position(|b| *b == b'?') {
        Some(at) => (&whole[..at], Some(decode(&whole[at + 1..]))),
        None => (whole, None),
    };
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for segment in decode(path).split(|b| *b == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            name => segments.push(name.to_vec()),
        }
    }
    if path.ends_with(b"/") {
        segments.push(Vec::new());
    }
    (segments, query)
}

/// Decodes percent escapes and keeps all other bytes.
fn decode(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Answer;

    const SMUGGLE: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n\
        0\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n";

    fn requests(bytes: &[u8]) -> Vec<Request> {
        read(bytes).requests
    }

    fn number(number: usize) -> Answer {
        Answer { status: 200, number: Some(number) }
    }

    fn refused() -> Answer {
        Answer { status: 400, number: None }
    }

    fn exchange(sent: &[u8], answers: &[Answer], closed: bool) -> Exchange {
        Exchange { sent: sent.to_vec(), answers: answers.to_vec(), closed, garbage: None }
    }

    /// A record in which `before` reached the node, then the two markers.
    fn record(before: &[u8]) -> (Record, Exchange) {
        let mut requests = requests(before);
        let first = requests.len();
        requests.extend(read(&[MARKER, MARKER].concat()).requests);
        let markers = exchange(&[MARKER, MARKER].concat(), &[number(first), number(first + 1)], false);
        (Record { requests, ..Record::default() }, markers)
    }

    #[test]
    fn refusing_is_safe() {
        let (record, markers) = record(b"");
        assert_eq!(judge(&exchange(SMUGGLE, &[refused()], true), &markers, &record), Vec::<String>::new());
    }

    #[test]
    fn passing_on_is_safe() {
        let sent = b"GET /a/../b%41?q HTTP/1.1\r\nHost: A\r\nX: y\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
        let (record, markers) =
            record(b"GET /bA?q HTTP/1.1\r\nhost: a\r\nx: y\r\nvia: w\r\n\r\nHEAD / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(judge(&exchange(sent, &[number(0), number(1)], false), &markers, &record), Vec::<String>::new());
    }

    #[test]
    fn a_smuggled_request_is_found() {
        let (record, markers) = record(b"POST / HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        let faults = judge(&exchange(SMUGGLE, &[number(0), number(1)], false), &markers, &record);
        assert!(faults[0].starts_with("the node got what was never sent"), "{faults:?}");
    }

    #[test]
    fn a_changed_request_is_found() {
        let sent = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nX: y\r\n\r\nhi";
        for changed in [
            &b"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nX: y\r\n\r\nhi"[..],
            b"POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\nX: y\r\n\r\nhi",
            b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nX: y\r\n\r\nh",
            b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nX: z\r\n\r\nhi",
            b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nX: y\r\n\r\nhi",
        ] {
            let (record, markers) = record(changed);
            let faults = judge(&exchange(sent, &[number(0)], false), &markers, &record);
            assert!(faults[0].starts_with("the node got what was never sent"), "{faults:?}");
        }
    }

    #[test]
    fn an_answer_to_another_request_is_found() {
        let sent = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
        let (record, markers) = record(sent);
        let faults = judge(&exchange(sent, &[number(1), number(0)], false), &markers, &record);
        assert!(faults[0].starts_with("answer 0 belongs to"), "{faults:?}");
        let stolen = exchange(&markers.sent, &[number(1), number(2)], false);
        let faults = judge(&exchange(sent, &[number(0), number(1)], false), &stolen, &record);
        assert!(faults[0].starts_with("a marker on a new connection"), "{faults:?}");
    }

    #[test]
    fn staying_open_or_silent_is_found() {
        let (record, markers) = record(b"");
        let faults = judge(&exchange(SMUGGLE, &[refused()], false), &markers, &record);
        assert_eq!(faults, ["open after what cannot be read"]);
        let faults = judge(&exchange(SMUGGLE, &[], true), &markers, &record);
        assert_eq!(faults, ["closed without saying why"]);
        let faults = judge(&exchange(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[], false), &markers, &record);
        assert_eq!(faults, ["0 answers for 1 requests"]);
    }

    #[test]
    fn what_is_no_plain_request_is_found() {
        let (mut record, markers) = record(b"");
        record.violations.push("half a head".into());
        let faults = judge(&exchange(SMUGGLE, &[refused()], true), &markers, &record);
        assert_eq!(faults, ["the node got no plain request: half a head"]);
    }
}
