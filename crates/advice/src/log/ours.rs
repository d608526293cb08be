//! Weirgate's own access log: a JSON object a line (docs/guide/operating.md, "Access log"). The time and the ending are
//! needed. What else a line does not have is not known of its request.

use std::time::Duration;

use weirgate_wire::access_log::LoggedRequest;

use super::{Request, instant};

/// Reads a line.
pub(super) fn request(line: &str) -> Option<Request<'_>> {
    let line: LoggedRequest<'_> = serde_json::from_str(line.trim_start()).ok()?;
    let served = line.ending == "served";
    let span = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).ok().filter(|_| served);
    Some(Request {
        ended_ms: instant::date(&line.time)?,
        host: line.host.filter(|host| !host.is_empty()),
        path: line.path.filter(|path| path.starts_with('/')),
        agent: line.user_agent,
        client: line.client,
        node: line.node,
        status: line.status,
        unanswered: !served,
        // A class's response time is measured from the head to the node's last byte.
        response: line.queue_wait_ms.zip(line.service_time_ms).and_then(|(wait, service)| span(wait + service)),
        service: line.service_time_ms.and_then(span),
    })
}
