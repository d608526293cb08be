//! Tests of the feasibility report.

use super::*;
use crate::load;

fn report(upstreams: &str, classes: &str) -> (Feasibility, Vec<String>) {
    let text = format!("listen: 127.0.0.1:80\nupstreams:\n{upstreams}classes:\n{classes}");
    let loaded = load("t", &text).unwrap_or_else(|e| panic!("{e}"));
    (feasibility(&loaded.site), loaded.warning_lines("t"))
}

const TWO: &str = "  web: { nodes: [{ address: a:1, capacity: 2 }, { address: b:1, capacity: 2 }] }\n";

fn class(name: &str, rate: u32, ms: u32) -> String {
    format!(
        "  - {{ name: {name}, match: {{ host: {name} }}, service_time: {ms}ms, \
         guarantee: {{ throughput: {rate}/s, response_time: {{ avg: 1s }} }} }}\n"
    )
}

#[test]
fn what_fits_fits() {
    let (report, warnings) = report(TWO, &(class("a", 250, 8) + &class("b", 250, 8) + "  - { name: rest }\n"));
    assert_eq!(report.fits(), Some(true));
    assert_eq!(report.to_string(), "pool web: guarantees need 4 of 4 slot-seconds/s (100 %): fits\n");
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn the_class_that_does_not_fit_is_named_with_its_place() {
    let (report, warnings) = report(TWO, &(class("a", 250, 8) + &class("b", 500, 8) + "  - { name: rest }\n"));
    assert_eq!(report.fits(), Some(false));
    let what = "class b does not fit: its 500/s need 4 slot-seconds/s, and pool web has 2 left of 4: \
                at most 250/s fit (2 slot-seconds/s too much)";
    assert!(report.to_string().contains(what), "{report}");
    assert!(warnings[0].starts_with("t:6:5: classes[1]: warning: class b does not fit"), "{warnings:?}");
}

#[test]
fn what_is_unknown_is_said() {
    let unknown = "  web: { nodes: [{ address: a:1, capacity: 2 }, b:1] }\n";
    let (one, _) = report(unknown, &(class("a", 9_000, 8) + "  - { name: rest }\n"));
    assert_eq!((one.fits(), one.pools[0].unknown_machines.as_slice()), (None, &["b:1".to_owned()][..]));
    let learned = "  - { name: a, guarantee: { throughput: 5/s, response_time: { avg: 1s } } }\n";
    let (two, _) = report(TWO, learned);
    assert_eq!(two.fits(), None);
    assert!(two.to_string().contains("class a: 5/s, its service time is not given"), "{two}");
    assert!(
        two.to_string().starts_with("pool web: guarantees need an unknown number of the 4 slot-seconds/s\n"),
        "{two}"
    );
    let (three, _) = report(unknown, learned);
    assert!(three.to_string().contains("need an unknown number of slot-seconds/s; capacity of `b:1`"), "{three}");
    let (four, _) = report(TWO, &(class("b", 250, 8) + learned));
    assert!(
        four.to_string().contains("need at least 2 of 4 slot-seconds/s (50 %): fits as far as it is known"),
        "{four}"
    );
}

#[test]
fn templates_tell_how_many_have_room() {
    let tenants = "  - { name: tenant, per: { cookie: t }, service_time: 10ms, \
                   guarantee: { throughput: 50/s, response_time: { p95: 1s } } }\n  - { name: rest }\n";
    let (report, _) = report(TWO, tenants);
    assert_eq!(report.fits(), None);
    assert!(report.to_string().contains("template tenant: 50/s for each live class need 0.5: room for 8"), "{report}");
}

#[test]
fn machines_are_counted_once() {
    let shared = "  web: { nodes: [{ address: a:1, machine: m, capacity: 4 }] }\n  \
                  api: { nodes: [{ address: a:2, machine: m }] }\n";
    let classes = "  - { name: a, match: { host: a }, upstream: web, service_time: 10ms, guarantee: { throughput: 300/s, \
                   response_time: { avg: 1s } } }\n  - { name: b, upstream: api, service_time: 10ms, \
                   guarantee: { throughput: 300/s, response_time: { avg: 1s } } }\n";
    let (report, _) = report(shared, classes);
    assert_eq!(report.pools.iter().map(PoolDemand::fits).collect::<Vec<_>>(), [Some(true), Some(true), Some(false)]);
    assert!(report.to_string().contains("pool web + api has 1 left of 4"), "{report}");
}

/// Loads a policy with request costs from a page table. Nodes have two slots each, which would be far too few.
fn priced(discipline: &str, routes: &str, rates: [u32; 2]) -> (Feasibility, Vec<String>) {
    let text = format!(
        "listen: 127.0.0.1:80\ndiscipline: {discipline}\npage_table: {routes}\nupstreams:\n  web: {{ nodes: [{{ address: \
         127.0.0.1:1, capacity: 2, weight: 1 }}, {{ address: 127.0.0.2:1, capacity: 2, weight: 1 }}] }}\nclasses:\n{}{}  - {{ name: rest }}\n",
        class("a", rates[0], 100),
        class("b", rates[1], 100)
    );
    let loaded = load("t", &text).unwrap_or_else(|e| panic!("{e}"));
    (feasibility(&loaded.site), loaded.warning_lines("t"))
}

/// Routes that use the CPU, the disk, and both.
const ROUTES: &str =
    "{ routes: { /math: { cpu: 4%, disk: 1% }, /album: { cpu: 1%, disk: 4% }, /both: { cpu: 4%, disk: 4% } } }";

#[test]
fn with_a_page_table_resources_count_and_slots_do_not() {
    // Two nodes serve 50/s of any route. The CPU alone would allow 200/s of the cheapest route, but every
    // route uses at least 5 % of CPU and disk together, and the two nodes have four such resources.
    for discipline in ["weirgate", "mqos", "sqos"] {
        let (fitting, warnings) = priced(discipline, ROUTES, [20, 30]);
        assert_eq!((fitting.fits(), warnings), (Some(true), Vec::new()), "{discipline}");
        let text =
            "pool web: guarantees are 50/s; by the page table 50/s fit of any route, and never more than 80/s: fits\n";
        assert_eq!(fitting.to_string(), text);
    }
    let (open, warnings) = priced("weirgate", ROUTES, [50, 30]);
    assert_eq!((open.fits(), warnings), (None, Vec::new()));
    assert!(open.to_string().contains("depends on the routes"), "{open}");
    let (beyond, warnings) = priced("weirgate", ROUTES, [50, 31]);
    assert_eq!(beyond.fits(), Some(false));
    let what = "class b does not fit: whatever routes its 31/s are of, pool web has 30/s left of at most 80/s by the page table";
    assert!(warnings.len() == 1 && warnings[0].contains(what) && beyond.to_string().contains(what), "{warnings:?}");
}

#[test]
fn unknown_routes_are_not_reported_and_slots_count_where_the_table_is_not_used() {
    let (learned, warnings) = priced("weirgate", "learned", [5000, 5000]);
    assert_eq!((learned.fits(), warnings), (None, Vec::new()));
    assert!(learned.to_string().contains("not known yet"), "{learned}");
    let (slots, warnings) = priced("quorum", ROUTES, [20, 30]);
    assert_eq!((slots.fits(), warnings.len()), (Some(false), 1), "{warnings:?}");
}

#[test]
fn a_generated_policy_gets_a_short_report() {
    let classes: String = (0..10_000)
        .map(|at| format!("  - {{ name: c{at}, match: {{ host: h{at} }}, guarantee: {{ throughput: 1/s }} }}\n"))
        .collect();
    let (report, _) = report(TWO, &(classes + "  - { name: rest }\n"));
    let text = report.to_string();
    assert_eq!(text.lines().count(), 1 + MAX_LEARNED + 1);
    assert!(text.ends_with("  and 9980 more classes: their service times will be learned\n"), "{text}");
}
