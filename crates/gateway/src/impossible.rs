//! Warnings about limits that cannot be met: response times shorter than the service time on a lightly loaded
//! node.
//!
//! `weirgate check` refuses such a limit if the service time is declared. If the service time is learned,
//! only the running gateway can detect it. It warns once for each class or template, and again if the limit
//! changes.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use weirgate_engine::{ClassId, ImpossibleLimit};

use crate::gateway::Shared;

/// Interval between two checks of all classes: soon enough for people, and negligible load.
const EVERY: Duration = Duration::from_secs(5);

/// Number of classes examined under the engine's lock at once, which takes about ten microseconds.
const PAGE: u32 = 1024;

/// Impossible limits of the classes of one name.
#[derive(Clone, Debug)]
struct Found {
    first: ImpossibleLimit,
    /// Number of other classes of the template with an impossible limit.
    others: u64,
}

/// Limits by the names of their classes.
type ByName<T> = BTreeMap<String, T>;

/// Checks the classes for ever.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut told = ByName::new();
    loop {
        weirgate_clock::sleep(EVERY).await;
        let lines = news(&mut told, &find(&shared).await);
        if !lines.is_empty() {
            // Not on this thread: a slow reader of standard error would delay requests.
            tokio::task::spawn_blocking(move || drop(std::io::stderr().write_all(lines.as_bytes())));
        }
    }
}

/// Returns all impossible limits. Yields to requests between pages of classes.
async fn find(shared: &Shared) -> ByName<Found> {
    let mut found: ByName<Found> = ByName::new();
    let mut from = Some(ClassId(0));
    while let Some(first) = from {
        let (limits, next) = shared.control.impossible_limits(first, PAGE);
        for limit in limits {
            let known = found.get_mut(&limit.name).map(|known| known.others += 1);
            if known.is_none() {
                found.insert(limit.name.clone(), Found { first: limit, others: 0 });
            }
        }
        from = next;
        tokio::task::yield_now().await;
    }
    found
}

/// Returns log lines about changes. `told` holds the limits that were impossible before.
fn news(told: &mut ByName<Duration>, found: &ByName<Found>) -> String {
    let mut lines = String::new();
    told.retain(|name, _| {
        let stays = found.contains_key(name);
        if !stays {
            lines += &format!("weirgate: class {name}: its limit is possible again\n");
        }
        stays
    });
    for (name, found) in found {
        let limit = found.first.response_time.limit;
        if told.insert(name.clone(), limit) != Some(limit) {
            lines += &line(name, found);
        }
    }
    lines
}

/// Returns the log line for an impossible limit.
fn line(name: &str, Found { first, others }: &Found) -> String {
    let key = first.key.as_deref().map(weirgate_wire::admin::key_text);
    let which = match (key, others) {
        (None, _) => String::new(),
        (Some(key), 0) => format!(" (key {key})"),
        (Some(key), others) => format!(" (key {key}, and {others} more)"),
    };
    let (limit, statistic) = (first.response_time.limit, first.response_time.statistic);
    format!(
        "weirgate: class {name}{which}: its limit {statistic} <= {limit:?} is impossible: its requests take {:.1?} on \
         average without contention. Raise the limit or make the requests cheaper\n",
        first.service_time
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weirgate_engine::{ResponseTime, Statistic};

    fn found(key: Option<&[u8]>, limit: u64, others: u64) -> Found {
        let response_time =
            ResponseTime { statistic: Statistic::Percentile(95.0), limit: Duration::from_millis(limit) };
        let (class, service_time, key) = (ClassId(0), Duration::from_micros(152_340), key.map(<[u8]>::to_vec));
        Found { first: ImpossibleLimit { class, name: "gold".into(), key, response_time, service_time }, others }
    }

    #[test]
    fn a_change_is_told_once_with_its_figures() {
        let mut told = ByName::new();
        let impossible = |limit| ByName::from([("gold".to_owned(), found(None, limit, 0))]);
        let first = news(&mut told, &impossible(100));
        assert_eq!(
            first,
            "weirgate: class gold: its limit p95 <= 100ms is impossible: its requests take 152.3ms on average without \
             contention. Raise the limit or make the requests cheaper\n"
        );
        assert_eq!(news(&mut told, &impossible(100)), "");
        assert!(news(&mut told, &impossible(120)).contains("p95 <= 120ms"));
        let possible = "weirgate: class gold: its limit is possible again\n";
        assert_eq!(news(&mut told, &ByName::new()), possible);
        assert_eq!(news(&mut told, &ByName::new()), "");
    }

    #[test]
    fn the_classes_of_a_template_share_a_line() {
        let mut told = ByName::new();
        let line = news(&mut told, &ByName::from([("tenant".to_owned(), found(Some(b"acme"), 100, 311))]));
        assert!(line.starts_with("weirgate: class tenant (key acme, and 311 more): its limit"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
