//! mQoS with classes that need different resources. Using a resource that no other class waits for does not
//! count against a class. A resource that one class cannot use holds up no other class. A large request waits
//! for one node and not for all.

#[path = "support/mod.rs"]
mod support;

#[path = "support/resources.rs"]
mod resources;

use std::collections::BTreeSet;
use std::time::Duration;

use resources::{Driver, KINDS, Site, drfq, node_seconds};
use support::Random;
use weirgate_engine::*;

fn shares(shares: [f64; 3]) -> Demand {
    Demand::of_shares(&shares)
}

/// Costs of mostly one resource: processor, disk or network. `PAGE` and `DOWNLOAD` also need a little of
/// another.
const CPU: [f64; 3] = [0.09, 0.0, 0.0];
const DISK: [f64; 3] = [0.0, 0.09, 0.0];
const NETWORK: [f64; 3] = [0.0, 0.0, 0.09];
const PAGE: [f64; 3] = [0.09, 0.0, 0.001];
const DOWNLOAD: [f64; 3] = [0.001, 0.0, 0.09];

/// Resources used while the site was saturated.
#[derive(Debug)]
struct Used {
    /// Node-seconds of each resource in released requests, per class.
    by: Vec<[f64; 3]>,
    /// Mean share of all machines that was taken, per resource.
    taken: [f64; 3],
}

impl Used {
    /// Returns a class's part of the use of a resource.
    fn part(&self, class: usize, resource: usize) -> f64 {
        self.by[class][resource] / self.by.iter().map(|of| of[resource]).sum::<f64>()
    }
}

/// Releases `until` node-seconds. A released request is replaced by an equal one if `again` returns true.
/// Requests in flight end in random order.
fn play(driver: &mut Driver, random: &mut Random, until: f64, again: impl Fn(u32, Demand) -> bool) -> Used {
    let classes = driver.requests.iter().map(|(class, _)| *class as usize + 1).max().unwrap_or(0);
    let nodes = &driver.engine.policy().nodes;
    let (nodes, machines) = (nodes.len() as u32, nodes.iter().map(|node| &node.machine).collect::<BTreeSet<_>>().len());
    let mut used = Used { by: vec![[0.0; 3]; classes], taken: [0.0; 3] };
    let (mut done, mut steps) = (0.0, 0.0);
    while done < until && !driver.in_flight.is_empty() {
        for (class, demand) in driver.turn(|n| random.below(n)) {
            done += node_seconds(demand);
            (0..3).for_each(|resource| used.by[class as usize][resource] += demand.share(resource));
            if again(class, demand) {
                assert!(driver.arrive(class, demand));
            }
        }
        driver.drain();
        steps += 1.0;
        for resource in 0..3 {
            let taken: u64 = (0..nodes).map(|node| driver.taken(node, resource)).sum();
            used.taken[resource] += taken as f64 / 1e9 / machines as f64;
        }
    }
    used.taken.iter_mut().for_each(|taken| *taken /= steps);
    used
}

/// A site on which each class has twenty requests of each of its kinds waiting.
fn site(weights: &[f64], kinds: &[(u32, [f64; 3])]) -> Driver {
    let mut driver = Driver::new(Site { weights: weights.to_vec(), ..Site::default() }.engine(drfq()));
    kinds.iter().for_each(|(class, kind)| driver.fill(*class, 20, kind));
    driver.drain();
    driver
}

/// Checks that the classes share the processor by their weights, whatever else some of them use.
#[track_caller]
fn processor_is_shared(weights: &[f64], kinds: &[(u32, [f64; 3])]) -> Used {
    let used = play(&mut site(weights, kinds), &mut Random(7), 400.0, |_, _| true);
    for (class, weight) in weights.iter().enumerate() {
        let due = weight / weights.iter().sum::<f64>();
        let part = used.part(class, 0);
        assert!((part / due - 1.0).abs() < 0.03, "class {class} has {part:.4}, not {due:.4}: {used:?}");
    }
    used
}

#[test]
fn an_uncontended_resource_does_not_count_against_a_class() {
    for weights in [[1.0, 1.0], [6.0, 1.0]] {
        let used = processor_is_shared(&weights, &[(0, CPU), (1, CPU), (1, NETWORK)]);
        assert!(used.taken[2] > 0.93, "{used:?}");
        // Pages use a little network and downloads a little processor time. This does not make them
        // competitors.
        let used = processor_is_shared(&weights, &[(0, PAGE), (1, PAGE), (1, DOWNLOAD)]);
        // A download has to wait in turn for its little processor time.
        assert!(used.taken[2] > 0.84, "{used:?}");
    }
}

/// Two classes that compete for one resource are both ahead of a third that does not use it.
#[test]
fn what_some_want_costs_them_nothing_of_what_all_want() {
    let kinds = [(0, CPU), (1, CPU), (2, CPU), (1, NETWORK), (2, NETWORK)];
    let used = processor_is_shared(&[6.0, 1.0, 1.0], &kinds);
    assert!(used.taken[2] > 0.93 && (used.part(1, 2) - 0.5).abs() < 0.02, "{used:?}");
    let used = processor_is_shared(&[6.0, 2.0, 1.0], &kinds);
    assert!(used.taken[2] > 0.93 && (used.part(1, 2) - 2.0 / 3.0).abs() < 0.02, "{used:?}");
}

/// After an hour of downloads, a class begins to ask for a resource that others need.
#[test]
fn a_class_alone_on_one_resource_gets_its_share_of_another_at_once() {
    let mut driver = site(&[6.0, 1.0], &[(0, CPU), (1, NETWORK)]);
    let mut random = Random(5);
    play(&mut driver, &mut random, 2_000.0, |_, _| true);
    driver.fill(1, 20, &CPU);
    play(&mut driver, &mut random, 4.0, |_, demand| demand != shares(NETWORK));
    let used = play(&mut driver, &mut random, 20.0, |_, demand| demand != shares(NETWORK));
    assert!((used.part(1, 0) - 1.0 / 7.0).abs() < 0.02, "{used:?}");
}

/// A request is found behind any number of requests that wait for a different resource.
#[test]
fn many_requests_for_one_resource_do_not_hide_those_for_another() {
    for crowd in [15, 16, 40, 200] {
        let kinds: Vec<(u32, [f64; 3])> = (0..crowd).map(|class| (class, CPU)).chain([(crowd, DISK)]).collect();
        let mut driver = site(&vec![1.0; crowd as usize + 1], &kinds);
        let used = play(&mut driver, &mut Random(3), 100.0, |_, _| true);
        assert!(used.taken[0] > 0.93 && used.taken[1] > 0.93, "{crowd}: {:?}", used.taken);
    }
}

/// Two upstreams on one machine. The second has a bound of its own.
fn two_upstreams(discipline: Discipline, weights: &[f64], bound: Option<u32>) -> Driver {
    let mut policy = Site { weights: weights.to_vec(), ..Site::default() }.two_upstreams(discipline, 1);
    policy.nodes[1].max_outstanding = bound;
    Driver::new(Engine::new(Time::ZERO, policy, 1).expect("a valid policy"))
}

/// An upstream that cannot accept requests does not hold up the other one on the same machines.
#[test]
fn a_class_without_a_usable_node_blocks_no_other() {
    for discipline in [Discipline::mqos(), drfq()] {
        for classes in [2, 40] {
            for event in [NodeEvent::Down(NodeId(1)), NodeEvent::Draining(NodeId(1))] {
                let mut driver = two_upstreams(discipline.clone(), &vec![1.0; classes], None);
                (0..classes as u32).for_each(|class| driver.fill(class, 20, &CPU));
                driver.engine.node(driver.now, event);
                driver.drain();
                let used = play(&mut driver, &mut Random(1), 50.0, |_, _| true);
                assert!(
                    used.by[0][0] > 45.0 && used.taken[0] > 0.9,
                    "{:?}, {event:?}: {used:?}",
                    discipline.precedence
                );
                // When it accepts requests again it gets its share from then on, and no more.
                driver.engine.node(driver.now, NodeEvent::Up(NodeId(1)));
                driver.engine.node(driver.now, NodeEvent::Resumed(NodeId(1)));
                driver.drain();
                play(&mut driver, &mut Random(2), 4.0, |_, _| true);
                let used = play(&mut driver, &mut Random(3), 200.0, |_, _| true);
                let due = 1.0 / classes as f64;
                assert!((used.part(0, 0) / due - 1.0).abs() < 0.1, "{:?}: {}", discipline.precedence, used.part(0, 0));
            }
        }
    }
}

/// An upstream that is full by its own bound does not hold up the other one either, even while its requests
/// in flight never end.
#[test]
fn a_class_at_its_own_bound_blocks_no_other() {
    for discipline in [Discipline::mqos(), drfq()] {
        let mut driver = two_upstreams(discipline.clone(), &[1.0, 1.0], Some(2));
        let (small, poll) = (shares(CPU), shares([0.01, 0.0, 0.0]));
        (0..30).for_each(|_| assert!(driver.arrive(1, poll)));
        driver.drain();
        (0..30).for_each(|_| assert!(driver.arrive(0, small)));
        driver.drain();
        let mut random = Random(4);
        for step in 0..2_000 {
            let small: Vec<usize> = (0..driver.in_flight.len())
                .filter(|at| driver.requests[driver.in_flight[*at].0 as usize].0 == 0)
                .collect();
            assert!(small.len() >= 9, "{:?}, step {step}: {} in flight", discipline.precedence, small.len());
            driver.end(small[random.below(small.len() as u64) as usize], Outcome::LastByte { status: 200 });
            assert!(driver.arrive(0, shares(CPU)));
            driver.drain();
        }
    }
}

/// Requests of the paper's three classes keep all three resources in use.
#[test]
fn nothing_is_idle_under_saturation() {
    let all: Vec<(u32, [f64; 3])> = (0..3).flat_map(|class| KINDS.map(|kind| (class, kind))).collect();
    let used = play(&mut site(&[6.0, 3.0, 1.0], &all), &mut Random(9), 1_000.0, |_, _| true);
    println!("taken: {:.4?}", used.taken);
    assert!(used.taken.iter().all(|taken| *taken > 0.92), "{:?}", used.taken);
}

/// A request that needs nearly all of a node makes one of ten nodes wait for it.
#[test]
fn a_large_request_waits_for_one_node_and_not_for_all() {
    let run = |large: bool| {
        let site = Site { weights: vec![1.0, 1.0], nodes: vec![1.0; 10], ..Site::default() };
        let mut driver = Driver::new(site.engine(drfq()));
        driver.fill(0, 200, &CPU);
        driver.drain();
        let mut random = Random(8);
        let (mut taken, mut served) = (0.0, 0);
        for _ in 0..40 {
            if large {
                assert!(driver.arrive(1, shares([0.95, 0.0, 0.0])));
            }
            let used = play(&mut driver, &mut random, 30.0, |class, _| class == 0);
            taken += used.taken[0] / 40.0;
            served += usize::from(used.by.get(1).is_some_and(|of| of[0] > 0.9));
        }
        (taken, served)
    };
    let ((with, served), (without, _)) = (run(true), run(false));
    assert!(served >= 38, "{served} of 40 were served");
    println!("taken: {with:.3} with large requests, {without:.3} without");
    // Nodes are emptied one after the other, each in the time that its last requests take to end.
    assert!(with > without - 0.11, "taken: {with:.3} with large requests, {without:.3} without");
}

/// Resources reserved for a request are free again when it leaves.
#[test]
fn nothing_is_kept_for_a_request_that_left() {
    let mut driver = Driver::new(Site { weights: vec![1.0, 1.0], ..Site::default() }.engine(drfq()));
    driver.fill(0, 60, &CPU);
    driver.drain();
    assert!(driver.arrive(1, shares([0.95, 0.0, 0.0])));
    let large = driver.requests.len() as u64 - 1;
    let mut random = Random(2);
    // Runs until the node is being emptied for it.
    while driver.taken(0, 0) > 860_000_000 {
        for (class, demand) in driver.turn(|n| random.below(n)) {
            assert!(class == 0 && driver.arrive(class, demand), "it comes before it was kept for");
        }
    }
    let at = driver.waiting.iter().position(|(token, _)| *token == large).expect("it waits");
    driver.leave(at);
    driver.drain();
    assert!(driver.taken(0, 0) > 860_000_000, "nothing is kept any more: {}", driver.taken(0, 0));
}

/// A second attempt needs room at another node. Without it the request ends, and a waiting one takes its place.
#[test]
fn a_retry_takes_room_at_another_node_or_gives_its_own_to_the_next() {
    let ended = |nodes: Vec<f64>, requests: usize| {
        let mut policy = Site { weights: vec![1.0], nodes, ..Site::default() }.policy(Discipline::mqos());
        policy.nodes.iter_mut().for_each(|node| node.max_outstanding = Some(10));
        let mut driver = Driver::new(Engine::new(Time::ZERO, policy, 1).expect("a valid policy"));
        driver.fill(0, requests, &[0.1, 0.0, 0.0]);
        driver.drain();
        assert_eq!(driver.in_flight.len(), 10);
        driver.now = driver.now + Duration::from_secs(1);
        driver.end(0, Outcome::Failed { retryable: true });
        driver.drain();
        driver.check(&[1.0]);
        let retried = driver.engine.classes(driver.now, ClassId(0), 1)[0].retried;
        (driver.in_flight.len(), driver.waiting.len(), retried)
    };
    assert_eq!(ended(vec![1.0], 20), (10, 9, 0));
    assert_eq!(ended(vec![1.0, 1.0], 10), (10, 0, 1));
}

/// After nodes are lost, rounds and turns become shorter, because there is less capacity to share.
#[test]
fn a_round_deals_what_the_nodes_that_are_left_have() {
    let site = Site { weights: vec![1.0, 1.0], nodes: vec![1.0; 10], ..Site::default() };
    let mut driver = Driver::new(site.engine(Discipline::mqos()));
    (1..10).for_each(|node| driver.engine.node(driver.now, NodeEvent::Down(NodeId(node))));
    [0, 1].iter().for_each(|class| driver.fill(*class, 200, &CPU));
    driver.drain();
    // Runs beyond the first quantum, which ten nodes provided.
    play(&mut driver, &mut Random(1), 20.0, |_, _| true);
    let (mut longest, mut run, mut last) = (0.0_f64, 0.0, 0);
    let mut random = Random(6);
    for _ in 0..400 {
        for (class, demand) in driver.turn(|n| random.below(n)) {
            run = if class == last { run } else { 0.0 } + demand.share(0);
            (longest, last) = (longest.max(run), class);
            assert!(driver.arrive(class, demand));
        }
    }
    assert!(longest < 1.3, "{longest} node-seconds of one class in a row");
}

/// A learned cost that exceeds a node may be wrong, and only an answer can tell. Such a request gets a node
/// of its own. A declared cost that exceeds a node is refused.
#[test]
fn an_estimate_above_a_nodes_capacity_locks_no_class_out() {
    for estimated in [true, false] {
        let site = Site { weights: vec![1.0], nodes: vec![1.0, 2.0], ..Site::default() };
        let policy = Policy { estimated, ..site.policy(Discipline::mqos()) };
        let mut driver = Driver::new(Engine::new(Time::ZERO, policy, 1).expect("a valid policy"));
        assert_eq!(driver.arrive(0, shares([2.5, 0.1, 0.0])), estimated);
        driver.drain();
        let snapshot = driver.engine.snapshot(driver.now);
        let left = if estimated { [0.0, 0.95] } else { [1.0, 1.0] };
        assert_eq!(snapshot.nodes[1].available[..2], left);
        assert_eq!(snapshot.outstanding, u32::from(estimated));
    }
}

/// Adding a page table to a policy, or removing it, leaves the sizes of windows unchanged.
#[test]
fn a_page_table_that_comes_or_goes_leaves_windows_as_they_were() {
    for discipline in [Discipline::quorum(), Discipline::weirgate()] {
        let priced = Site { weights: vec![1.0], nodes: vec![1.0; 4], ..Site::default() }.policy(discipline);
        let plain = Policy { resources: Vec::new(), ..priced.clone() };
        let mut engine = Engine::new(Time::ZERO, plain.clone(), 1).expect("a valid policy");
        let mut now = Time::ZERO;
        let mut in_flight = std::collections::VecDeque::new();
        // Answers take longer with more than eight requests in flight at each of four nodes.
        for step in 0..40_000u64 {
            now = now + Duration::from_micros(500);
            let arrival =
                Arrival { class: ClassId(0), flow: step, demand: None, locality_key: None, position: 0, token: step };
            if let Decision::Release { ticket, .. } = engine.arrive(now, arrival) {
                in_flight.push_back((ticket, now));
            }
            while let Some(action) = engine.poll(now) {
                if let Action::Release { ticket, .. } = action {
                    in_flight.push_back((ticket, now));
                }
            }
            let stay = Duration::from_millis(10 * (in_flight.len() as u64).max(32) / 32);
            while in_flight.front().is_some_and(|(_, from)| now.since(*from) >= stay) {
                let (ticket, _) = in_flight.pop_front().expect("it is there");
                engine.observe(now, ticket, Outcome::LastByte { status: 200 });
            }
        }
        let size = |engine: &Engine| engine.snapshot(now).window.expect("there is one");
        let before = size(&engine);
        assert!(before > 20, "{before}");
        engine.reconfigure(now, priced).expect("a valid policy");
        let with = size(&engine);
        engine.reconfigure(now, plain).expect("a valid policy");
        let without = size(&engine);
        for after in [with, without] {
            assert!(after.abs_diff(before) <= before / 3 + 2, "{before}, then {with}, then {without}");
        }
    }
}

/// Classes that need several resources at once, some of which no other class needs, with random arrivals. The
/// classes that always wait for the scarce disk get their shares of it.
#[test]
fn open_arrivals_of_any_mix_have_their_parts_of_what_is_short() {
    // Costs of each route. A stream is its class, its route and its requests per second.
    let routes = [[0.0212, 0.0489, 0.0], [0.0126, 0.0248, 0.00207], [0.00808, 0.0, 0.0], [0.0129, 0.0, 0.0131]];
    let streams = [
        (0, 1, 11.4),
        (1, 0, 72.5),
        (1, 1, 44.7),
        (2, 0, 20.7),
        (2, 2, 12.3),
        (3, 3, 15.4),
        (4, 1, 10.1),
        (5, 0, 90.8),
    ];
    // The fourth class also has this many clients, each of which sends its next request at once.
    const CLIENTS: usize = 44;
    // Maximum number of waiting requests of a stream.
    const MAX: usize = 300;
    /// Answers per second of all nodes.
    const ANSWERS: f64 = 220.0;
    let weights = [1.0, 10.0, 3.0, 1.0, 3.0, 10.0];
    let site = Site { weights: weights.to_vec(), nodes: vec![1.0; 5], ..Site::default() };
    let mut driver = Driver::new(site.engine(drfq()));
    let mut random = Random(12);
    let mut waiting = [0; 8];
    let (mut disk, mut after) = ([0.0; 6], 0.0);
    let (mut clients, mut stream_of) = (CLIENTS, Vec::new());
    for step in 0..30_000 {
        for (stream, (class, route, rate)) in streams.iter().enumerate() {
            if waiting[stream] < MAX && random.unit() < rate / ANSWERS {
                assert!(driver.arrive(*class, shares(routes[*route])));
                stream_of.push(Some(stream));
                waiting[stream] += 1;
            }
        }
        for _ in 0..std::mem::take(&mut clients) {
            assert!(driver.arrive(3, shares(routes[2])));
            stream_of.push(None);
        }
        driver.drain();
        let at = random.below(driver.in_flight.len() as u64) as usize;
        clients = usize::from(stream_of[driver.in_flight[at].0 as usize].is_none());
        driver.end(at, Outcome::LastByte { status: 200 });
        driver.drain();
        for token in std::mem::take(&mut driver.released) {
            let (class, demand) = driver.requests[token as usize];
            if let Some(stream) = stream_of[token as usize] {
                waiting[stream] -= 1;
            }
            if step >= 10_000 {
                disk[class as usize] += demand.share(1) / weights[class as usize];
                after += demand.share(1);
            }
        }
    }
    // The first, second, third and sixth class always wait for the disk.
    let due = [0, 1, 2, 5].map(|class| disk[class]);
    let mean = due.iter().sum::<f64>() / 4.0;
    assert!(due.iter().all(|had| (had / mean - 1.0).abs() < 0.05), "{due:?} of {after}");
}
