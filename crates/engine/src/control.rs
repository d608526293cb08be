//! *control*: what happens on a timer, and who steers the window.
//!
//! Source: Quorum Sec. 3.1: every 500 ms the window takes a step according to the class with the most
//! restrictive response time. Of several with the same limit it is the one with the longest expected
//! compute time among those with traffic in the period, also if all of that is being dropped: steered by
//! those that complete something, the window would grow while the class that needs it small is shut
//! out, and the two would take turns for ever. Classes report their first event of a period, so that a
//! step looks at those with traffic and not at a hundred thousand tenants.
//!
//! Adaptive windows have their own times, one half cycle after the other; see `release::adaptive`.

use core::time::Duration;

use crate::admit::PERIOD;
use crate::discipline::LoadControl;
use crate::engine::Engine;
use crate::index::{GroupId, Id};
use crate::policy::{Policy, ResponseTime};
use crate::release::{Danger, Half, Halves, Swing, Tightest, Window, Work};
use crate::request::{ClassId, Why};
use crate::time::Time;

/// The classes with the smallest limit.
#[derive(Clone, Debug)]
pub(crate) struct Steering {
    /// The smallest limit of the policy, if the window is one that classes steer.
    limit: Option<Duration>,
    /// Classes with that limit and traffic in this period.
    seen: Vec<ClassId>,
    /// The class that steered last.
    last: Option<ClassId>,
    /// When the next step is due, or [`Time::NEVER`] if none ever is.
    pub(crate) next: Time,
}

impl Steering {
    pub(crate) fn new(now: Time, policy: &Policy) -> Steering {
        let specs = policy.classes.iter().chain(policy.templates.iter().map(|t| &t.class));
        // Nobody is seen where nobody steers: only a linear window takes the list away again.
        let steers = matches!(policy.discipline.load_control, LoadControl::WindowLinear { .. });
        let limits = specs.filter(|_| steers).filter_map(|class| class.guarantee.response_time);
        let limit = limits.map(|rt| rt.limit).min();
        // Adaptive windows set their own times.
        let next = if steers { after(now) } else { Time::NEVER };
        Steering { limit, seen: Vec::new(), last: None, next }
    }

    /// An arrival or completion of a class; `last` is the period of its latest one.
    pub(crate) fn see(&mut self, now: Time, class: ClassId, last: &mut u64, limit: Option<ResponseTime>) {
        let period = now.as_nanos() / PERIOD + 1;
        if *last != period && limit.is_some_and(|rt| Some(rt.limit) == self.limit) {
            *last = period;
            self.seen.push(class);
        }
    }
}

/// The end of the period that `now` lies in.
fn after(now: Time) -> Time {
    Time::from_nanos((now.as_nanos() / PERIOD + 1) * PERIOD)
}

impl Engine {
    /// Runs what is due at `now`.
    pub(crate) fn control(&mut self, now: Time) {
        if self.nodes.readmit(now) {
            self.nodes_changed(now);
        }
        self.nodes.resize(now);
        if self.steering.next > now {
            return;
        }
        match self.policy.discipline.load_control {
            LoadControl::WindowLinear { .. } => {
                let tightest = self.tightest(now);
                for window in &mut self.windows {
                    window.step(now, tightest);
                }
                self.steering.next = after(now);
            }
            LoadControl::WindowAdaptive(_) => {
                for window in 0..self.windows.len() {
                    if self.windows[window].swing.as_ref().is_some_and(|swing| swing.next <= now) {
                        self.swing(now, window);
                    }
                }
                self.plan();
            }
            LoadControl::Fixed { .. } | LoadControl::Slots { .. } | LoadControl::ResourceAvailability(_) => {}
        }
    }

    /// Control of adaptive windows runs next when the first of them ends its half cycle.
    fn plan(&mut self) {
        if let Some(next) = self.windows.iter().filter_map(|w| w.swing.as_ref()).map(|swing| swing.next).min() {
            self.steering.next = next;
        }
    }

    /// The end of a half cycle of an adaptive window.
    fn swing(&mut self, now: Time, window: usize) {
        let (sub_queue, group) = self.line_and_group(window);
        let in_flight = self.windows[window].in_flight;
        let Some(mut swing) = self.windows[window].swing.take() else { return };
        let half = swing.half(now, in_flight);
        let over = half != Half::Unfinished;
        if over {
            let (danger, stretch) = self.endangered(now, window, &swing);
            swing.stretch = stretch.unwrap_or(swing.stretch);
            let why = match (danger, half) {
                (Some(Danger { class, compute, limit }), _) if swing.helps() => {
                    swing.back_off(in_flight);
                    Some(Why::Endangered { class, compute, limit })
                }
                (_, Half::Cycle(cycle)) => {
                    let work = self.work(window, &swing);
                    Some(swing.step(work, cycle))
                }
                _ => None,
            };
            if sub_queue == 0 {
                self.nodes.learn(group, swing.figures());
            }
            swing.at_least(self.slots(group, sub_queue), self.nodes.groups[group].usable);
            swing.turn(now, half);
            let size = swing.size();
            match why {
                Some(why) => self.windows[window].set(now, size, why),
                None => self.windows[window].size = size,
            }
        }
        self.windows[window].swing = Some(swing);
        if over {
            self.spread(group);
        }
    }

    /// The sub_queue and the group of nodes that a window is for.
    fn line_and_group(&self, window: usize) -> (usize, GroupId) {
        (window / self.nodes.groups.len(), GroupId::of(window % self.nodes.groups.len()))
    }

    /// Work completed in the two halves of a cycle.
    fn work(&self, window: usize, swing: &Swing) -> [Work; 2] {
        let of = |class: &ClassId| self.halves(*class, window).map(|halves| swing.work(halves));
        swing.seen.iter().filter_map(of).fold([Work::default(); 2], |sum, work| [sum[0] + work[0], sum[1] + work[1]])
    }

    /// The class of the cycle whose limit is most in danger, and the least stretch of compute times if there are
    /// two classes to compare: of one alone nobody knows whether it is dear or in a crowd.
    fn endangered(&mut self, now: Time, window: usize, swing: &Swing) -> (Option<Danger>, Option<f64>) {
        let admit = &self.policy.discipline.admit;
        let (mut worst, mut danger, mut stretch, mut compared) = (0.0, None, f64::INFINITY, 0);
        for class in &swing.seen {
            let Some(certain) = self.halves(*class, window).map(|halves| swing.mean(halves)) else { continue };
            let limit = self.classes.spec(*class).guarantee.response_time;
            let Some(unloaded) = self.classes.service_time(*class) else { continue };
            let state = &mut self.classes[*class];
            state.expected.roll(now, state.in_flight > 0, admit, limit);
            let (Some(mean), Some(value)) = (state.expected.seconds(), state.expected.guaranteed()) else { continue };
            stretch = f64::min(stretch, mean / unloaded);
            compared += 1;
            let Some(limit) = limit.map(|rt| rt.limit) else { continue };
            let part = value / limit.as_secs_f64();
            if part > worst && swing.endangered(value, certain.min(mean), unloaded, limit.as_secs_f64()) {
                worst = part;
                let compute = Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX);
                danger = Some(Danger { class: *class, compute, limit });
            }
        }
        (danger, (compared > 1).then_some(stretch.max(1.0)))
    }

    /// A class's sums in a window.
    fn halves(&self, class: ClassId, window: usize) -> Option<&Halves> {
        let (sub_queue, group) = self.line_and_group(window);
        let state = &self.classes[class];
        let lane = self.nodes.place_in(state.pool, group)?;
        state.halves.get(lane as usize * self.sub_queues + sub_queue)
    }

    /// What the guarantees need of a group in a sub_queue, in slots, as far as service times are known. How they divide is said
    /// by what is inside; with nothing inside every sub_queue has an equal part, and the windows find their sizes from there.
    fn slots(&self, group: GroupId, sub_queue: usize) -> f64 {
        let slots: f64 = self.nodes.shares(group).map(|(pool, share)| self.classes.pool_slots[pool] * share).sum();
        let inside = |window: &Window| f64::from(window.in_flight) + 1.0;
        let all = || self.windows.iter().skip(group.row()).step_by(self.nodes.groups.len());
        slots * all().nth(sub_queue).map_or(1.0, |window| inside(window) / all().map(inside).sum::<f64>())
    }

    /// No machine of a group gets much more than its part of the windows.
    fn spread(&mut self, group: GroupId) {
        if let LoadControl::WindowAdaptive(figures) = self.policy.discipline.load_control {
            let windows = self.windows.iter().skip(group.row()).step_by(self.nodes.groups.len());
            let high: u32 = windows.filter_map(|window| window.swing.as_ref()).map(|swing| swing.high()).sum();
            self.nodes.spread(group, high, figures.node_share);
        }
    }

    fn tightest(&mut self, now: Time) -> Tightest {
        let Some(limit) = self.steering.limit else { return Tightest::NoLimit };
        let admit = &self.policy.discipline.admit;
        let mut compute = |class: ClassId| {
            let limit = self.classes.spec(class).guarantee.response_time;
            let state = &mut self.classes[class];
            state.expected.roll(now, state.in_flight > 0, admit, limit);
            state.expected.guaranteed().unwrap_or(0.0)
        };
        let mut slowest = None;
        for class in self.steering.seen.drain(..) {
            let seconds = compute(class);
            if slowest.is_none_or(|(_, most)| seconds > most) {
                slowest = Some((class, seconds));
            }
        }
        if slowest.is_none() {
            slowest = self.steering.last.map(|class| (class, compute(class)));
        }
        let (class, seconds) = slowest.unwrap_or_else(|| {
            let specs = &self.classes.specs;
            let first = specs.iter().position(|s| s.guarantee.response_time.is_some_and(|rt| rt.limit == limit));
            (ClassId(first.unwrap_or(0) as u32), 0.0)
        });
        self.steering.last = Some(class);
        let compute = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4);
        Tightest::Class { class, compute, limit }
    }

    /// The set of usable nodes is another.
    pub(crate) fn nodes_changed(&mut self, now: Time) {
        self.nodes.rebalance();
        self.scheduler.nodes_changed(&self.classes, &self.nodes);
        let (usable, all) = (self.nodes.all_usable(), self.nodes.nodes.len() as u32);
        for window in 0..self.windows.len() {
            let (sub_queue, group) = self.line_and_group(window);
            let slots = self.slots(group, sub_queue);
            let members = &self.nodes.groups[group];
            let window = &mut self.windows[window];
            let Some(swing) = &mut window.swing else {
                window.nodes_changed(now, usable, all);
                continue;
            };
            swing.needs(now, slots, members.usable, members.weight);
            let size = swing.size();
            window.set(now, size, Why::Nodes { usable: members.usable, all: members.machines() });
        }
        for group in self.nodes.groups.ids() {
            self.spread(group);
        }
        self.plan();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::Discipline;
    use crate::policy::{Class, Dispatch, Ejection, Guarantee, Node, Pool, QueueBounds, RetryBudget, Statistic};
    use crate::request::{Arrival, Outcome, Verdict};

    /// Only a linear window reads who was seen; nothing may pile up under the others.
    #[test]
    fn who_was_seen_does_not_pile_up() {
        let limit = ResponseTime { statistic: Statistic::Average, limit: Duration::from_millis(100) };
        let class = Class {
            name: "A".into(),
            pool: 0,
            guarantee: Guarantee { throughput: Some(10.0), response_time: Some(limit) },
            content: crate::policy::Content::Dynamic,
            service_time: None,
            utility: 1.0,
            weight: 1.0,
            demand: crate::Demand::default(),
            tag: 0,
            fallback: None,
            queue: QueueBounds::default(),
            retry: RetryBudget::default(),
        };
        let node =
            Node { name: "n".into(), machine: "n".into(), pool: 0, weight: 1.0, capacity: None, max_outstanding: None };
        let pool = Pool { name: "web".into(), dispatch: Dispatch::LeastOutstanding, ejection: Ejection::default() };
        for discipline in [Discipline::weirgate(), Discipline::quorum(), Discipline::none()] {
            let policy = Policy {
                discipline,
                pools: vec![pool.clone()],
                nodes: vec![node.clone()],
                classes: vec![class.clone()],
                templates: Vec::new(),
                max_waiting: 10,
                resources: Vec::new(),
                estimated: false,
            };
            let mut engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
            for second in 0..100 {
                let now = Time::from_millis(second * 1000);
                let arrival = Arrival { class: ClassId(0), flow: 0, demand: None, target: None, tag: second };
                let Verdict::Release { ticket, .. } = engine.arrive(now, arrival) else { panic!("it is idle") };
                engine.observe(now + Duration::from_millis(5), ticket, Outcome::LastByte { status: 200 });
                while engine.poll(now + Duration::from_millis(5)).is_some() {}
            }
            let seen = engine.steering.seen.len();
            assert!(seen <= 2, "{}: {seen}", engine.policy.discipline.name);
        }
    }
}
