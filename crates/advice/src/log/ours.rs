//! Weirgate's own access log: a JSON object a line (docs/guide/operating.md, "Access log").

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;

use super::{Request, instant};

/// The fields that are used. Others are skipped.
#[derive(Deserialize)]
struct Line<'l> {
    #[serde(borrow)]
    time: Cow<'l, str>,
    #[serde(borrow)]
    ending: Cow<'l, str>,
    status: u16,
    #[serde(borrow)]
    host: Option<Cow<'l, str>>,
    #[serde(borrow)]
    path: Option<Cow<'l, str>>,
    #[serde(borrow)]
    client: Option<Cow<'l, str>>,
    #[serde(borrow)]
    node: Option<Cow<'l, str>>,
    queue_wait_ms: f64,
    service_time_ms: f64,
}

/// Reads a line.
pub(super) fn request(line: &str) -> Option<Request<'_>> {
    let line: Line<'_> = serde_json::from_str(line.trim_start()).ok()?;
    let served = line.ending == "served";
    let span = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).ok();
    Some(Request {
        ended_ms: instant::rfc3339(&line.time)?,
        host: line.host.filter(|host| !host.is_empty()),
        path: line.path.filter(|path| path.starts_with('/')),
        agent: None,
        client: line.client,
        node: line.node,
        status: Some(line.status),
        unanswered: !served,
        // A class's response time is measured from the head to the node's last byte.
        response: span(line.queue_wait_ms + line.service_time_ms).filter(|_| served),
        service: span(line.service_time_ms).filter(|_| served),
    })
}
