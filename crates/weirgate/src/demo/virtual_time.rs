//! The demo without sockets and without a clock: the same engine, policy, nodes and load in virtual time.
//!
//! What real sockets show depends on the machine; this says whether the figures of the scenario are
//! sound: under either discipline every guarantee is held, whatever the draws, and without control none
//! of the hot phases keeps any.

use std::collections::VecDeque;
use std::time::Duration;

use weirgate_emulator::client::{Generator, Tally, Verdict};
use weirgate_emulator::station::{Demand, Station};
use weirgate_engine::{Action, Arrival, ClassId, Engine, NodeId, Outcome, Ticket, Time, Verdict as Decision};

use super::Control;
use super::scenario::{CPUS, PATIENCE, Scenario};

/// A request that has neither been answered nor refused nor given up.
struct Request {
    class: usize,
    phase: usize,
    settling: bool,
    at: u64,
    demand: u64,
    ticket: Option<Ticket>,
    inside: bool,
}

struct World {
    engine: Engine,
    stations: Vec<Station>,
    now: u64,
    /// All requests so far; `None` once they are over.
    requests: Vec<Option<Request>>,
    /// When clients leave, in order of arrival.
    leaving: VecDeque<(u64, usize)>,
    /// Per class and phase: the part that is judged apart, and the rest.
    tallies: Vec<Vec<[Tally; 2]>>,
    finished: Vec<(u64, u64)>,
}

impl World {
    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    fn release(&mut self, id: usize, ticket: Ticket, node: NodeId) {
        let Some(request) = &mut self.requests[id] else { return };
        (request.ticket, request.inside) = (Some(ticket), true);
        let station = &mut self.stations[node.0 as usize];
        station.advance(self.now, &mut self.finished);
        station.arrive(id as u64, Demand { cpu: request.demand, ..Demand::default() });
    }

    /// Does what the engine wants until it wants nothing.
    fn settle(&mut self) {
        loop {
            while let Some(action) = self.engine.poll(self.time()) {
                match action {
                    Action::Release { ticket, tag, node, .. } => self.release(tag as usize, ticket, node),
                    Action::Shed { tag, .. } => self.requests[tag as usize] = None,
                }
            }
            let Some((id, _)) = self.finished.pop() else { return };
            // Work for a client who has left ends as well; nobody hears of it.
            if let Some(request) = self.requests[id as usize].take() {
                if let Some(ticket) = request.ticket {
                    self.engine.observe(self.time(), ticket, Outcome::LastByte { status: 200 });
                }
                let tally = &mut self.tallies[request.class][request.phase][usize::from(!request.settling)];
                tally.served(Duration::from_nanos(self.now - request.at));
            }
        }
    }

    fn arrive(&mut self, class: usize, generator: &mut Generator) {
        let Some(due) = generator.take() else { return };
        self.tallies[class][due.phase][usize::from(!due.settling)].arrived(&due);
        let id = self.requests.len();
        let demand = due.demand.as_nanos() as u64;
        let (phase, settling, at) = (due.phase, due.settling, due.at);
        self.requests.push(Some(Request { class, phase, settling, at, demand, ticket: None, inside: false }));
        self.leaving.push_back((at + PATIENCE.as_nanos() as u64, id));
        let arrival = Arrival { class: ClassId(class as u32), flow: 0, demand: None, target: None, tag: id as u64 };
        match self.engine.arrive(self.time(), arrival) {
            Decision::Release { ticket, node } => self.release(id, ticket, node),
            Decision::Wait { ticket } => {
                if let Some(request) = &mut self.requests[id] {
                    request.ticket = Some(ticket);
                }
            }
            Decision::Shed(_) => self.requests[id] = None,
        }
    }

    fn leave(&mut self) {
        while let Some(&(at, id)) = self.leaving.front()
            && (at <= self.now || self.requests[id].is_none())
        {
            self.leaving.pop_front();
            if let Some(Request { ticket: Some(ticket), inside, .. }) = self.requests[id].take() {
                if inside {
                    self.engine.observe(self.time(), ticket, Outcome::Reset);
                } else {
                    self.engine.cancel(self.time(), ticket);
                }
            }
        }
    }
}

/// The verdicts over the settled parts of one run: (class, phase, held).
fn verdicts(seconds: u32, seed: u64, control: Control) -> Vec<(usize, usize, bool)> {
    let scenario = Scenario::new(seconds, seed, control, Duration::from_secs(1)).unwrap();
    let plan = &scenario.plan;
    let mut generators: Vec<Generator> = (0..plan.classes.len()).map(|class| Generator::new(plan, class)).collect();
    let nodes = scenario.nodes().len();
    let mut world = World {
        engine: Engine::new(Time::ZERO, scenario.site.policy.clone(), seed).unwrap(),
        stations: (0..nodes).map(|_| Station::new(0, CPUS, None, None)).collect(),
        now: 0,
        requests: Vec::new(),
        leaving: VecDeque::new(),
        tallies: plan.classes.iter().map(|_| plan.phases.iter().map(|_| Default::default()).collect()).collect(),
        finished: Vec::new(),
    };
    loop {
        world.leave();
        world.settle();
        let arrival = generators.iter().enumerate().filter_map(|(c, g)| g.due().map(|at| (at, c))).min();
        if arrival.is_none() && world.leaving.is_empty() {
            break;
        }
        let internal = world.stations.iter().filter_map(Station::next_event);
        let internal = internal.chain(world.leaving.front().map(|l| l.0));
        let internal = internal.chain(world.engine.next_timeout().map(Time::as_nanos)).min();
        let next = internal.into_iter().chain(arrival.map(|a| a.0)).min().unwrap_or(u64::MAX);
        world.now = world.now.max(next);
        for station in &mut world.stations {
            station.advance(world.now, &mut world.finished);
        }
        if let Some((at, class)) = arrival
            && at <= world.now
        {
            world.arrive(class, &mut generators[class]);
        }
    }
    let mut verdicts = Vec::new();
    for (class, phases) in world.tallies.iter().enumerate() {
        for (phase, [_, settled]) in phases.iter().enumerate() {
            if let Some((floor, ceiling)) = Verdict::of(settled, &plan.classes[class].guarantee) {
                verdicts.push((class, phase, floor.is_none_or(|f| f.held) && ceiling.is_none_or(|c| c.held)));
            }
        }
    }
    verdicts
}

#[test]
fn every_guarantee_is_held() {
    for control in [Control::Weirgate, Control::Quorum] {
        for seconds in [6, 12, 40, 90] {
            for seed in 1..=5 {
                let verdicts = verdicts(seconds, seed, control);
                assert_eq!(verdicts.len(), 8, "two classes in four phases");
                let missed: Vec<_> = verdicts.iter().filter(|v| !v.2).collect();
                assert!(missed.is_empty(), "{control:?}, {seconds} s, seed {seed}: (class, phase, held) {missed:?}");
            }
        }
    }
}

#[test]
fn without_control_no_class_is_held_in_the_hot_phases() {
    for (class, phase, held) in verdicts(40, 1, Control::None) {
        assert_eq!(held, phase == 0, "class {class}, phase {phase}");
    }
}
