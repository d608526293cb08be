//! The web-switch policies in virtual time: SwitchAdm, StaticPart and DynamicPart (Andreolini et al.).

mod support;

use std::time::Duration;

use support::*;
use weirgate_engine::*;

const EVERY: Duration = Duration::from_secs(10);

/// The four classes of the paper: 5 ms static, 50 ms dynamic. For the top classes, 95 % within 0.6 s and 1 s.
fn classes() -> Vec<Class> {
    let p95 = |limit| Some((Statistic::Percentile(95.0), limit));
    let with =
        |name, throughput, limit, service, content| Class { content, ..class(name, throughput, limit, Some(service)) };
    vec![
        with("top_static", Some(100.0), p95(600), 5, Content::Static),
        with("top_dynamic", Some(40.0), p95(1000), 50, Content::Dynamic),
        with("normal_static", None, None, 5, Content::Static),
        with("normal_dynamic", None, None, 50, Content::Dynamic),
    ]
}

/// Six nodes with two CPUs, as in the paper.
fn cluster(name: &str, dispatch: Dispatch, source: LoadSource) -> Policy {
    let classes = classes();
    let figures = ServerLoad { source, ..ServerLoad::derived(&classes.iter().collect::<Vec<_>>()) };
    let mut policy = policy(Discipline::web_switch(name, figures), 6, classes);
    policy.pools[0].dispatch = dispatch;
    for node in &mut policy.nodes {
        node.capacity = Some(2.0);
    }
    policy
}

fn dynamic() -> Dispatch {
    Dispatch::PartitionDynamic { sizes: None, resize: Resize::default() }
}

fn load(rate: f64, demand_ms: f64) -> Load {
    Load { rate, demand: demand_ms / 1e3, exponential: true }
}

fn sizes(engine: &Engine, now: Time) -> Vec<u32> {
    engine.snapshot(now).divided_pools[0].partitions.iter().map(|partition| partition.nodes).collect()
}

fn arrive(engine: &mut Engine, now: Time, class: u32) -> Decision {
    engine.arrive(now, arrival(class, 0, 0))
}

fn run_to(engine: &mut Engine, now: Time) {
    while engine.poll(now).is_some() {}
}

#[test]
fn only_normal_classes_are_refused_and_only_beyond_the_threshold() {
    let mut policy = cluster("switch_adm", Dispatch::WeightedRoundRobin, LoadSource::Live);
    let Admit::ServerLoad(figures) = &mut policy.discipline.admit else { panic!("a web switch") };
    (figures.threshold, figures.omega) = (2.0, 10.0);
    let mut engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
    // 12 CPUs: two dynamic requests and four static ones make a load of exactly 2, which does not exceed the
    // threshold.
    let mut tickets = Vec::new();
    for class in [3, 3, 2, 2, 2, 2] {
        let Decision::Release { ticket, .. } = arrive(&mut engine, Time::ZERO, class) else { panic!("it is idle") };
        tickets.push(ticket);
    }
    let Decision::Release { ticket: last, .. } = arrive(&mut engine, Time::ZERO, 2) else {
        panic!("2 is not beyond 2")
    };
    for normal in [2, 3] {
        let Decision::Shed(shed) = arrive(&mut engine, Time::ZERO, normal) else { panic!("beyond the threshold") };
        assert_eq!(shed.reason, ShedReason::ServerLoad);
    }
    for top in [0, 1] {
        assert!(matches!(arrive(&mut engine, Time::ZERO, top), Decision::Release { .. }), "top users are served");
    }
    for ticket in tickets.into_iter().chain([last]) {
        engine.observe(Time::from_millis(1), ticket, Outcome::LastByte { status: 200 });
    }
    assert!(matches!(arrive(&mut engine, Time::from_millis(2), 3), Decision::Release { .. }));
}

#[test]
fn what_a_failed_node_holds_does_not_count_nor_do_its_cpus() {
    let mut policy = cluster("switch_adm", Dispatch::WeightedRoundRobin, LoadSource::Reports { every: EVERY });
    policy.nodes.truncate(2);
    let Admit::ServerLoad(figures) = &mut policy.discipline.admit else { panic!("a web switch") };
    (figures.threshold, figures.omega) = (4.0, 10.0);
    let mut engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
    let report =
        |n, static_content, dynamic_content| NodeEvent::Load { node: NodeId(n), static_content, dynamic_content };
    let refused = |engine: &mut Engine| matches!(arrive(engine, Time::ZERO, 2), Decision::Shed(_));
    assert!(!refused(&mut engine), "a node without a report has no load");
    engine.node(Time::ZERO, report(0, 3, 1));
    assert!(
        !refused(&mut engine),
        "13 on 4 CPUs make 3.25 with nothing on the other node's: {:?}",
        engine.snapshot(Time::ZERO)
    );
    engine.node(Time::ZERO, report(1, 0, 1));
    assert!(refused(&mut engine), "23 on 4 CPUs");
    engine.node(Time::ZERO, report(1, 0, 0));
    engine.node(Time::ZERO, report(0, 40, 1));
    assert!(refused(&mut engine));
    engine.node(Time::ZERO, NodeEvent::Down(NodeId(0)));
    assert!(!refused(&mut engine), "what is left is idle");
}

/// The offered load is twice the capacity, nearly all of it from normal users. Top users keep their limits,
/// which a plain round robin does not achieve.
#[test]
fn top_users_keep_their_limits_in_an_overload() {
    let loads = vec![load(100.0, 5.0), load(40.0, 50.0), load(400.0, 5.0), load(400.0, 50.0)];
    let p95 = |policy: Policy| {
        let mut bench = Bench::new(policy, 2.0, loads.clone(), 7);
        bench.run(60.0);
        let tally = &bench.tallies;
        (
            percentile(&tally[0].served, 0.95),
            percentile(&tally[1].served, 0.95),
            tally.iter().map(|t| t.shed).collect::<Vec<_>>(),
        )
    };
    let mut plain = cluster("none", Dispatch::WeightedRoundRobin, LoadSource::Live);
    plain.discipline = Discipline::none();
    let (cheap, expensive, shed) = p95(plain);
    assert!(cheap > 0.6 && expensive > 1.0 && shed == [0; 4], "{cheap} {expensive}");
    for (name, dispatch) in [
        ("switch_adm", Dispatch::WeightedRoundRobin),
        ("static_part", Dispatch::PartitionStatic { sizes: None }),
        ("dynamic_part", dynamic()),
    ] {
        let (cheap, expensive, shed) = p95(cluster(name, dispatch, LoadSource::Live));
        assert!(cheap < 0.6 && expensive < 1.0, "{name}: {cheap} {expensive}");
        assert_eq!(shed[..2], [0, 0], "{name}");
        assert!(shed[3] > 5_000, "{name}: {shed:?}");
    }
}

#[test]
fn parts_follow_the_demand_and_the_busy_share() {
    // Top dynamic: 40/s × 50 ms = 2 CPUs, and 10/s at first. Normal dynamic asks for 4 CPUs.
    let loads = vec![load(50.0, 5.0), load(10.0, 50.0), load(50.0, 5.0), load(80.0, 50.0)];
    let mut bench = Bench::new(cluster("dynamic_part", dynamic(), LoadSource::Live), 2.0, loads, 3);
    bench.run(25.0);
    let now = |bench: &Bench| Time::from_nanos((bench.now * 1e9) as u64);
    assert_eq!(sizes(&bench.engine, now(&bench)), [1, 1, 1, 3]);
    // 100/s × 50 ms = 5 CPUs, 6.25 at 80 %. At most three nodes are available, because the other sets keep
    // one each.
    bench.set_rate(1, 100.0);
    bench.run(45.0);
    assert_eq!(sizes(&bench.engine, now(&bench)), [1, 3, 1, 1]);
    let snapshot = bench.engine.snapshot(now(&bench));
    assert!((snapshot.divided_pools[0].partitions[1].demand - 5.0).abs() < 0.6, "{:?}", snapshot.divided_pools[0]);
    bench.set_rate(1, 10.0);
    bench.run(75.0);
    assert_eq!(sizes(&bench.engine, now(&bench)), [1, 1, 1, 3]);
    let moves = bench.engine.snapshot(now(&bench)).divided_pools[0].moves;
    assert!((4..=8).contains(&moves), "{moves}: two there, two back, and the first look");
    // A constant demand moves no node.
    bench.run(175.0);
    assert_eq!(bench.engine.snapshot(now(&bench)).divided_pools[0].moves, moves);
}

#[test]
fn a_request_inside_a_node_that_moves_finishes_there() {
    let mut engine =
        Engine::new(Time::ZERO, cluster("dynamic_part", dynamic(), LoadSource::Live), 1).expect("a valid policy");
    let mut in_flight = Vec::new();
    for _ in 0..12 {
        let Decision::Release { ticket, node } = arrive(&mut engine, Time::ZERO, 1) else { panic!("top users") };
        in_flight.push((ticket, node));
    }
    let set_of = |engine: &Engine, node: NodeId| engine.snapshot(Time::from_millis(9_999)).nodes[node.0 as usize].set;
    assert!(in_flight.iter().all(|(_, node)| set_of(&engine, *node) == Some(ServiceSet::TopDynamic)));
    // From now on only normal users send requests.
    for tenth in 0..200 {
        arrive(&mut engine, Time::from_millis(10_000 + tenth * 50), 3);
        run_to(&mut engine, Time::from_millis(10_000 + tenth * 50));
    }
    run_to(&mut engine, Time::from_millis(20_000));
    let moved = in_flight.iter().filter(|(_, node)| set_of(&engine, *node) != Some(ServiceSet::TopDynamic)).count();
    assert!(moved > 0, "{:?}", engine.snapshot(Time::ZERO).divided_pools);
    for (ticket, node) in in_flight {
        let before = engine.snapshot(Time::ZERO).nodes[node.0 as usize].outstanding;
        engine.observe(Time::from_millis(20_001), ticket, Outcome::LastByte { status: 200 });
        assert_eq!(engine.snapshot(Time::ZERO).nodes[node.0 as usize].outstanding, before - 1);
    }
}

#[test]
fn a_failed_node_leaves_at_once_and_one_that_returns_is_given_where_it_is_needed() {
    let mut engine =
        Engine::new(Time::ZERO, cluster("dynamic_part", dynamic(), LoadSource::Live), 1).expect("a valid policy");
    let now = Time::from_millis(1);
    let before = engine.snapshot(now);
    let of = |engine: &Engine, set| {
        let nodes = engine.snapshot(now).nodes;
        nodes.iter().filter(|n| n.set == Some(set) && n.state == NodeState::Up).map(|n| n.node).collect::<Vec<_>>()
    };
    // Top static has one node. Without it another set gives one.
    let [alone] = of(&engine, ServiceSet::TopStatic)[..] else { panic!("{before:?}") };
    engine.node(now, NodeEvent::Down(alone));
    assert_eq!(of(&engine, ServiceSet::TopStatic).len(), 1);
    assert!(matches!(arrive(&mut engine, now, 0), Decision::Release { .. }));
    assert_eq!(sizes(&engine, now).iter().sum::<u32>(), 5);
    engine.node(now, NodeEvent::Up(alone));
    assert_eq!(sizes(&engine, now).iter().sum::<u32>(), 6);
    assert_eq!(
        sizes(&engine, now),
        before.divided_pools[0].partitions.iter().map(|partition| partition.nodes).collect::<Vec<_>>(),
        "the same demand asks for the same parts"
    );
    // A static partition keeps its sets. If all nodes of a set fail, its service is unavailable.
    let fixed = cluster("static_part", Dispatch::PartitionStatic { sizes: None }, LoadSource::Live);
    let mut engine = Engine::new(Time::ZERO, fixed, 1).expect("a valid policy");
    let [alone] = of(&engine, ServiceSet::TopStatic)[..] else { panic!("one node") };
    engine.node(now, NodeEvent::Down(alone));
    let Decision::Shed(shed) = arrive(&mut engine, now, 0) else { panic!("nobody serves it") };
    assert_eq!(shed.reason, ShedReason::NoNode);
}

#[test]
fn a_static_division_follows_the_guarantees_or_its_sizes() {
    let sizes_of = |sizes, change: &dyn Fn(&mut Policy)| {
        let mut policy = cluster("static_part", Dispatch::PartitionStatic { sizes }, LoadSource::Live);
        change(&mut policy);
        let engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
        self::sizes(&engine, Time::ZERO)
    };
    // 0.5 and 2 CPUs are guaranteed, 0.6 and 2.5 with headroom. The normal sets share the rest one to four.
    assert_eq!(sizes_of(None, &|_| ()), [1, 2, 1, 2]);
    assert_eq!(sizes_of(Some([2.0, 1.0, 2.0, 1.0]), &|_| ()), [2, 1, 2, 1]);
    let twice = |policy: &mut Policy| policy.classes[1].guarantee.throughput = Some(100.0);
    assert_eq!(sizes_of(None, &twice), [1, 3, 1, 1]);
    let unknown = |policy: &mut Policy| policy.classes.iter_mut().for_each(|class| class.service_time = None);
    assert_eq!(sizes_of(None, &unknown).iter().max(), Some(&2));
}

#[test]
fn a_reload_keeps_the_parts_where_the_sets_are_the_same() {
    let loads = vec![load(50.0, 5.0), load(100.0, 50.0), load(50.0, 5.0), load(80.0, 50.0)];
    let policy = cluster("dynamic_part", dynamic(), LoadSource::Live);
    let mut bench = Bench::new(policy.clone(), 2.0, loads, 3);
    bench.run(15.0);
    let now = Time::from_millis(15_000);
    let sets = |engine: &Engine| engine.snapshot(now).nodes.iter().map(|n| (n.name.clone(), n.set)).collect::<Vec<_>>();
    let before = (sets(&bench.engine), sizes(&bench.engine, now), bench.engine.snapshot(now).divided_pools[0].moves);
    let fresh = Engine::new(Time::ZERO, policy.clone(), 1).expect("a valid policy");
    assert_ne!(sizes(&fresh, Time::ZERO), before.1, "the demand has moved something");
    bench.engine.reconfigure(now, policy.clone()).expect("a valid policy");
    let after = (sets(&bench.engine), sizes(&bench.engine, now), bench.engine.snapshot(now).divided_pools[0].moves);
    assert_eq!(after, before);
    // An additional node replaces no other. Without a set, its nodes are divided among the others.
    let mut larger = policy.clone();
    larger.nodes.insert(0, Node { capacity: Some(2.0), ..Node::new("new", 0) });
    bench.engine.reconfigure(now, larger).expect("a valid policy");
    assert_eq!(sizes(&bench.engine, now).iter().sum::<u32>(), 7);
    let kept = sets(&bench.engine);
    assert_eq!(kept[1..], before.0[..]);
    let mut fewer = policy;
    fewer.classes.remove(2);
    bench.engine.reconfigure(now, fewer).expect("a valid policy");
    assert_eq!(sizes(&bench.engine, now).len(), 3);
    assert_eq!(sizes(&bench.engine, now).iter().sum::<u32>(), 6);
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let refused = |change: &dyn Fn(&mut Policy)| {
        let mut policy = cluster("dynamic_part", dynamic(), LoadSource::Live);
        change(&mut policy);
        Engine::new(Time::ZERO, policy, 1).expect_err("an invalid policy").to_string()
    };
    assert!(refused(&|p| p.nodes.truncate(3)).contains("3 nodes cannot be divided over 4 sets"));
    assert!(refused(&|p| p.discipline = Discipline::weirgate()).contains("not window_adaptive"));
    let never = Resize { every: Duration::ZERO, ..Resize::default() };
    assert!(
        refused(&|p| p.pools[0].dispatch = Dispatch::PartitionDynamic { sizes: None, resize: never })
            .contains("time > 0")
    );
    assert!(
        refused(&|p| p.pools[0].dispatch = Dispatch::PartitionStatic { sizes: Some([1.0, 0.0, 1.0, 1.0]) })
            .contains("sizes")
    );
}
