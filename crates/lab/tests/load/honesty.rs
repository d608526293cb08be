//! The load does not yield: a slow server makes neither the load lighter nor its results better.

use weirgate_emulator::{Health, NodeSpec, clock};
use weirgate_experiment::traffic::{NO_USER, Stream};
use weirgate_experiment::{Fate, Record};
use weirgate_lab::load::Sent;

use super::{MS, check, experiment, node, play, start, until};

const TRAFFIC: &str = "  - { class: A, rate: [300/s, { at: 500ms, over: 500ms, rate: 600/s }], \
                       demand: { exponential: 1ms } }";

/// Returns the instants and demands of the traffic source's stream, as the simulator would send them.
fn meant() -> Vec<(u64, f32)> {
    let experiment = experiment(TRAFFIC, 1000);
    let mut stream = Stream::new(&experiment, 0, 7);
    let draw = |(at, _)| {
        let cpu = stream.draw(at, NO_USER).demand.cpu;
        (at, (cpu as f64 / 1e9) as f32)
    };
    let mut instants = Stream::new(&experiment, 0, 7);
    std::iter::from_fn(|| instants.next_event()).map(draw).collect()
}

fn sent(sent: &Sent) -> Vec<(u64, f32)> {
    sent.records.iter().map(|r| (r.arrived, r.cpu)).collect()
}

#[test]
fn the_same_seed_is_the_same_traffic_as_in_the_simulator() {
    let cluster = node(NodeSpec::new("a", 4));
    let run = play(&experiment(TRAFFIC, 1000), &cluster);
    check(&run);
    assert_eq!(sent(&run), meant());
}

#[test]
fn a_stalled_node_does_not_lighten_the_load_and_its_wait_counts() {
    // Once with enough connections for all requests, and once with so few that requests wait for one at the client.
    for connections in [1000, 4] {
        let cluster = node(NodeSpec::new("a", 4));
        cluster.set_health(0, Health { stalled: true, ..Health::WELL }).unwrap();
        let mut begins = 0;
        let running = start(&experiment(TRAFFIC, 1000), cluster.addresses()[0], |plan| {
            plan.connections = connections;
            begins = plan.start;
        });
        // A load that yields would never get this far, because nothing is answered.
        let so_far = meant().iter().filter(|(at, _)| *at < 300 * MS).count() as u64;
        until(|| running.progress().traffic[0].sent >= so_far);
        let recovers = clock::now() - begins;
        cluster.set_health(0, Health::WELL).unwrap();
        let run = running.join().unwrap();
        check(&run);
        // The load is the same to the nanosecond.
        assert_eq!(sent(&run), meant());
        // All requests are served in the end, none before the node was well, and the response times contain
        // the whole wait.
        assert!(run.records.iter().all(|r| r.fate == Fate::Served));
        let early: Vec<&Record> = run.records.iter().filter(|r| r.arrived < recovers).collect();
        assert!(early.iter().all(|r| r.ended >= recovers), "served by a stalled node");
        assert!(early[0].ended - early[0].arrived >= 200 * MS, "{:?}", early[0]);
        let delayed = run.traffic[0].delayed;
        assert_eq!(delayed > 0, connections == 4, "{delayed} waited for a connection");
        assert!(run.traffic[0].connections <= connections as u64);
    }
}
