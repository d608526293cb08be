//! Other engines that send requests to the same machines: the gateways of a site.
//!
//! Source: our own (`docs/adr/0027-windows-by-all-in-flight.md`). An engine tells how it uses the window of each group
//! of machines, and hears what all others do there. Its driver passes both on. Methods of load control without an
//! adaptive window take no notice. It also tells which nodes it has ejected, and hears the same of the others
//! (`docs/adr/0028-costs-and-health-are-hints.md`).

use crate::engine::Engine;
use crate::index::Id as _;
use crate::request::NodeId;
use crate::time::Time;

/// The use of the window of one group of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowUse {
    /// The learned window in a low half cycle, in requests.
    pub base: f64,
    /// The lower bound of `base`.
    pub least: f64,
    /// Requests in flight.
    pub in_flight: u32,
    /// Those of them that are owed.
    pub owed: u32,
    /// Work answered since the window began, in seconds on unloaded machines, and number of answers.
    pub work: f64,
    /// Answers since then.
    pub answers: f64,
    /// Requests that wait, if the window holds requests back.
    pub waiting: u32,
    /// Those of them whose class has a guaranteed throughput of which this engine keeps a part.
    pub claiming: u32,
}

/// The other engines at one group of machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// Their requests in flight.
    pub in_flight: f64,
    /// Work that is answered to them in a second, in seconds on unloaded machines.
    pub work_per_s: f64,
    /// Answers to them in a second.
    pub answers_per_s: f64,
    /// Whether all engines are in a high half of the swing of their windows. They swing together.
    pub high: bool,
    /// The part that this engine has of the windows of all, at most 1.
    pub part: f64,
    /// Factor on the window of this engine: above 1 it takes over from others, below 1 it hands over to them.
    pub factor: f64,
}

/// Largest and smallest factor by which a window moves at once. An error of a driver must neither open nor close it.
pub(crate) const LARGEST: f64 = 100.0;

impl Beside {
    /// Nothing is known of other engines.
    pub const ALONE: Beside =
        Beside { in_flight: 0.0, work_per_s: 0.0, answers_per_s: 0.0, high: true, part: 1.0, factor: 1.0 };

    /// Bounds every figure. `None` if one is no number.
    pub(crate) fn checked(self) -> Option<Beside> {
        let Beside { in_flight, work_per_s, answers_per_s, high, part, factor } = self;
        let sound = [in_flight, work_per_s, answers_per_s, part, factor].iter().all(|figure| figure.is_finite());
        sound.then(|| Beside {
            in_flight: in_flight.clamp(0.0, 1e9),
            work_per_s: work_per_s.clamp(0.0, 1e9),
            answers_per_s: answers_per_s.clamp(0.0, 1e9),
            high,
            part: part.clamp(0.0, 1.0),
            factor: factor.clamp(1.0 / LARGEST, LARGEST),
        })
    }
}

impl Engine {
    /// The use of the windows, by group of machines in their order. Empty if load control has no adaptive window for
    /// each.
    pub fn window_uses(&self) -> Vec<WindowUse> {
        let claiming =
            self.parts.of_classes().filter_map(|class| self.classes.all.get(class)).map(|state| state.queue.len);
        self.limit.uses(&self.nodes, [self.queues.waiting, claiming.sum()])
    }

    /// Takes over what is known of the other engines, by group of machines in their order. It counts until `until`.
    /// Then this engine goes on as if it were alone, with the windows of all, until it hears of the others again.
    /// Ignored if the groups are not as many. Call [`Engine::poll`] afterwards.
    pub fn beside(&mut self, now: Time, until: Time, groups: &[Beside]) {
        self.advance(now);
        let (limit, mut view) = self.limiting();
        limit.beside(&mut view, until, groups);
    }

    /// The nodes that this engine has ejected by its own answers, as pool and name. Those that it has ejected on a hint
    /// are left out.
    pub fn ejected(&self) -> impl Iterator<Item = [&str; 2]> {
        self.nodes.ejected().map(|node| self.node_name(node))
    }

    /// Notes which nodes, by pool and name, other engines have ejected: the first failure ejects them here as well.
    /// It replaces what was noted before.
    pub fn ejected_elsewhere(&mut self, is_ejected: impl Fn([&str; 2]) -> bool) {
        for node in (0..self.policy.nodes.len()).map(NodeId::of) {
            let is_ejected = is_ejected(self.node_name(node));
            self.nodes.ejected_elsewhere(node, is_ejected);
        }
    }

    fn node_name(&self, node: NodeId) -> [&str; 2] {
        let spec = &self.policy.nodes[node.row()];
        [&self.policy.pools[spec.pool].name, &spec.name]
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::discipline::Discipline;
    use crate::parts::{Lease, Part};
    use crate::policy::{Class, Guarantee, Node, Policy, Pool};
    use crate::request::{Arrival, ClassId, Decision, NodeId, Outcome};

    const END: Time = Time::from_millis(1_000);

    fn engine(discipline: Discipline) -> Engine {
        let nodes = vec![Node::new("n", 0), Node::new("m", 0)];
        let policy = Policy::of_one_pool(discipline, Pool::new("p"), nodes, vec![Class::best_effort("all", 0)]);
        Engine::new(Time::ZERO, policy, 1).unwrap()
    }

    fn half() -> Beside {
        Beside { in_flight: 4.0, part: 0.5, ..Beside::ALONE }
    }

    #[test]
    fn a_node_that_another_engine_has_ejected_is_ejected_by_its_first_failure() {
        // Each request goes to the least loaded node, so the two nodes answer in turn.
        let fail = |engine: &mut Engine, at: u64| {
            let arrival =
                Arrival { class: ClassId(0), flow: 0, demand: None, locality_key: None, position: 0, token: at };
            let now = Time::from_millis(at);
            let Decision::Release { ticket, node } = engine.arrive(now, arrival) else { panic!("released") };
            engine.observe(now, ticket, Outcome::LastByte { status: if node == NodeId(0) { 503 } else { 200 } });
            node
        };
        // An ejection lasts a second, and these requests take forty milliseconds.
        let failures = |is_told: bool| {
            let mut engine = engine(Discipline::weirgate());
            engine.ejected_elsewhere(|[pool, name]| is_told && (pool, name) == ("p", "n"));
            let failures = (1..40).filter(|at| fail(&mut engine, *at) == NodeId(0)).count();
            (failures, engine.ejected().map(|[pool, name]| format!("{pool}/{name}")).collect::<Vec<_>>())
        };
        assert_eq!(failures(false), (5, vec!["p/n".to_owned()]));
        // It is not passed on, or two engines would keep the node ejected by telling each other.
        assert_eq!(failures(true), (1, Vec::new()));
        // The hint alone changes nothing, and is taken back.
        let mut engine = engine(Discipline::weirgate());
        engine.ejected_elsewhere(|_| true);
        assert_eq!(engine.ejected().count(), 0);
        engine.ejected_elsewhere(|_| false);
        while fail(&mut engine, 1) != NodeId(0) {}
        assert_eq!(engine.ejected().count(), 0);
    }

    /// Lets an engine act for so long from [`END`] on. Returns the time then.
    fn pass(engine: &mut Engine, span: Duration) -> Time {
        let mut now = END;
        while now < END + span {
            while engine.poll(now).is_some() {}
            now = engine.next_timeout().unwrap_or(Time::NEVER).max(now + Duration::from_millis(1));
        }
        now
    }

    #[test]
    fn a_window_moves_by_the_factor_and_stays_above_its_bound() {
        let mut engine = engine(Discipline::weirgate());
        let before = engine.window_uses();
        assert_eq!((before.len(), before[0].base, before[0].least), (1, 4.0, 4.0));
        engine.beside(Time::ZERO, END, &[Beside { factor: 3.0, ..half() }]);
        assert_eq!(engine.window_uses()[0].base, 12.0);
        // The least window is divided as well, by the part that is left.
        engine.beside(Time::ZERO, END, &[Beside { factor: 0.001, ..half() }]);
        assert_eq!(engine.window_uses()[0].base, 1.0);
    }

    #[test]
    fn figures_that_are_none_other_groups_and_other_methods_change_nothing() {
        let mut engine = engine(Discipline::weirgate());
        let before = engine.window_uses();
        engine.beside(Time::ZERO, END, &[Beside { factor: f64::NAN, ..half() }]);
        engine.beside(Time::ZERO, END, &[Beside { in_flight: f64::INFINITY, ..half() }]);
        engine.beside(Time::ZERO, END, &[Beside { factor: 2.0, ..half() }; 2]);
        engine.beside(Time::ZERO, END, &[]);
        assert_eq!(engine.window_uses(), before);
        let mut none = super::tests::engine(Discipline::quorum());
        none.beside(Time::ZERO, END, &[half()]);
        assert_eq!(none.window_uses(), []);
    }

    #[test]
    fn waiting_requests_of_classes_with_a_part_claim() {
        let guarantee = Guarantee { throughput: Some(10.0), ..Guarantee::default() };
        let classes = vec![Class { guarantee, ..Class::best_effort("gold", 0) }, Class::best_effort("rest", 0)];
        let nodes = vec![Node::new("n", 0)];
        let policy = Policy::of_one_pool(Discipline::weirgate(), Pool::new("p"), nodes, classes);
        let mut engine = Engine::new(Time::ZERO, policy, 1).unwrap();
        let lease = Lease { granted_until: END, safe_until: END };
        engine.keep_parts(Time::ZERO, lease, &[(ClassId(0), Part { granted: 5.0, safe: 2.0, least: 0.1 })]);
        for flow in 0..60 {
            let class = ClassId(u32::from(flow % 3 != 0));
            let arrival = Arrival { class, flow, demand: None, locality_key: None, position: 0, token: flow };
            engine.arrive(Time::ZERO, arrival);
        }
        while engine.poll(Time::ZERO).is_some() {}
        let used = engine.window_uses()[0];
        let snapshot = engine.snapshot(Time::ZERO);
        assert!(used.waiting > used.claiming && used.claiming > 0, "{used:?}");
        assert_eq!(
            (used.waiting, used.claiming),
            (snapshot.waiting, engine.classes(Time::ZERO, ClassId(0), 1)[0].waiting)
        );
    }

    #[test]
    fn it_swings_with_the_others_until_their_news_is_old() {
        let mut engine = engine(Discipline::weirgate());
        for (at, high) in [(0, true), (100, false), (900, true), (950, false)] {
            let now = Time::from_millis(at);
            engine.beside(now, END, &[Beside { high, ..half() }]);
            while engine.poll(now).is_some() {}
            let size = engine.snapshot(now).window;
            assert_eq!(size, Some(if high { 5 } else { 4 }), "{at} ms");
        }
        // It goes on alone, with the window of all. Nothing is held back, so the window is that of a high half.
        let now = pass(&mut engine, Duration::from_secs(30));
        assert_eq!((engine.window_uses()[0].base, engine.snapshot(now).window), (8.0, Some(10)));
        // It hears of the others again, and gives their window back.
        engine.beside(now, Time::NEVER, &[half()]);
        assert_eq!((engine.window_uses()[0].base, engine.snapshot(now).window), (4.0, Some(5)));
        engine.beside(now, Time::NEVER, &[half()]);
        assert_eq!(engine.window_uses()[0].base, 4.0);
    }

    #[test]
    fn it_takes_the_window_of_all_as_soon_as_it_goes_on_alone() {
        let mut engine = engine(Discipline::weirgate());
        engine.beside(Time::ZERO, END, &[Beside { part: 0.25, ..half() }]);
        let now = pass(&mut engine, Duration::from_secs(1));
        assert_eq!(engine.snapshot(now).window, Some(21), "16 in a low half");
        // A part that is none opens it by a bounded factor.
        let mut engine = super::tests::engine(Discipline::weirgate());
        engine.beside(Time::ZERO, END, &[Beside { part: 0.0, ..half() }]);
        pass(&mut engine, Duration::from_secs(1));
        assert_eq!(engine.window_uses()[0].base, 400.0);
    }
}
