//! Faults, changes of speed, and health checks: events at the machines, and the way the gateway learns of
//! them.
//!
//! Nodes that the operator takes out are *drained* and later *resumed*, not reported down. Down is the
//! verdict of health checks, and the next good check would bring a removed node back.

use std::time::Duration;

use weirgate_emulator::computer::Work;
use weirgate_engine::{NodeEvent, NodeId};
use weirgate_experiment::{Change, FaultKind, Turn, condition};

use super::{CHECK, Driver, Errand, Message, News, Sources, nanos};
use crate::machine::Reception;
use crate::requests::Place;

impl Driver<'_> {
    /// A fault begins or ends, or the speed of a machine changes.
    pub(super) fn turn(&mut self) {
        let Some(Turn { what, .. }) = self.turns.get(self.next_turn).copied() else { return };
        self.next_turn += 1;
        self.agenda.set(Sources::FAULTS, self.turns.get(self.next_turn).map(|turn| nanos(turn.at)));
        let fault = match what {
            Change::Drifts(machine) => {
                self.change(machine);
                return self.settle();
            }
            Change::Begins(fault) => {
                self.active.push(fault);
                fault
            }
            Change::Ends(fault) => {
                self.active.retain(|active| *active != fault);
                fault
            }
        };
        let spec = &self.experiment.faults[fault];
        if spec.kind == FaultKind::Reload && what == Change::Begins(fault) {
            let policy = self.experiment.policy_at(spec.at).clone();
            if let Err(invalid) = self.engine.reconfigure(self.time(), policy) {
                self.checks.note("policy", invalid.to_string());
            }
        }
        for machine in &spec.machines {
            self.change(*machine);
        }
        if let (FaultKind::Restart { follows }, Change::Begins(_)) = (spec.kind, what) {
            self.succeed(follows);
        }
        self.settle();
    }

    /// Sets the present condition of a machine.
    fn change(&mut self, machine: usize) {
        let before = self.machines.condition(machine).clone();
        let at = Duration::from_nanos(self.now);
        let after = condition(machine, at, self.active.iter().copied(), self.experiment);
        let servers = self.machines.servers_of(machine);
        for server in &servers {
            self.machines.advance(self.now, *server);
            self.collect();
        }
        let (crashed, removed) = (after.crashed, after.removed);
        self.machines.set_condition(machine, after);
        if crashed && !before.crashed {
            self.break_connections(machine);
        }
        for server in servers {
            self.touched(server);
        }
        if before.removed != removed {
            for node in (0u32..).zip(&self.experiment.machine_of).filter(|(_, m)| **m == machine).map(|(node, _)| node)
            {
                let node = NodeId(node);
                self.tell(if removed { NodeEvent::Draining(node) } else { NodeEvent::Resumed(node) });
            }
        }
    }

    /// Breaks the connections through a machine's addresses: their requests are lost, and the gateway
    /// learns of it.
    fn break_connections(&mut self, machine: usize) {
        let came_here = |node: u32| self.machine_of(NodeId(node)) == machine;
        let in_server = self.requests.iter().filter_map(|(slot, request)| match request.place {
            Place::Serving(server) if came_here(request.node) => Some((u64::from(slot), server)),
            _ => None,
        });
        let mut lost: Vec<(u64, u32)> = in_server.collect();
        let watches = (0u32..).zip(&self.watches).filter(|(node, _)| came_here(*node));
        lost.extend(watches.filter_map(|(node, watch)| Some((CHECK + u64::from(node), watch.as_ref()?.server?))));
        for (id, server) in lost {
            if self.machines.shares(machine) {
                self.machines.cut(self.now, server, id);
            }
            let stamp = self.leaves_server(id);
            self.answer(id, stamp, News::Broken);
        }
    }

    /// The collector of every machine reports the number of requests in its servers, at the same instant
    /// and without delay. Nodes of one machine get the same counts. A crashed machine reports nothing, and
    /// neither does one with lost reports.
    pub(super) fn report(&mut self, every: u64) {
        let mut counts = vec![[0u32; 2]; self.experiment.machines.len()];
        let policy = &self.experiment.site.policy;
        let specs: Vec<_> = policy.all_classes().collect();
        for (_, request) in self.requests.iter().filter(|(_, r)| matches!(r.place, Place::Serving(_))) {
            let content = specs[self.specs[request.traffic as usize]].content;
            counts[self.machine_of(NodeId(request.node))][content as usize] += 1;
        }
        for (node, machine) in (0u32..).zip(self.experiment.machine_of.clone()) {
            if !self.machines.condition(machine).crashed && !self.is_mute(machine) {
                let [static_content, dynamic_content] = counts[machine];
                self.tell(NodeEvent::Load { node: NodeId(node), static_content, dynamic_content });
            }
        }
        self.errand(every, Errand::Collect { every });
        self.settle();
    }

    /// Returns whether the reports about a machine are lost.
    pub(super) fn is_mute(&self, machine: usize) -> bool {
        self.active.iter().map(|index| &self.experiment.faults[*index]).any(|fault| {
            fault.kind == FaultKind::LostReports && (fault.machines.is_empty() || fault.machines.contains(&machine))
        })
    }

    fn tell(&mut self, event: NodeEvent) {
        self.checks.told(event);
        self.engine.node(self.time(), event);
    }

    /// Plans the next check of a node, if its pool has health checks.
    pub(super) fn plan_check(&mut self, node: u32) {
        if let Some(pause) = self.watches[node as usize].as_mut().map(crate::health::Watch::pause) {
            self.errand(pause, Errand::Check { node });
        }
    }

    pub(super) fn check(&mut self, node: u32) {
        let Some(watch) = &mut self.watches[node as usize] else { return };
        watch.begin();
        let (round, patience) = (watch.round, watch.patience());
        self.depart(CHECK + u64::from(node), round);
        self.errand(patience, Errand::CheckLate { node, round });
    }

    pub(super) fn check_reaches(&mut self, message: Message) {
        let Message { id, stamp, .. } = message;
        let node = NodeId((id - CHECK) as u32);
        let machine = self.machine_of(node);
        let Some(watch) = &mut self.watches[node.0 as usize] else { return };
        if watch.round != stamp || !watch.is_waiting {
            return;
        }
        // A check belongs to no class.
        let check = Work { class: u32::MAX, ..Work::default() };
        match self.machines.receive(self.now, machine, id, check) {
            Reception::Refused => self.answer(id, stamp, News::Broken),
            Reception::Full => self.answer(id, stamp, News::Status(503)),
            Reception::Failed => self.fail_fast(id, stamp),
            Reception::Taken(server) => {
                watch.server = Some(server);
                self.touched(server);
            }
        }
    }

    /// The answer to a check has reached the gateway.
    pub(super) fn check_answers(&mut self, message: Message) {
        let node = (message.id - CHECK) as u32;
        let waited_for = self.watches[node as usize].as_ref().is_some_and(|w| w.is_waiting && w.round == message.stamp);
        if waited_for {
            self.conclude(node, matches!(message.news, News::Status(200..=399)));
        }
    }

    /// A check has reached its time limit.
    pub(super) fn check_is_late(&mut self, node: u32, round: u32) {
        let Some(watch) = &self.watches[node as usize] else { return };
        if !watch.is_waiting || watch.round != round {
            return;
        }
        if let Some(server) = watch.server {
            self.machines.cut(self.now, server, CHECK + u64::from(node));
            self.touched(server);
        }
        self.conclude(node, false);
    }

    /// Ends a check.
    fn conclude(&mut self, node: u32, healthy: bool) {
        let machine = self.experiment.machine_of[node as usize];
        let is_lost = self.is_mute(machine);
        let Some(watch) = &mut self.watches[node as usize] else { return };
        if let Some(up) = watch.end(healthy, is_lost) {
            let node = NodeId(node);
            self.tell(if up { NodeEvent::Up(node) } else { NodeEvent::Down(node) });
            self.settle();
        }
        self.plan_check(node);
    }
}
