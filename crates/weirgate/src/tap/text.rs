//! One request in one line: its target, and its life through the stages.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use weirgate_engine::ShedReason;
use weirgate_spanned_yaml::unit::span_text;
use weirgate_wire::access_log::LoggedRequest;

/// Maximum number of characters of a path. `--format json` has all of it.
const MAX_PATH: usize = 120;

/// Position of the time of day in the time of a line (RFC 3339).
const TIME_OF_DAY: std::ops::Range<usize> = 11..24;

/// Returns the line of a request, without line feed.
pub(super) fn line(request: &LoggedRequest<'_>) -> String {
    let time = request.time.get(TIME_OF_DAY).unwrap_or(&request.time);
    let status = request.status.filter(|status| *status != 0);
    let status = status.map_or_else(|| "–".to_owned(), |status| status.to_string());
    let (class, client) = (shown(&request.class), shown(&request.client));
    let target = match request.method.as_deref().unwrap_or_default() {
        "" => "(not a request)".to_owned(),
        method => format!("{} {}", plain(method), shown(&request.path)),
    };
    format!("{} {class} {target} {status} {client}: {}", plain(time), life(request))
}

/// Returns a field as text.
fn shown(field: &Option<Cow<'_, str>>) -> String {
    field.as_deref().map_or_else(|| "–".to_owned(), plain)
}

/// Returns where the time of a request went, and how it ended.
fn life(request: &LoggedRequest<'_>) -> String {
    let span =
        |ms: Option<f64>| span_text(Duration::try_from_secs_f64(ms.unwrap_or_default() / 1e3).unwrap_or_default());
    let reason = request.reason.as_deref().unwrap_or_default();
    let mut life = String::new();
    if request.queue_wait_ms.is_some_and(|waited| waited > 0.0) {
        let _ = write!(life, "queued {} → ", span(request.queue_wait_ms));
    }
    if let Some(node) = &request.node {
        let retries = match request.retries.unwrap_or_default() {
            0 => String::new(),
            1 => " after a retry".to_owned(),
            retries => format!(" after {retries} retries"),
        };
        let _ = write!(life, "node {}{retries} {} → ", plain(node), span(request.service_time_ms));
    }
    let total = span(request.total_ms);
    let _ = match request.ending.as_ref() {
        "served" => write!(life, "total {total}"),
        "tunnelled" => write!(life, "tunnel closed after {total}"),
        "redirected" => write!(life, "redirected to https"),
        "challenge" => write!(life, "check of a certificate authority, answered"),
        "shed" => write!(life, "shed: {}", why(reason)),
        "left" => write!(life, "the client left after {total}"),
        ending => write!(life, "{} after {total}: {}", plain(ending), plain(reason)),
    };
    match request.would.as_deref() {
        Some("shed") => life += &format!(". Observed: it would have been shed, {}", would(request)),
        Some("degrade") => life += &format!(". Observed: it would have been degraded, {}", would(request)),
        _ => {}
    }
    life
}

fn would(request: &LoggedRequest<'_>) -> String {
    format!("because {}", why(request.would_reason.as_deref().unwrap_or_default()))
}

/// Returns the reason of a refusal as a sentence.
fn why(reason: &str) -> String {
    let known = ShedReason::ALL.into_iter().find(|known| known.as_str() == reason);
    let sentence = match known {
        Some(ShedReason::Deadline) => "it would have been answered later than the limit of its class",
        Some(ShedReason::QueueFull) => "the queue of its class was full",
        Some(ShedReason::FlowFull) => "its source already had too many requests waiting",
        Some(ShedReason::TotalFull) => "all queues together were full",
        Some(ShedReason::QueueTimeout) => "it had waited for as long as the queue of its class allows",
        Some(ShedReason::NoNode) => "no node of the upstream was usable",
        Some(ShedReason::Overload) => "it was beyond the guarantee of its class, and the nodes had no capacity left",
        Some(ShedReason::Threshold) => "the queue was too long for requests of its priority",
        Some(ShedReason::ServerLoad) => "the load of the nodes was too high for a class without a guarantee",
        Some(ShedReason::TooLarge) => "it needs more of a resource than any node has",
        Some(ShedReason::NodesSlow) => "the nodes were too slow or too few for its class",
        Some(ShedReason::SourceRate) => "its source sent more than its rate allows",
        Some(ShedReason::ClassRate) => "its class sent more than its limit",
        None => return plain(reason),
    };
    sentence.to_owned()
}

/// Returns a text of a client without characters that move a terminal's cursor or change the direction of writing.
fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut plain = String::new();
    for (shown, c) in text.chars().enumerate() {
        if shown == MAX_PATH {
            plain.push('…');
            break;
        }
        if c.is_control() || turns(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ending: &'static str) -> LoggedRequest<'static> {
        LoggedRequest {
            time: "2026-11-21T20:15:03.042Z".into(),
            class: Some("gold".into()),
            ending: ending.into(),
            status: Some(200),
            method: Some("GET".into()),
            host: Some("a.test".into()),
            path: Some("/api?q=1".into()),
            client: Some("192.0.2.9".into()),
            node: Some("n1".into()),
            queue_wait_ms: Some(12.0),
            service_time_ms: Some(34.0),
            total_ms: Some(47.0),
            ..LoggedRequest::default()
        }
    }

    #[test]
    fn a_line_tells_where_the_time_went() {
        assert_eq!(
            line(&request("served")),
            "20:15:03.042Z gold GET /api?q=1 200 192.0.2.9: queued 12 ms → node n1 34 ms → total 47 ms"
        );
        let retried = LoggedRequest { retries: Some(1), queue_wait_ms: Some(0.0), ..request("failed") };
        let retried = LoggedRequest { reason: Some("connection_refused".into()), status: Some(502), ..retried };
        assert!(line(&retried).ends_with(": node n1 after a retry 34 ms → failed after 47 ms: connection_refused"));
        let left = LoggedRequest { status: Some(0), node: None, ..request("left") };
        assert!(line(&left).ends_with(" – 192.0.2.9: queued 12 ms → the client left after 47 ms"), "{}", line(&left));
        let broken = LoggedRequest { method: Some("".into()), class: Some("-".into()), status: Some(400), ..left };
        assert!(line(&broken).contains("Z - (not a request) 400 192.0.2.9: "), "{}", line(&broken));
        let observed =
            LoggedRequest { would: Some("shed".into()), would_reason: Some("overload".into()), ..request("served") };
        assert!(
            line(&observed)
                .contains("total 47 ms. Observed: it would have been shed, because it was beyond the guarantee")
        );
    }

    #[test]
    fn every_reason_is_a_sentence() {
        for reason in ShedReason::ALL {
            let shed = LoggedRequest { reason: Some(reason.as_str().into()), node: None, ..request("shed") };
            let line = line(&shed);
            let (_, why) = line.split_once(" → shed: ").unwrap();
            assert!(why.contains(' ') && !why.contains('_'), "{line}");
        }
        assert_eq!(why("new_one"), "new_one");
    }

    #[test]
    fn no_text_of_a_client_moves_the_cursor() {
        let evil = "/\u{1b}[2J\u{202e}\r\u{9b}x";
        let line = line(&LoggedRequest { path: Some(evil.into()), class: Some(evil.into()), ..request("served") });
        assert!(line.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line:?}");
        assert!(line.contains("\\u{1b}[2J"), "{line}");
        let odd = LoggedRequest {
            total_ms: Some(-1.0),
            queue_wait_ms: Some(f64::NAN),
            time: "ü".into(),
            ..request("served")
        };
        assert!(super::line(&odd).starts_with("ü gold"));
    }
}
