//! HAProxy's HTTP log, `option httplog`, also behind the prefix of a syslog.
//!
//! Source: HAProxy 3.0 Configuration Manual, Sec. 8.2.3: `%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS
//! %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r`. The time at the server is `Ta - TR - Tw`: all of the time except
//! that for the request's head and that in queues. `option httpslog` appends fields, which are ignored.
//!
//! A log has the host only if the configuration captures that header, and it does not name its captures. A captured
//! request header that looks like the name of a host is taken for one.

use std::borrow::Cow;
use std::time::Duration;

use super::{Request, instant, request_line};

/// Reads a line.
pub(super) fn request(line: &str) -> Option<Request<'_>> {
    let (client, began_ms, rest) = beginning(line)?;
    let (head, quoted) = rest.split_once('"').unwrap_or((rest, ""));
    let mut words = head.split_ascii_whitespace();
    let (_frontend, server) = (words.next()?, words.next()?);
    let (_, server) = server.split_once('/')?;
    let mut times = words.next()?.split('/');
    let mut next = || times.next()?.trim_start_matches('+').parse::<i64>().ok();
    let (head_ms, queue_ms, connect_ms, answer_ms, all_ms) = (next()?, next()?, next()?, next()?, next()?);
    if times.next().is_some() {
        return None;
    }
    let status: i32 = words.next()?.parse().ok()?;
    // A server has answered if its first byte has come.
    let answered = answer_ms >= 0 && connect_ms >= 0 && !server.starts_with('<');
    let span = |ms: i64| Some(Duration::from_millis(u64::try_from(ms).ok()?)).filter(|_| answered);
    let ended_ms = began_ms.saturating_add(all_ms.max(0));
    let mut request = Request {
        ended_ms,
        client: Some(Cow::Borrowed(client)),
        status: u16::try_from(status).ok(),
        unanswered: !answered,
        response: span(all_ms.saturating_sub(head_ms.max(0))),
        service: span(all_ms.saturating_sub(head_ms.max(0)).saturating_sub(queue_ms.max(0))),
        ..Request::default()
    };
    let end = quoted.find('"').unwrap_or(quoted.len());
    request_line(quoted.get(..end)?, &mut request);
    if request.host.is_none() {
        request.host = words.find_map(|word| captured_host(word)).map(Cow::Borrowed);
    }
    Some(request)
}

/// Returns the client's address, the start in milliseconds since 1970, and the rest of the line.
fn beginning(line: &str) -> Option<(&str, i64, &str)> {
    let mut from = 0;
    // The prefix of a syslog may have brackets of its own, as in `haproxy[14389]: `.
    while let Some(open) = line.get(from..)?.find(" [").map(|at| from + at) {
        let inside = line.get(open + 2..)?;
        if let Some((text, rest)) = inside.split_once("] ")
            && let Some(at) = instant::date(text)
        {
            let client = line.get(..open)?.rsplit(' ').next()?;
            let (address, _port) = client.rsplit_once(':')?;
            return Some((address, at, rest));
        }
        from = open + 2;
    }
    None
}

/// Returns the host among captured request headers such as `{shop.test|Mozilla/5.0}`.
fn captured_host(word: &str) -> Option<&str> {
    let inside = word.strip_prefix('{')?;
    let inside = inside.strip_suffix('}').unwrap_or(inside);
    inside.split('|').find(|value| {
        let name = value.split(':').next().unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        name.contains('.')
            && name.chars().all(plain)
            && name.rsplit('.').next().is_some_and(|top| top.len() >= 2 && top.chars().all(|c| c.is_ascii_alphabetic()))
    })
}
