//! Clients that request pages, over real sockets, compared with the simulator playing the same pages.

use std::collections::BTreeSet;

use weirgate_emulator::{Health, NodeSpec};
use weirgate_experiment::{Experiment, Fate, Page, Record, under_discipline};
use weirgate_lab::load::{Id, Sent};

use super::{MS, check, experiment, experiment_of, node, play};

/// Few enough pages that no request waits long.
const PAGES: &str = "  - { class: A, rate: 60/s, demand: { exponential: 1ms },\n      \
                     session: { pages: { inverse_gaussian: { mean: 2, shape: 4, max: 5 } }, think: 50ms },\n      \
                     objects: { class: B, count: { pareto: { shape: 1.5, min: 1, max: 8 } }, \
                     demand: { exponential: 500us }, connections: 3 } }\n  \
                     - { class: B, rate: 100/s, demand: { exponential: 1ms } }";

/// Returns each page with its requests, first its own and then the objects in order of demand.
fn pages<'a>(pages: &[Page], records: &'a [Record]) -> Vec<(Page, Vec<&'a Record>)> {
    let mut all: Vec<(Page, Vec<&Record>)> = pages.iter().map(|page| (*page, Vec::new())).collect();
    for record in records {
        if let Some(page) = record.page {
            all[page as usize].1.push(record);
        }
    }
    for (page, requests) in &mut all {
        requests.sort_by(|a, b| {
            (a.traffic != page.traffic, a.cpu).partial_cmp(&(b.traffic != page.traffic, b.cpu)).unwrap()
        });
    }
    all
}

/// Checks invariants of every page: its requests lie within its time, and it is served if all of them are.
fn check_pages(experiment: &Experiment, sent: &Sent) {
    check(sent);
    for (page, requests) in pages(&sent.pages, &sent.records) {
        assert!(requests.iter().all(|r| r.arrived >= page.arrived && r.ended <= page.ended), "{page:?}: {requests:?}");
        let served = requests.iter().filter(|r| r.fate == Fate::Served).count();
        assert_eq!(page.fate == Fate::Served, served == page.objects as usize + 1, "{page:?}: {requests:?}");
        let objects = &requests[1..];
        assert!(objects.iter().all(|r| r.arrived >= requests[0].ended));
        // Whenever an object is requested, at most two others are in flight.
        for object in objects {
            let open = objects.iter().filter(|r| r.arrived <= object.arrived && r.ended > object.arrived).count();
            assert!(open <= 3, "{open} at once");
        }
    }
    let in_pages: BTreeSet<u32> =
        sent.records.iter().filter(|record| record.page.is_some()).map(|record| record.traffic).collect();
    let expected = (0..experiment.traffic.len()).filter(|index| {
        experiment.is_pages(*index)
            || (0..experiment.traffic.len()).any(|page| experiment.objects_of(page) == Some(*index))
    });
    assert_eq!(in_pages, expected.map(|index| index as u32).collect());
}

#[test]
fn the_pages_of_a_seed_are_those_of_the_simulator() {
    let experiment = experiment(PAGES, 1000);
    let cluster = node(NodeSpec::new("a", 8));
    let sent = play(&experiment, &cluster);
    check_pages(&experiment, &sent);
    let logged = cluster.stats().unwrap()[0].ids.received.iter().map(|id| id.parse().unwrap()).collect();
    assert_eq!(sent.ids.iter().copied().collect::<BTreeSet<Id>>(), logged);

    let machines = "machines={cpus: 8}".parse().unwrap();
    let simulated = experiment_of(PAGES, 1000, &[under_discipline("none"), machines]);
    let run = weirgate_sim::run(&simulated, 7, |_| {});
    assert_eq!(run.violations, []);
    // First pages come at the same instants, and the content of a page does not depend on when it ended.
    // Later pages of a visit come slightly earlier or later than in the simulator, so they are identified
    // by their demand.
    let like = |all: &[Page], records: &[Record]| {
        let of_page = |(page, requests): (Page, Vec<&Record>)| {
            let cpu: Vec<u32> = requests.iter().map(|request| request.cpu.to_bits()).collect();
            (page.fate == Fate::Served).then_some((page.objects, cpu))
        };
        pages(all, records).into_iter().filter_map(of_page).collect::<BTreeSet<_>>()
    };
    let (real, virtual_) = (like(&sent.pages, &sent.records), like(&run.pages, &run.records));
    let common = real.intersection(&virtual_).count();
    // Only at the very end may one of the two have played a page that the other has not.
    assert!(common > 80, "{common} pages");
    for (name, all) in [("lab", &real), ("simulator", &virtual_)] {
        let alone = all.len() - common;
        assert!(alone <= all.len() / 10, "{alone} of {} pages are in the {name} alone", all.len());
    }
    let arrivals = |all: &[Page]| all.iter().map(|page| page.arrived).collect::<BTreeSet<u64>>();
    let same = arrivals(&sent.pages).intersection(&arrivals(&run.pages)).count();
    assert!(same >= 40, "{same} visits begin at the same instants");
}

#[test]
fn a_user_without_a_page_asks_for_no_objects() {
    let experiment = experiment(
        "  - { class: A, rate: 100/s, demand: 1ms, objects: { count: 3, demand: 1ms }, patience: 1s, retries: 1, \
         retry_after: 20ms }",
        300,
    );
    let cluster = node(NodeSpec::new("a", 1));
    cluster.set_health(0, Health { fails: 1.0, ..Health::WELL }).unwrap();
    let sent = play(&experiment, &cluster);
    check(&sent);
    assert!(sent.pages.len() > 10 && sent.records.iter().all(|record| record.traffic == 0));
    let tried_twice = sent.pages.iter().filter(|page| page.fate == Fate::Failed);
    assert!(tried_twice.clone().count() > 10 && tried_twice.clone().all(|page| page.ended >= page.arrived + 20 * MS));
}
