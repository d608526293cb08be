//! The active gateway is killed under overload, and its standby gets the clients at once. Prints what becomes of the
//! guarantee in each second. Takes a minute for each run:
//!
//! ```text
//! cargo test -p weirgate --test site -- --ignored --nocapture takeover
//! ```

use std::time::Duration;

use weirgate_clock::pause;

use crate::gateway::{CPUS, FLOOR, Plan, Site, get};

/// Load of the guaranteed class and of the other one, in requests a second. The node can answer 200.
const LOADS: [f64; 2] = [95.0, 150.0];

/// The guaranteed response time of 95 % of the requests.
const LIMIT: Duration = Duration::from_millis(300);

/// Time for the active gateway to learn, and for the standby after the kill.
const LEARNS: Duration = Duration::from_secs(30);
const SERVES: Duration = Duration::from_secs(10);

/// Seconds that are printed before the kill.
const BEFORE: i64 = 3;

/// Plays a takeover. Returns the parts of the guaranteed requests that were answered within a second, and in time, by
/// the second in which they were sent, after the kill.
fn takeover(follows: bool) -> Option<Vec<[f64; 2]>> {
    let demand = Duration::from_secs_f64(f64::from(CPUS) / (2.0 * FLOOR));
    let mut site = Site::of(&Plan { follows: true, demand, ..Plan::new(2, "") })?;
    site.wait("both serve", |site| {
        site.gateways.iter().all(|one| get(&one.admin, "/ready").is_some_and(|(status, _)| status == 200))
    });
    if !follows {
        // No request has come to the other gateway, so it has taken nothing over.
        let own = |line: &&str| !line.starts_with("learned_state");
        site.gateways[1].reload(|text| text.lines().filter(own).fold(String::new(), |all, line| all + line + "\n"));
    }
    let loads = |to: usize, site: &Site| {
        for (index, gateway) in site.gateways.iter().enumerate() {
            gateway.gold.load(if index == to { LOADS[0] } else { 0.0 });
            gateway.rest.load(if index == to { LOADS[1] } else { 0.0 });
        }
    };
    loads(0, &site);
    pause(LEARNS);
    site.gateways[0].kill();
    let killed = site.load.clock.now();
    loads(1, &site);
    pause(SERVES);
    loads(2, &site);
    pause(Duration::from_millis(1_200));

    eprintln!("{}", if follows { "with the learned state" } else { "without it" });
    let asked: Vec<_> = site.gateways.iter().flat_map(|gateway| gateway.gold.asked()).collect();
    let mut parts = Vec::new();
    for second in -BEFORE..SERVES.as_secs() as i64 {
        let of = |at: Duration| (at.as_secs_f64() - killed.as_secs_f64()).floor() as i64;
        let mut answers: Vec<Option<Duration>> =
            asked.iter().filter(|(at, _)| of(*at) == second).map(|(_, answer)| *answer).collect();
        answers.sort_by_key(|answer| answer.unwrap_or(Duration::MAX));
        let count = |within: Duration| answers.iter().flatten().filter(|answer| **answer <= within).count();
        let (sent, all, timely) = (answers.len(), count(Duration::MAX), count(LIMIT));
        let p95 = answers.get(sent * 95 / 100).copied().flatten();
        eprintln!(
            "| {second} | {sent} | {all} | {timely} | {} |",
            p95.map_or("–".into(), |p95| p95.as_millis().to_string())
        );
        if second >= 0 {
            parts.push([all, timely].map(|count| count as f64 / sent.max(1) as f64));
        }
    }
    Some(parts)
}

#[test]
#[ignore = "takes two minutes, and measures times"]
fn takeover_under_overload_keeps_the_guarantee() {
    for follows in [true, false] {
        let Some(parts) = takeover(follows) else { return };
        let all: f64 = parts.iter().map(|[all, _]| all).sum::<f64>() / parts.len() as f64;
        assert!(all > 0.9, "{parts:?}");
    }
}
