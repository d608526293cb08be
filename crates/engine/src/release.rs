//! Stage *release*, the engine's part: asks the scheduler for the next request and releases it.

use crate::admission::Offer;
use crate::dispatch::Wanted;
use crate::engine::Engine;
use crate::queue::Turn;
use crate::request::{Action, ClassId, NodeId};
use crate::scheduler::{Claim, Release, SchedulerView};
use crate::ticket::{NONE, State};
use crate::time::Time;

impl Engine {
    /// Stage *release*: releases a waiting request to a node.
    pub(crate) fn release(&mut self, now: Time, index: u32) -> Action {
        let late = self.is_late(index);
        let entry = &self.tickets[index];
        let sub_queue = if late { 0 } else { entry.sub_queue };
        let fair = self.scheduler.charges(entry.class, usize::from(sub_queue));
        self.tickets[index].fair = fair;
        // `send` ranks the class again.
        self.dequeue(index, Turn::Used);
        self.tickets[index].sub_queue = sub_queue;
        let node = self.send(now, index);
        let entry = &self.tickets[index];
        let waited = now.since(entry.arrived);
        Action::Release { ticket: self.tickets.ticket(index), token: entry.token, node, waited }
    }

    /// Stage *release*: sends an accepted request to a node. The partition has room.
    pub(crate) fn send(&mut self, now: Time, index: u32) -> NodeId {
        let class = self.tickets[index].class;
        let partition = self.classes[class].partition;
        let (content, locality_key) = (self.classes.spec(class).content, self.tickets[index].locality_key);
        let sub_queue = usize::from(self.tickets[index].sub_queue);
        let demand = self.policy.managed(self.tickets[index].demand);
        let standing = self.scheduler.standing(now, &self.classes, class);
        let avoid = NodeId::NONE;
        let place = self.limit.standing((&self.classes, &self.nodes), (partition, sub_queue), class, standing);
        let wanted =
            Wanted { partition, class, sub_queue, content, locality_key, demand, avoid, standing: place, kept: None };
        let node = self.nodes.dispatch(&wanted, &self.limit, &mut self.random).unwrap_or(NodeId::NONE);
        debug_assert_ne!(node, NodeId::NONE, "the caller made sure that the partition has room");
        let window = self.limit.window_of(sub_queue, self.nodes.group_of(node));
        let entry = &self.tickets[index];
        let charged = entry.fair.then_some(entry.charged);
        let (scheduler, view) = self.scheduling();
        scheduler.released(&view, &Release { class, sub_queue, demand }, charged);
        let budget = self.classes.spec(class).retry;
        let state = &mut self.classes[class];
        state.retry.deposit(&budget);
        state.observed.released(now, state.in_flight == 0);
        state.in_flight += 1;
        self.admission.released(now, class, sub_queue);
        let entry = &mut self.tickets[index];
        entry.state = State::InFlight;
        entry.node = node;
        entry.window = window;
        entry.released = now;
        (entry.standing, entry.among) = (standing, self.nodes.on_machine(node));
        let slot = self.tickets[index].slot(demand);
        self.limit.enters(now, &slot, &self.nodes);
        self.nodes.began(now, node, index);
        self.rank(class);
        node
    }

    /// The class and sub-queue of the next request.
    pub(crate) fn next(&mut self) -> Option<(ClassId, usize)> {
        let (scheduler, mut view) = self.scheduling();
        scheduler.next(&mut view)
    }

    /// The SEDA priority with which the next request is put back, if it is put back.
    pub(crate) fn puts_back(&mut self, index: u32) -> Option<u32> {
        let Engine { now, policy, classes, tickets, queues, nodes, limit, scheduler, random, .. } = self;
        let view = SchedulerView { now: *now, policy, classes, tickets, queues, nodes, limit };
        scheduler.puts_back(&view, index, random)
    }

    /// Puts the head of its class's queue back at the end. Admission may refuse it there. Then the refusal
    /// is returned.
    pub(crate) fn put_back(&mut self, now: Time, index: u32, code: u32) -> Option<Action> {
        let class = self.tickets[index].class;
        let sub_queue = usize::from(self.tickets[index].sub_queue);
        let (admission, view, random) = self.admitting();
        let offer = Offer { class, sub_queue, code, itself: Some(index), source: None };
        if let Some(reason) = admission.decide_again(&view, &offer, random) {
            return Some(self.turn_away(now, index, reason));
        }
        let bounds = self.bounds(class);
        let queue = &mut self.classes[class].queue;
        self.queues.unlink(&mut self.tickets, queue, (index, Turn::Kept), bounds);
        self.tickets[index].sequence = self.tickets.next_number();
        self.tickets[index].code = code;
        let source = self.queues.source(class, self.tickets[index].flow);
        self.queues.push(&mut self.tickets, queue, (index, source), bounds);
        self.rank(class);
        None
    }

    /// A waiting request that fits no remaining node. It would block all requests behind it until its node
    /// returns.
    pub(crate) fn too_large(&mut self) -> Option<u32> {
        let resources = self.limit.resources_mut()?;
        let from = resources.unseen?;
        let mut entries = self.tickets.entries.iter().skip(from);
        let found = entries.position(|entry| {
            // Free entries may name a class that no longer exists.
            entry.state == State::Waiting && {
                let partition = self.classes[entry.class].partition;
                resources.is_too_large(partition, self.policy.managed(entry.demand))
            }
        });
        // Later arrivals are checked on arrival.
        resources.unseen = found.map(|found| from + found + 1);
        found.map(|found| (from + found) as u32)
    }

    /// Updates the position of a class in the scheduler and in the expiry heap.
    pub(crate) fn rank(&mut self, class: ClassId) {
        let state = &self.classes[class];
        let partition = state.partition;
        let (waits, known) = (state.queue.len > 0, self.queues.expiry.contains(class));
        if !waits && !known {
            return;
        }
        for sub_queue in 0..self.queues.sub_queues {
            let head = self.classes[class].queue.head(sub_queue, self.queues.has_late());
            if head == NONE {
                self.scheduler.gone(class, partition, sub_queue);
                continue;
            }
            let (scheduler, view) = self.scheduling();
            scheduler.waits(&view, Claim { class, partition, sub_queue, head });
        }
        if !waits {
            self.queues.expiry.remove(0, class);
            return;
        }
        let (due, ..) = self.first_drop(self.now, class);
        self.queues.expiry.set(0, class, due);
    }

    /// Ends the claims of a class that is no longer active, and marks it idle unless it has requests that have passed.
    pub(crate) fn retire(&mut self, class: ClassId) {
        self.scheduler.idle(&self.classes, class);
        if self.classes[class].passing == 0 {
            self.classes.enter_idle(class);
        }
    }

    /// Updates the weight of a class after a service time became known, its own or another's.
    pub(crate) fn reweigh(&mut self, class: ClassId) {
        let due = self.classes.due_weight(class);
        let old = self.classes.change_weight(class, due);
        if old == due {
            return;
        }
        if self.classes[class].active() {
            self.scheduler.reweighed(old, due);
            self.rank(class);
        }
    }
}
