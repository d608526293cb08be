//! A simulated run as an access log, for trials without a gateway.
//!
//! Departures from a real log: the run begins at the first instant of 2026, each request comes from a client of its
//! own, and a request has the host, path and method of its stream in the experiment, or else the name of its class as
//! host.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use weirgate_clock::rfc3339;
use weirgate_experiment::{Experiment, Fate, Record, Run};
use weirgate_wire::access_log::LoggedRequest;

/// Instant of the run's start: 2026-01-01, in seconds since 1970.
const START: u64 = 1_767_225_600;

/// Writes the access log of `run`, in order of the requests' ends. Requests that the end of the run cut off are not in
/// it.
///
/// # Errors
/// The system's error.
pub fn write_log(experiment: &Experiment, run: &Run, out: &mut impl Write) -> io::Result<()> {
    let mut ended: Vec<(usize, &Record)> =
        run.records.iter().enumerate().filter(|(_, record)| record.fate != Fate::Cut).collect();
    ended.sort_by_key(|(index, record)| (record.ended, *index));
    let policy = &experiment.site.policy;
    for (index, record) in ended {
        let traffic = &experiment.traffic[record.traffic as usize];
        let class = traffic.class.name(policy);
        let (ending, status) = match record.fate {
            Fate::Served => ("served", 200),
            Fate::Shed => ("shed", 503),
            Fate::Failed => ("failed", 502),
            Fate::Left | Fate::Cut => ("left", 0),
        };
        let released = if record.released > 0 { record.released } else { record.ended };
        let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        let micros = |ms: f64| (ms * 1e3).round() / 1e3;
        let shed = record.shed.filter(|_| record.fate == Fate::Shed);
        let node = record.node.and_then(|node| policy.nodes.get(node as usize));
        let [_, a, b, c] = (index as u32).to_be_bytes();
        let path = traffic.request.path.as_deref().unwrap_or("/").replace(['{', '}'], "");
        let line = LoggedRequest {
            time: rfc3339(UNIX_EPOCH + Duration::from_secs(START) + Duration::from_nanos(record.ended)).into(),
            class: Some(class.into()),
            ending: ending.into(),
            reason: shed.map(|reason| reason.as_str().into()),
            status: Some(status),
            protocol: Some("HTTP/1.1".into()),
            method: Some(traffic.request.method.as_str().into()),
            host: Some(traffic.request.host.as_deref().unwrap_or(class).to_ascii_lowercase().into()),
            path: Some(path.into()),
            client: Some(format!("10.{a}.{b}.{c}").into()),
            scheme: Some("http".into()),
            node: node.map(|node| node.name.as_str().into()),
            queue_wait_ms: Some(micros(ms(record.arrived, released))),
            service_time_ms: Some(micros(ms(released, record.ended))),
            total_ms: Some(micros(ms(record.arrived, record.ended))),
            policy_version: Some(1),
            ..LoggedRequest::default()
        };
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
