//! Pages in virtual time: a client's timing between its requests, to the microsecond, and a complete
//! account of all requests, even if the gateway refuses some.

use std::path::Path;

use weirgate_experiment::{Experiment, Fate, Page, Record, Run, under_discipline};
use weirgate_spanned_yaml::overrides::Override;
use weirgate_verdict::judge;

/// An experiment of two upstreams of one machine each, with class `page` on the first and `object` on the
/// second.
fn experiment(traffic: &str, more: &str, change: &[Override]) -> Experiment {
    let text = format!(
        "policy:\n  discipline: none\n  upstreams: {{ pages: {{ nodes: [p:80] }}, objects: {{ nodes: [o:80] }} }}\n  \
         classes:\n    - {{ name: page, upstream: pages, service_time: 10ms, guarantee: {{ throughput: 50/s, \
         response_time: {{ p95: 200ms }} }} }}\n    - {{ name: object, upstream: objects }}\nnetwork_delay: 1ms\n\
         machines: {{ cpus: 4 }}\ntraffic:\n{traffic}\nphases: [{{ name: all, until: 20s }}]\nsettle: 0s\n{more}"
    );
    let loaded = weirgate_experiment::load_experiment("test.yaml", &text, Path::new(""), change);
    loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment
}

fn play(experiment: &Experiment, seed: u64) -> Run {
    let run = weirgate_sim::run(experiment, seed, |_| {});
    assert_eq!(run.violations, []);
    accounted(experiment, &run);
    run
}

/// Every request of a page lies in its time, and the page's end and fate follow from its requests. (No
/// client retries in these experiments.)
fn accounted(experiment: &Experiment, run: &Run) {
    assert!(run.pages.is_sorted_by_key(|page| page.arrived));
    let mut requests: Vec<Vec<&Record>> = vec![Vec::new(); run.pages.len()];
    for record in &run.records {
        match record.page {
            Some(page) => requests[page as usize].push(record),
            None => assert!(!experiment.is_pages(record.traffic as usize)),
        }
    }
    for (page, requests) in run.pages.iter().zip(requests) {
        let own: Vec<&&Record> = requests.iter().filter(|r| r.traffic == page.traffic).collect();
        let objects = requests.len() - own.len();
        assert_eq!((own.len(), own[0].arrived), (1, page.arrived));
        if page.fate != Fate::Cut {
            assert_eq!(requests.iter().map(|r| r.ended).max(), Some(page.ended));
        }
        let all_served = requests.iter().all(|r| r.fate == Fate::Served);
        match page.fate {
            Fate::Served => assert!(all_served && objects == page.objects as usize, "{page:?}: {requests:?}"),
            Fate::Cut => assert!(requests.iter().any(|r| r.fate == Fate::Cut) || objects < page.objects as usize),
            fate => {
                assert!(requests.iter().any(|r| r.fate == fate), "{page:?}: {requests:?}");
                let expected = if own[0].fate == Fate::Served { page.objects as usize } else { 0 };
                assert_eq!(objects, expected, "{page:?}: {requests:?}");
            }
        }
    }
}

/// One client, at some time in the second second.
fn once() -> &'static str {
    "rate: [0/s, { at: 1s, rate: 1/s }, { at: 2s, rate: 0/s }], arrivals: even"
}

#[test]
fn three_objects_over_two_connections_take_as_long_as_they_must() {
    let traffic = format!(
        "  - {{ class: page, {}, demand: 20ms, objects: {{ class: object, count: 3, demand: 10ms }} }}",
        once()
    );
    let run = play(&experiment(&traffic, "", &[]), 1);
    assert_eq!((run.pages.len(), run.records.len()), (1, 4));
    let Page { fate, arrived, ended, objects, .. } = run.pages[0];
    // 20 ms and two delays. 0.1 ms until the client's next requests. Two objects at once, then the third.
    assert_eq!((fate, objects, ended - arrived), (Fate::Served, 3, 22_000_000 + 2 * 12_100_000));
    let starts: Vec<u64> = run.records.iter().map(|record| (record.arrived - arrived) / 1_000).collect();
    assert_eq!(starts, [0, 22_100, 22_100, 34_200]);
}

#[test]
fn a_user_without_a_page_asks_for_no_objects_and_a_missing_object_breaks_the_page() {
    let traffic = "  - { class: page, rate: 10/s, arrivals: even, demand: 5ms, objects: { class: object, count: 4, demand: 1ms } }";
    let crash = |machine: &str| format!("faults: [{{ at: 10s, fault: crash, machines: {machine} }}]\n");
    let of = |machine: &str| {
        let experiment = experiment(traffic, &crash(machine), &[]);
        let run = play(&experiment, 3);
        let late: Vec<&Page> = run.pages.iter().filter(|page| page.arrived > 10_000_000_000).collect();
        assert!(late.len() > 95 && late.iter().all(|page| matches!(page.fate, Fate::Failed | Fate::Shed | Fate::Cut)));
        let objects =
            |after: u64| run.records.iter().filter(|r| r.arrived > after && r.traffic != run.pages[0].traffic).count();
        let verdict = judge(&experiment, &run);
        let [page, object] = [0, 1].map(|class| verdict.phases[0].classes[class].part.pages);
        assert_eq!(object, None, "nothing but objects");
        let page = page.expect("it comes as pages");
        assert!((page.offered_per_s - 10.0).abs() < 0.11 && (page.complete_per_s - 5.0).abs() < 0.11, "{page:?}");
        (objects(10_020_000_000), late.len())
    };
    let (objects, _) = of("p");
    assert_eq!(objects, 0);
    let (objects, pages) = of("o");
    // Objects of the last page may come too late.
    assert!(objects >= 4 * (pages - 1), "{objects} objects of {pages} pages");
}

#[test]
fn a_client_asks_for_its_pages_one_after_the_other() {
    let traffic = format!(
        "  - {{ class: page, {}, session: {{ pages: 3, think: 2s }}, demand: 20ms, \
         objects: {{ class: object, count: 2, demand: 10ms }} }}",
        once()
    );
    let run = play(&experiment(&traffic, "", &[]), 1);
    let took = 22_000_000 + 12_100_000;
    let starts: Vec<u64> = run.pages.iter().map(|page| page.arrived - run.pages[0].arrived).collect();
    assert_eq!(starts, [0, 2_000_000_000 + took, 2 * (2_000_000_000 + took)]);
}

#[test]
fn a_user_thinks_after_the_page() {
    let traffic = "  - { class: page, users: 1, think: 1s, demand: 20ms, \
                   objects: { class: object, count: 2, demand: 10ms } }";
    let run = play(&experiment(traffic, "", &[]), 1);
    let period = 1_000_000_000 + 22_000_000 + 12_100_000;
    assert!(run.pages.len() >= 18 && run.pages.windows(2).all(|two| two[1].arrived - two[0].arrived == period));
}

/// A load far beyond the capacity, under a discipline that sheds. The properties of pages do not depend on
/// the discipline, and p95 is that of pages.
#[test]
fn what_pages_are_like_is_the_same_under_every_discipline() {
    let traffic = "  - { class: page, rate: 700/s, patience: 300ms, demand: { exponential: 8ms }, \
                   objects: { class: object, count: { pareto: { shape: 1.5, min: 1, max: 20 } }, \
                   demand: { lognormal: { median: 1ms, sigma: 1, tail: { share: 5%, shape: 1.5, from: 5ms }, \
                   max: 100ms } }, connections: 3 } }\n  - { class: page, rate: 5/s, demand: 1ms }";
    for seed in 0..3 {
        let under = |discipline: &str| {
            let experiment = experiment(traffic, "", &[under_discipline(discipline)]);
            let run = play(&experiment, seed);
            (judge(&experiment, &run), run)
        };
        let [(_, none), (verdict, weirgate)] = ["none", "weirgate"].map(under);
        let asked = |run: &Run| run.pages.iter().map(|page| (page.arrived, page.objects)).collect::<Vec<_>>();
        assert_eq!(asked(&none), asked(&weirgate));
        let shed = weirgate.pages.iter().filter(|page| page.fate == Fate::Shed).count();
        assert!(shed > 1000, "{shed} pages were shed");
        let part = &verdict.phases[0].classes[0].part;
        let single = weirgate.records.iter().filter(|record| record.page.is_none());
        let mut times: Vec<u64> = single.filter(|r| r.fate == Fate::Served).map(|r| r.ended - r.arrived).collect();
        let complete = weirgate.pages.iter().filter(|page| page.fate == Fate::Served);
        times.extend(complete.map(|page| page.ended - page.arrived));
        times.sort_unstable();
        let p95 = times[(times.len() as f64 * 0.95).ceil() as usize - 1];
        // Compare to the nanosecond: the judge may round milliseconds in another order.
        let judged = part.ceiling.as_ref().and_then(|ceiling| ceiling.value_ms);
        assert_eq!(judged.map(|ms| (ms * 1e6).round() as u64), Some(p95));
        let share = part.pages.map(|pages| (pages.rejected as f64, pages.rejected_share * pages.offered_per_s * 20.0));
        assert!(share.is_some_and(|(count, of)| (count - of).abs() < 1e-6), "{share:?}");
    }
}
