//! The tracker with counters that the tests write.

use proptest::prelude::*;

use super::*;

/// A node of 2 CPUs. The test sets the use of each class.
struct Node {
    tracker: Tracker,
    now: Duration,
    counters: Vec<u64>,
}

impl Node {
    fn new(shares: &[f64]) -> Node {
        let counters = vec![1_000_000_007; shares.len()];
        Node { tracker: Tracker::new(Duration::ZERO, 2.0, shares, &counters), now: Duration::ZERO, counters }
    }

    /// Lets the classes use these percentages of the node for one window.
    fn window(&mut self, usage: &[f64]) -> Measured {
        self.pass(WINDOW, usage);
        self.tracker.measure(self.now, &self.counters).expect("it is over")
    }

    fn pass(&mut self, span: Duration, usage: &[f64]) {
        self.now += span;
        for (counter, usage) in self.counters.iter_mut().zip(usage) {
            *counter += (2.0 * span.as_nanos() as f64 * usage / 100.0).round() as u64;
        }
    }

    fn shares(&mut self, run: u64, shares: &[f64]) {
        self.tracker.apply(self.now, run, shares, &self.counters);
    }

    /// Returns the questions of the node in windows with these uses of one class.
    fn asks(shares: f64, windows: &[f64]) -> Vec<Option<Trigger>> {
        let mut node = Node::new(&[shares]);
        windows.iter().map(|&usage| node.window(&[usage]).wants).collect()
    }
}

const BEGAN: Option<Trigger> = Some(Trigger::SinkBegan { class: 0 });
const ENDED: Option<Trigger> = Some(Trigger::SinkEnded { class: 0 });
const FELL: Option<Trigger> = Some(Trigger::Fell { class: 0 });

#[test]
fn use_is_cpu_time_over_the_windows_length_and_the_nodes_cpus() {
    let mut node = Node::new(&[60.0, 40.0]);
    let measured = node.window(&[60.0, 12.5]);
    assert_eq!((measured.run, measured.seconds), (0, 0.25));
    assert_eq!((measured.allocation, measured.usage), (vec![60.0, 40.0], vec![60.0, 12.5]));
    assert_eq!((measured.sink, measured.wants), (vec![true, false], None), "the first window has nothing before it");
    // A measurement that is a second late covers a longer window and finds the same use.
    node.pass(Duration::from_secs(1), &[60.0, 12.5]);
    let measured = node.window(&[60.0, 12.5]);
    assert_eq!((measured.seconds, measured.usage), (1.25, vec![60.0, 12.5]));
}

#[test]
fn the_window_begins_anew_with_every_change_of_shares() {
    let mut node = Node::new(&[50.0, 50.0]);
    node.pass(WINDOW / 2, &[100.0, 0.0]);
    node.shares(7, &[80.0, 20.0]);
    node.pass(WINDOW - Duration::from_nanos(1), &[10.0, 0.0]);
    assert_eq!(node.tracker.measure(node.now, &node.counters), None, "not a whole window yet");
    node.pass(Duration::from_nanos(1), &[10.0, 0.0]);
    let measured = node.tracker.measure(node.now, &node.counters).expect("a whole window");
    assert_eq!((measured.run, measured.seconds, measured.allocation), (7, 0.25, vec![80.0, 20.0]));
    assert!((measured.usage[0] - 10.0).abs() < 1e-6, "{:?}: nothing of before the change", measured.usage);
}

#[test]
fn beginning_and_ending_sinks_ask_once() {
    assert_eq!(Node::asks(20.0, &[5.0, 5.0, 20.0, 20.0, 20.0]), [None, None, BEGAN, None, None]);
    assert_eq!(Node::asks(20.0, &[20.0, 5.0, 5.0, 5.0]), [None, ENDED, None, None]);
    assert_eq!(Node::asks(20.0, &[20.0, 0.0, 20.0, 20.0]), [None, ENDED, BEGAN, None]);
    assert_eq!(Node::asks(1.0, &[0.0, 0.9, 0.9]), [None, BEGAN, None], "one that gets more than it used");
}

#[test]
fn a_fall_is_more_than_a_fifth() {
    assert_eq!(Node::asks(90.0, &[50.0, 40.0, 32.0]), [None, None, None], "exactly a fifth is none");
    assert_eq!(Node::asks(90.0, &[50.0, 39.9, 39.9]), [None, FELL, None]);
    assert_eq!(Node::asks(90.0, &[0.9, 0.1]), [None, None], "too little to fall");
    assert_eq!(Node::asks(90.0, &[10.0, 50.0, 60.0]), [None, None, None], "more is no fall");
    // A sink that uses more than its share, and then half as much.
    assert_eq!(Node::asks(20.0, &[80.0, 40.0]), [None, FELL]);
}

#[test]
fn a_node_that_asked_must_first_change() {
    // 12 is within a fifth of the use at the last question, so the fall from 12 to 9 is not new.
    assert_eq!(Node::asks(90.0, &[50.0, 10.0, 12.0, 9.0]), [None, FELL, None, None]);
    assert_eq!(Node::asks(90.0, &[50.0, 10.0, 40.0, 10.0]), [None, FELL, None, FELL]);
    assert_eq!(Node::asks(90.0, &[50.0, 0.0, 0.0, 50.0, 0.0]), [None, FELL, None, None, FELL]);
}

#[test]
fn a_fall_that_the_change_brings_about_is_none() {
    let mut node = Node::new(&[40.0]);
    node.window(&[40.0]);
    node.shares(1, &[20.0]);
    assert_eq!(node.window(&[20.0]).wants, None);
    node.shares(2, &[60.0]);
    assert_eq!(node.window(&[30.0]).wants, ENDED, "it cannot use what it was given");
    node.shares(3, &[31.0]);
    assert_eq!(node.window(&[12.0]).wants, FELL, "less than its new share explains");
}

#[test]
fn the_first_reason_is_told_and_all_are_heard() {
    let mut node = Node::new(&[50.0, 50.0]);
    node.window(&[50.0, 50.0]);
    assert_eq!(node.window(&[5.0, 5.0]).wants, ENDED);
    assert_eq!(node.window(&[5.0, 5.0]).wants, None, "the second class has been heard as well");
    assert_eq!(node.window(&[5.0, 50.0]).wants, Some(Trigger::SinkBegan { class: 1 }));
}

#[test]
fn counters_may_stand_still_go_backwards_or_be_missing() {
    let mut node = Node::new(&[50.0, 50.0]);
    node.window(&[50.0, 50.0]);
    node.now += WINDOW;
    assert_eq!(node.tracker.measure(node.now, &node.counters).expect("over").usage, [0.0, 0.0]);
    // The group was created anew 50 ms ago.
    node.counters[0] = 50_000_000;
    node.now += WINDOW;
    assert_eq!(node.tracker.measure(node.now, &node.counters).expect("over").usage, [10.0, 0.0]);
    node.now += WINDOW;
    assert_eq!(node.tracker.measure(node.now, &[]).expect("over").usage, [0.0, 0.0]);
    // A counter that exceeds the node.
    node.counters[1] = u64::MAX;
    node.now += WINDOW;
    let measured = node.tracker.measure(node.now, &node.counters).expect("over");
    assert_eq!((measured.usage, measured.sink), (vec![0.0, 100.0], vec![false, true]));
}

fn shares() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(1.0..100.0f64, 1..6)
}

#[test]
fn shares_are_of_what_work_elsewhere_leaves() {
    // A fifth of the node goes to the system. A class with half of the rest uses 40 % of the node, which is
    // its whole share.
    let mut tracker = Tracker::new(Duration::ZERO, 2.0, &[50.0, 50.0], &[0, 0]);
    let whole = 2 * WINDOW.as_nanos() as u64;
    tracker.went_elsewhere(whole / 5);
    let measured = tracker.measure(WINDOW, &[whole * 2 / 5, whole / 5]).expect("over");
    assert_eq!((measured.usage, measured.sink), (vec![50.0, 25.0], vec![true, false]));
    // The setting applies to that window alone, and cannot take the whole node.
    let measured = tracker.clone().measure(2 * WINDOW, &[whole * 4 / 5, whole / 5]).expect("over");
    assert_eq!(measured.usage, [40.0, 0.0]);
    tracker.went_elsewhere(2 * whole);
    let measured = tracker.measure(2 * WINDOW, &[whole * 2 / 5 + whole / 20, whole / 5]).expect("over");
    assert_eq!(measured.usage, [50.0, 0.0]);
}

proptest! {
    #[test]
    fn a_steady_class_never_asks(shares in shares(), usage in prop::collection::vec(0.0..100.0f64, 6), windows in 2..40) {
        let mut node = Node::new(&shares);
        for _ in 0..windows {
            prop_assert_eq!(node.window(&usage).wants, None);
        }
    }

    #[test]
    fn a_class_that_stops_asks_once(share in 1.0..100.0f64, part in 0.02..1.0f64, busy in 1..10, idle in 1..10) {
        let usage = share * part;
        prop_assume!(usage >= MIN_USE);
        let windows: Vec<f64> = (0..busy).map(|_| usage).chain((0..idle).map(|_| 0.0)).collect();
        let asks = Node::asks(share, &windows);
        prop_assert_eq!(asks.iter().flatten().count(), 1);
        prop_assert!(asks[busy as usize].is_some(), "in the window in which it stopped: {:?}", asks);
    }

    #[test]
    fn nothing_is_asked_within_a_window_after_a_change(
        steps in prop::collection::vec((1..600u64, prop::collection::vec(0.0..100.0f64, 2), any::<bool>()), 1..60),
    ) {
        let mut node = Node::new(&[50.0, 50.0]);
        let mut changed = Duration::ZERO;
        for (run, (ms, usage, change)) in steps.into_iter().enumerate() {
            node.pass(Duration::from_millis(ms), &usage);
            if change {
                node.shares(run as u64, &usage);
                changed = node.now;
            }
            if let Some(measured) = node.tracker.measure(node.now, &node.counters) {
                prop_assert!(node.now - changed >= WINDOW);
                prop_assert!(measured.seconds >= WINDOW.as_secs_f64());
            }
        }
    }

    #[test]
    fn whatever_counters_do_figures_are_percentages(
        readings in prop::collection::vec((0..10_000u64, prop::collection::vec(any::<u64>(), 0..4)), 1..60),
    ) {
        let mut tracker = Tracker::new(Duration::ZERO, 0.5, &[30.0, 0.0, 70.0], &[]);
        let mut now = Duration::ZERO;
        for (ms, counters) in readings {
            now += Duration::from_millis(ms);
            let Some(measured) = tracker.measure(now, &counters) else { continue };
            prop_assert!(measured.usage.iter().all(|usage| (0.0..=100.0).contains(usage)), "{:?}", measured.usage);
            let sinks = measured.allocation.iter().zip(&measured.usage).map(|(&r, &u)| is_sink(r, u));
            prop_assert_eq!(measured.sink, sinks.collect::<Vec<_>>());
        }
    }
}
