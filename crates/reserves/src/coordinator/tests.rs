//! Tests of the coordinator with a simulated clock and simulated nodes.

use proptest::prelude::*;

use super::*;
use crate::solve;
use crate::tracker::{Tracker, WINDOW};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn settings(nodes: usize, desired: &[f64]) -> Settings {
    let placed = vec![vec![true; desired.len()]; nodes];
    Settings { desired: desired.to_vec(), placed, every: Some(ms(5_000)), on_demand: true }
}

/// The report of a node with these shares that used all of them, or half of the first and all of the others.
fn report(run: u64, shares: &[f64], idle: bool) -> Measured {
    let mut usage = shares.to_vec();
    if idle {
        usage[0] /= 2.0;
    }
    let sink = usage.iter().zip(shares).map(|(u, r)| u >= r).collect();
    Measured { run, seconds: 0.25, allocation: shares.to_vec(), usage, sink, wants: None }
}

/// Solves the problem that is due and returns the shares that are handed out.
fn run(coordinator: &mut Coordinator, now: Duration) -> Vec<Shares> {
    let problem = coordinator.poll_run(now).expect("a run is due");
    coordinator.solved(now, solve(&problem), ms(1));
    std::iter::from_fn(|| coordinator.poll_shares()).collect()
}

/// Two nodes and two classes after the first run at 3 s.
fn two() -> Coordinator {
    let mut coordinator = Coordinator::new(ms(0), settings(2, &[50.0, 50.0]));
    for node in 0..2 {
        coordinator.connected(node);
        coordinator.reported(ms(2_900), node, report(0, &[50.0, 50.0], false));
    }
    assert_eq!(run(&mut coordinator, ms(3_000)).len(), 2);
    coordinator
}

#[test]
fn a_new_coordinator_lets_the_nodes_gather() {
    let mut coordinator = Coordinator::new(ms(0), settings(2, &[50.0, 50.0]));
    assert_eq!(coordinator.poll_run(ms(5_000)), None, "nobody is there");
    coordinator.connected(0);
    coordinator.reported(ms(100), 0, report(0, &[50.0, 50.0], false));
    assert_eq!(coordinator.poll_run(ms(200)), None);
    let mut all = coordinator.clone();
    all.connected(1);
    all.reported(ms(300), 1, report(0, &[50.0, 50.0], false));
    assert_eq!(all.poll_run(ms(300)).map(|problem| problem.usage.len()), Some(2), "nobody is missing");

    coordinator.reported(ms(1_900), 0, report(0, &[50.0, 50.0], false));
    assert_eq!(coordinator.poll_run(ms(1_999)), None);
    assert_eq!(coordinator.next_timeout(ms(1_999)), Some(GATHERING));
    assert_eq!(coordinator.poll_run(GATHERING).map(|problem| problem.usage.len()), Some(1));
}

#[test]
fn without_news_it_runs_when_it_is_time() {
    let mut coordinator = two();
    let mut runs = Vec::new();
    for at in (3_100..14_000).step_by(100).map(ms) {
        for node in 0..2 {
            let (number, shares) = (coordinator.last_run, coordinator.nodes[node].given.clone().unwrap());
            coordinator.reported(at, node, report(number, &shares, false));
        }
        if let Some(problem) = coordinator.poll_run(at) {
            runs.push(at);
            coordinator.solved(at, solve(&problem), ms(1));
            while coordinator.poll_shares().is_some() {}
        }
    }
    assert_eq!(runs, [ms(8_000), ms(13_000)]);
    assert_eq!(coordinator.ledger().runs.by_cause()[..1], [("periodic", 2)]);
}

#[test]
fn a_run_on_demand_waits_for_a_window_after_the_last_shares() {
    let mut coordinator = two();
    let mut asks = report(0, &[50.0, 50.0], true);
    asks.wants = Some(Trigger::SinkEnded { class: 0 });
    // Sent before the new shares were set: the question is remembered, but the report is not used.
    coordinator.reported(ms(3_050), 0, asks);
    coordinator.reported(ms(3_050), 1, report(1, &[50.0, 50.0], false));
    assert_eq!(coordinator.poll_run(ms(3_060)), None);
    coordinator.reported(ms(3_300), 0, report(1, &[50.0, 50.0], true));
    let problem = coordinator.poll_run(ms(3_300)).expect("both have measured the last shares");
    assert_eq!(problem.usage, [[25.0, 50.0], [50.0, 50.0]]);
    assert_eq!(problem.sink, [[false, true], [true, true]]);
    assert_eq!(coordinator.poll_run(ms(3_301)), None, "one run at a time");
    coordinator.solved(ms(3_400), solve(&problem), ms(100));
    let finished = coordinator.ledger().finished.back().expect("a run");
    assert_eq!(finished.cause, Cause::Asked { node: 0, trigger: Trigger::SinkEnded { class: 0 } });
    assert!(finished.moved > 20.0, "class 0 is given more on node 1: {finished:?}");
    assert_eq!(coordinator.poll_run(ms(3_400)), None);
}

#[test]
fn a_node_that_cannot_set_shares_does_not_hold_up_the_others() {
    let mut coordinator = two();
    for at in [3_400, 3_700, 3_999, 4_000].map(ms) {
        coordinator.reported(at, 0, report(0, &[60.0, 40.0], false));
        let mut asks = report(1, &[50.0, 50.0], false);
        asks.wants = Some(Trigger::Fell { class: 1 });
        coordinator.reported(at, 1, asks);
        assert_eq!(coordinator.poll_run(at).is_some(), at == ms(4_000), "{at:?}");
    }
}

#[test]
fn down_nodes_are_left_out_and_their_return_is_a_reason() {
    let mut coordinator = two();
    coordinator.disconnected(1);
    coordinator.reported(ms(3_300), 0, report(1, &[50.0, 50.0], false));
    assert_eq!(run(&mut coordinator, ms(3_300)).iter().map(|shares| shares.node).collect::<Vec<_>>(), [0]);
    assert_eq!(coordinator.ledger().finished.back().map(|run| run.cause), Some(Cause::Left { node: 1 }));

    coordinator.connected(1);
    coordinator.reported(ms(3_600), 0, report(2, &[50.0, 50.0], false));
    assert_eq!(coordinator.poll_run(ms(3_600)), None, "it has not reported yet");
    coordinator.reported(ms(3_700), 1, report(1, &[50.0, 50.0], false));
    assert_eq!(run(&mut coordinator, ms(3_700)).len(), 2);
    assert_eq!(coordinator.ledger().finished.back().map(|run| run.cause), Some(Cause::Joined { node: 1 }));

    // A silent node counts as down, and a timer detects it.
    coordinator.reported(ms(4_400), 0, report(3, &[50.0, 50.0], false));
    coordinator.reported(ms(4_000), 1, report(3, &[50.0, 50.0], false));
    assert_eq!(coordinator.poll_run(ms(4_999)), None);
    assert_eq!(coordinator.next_timeout(ms(4_999)), Some(ms(5_000)));
    assert_eq!(coordinator.poll_run(ms(5_000)).map(|problem| problem.usage.len()), Some(1));
}

#[test]
fn shares_that_a_broken_connection_swallowed_are_made_good() {
    let mut coordinator = two();
    coordinator.connected(1);
    for node in 0..2 {
        coordinator.reported(ms(3_300), node, report(u64::from(node == 0), &[50.0, 50.0], false));
    }
    let shares = run(&mut coordinator, ms(3_300));
    assert_eq!(shares.iter().map(|shares| (shares.node, shares.run)).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
}

#[test]
fn a_new_coordinator_counts_on_from_the_runs_in_force() {
    let mut coordinator = Coordinator::new(ms(0), settings(2, &[50.0, 50.0]));
    for (node, run, shares) in [(0, 41, [70.0, 30.0]), (1, 40, [30.0, 70.0])] {
        coordinator.connected(node);
        coordinator.reported(ms(100), node, report(run, &shares, false));
    }
    let shares = run(&mut coordinator, ms(200));
    assert!(shares.iter().all(|shares| shares.run == 42), "{shares:?}");
    // The new coordinator starts from the shares in force. The nodes become slightly more alike.
    assert!(shares[0].shares[0] < 70.0 && shares[0].shares[0] > 60.0, "{shares:?}");
    // The largest possible run number does no harm.
    for node in 0..2 {
        coordinator.reported(ms(5_200), node, report(u64::MAX, &[50.0, 50.0], false));
    }
    assert!(run(&mut coordinator, ms(5_200)).iter().all(|shares| shares.run == u64::MAX));
}

#[test]
fn a_node_is_not_heard_about_the_same_again_and_again() {
    let mut coordinator = two();
    let mut runs = 0;
    let mut ask = |at: u64, used: f64| {
        for node in 0..2 {
            let mut report = report(coordinator.last_run, &[50.0, 50.0], false);
            if node == 0 {
                report.usage[1] = used;
                report.wants = Some(Trigger::SinkEnded { class: 1 });
            }
            coordinator.reported(ms(at), node, report);
        }
        if let Some(problem) = coordinator.poll_run(ms(at)) {
            coordinator.solved(ms(at), solve(&problem), ms(1));
            runs += 1;
        }
        runs
    };
    assert_eq!(ask(3_300, 10.0), 1);
    assert_eq!(ask(3_600, 11.9), 1);
    assert_eq!(ask(3_900, 20.0), 2);
    assert_eq!(ask(4_200, 10.0), 2);
    assert_eq!(ask(5_299, 10.0), 2);
    assert_eq!(ask(5_300, 10.0), 3);
    assert_eq!(coordinator.ledger().runs.asked, 6);
}

#[test]
fn a_run_that_comes_to_nothing_changes_nothing_and_is_tried_again() {
    let mut coordinator = two();
    let mut asks = report(1, &[50.0, 50.0], false);
    asks.wants = Some(Trigger::Fell { class: 0 });
    coordinator.reported(ms(3_300), 0, asks);
    coordinator.reported(ms(3_300), 1, report(1, &[50.0, 50.0], false));
    assert!(coordinator.poll_run(ms(3_300)).is_some());
    coordinator.solved(ms(3_400), Err(Error::Unsolved { missed: 1.0 }), ms(100));
    assert_eq!(coordinator.poll_shares(), None);
    assert_eq!(coordinator.ledger().failure, Some(Error::Unsolved { missed: 1.0 }));
    for node in 0..2 {
        coordinator.reported(ms(4_300), node, report(1, &[50.0, 50.0], false));
    }
    assert_eq!(coordinator.poll_run(ms(4_399)), None);
    assert_eq!(run(&mut coordinator, ms(4_400)).len(), 2);
    assert_eq!((coordinator.ledger().runs.failed, coordinator.ledger().failure.clone()), (1, None));
}

#[test]
fn a_class_has_shares_only_where_it_is() {
    let mut settings = settings(2, &[20.0, 40.0, 40.0]);
    settings.placed[1][0] = false;
    let mut coordinator = Coordinator::new(ms(0), settings);
    for (node, shares) in [(0, [40.0, 30.0, 30.0]), (1, [0.0, 50.0, 50.0])] {
        coordinator.connected(node);
        let mut report = report(0, &shares, false);
        // Whatever the node reports of a class that it does not have is ignored.
        (report.usage[0], report.sink[0]) = (shares[0].max(7.0), true);
        coordinator.reported(ms(100), node, report);
    }
    let problem = coordinator.poll_run(ms(100)).expect("both are there");
    assert_eq!((problem.usage[1][0], problem.sink[1][0]), (0.0, false));
    coordinator.solved(ms(100), solve(&problem), ms(1));
    let shares: Vec<Shares> = std::iter::from_fn(|| coordinator.poll_shares()).collect();
    assert!(shares[0].shares[0] > 38.0, "{shares:?}");
    assert_eq!(shares[1].shares[0], 0.0);
    assert!((shares[1].shares.iter().sum::<f64>() - 100.0).abs() < 1e-6, "{shares:?}");
}

/// A node as an agent sees it: the demands of its classes, and a scheduler that enforces shares.
struct Machine {
    tracker: Tracker,
    demand: Vec<f64>,
    shares: Vec<f64>,
    counters: Vec<u64>,
}

impl Machine {
    fn new(now: Duration, demand: Vec<f64>, shares: Vec<f64>) -> Machine {
        let counters = vec![0; demand.len()];
        Machine { tracker: Tracker::new(now, 1.0, &shares, &counters), demand, shares, counters }
    }

    /// Every class uses its demand up to its share. The rest goes to classes that want more, in proportion to
    /// their shares.
    fn work(&mut self, span: Duration) {
        let mut used = vec![0.0; self.demand.len()];
        let mut left = 100.0;
        let wants = |used: &[f64], class: usize| self.shares[class] > 0.0 && self.demand[class] - used[class] > 1e-9;
        while left > 1e-9 {
            let hungry: Vec<usize> = (0..used.len()).filter(|&class| wants(&used, class)).collect();
            let weight: f64 = hungry.iter().map(|&class| self.shares[class]).sum();
            if hungry.is_empty() {
                break;
            }
            let before = left;
            for class in hungry {
                let given = (before * self.shares[class] / weight).min(self.demand[class] - used[class]);
                used[class] += given;
                left -= given;
            }
        }
        for (counter, used) in self.counters.iter_mut().zip(used) {
            *counter += (used / 100.0 * span.as_nanos() as f64) as u64;
        }
    }

    fn apply(&mut self, now: Duration, shares: &Shares) {
        self.shares.clone_from(&shares.shares);
        self.tracker.apply(now, shares.run, &self.shares, &self.counters);
    }
}

/// Runs `machines` for `span` after `from` in steps of 10 ms. Shares arrive at once.
fn play(coordinator: &mut Coordinator, machines: &mut [Machine], from: Duration, span: Duration) -> Duration {
    let mut now = from;
    while now < from + span {
        now += ms(10);
        for (node, machine) in machines.iter_mut().enumerate() {
            machine.work(ms(10));
            if let Some(measured) = machine.tracker.measure(now, &machine.counters.clone()) {
                coordinator.reported(now, node, measured);
            }
        }
        if let Some(problem) = coordinator.poll_run(now) {
            coordinator.solved(now, solve(&problem), ms(1));
        }
        while let Some(shares) = coordinator.poll_shares() {
            machines[shares.node].apply(now, &shares);
        }
    }
    now
}

/// Returns the class's use of the cluster in the next second, in percent.
fn uses(coordinator: &mut Coordinator, machines: &mut [Machine], from: Duration, class: usize) -> f64 {
    let counted = |machines: &[Machine]| machines.iter().map(|machine| machine.counters[class]).sum::<u64>();
    let before = counted(machines);
    play(coordinator, machines, from, ms(1_000));
    (counted(machines) - before) as f64 / 1e9 * 100.0 / machines.len() as f64
}

#[test]
fn a_class_that_only_two_of_four_nodes_serve_has_its_share_of_the_cluster() {
    // Sec. 5.3: five classes with 20 % each. The first has requests on nodes 1 and 2 only.
    let demand = |node: usize| vec![if node < 2 { 100.0 } else { 0.0 }, 100.0, 100.0, 100.0, 100.0];
    let mut machines: Vec<Machine> = (0..4).map(|node| Machine::new(ms(0), demand(node), vec![20.0; 5])).collect();
    let mut coordinator = Coordinator::new(ms(0), settings(4, &[20.0; 5]));
    (0..4).for_each(|node| coordinator.connected(node));
    let now = play(&mut coordinator, &mut machines, ms(0), ms(30_000));
    let used = uses(&mut coordinator, &mut machines, now, 0);
    assert!(used > 18.5, "class 1 uses {used} % of the cluster");
}

#[test]
fn a_sparse_class_has_its_share_wherever_its_request_is() {
    // Sec. 5.4: five classes with 20 % each. The first has one request of 10 s at a time, each on another
    // node.
    let demand = |node: usize, busy: usize| vec![if node == busy { 100.0 } else { 0.0 }, 100.0, 100.0, 100.0, 100.0];
    let mut machines: Vec<Machine> = (0..4).map(|node| Machine::new(ms(0), demand(node, 0), vec![20.0; 5])).collect();
    let mut coordinator = Coordinator::new(ms(0), Settings { every: None, ..settings(4, &[20.0; 5]) });
    (0..4).for_each(|node| coordinator.connected(node));
    let mut now = play(&mut coordinator, &mut machines, ms(0), ms(10_000));
    let before: u64 = machines.iter().map(|machine| machine.counters[0]).sum();
    for busy in [1, 2, 3, 0, 1, 2] {
        for (node, machine) in machines.iter_mut().enumerate() {
            machine.demand = demand(node, busy);
        }
        now = play(&mut coordinator, &mut machines, now, ms(10_000));
    }
    let used: u64 = machines.iter().map(|machine| machine.counters[0]).sum::<u64>() - before;
    let percent = used as f64 / 1e9 / 60.0 / 4.0 * 100.0;
    assert!(percent > 18.5, "it uses {percent} % of the cluster");
}

#[test]
fn a_quiet_cluster_settles() {
    // No periodic runs, and demands of every kind: idle, modest, high. Nothing changes, so the questions end.
    let demands = [[100.0, 10.0, 0.0], [100.0, 100.0, 0.5], [20.0, 100.0, 100.0], [0.0, 5.0, 30.0]];
    let mut machines: Vec<Machine> =
        demands.iter().map(|demand| Machine::new(ms(0), demand.to_vec(), vec![50.0, 30.0, 20.0])).collect();
    let mut coordinator = Coordinator::new(ms(0), Settings { every: None, ..settings(4, &[50.0, 30.0, 20.0]) });
    (0..4).for_each(|node| coordinator.connected(node));
    let now = play(&mut coordinator, &mut machines, ms(0), ms(60_000));
    let before = coordinator.ledger().runs.done();
    assert!(before > 0);
    play(&mut coordinator, &mut machines, now, ms(60_000));
    let later = coordinator.ledger().runs.done() - before;
    assert_eq!(later, 0, "{:?}", coordinator.ledger().finished.iter().rev().take(4).collect::<Vec<_>>());
}

/// Possible events.
#[derive(Clone, Debug)]
enum Step {
    Connect(usize),
    Disconnect(usize),
    /// The node's demands change.
    Demand(usize, Vec<f64>),
    /// The node stops sending reports for a while, or sends them again.
    Hush(usize, bool),
    /// Solving takes this many milliseconds.
    Slow(u64),
    /// The next run fails.
    Fail,
    Wait(u64),
}

fn steps(nodes: usize, classes: usize) -> impl Strategy<Value = Vec<Step>> {
    let node = 0..nodes;
    let step = prop_oneof![
        2 => node.clone().prop_map(Step::Connect),
        1 => node.clone().prop_map(Step::Disconnect),
        2 => (node.clone(), prop::collection::vec(0.0..150.0, classes)).prop_map(|(node, demand)| Step::Demand(node, demand)),
        1 => (node, any::<bool>()).prop_map(|(node, hush)| Step::Hush(node, hush)),
        1 => (0..600u64).prop_map(Step::Slow),
        1 => Just(Step::Fail),
        4 => (0..1_500u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..40)
}

/// A cluster that executes steps and checks its invariants at every moment.
struct Play {
    coordinator: Coordinator,
    machines: Vec<Machine>,
    connected: Vec<bool>,
    hushed: Vec<bool>,
    /// When each node's last report on the present connection arrived.
    heard: Vec<Option<Duration>>,
    now: Duration,
    solving: Option<(Duration, Problem)>,
    slow: Duration,
    fail: bool,
    /// When the last run ended.
    ended: Option<Duration>,
}

impl Play {
    fn new(settings: Settings) -> Play {
        let (nodes, classes) = (settings.placed.len(), settings.desired.len());
        let machine = |_| Machine::new(ms(0), vec![50.0; classes], vec![100.0 / classes as f64; classes]);
        Play {
            coordinator: Coordinator::new(ms(0), settings),
            machines: (0..nodes).map(machine).collect(),
            connected: vec![false; nodes],
            hushed: vec![false; nodes],
            heard: vec![None; nodes],
            now: ms(0),
            solving: None,
            slow: ms(0),
            fail: false,
            ended: None,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Connect(node) => {
                self.coordinator.connected(node);
                (self.connected[node], self.heard[node]) = (true, None);
            }
            Step::Disconnect(node) => {
                self.coordinator.disconnected(node);
                (self.connected[node], self.heard[node]) = (false, None);
            }
            Step::Demand(node, demand) => self.machines[node].demand = demand,
            Step::Hush(node, hush) => self.hushed[node] = hush,
            Step::Slow(span) => self.slow = ms(span),
            Step::Fail => self.fail = true,
            Step::Wait(span) => self.wait(ms(span)),
        }
    }

    fn wait(&mut self, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            self.now += ms(10);
            self.tick();
        }
    }

    fn tick(&mut self) {
        let now = self.now;
        for (node, machine) in self.machines.iter_mut().enumerate() {
            machine.work(ms(10));
            let Some(measured) = machine.tracker.measure(now, &machine.counters.clone()) else { continue };
            if self.connected[node] && !self.hushed[node] {
                self.coordinator.reported(now, node, measured);
                self.heard[node] = Some(now);
            }
        }
        if self.solving.as_ref().is_some_and(|(due, _)| *due <= now) {
            let (_, problem) = self.solving.take().expect("it is there");
            let failed = std::mem::take(&mut self.fail);
            let solution = if failed { Err(Error::Unsolved { missed: 0.5 }) } else { solve(&problem) };
            assert!(failed || solution.is_ok(), "{solution:?} of {problem:?}");
            self.coordinator.solved(now, solution, self.slow);
            self.ended = Some(now);
        }
        if let Some(problem) = self.coordinator.poll_run(now) {
            assert_eq!(self.solving, None, "one run at a time");
            problem.check().expect("a problem that makes sense");
            let live = self.heard.iter().flatten().filter(|&&at| now < at + SILENCE).count();
            assert_eq!(problem.usage.len(), live, "live nodes and no others");
            let fresh = self.heard.iter().flatten().filter(|&&at| now < at + SILENCE);
            assert!(fresh.into_iter().all(|at| self.ended.is_none_or(|ended| *at > ended)), "one run per window");
            self.solving = Some((now + self.slow, problem));
        }
        while let Some(shares) = self.coordinator.poll_shares() {
            assert!(self.connected[shares.node], "shares go to who is there");
            assert!(shares.shares.iter().sum::<f64>() <= 100.0 + 1e-6, "{shares:?}");
            let placed = &self.coordinator.settings().placed[shares.node];
            for (share, &there) in shares.shares.iter().zip(placed) {
                assert!(if there { *share > 0.0 } else { *share == 0.0 }, "{shares:?} on {placed:?}");
            }
            self.machines[shares.node].apply(now, &shares);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_quiet_cluster_settles(
        demands in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0.0), Just(100.0), 0.0..100.0f64], 3), 2..5),
        split in (1.0..10.0f64, 1.0..10.0f64, 1.0..10.0f64),
    ) {
        let sum = split.0 + split.1 + split.2;
        let desired = [split.0, split.1, split.2].map(|part| 100.0 * part / sum);
        let nodes = demands.len();
        let mut machines: Vec<Machine> =
            demands.into_iter().map(|demand| Machine::new(ms(0), demand, desired.to_vec())).collect();
        let mut coordinator = Coordinator::new(ms(0), Settings { every: None, ..settings(nodes, &desired) });
        (0..nodes).for_each(|node| coordinator.connected(node));
        let now = play(&mut coordinator, &mut machines, ms(0), ms(30_000));
        let before = coordinator.ledger().runs.done();
        play(&mut coordinator, &mut machines, now, ms(15_000));
        let later = coordinator.ledger().runs.done() - before;
        prop_assert_eq!(later, 0, "{:?}", coordinator.ledger().finished.iter().rev().take(6).collect::<Vec<_>>());
    }

    #[test]
    fn whatever_happens_runs_are_sound_and_nothing_is_lost(
        steps in steps(4, 3),
        placed in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.8), 3), 4),
        every in prop::option::of(250..5_000u64),
    ) {
        let settings = Settings { placed, every: every.map(ms), ..settings(4, &[40.0, 35.0, 25.0]) };
        let mut play = Play::new(settings);
        for step in steps {
            play.step(step);
        }
        // In the end all nodes are up and have the shares of the same run.
        for node in 0..4 {
            play.step(Step::Hush(node, false));
            if !play.connected[node] {
                play.step(Step::Connect(node));
            }
        }
        (play.fail, play.slow) = (false, ms(0));
        play.wait(ms(6_000));
        let members: Vec<usize> = play.coordinator.members.iter().map(|&(node, _)| node).collect();
        prop_assert_eq!(members, [0, 1, 2, 3]);
        for machine in &play.machines {
            let (at, counters) = (play.now + WINDOW, machine.counters.clone());
            let run = machine.tracker.clone().measure(at, &counters).expect("a window later").run;
            prop_assert_eq!(run, play.coordinator.ledger().finished.back().expect("a run").number);
        }
    }
}
