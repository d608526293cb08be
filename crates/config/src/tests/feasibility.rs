//! Tests of the feasibility report.

use super::*;
use crate::load;

fn report(upstreams: &str, classes: &str) -> (Feasibility, Vec<String>) {
    let text = format!("listen: 127.0.0.1:80\nupstreams:\n{upstreams}classes:\n{classes}");
    let loaded = load("t", &text, false).unwrap_or_else(|e| panic!("{e}"));
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
