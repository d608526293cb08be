//! Tests of the view.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::*;
use crate::top::Page;

/// A class with 300/s and a p95 of 300 ms that is served `served` requests a second.
fn class(id: u32, name: &str, served: f64, held: bool) -> serde_json::Value {
    json!({
        "class": id, "name": name,
        "guarantee": { "throughput_per_second": 300.0, "response_time": { "statistic": "p95", "seconds": 0.3 } },
        "offered": 1, "served": 1, "failed": 0, "cancelled": 0, "shed": {}, "retried": 0, "waiting": 3,
        "outstanding": 7, "share": 0.5,
        "achieved": {
            "window_seconds": 10.0, "offered_per_second": 310.0, "served_per_second": served,
            "shed_per_second": 310.0 - served, "limited": { "statistic": "p95", "seconds": 0.0184 },
            "throughput_held": held, "response_time_held": true,
        },
    })
}

fn look(held: bool) -> Look {
    let moved = json!({ "at_seconds": 1.0, "from": 8, "to": 10, "why": "first window: 10" });
    let node = |name, state| json!({ "name": name, "pool": "web", "state": state, "outstanding": 7, "served": 9, "failed": 1, "load": 1.0 });
    let page: Page = serde_json::from_value(json!({
        "version": 2,
        "engine": {
            "now_seconds": 75.0, "discipline": "weirgate", "window": 10, "outstanding": 7, "waiting": 3,
            "moved": moved, "classes": 2, "nodes": [node("web-1", "up"), node("web-2", "ejected")],
            "machine_groups": [{ "pools": ["web"], "window": 10, "outstanding": 7, "moved": moved }],
        },
        "classes": [class(0, "gold", 310.0, true), class(1, "silver", if held { 310.0 } else { 200.0 }, held)],
        "next": null,
        "learned": { "follows": [
            { "gateway": "10.0.0.2:9900", "age_seconds": 0.4, "answer_age_seconds": 0.5, "failures": 0 },
            { "gateway": "10.0.0.3:9900", "age_seconds": 75.0, "failures": 75, "error": "refused" },
            { "gateway": "10.0.0.4:9900", "failures": 75, "error": "refused" },
        ] },
        "site": {
            "gateway": "gw1", "stage": "granted", "stage_ends_in_seconds": 4.25, "coordinator": "gw2", "revision": 9,
            "checksum": "c", "refused": 0, "in_flight_of_others": 6.25,
            "members": [{ "name": "gw1", "address": "10.0.0.1:9905" }, { "name": "gw2", "address": "10.0.0.2:9905" }],
            "classes": [],
        },
    }))
    .unwrap();
    let events = serde_json::from_value(json!({
        "now_seconds": 75.0,
        "events": [{ "number": 1, "at_seconds": 15.0, "unix_seconds": 0.0, "kind": "node_ejected", "text": "node web-2 is ejected" }],
        "refusals": [{
            "class": "silver", "from_seconds": 60.0, "to_seconds": 75.0, "lasts": true, "count": 40, "offered": 100,
            "reason": "overload", "why": "the class sends 310/s",
        }],
    }))
    .unwrap();
    let Page { version, engine, classes, next, learned, site } = page;
    Look { version, engine, classes, more: next.is_some(), events, follows: learned.follows, site }
}

fn drawn(width: u16, height: u16, look: &Look, lost: Option<&str>) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, look, lost)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn it_shows_classes_refusals_windows_nodes_and_changes() {
    let look = look(false);
    for text in [drawn(120, 30, &look, None), table::text(&look)] {
        for part in [
            "discipline weirgate, configuration 2, up 75 s",
            "gw1: shares granted for 4.3 s, gw2 divides the guarantees among 2 gateways",
            "the other gateways have 6.2 requests in flight",
            "gw2 shows the share of each gateway: look there, on 10.0.0.2",
            "in flight 7 (window 10), 1 of 2 nodes usable",
            "silver",
            "MISSED",
            "p95 18.4 ms",
            "silver: 40 of 100 requests refused (overload): the class sends 310/s",
            "web: 7 in flight, window 10. first window: 10",
            "web/web-2 ejected",
            "follows 10.0.0.2:9900: heard 400 ms ago",
            "follows 10.0.0.3:9900: heard 75 s ago: refused",
            "follows 10.0.0.4:9900: not heard yet: refused",
            "60 s ago",
            "node web-2 is ejected",
        ] {
            assert!(text.contains(part), "{part:?} is missing:\n{text}");
        }
        let at = |name: &str| text.lines().position(|line| line.contains(name) && line.contains("3/7"));
        assert!(at("silver") < at("gold"), "a missed guarantee comes first:\n{text}");
    }
    assert!(!look.holds());
}

/// A site of so many gateways, as the elected one knows it. The last one has lost its lease.
fn elected(count: usize) -> Look {
    let mut look = look(false);
    let member = |index: usize| {
        let (gone, name) = (index + 1 == count, format!("gw{:02}", index + 1));
        let share = |class: &str| match gone {
            true => json!({ "class": class, "held_per_second": 20.0 }),
            false => json!({ "class": class, "held_per_second": 100.0, "demand_per_second": 90.0 + index as f64 }),
        };
        json!({
            "name": name, "address": "a", "phase": if gone { "unknown" } else { "live" }, "age_seconds": 0.25,
            "in_flight": 2.5, "shares": [share("gold"), share("bronze-of-many-friends"), share("silver")],
        })
    };
    let class = |name: &str, unstated: Option<f64>| {
        json!({
            "class": name, "guaranteed_per_second": 300.0, "share_per_second": 100.0, "demand_per_second": 90.0,
            "held_per_second": 220.0, "site_demand_per_second": 181.0, "unstated_per_second": unstated,
        })
    };
    let site = json!({
        "gateway": "gw01", "stage": "granted", "coordinator": "gw01", "revision": 9, "checksum": "c", "refused": 0,
        "members": (0..count).map(member).collect::<Vec<_>>(),
        "classes": [class("bronze-of-many-friends", None), class("gold", None), class("silver", Some(40.0))],
    });
    look.site = Some(serde_json::from_value(site).unwrap());
    look
}

#[test]
fn the_elected_gateway_shows_each_gateway_and_the_sums() {
    let look = elected(3);
    // Silver misses its guarantee, so it comes first.
    let table = site::table(&look, 78, 10);
    assert_eq!(
        table,
        [
            "                                    silver 300/s   gold 300/s",
            "GATEWAY     PHASE    HEARD  FLIGHT  HOLDS  DEMAND  HOLDS  DEMAND",
            "gw01        live     0.2 s  2.5     100/s  90/s    100/s  90/s",
            "gw02        live     0.2 s  2.5     100/s  91/s    100/s  91/s",
            "gw03        unknown  0.2 s  2.5     20/s   -       20/s   -",
            "not stated                          40/s",
            "all         2 live          7.5     220/s  181/s   220/s  181/s",
        ],
    );
    let narrow = drawn(80, 30, &look, None);
    for text in [&narrow, &table::text(&look)] {
        assert!(table.iter().all(|line| text.contains(line)), "{text}");
    }
    assert!(narrow.contains("silver") && narrow.contains("REFUSED"), "classes have their names, too:\n{narrow}");
    assert_eq!(site::table(&look, 20, 10)[0].trim(), "silver 300/s", "one class is shown at any width");
    let many = site::table(&elected(30), 78, 4);
    let names: Vec<&str> = many.iter().skip(2).map(|line| line.split("  ").next().unwrap_or_default()).collect();
    assert_eq!(names, ["gw27", "gw28", "gw29", "gw30", "not stated", "all 30"], "the last one has no lease");
}

#[test]
fn observed_classes_are_told_from_enforced_ones() {
    let mut look = look(true);
    look.classes[0].enforced_share = 0.0;
    look.classes[0].achieved.would_shed_per_second = 12.0;
    look.classes[1].enforced_share = 0.1;
    for text in [drawn(120, 30, &look, None), table::text(&look)] {
        for part in [
            "gold: nothing is refused, 12/s would be",
            "silver: enforced for 10 % of the sources, 0/s of the others would be refused",
            "WOULD",
        ] {
            assert!(text.contains(part), "{part:?} is missing:\n{text}");
        }
    }
}

#[test]
fn a_lost_gateway_is_told_and_any_terminal_will_do() {
    let look = look(true);
    assert!(look.holds());
    assert!(drawn(120, 30, &look, None).contains("✔ all guarantees are held"));
    assert!(drawn(120, 30, &look, Some("connection refused")).contains("the figures are old: connection refused"));
    for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
        drawn(width, height, &look, None);
    }
}
