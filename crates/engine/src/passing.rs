//! Observed requests: they pass at once, whatever the discipline says.
//!
//! A request passes if its class is not enforced for its source ([`crate::Mode`]). It goes to the node that dispatch
//! chooses, and counts for the load of that node. It takes no slot of a window, no token and no place in a queue, so
//! that enforced classes keep their rules. Load control learns nothing from it.
//!
//! Requests that wait when a new policy stops enforcing their class pass as well, in order of arrival. Requests that
//! have passed stay what they are until they end, whatever a new policy says.

use crate::dispatch::Wanted;
use crate::engine::Engine;
use crate::mode::Mode;
use crate::queue::Turn;
use crate::request::{Action, Arrival, ClassId, Decision, NodeId, ShedReason, Ticket};
use crate::scheduler::Standing;
use crate::ticket::{RequestState, State};
use crate::time::Time;

/// Marks requests in flight that no window counts: those that have passed.
const NO_WINDOW: u32 = u32::MAX;

impl RequestState {
    /// Whether it has passed and is in flight.
    #[inline]
    pub(crate) fn has_passed(&self) -> bool {
        self.window == NO_WINDOW
    }
}

impl Engine {
    /// Takes the arrival of a request that is observed only. It is refused only if no node is usable.
    pub(crate) fn arrive_observed(&mut self, now: Time, class: ClassId, arrival: &Arrival) -> Decision {
        let (guarantee, service) = (self.classes.spec(class).guarantee, self.classes.service_time(class));
        let unknown = !self.policy.resources.is_empty() && arrival.demand.is_none();
        let observed = &mut self.classes[class].observed;
        let owed = observed.offered(now, &guarantee, service);
        observed.counts.unknown += u64::from(unknown);
        self.classes.roll(now, class);
        self.demand(class);
        if self.nodes.usable(self.classes[class].partition) == 0 {
            return Decision::Shed(self.refuse(now, class, ShedReason::NoNode, owed));
        }
        if !self.classes[class].in_use() {
            self.classes.leave_idle(class);
        }
        let (demand, sub_queue) = self.demanded(class, arrival.demand);
        let index = self.tickets.insert(class, arrival.flow, arrival.token, now);
        let entry = &mut self.tickets[index];
        (entry.demand, entry.sub_queue) = (demand, sub_queue as u8);
        (entry.locality_key, entry.owed) = (arrival.locality_key, owed);
        let node = self.pass(now, index);
        Decision::Release { ticket: self.tickets.ticket(index), node }
    }

    /// Passes a waiting request of a class that is no longer enforced. Without a usable node it waits on.
    pub(crate) fn pass_waiting(&mut self, now: Time, ticket: Ticket) -> Option<Action> {
        let index = self.tickets.find(ticket, State::Waiting)?;
        let RequestState { class, token, arrived, .. } = self.tickets[index];
        if self.nodes.usable(self.classes[class].partition) == 0 {
            return None;
        }
        self.queues.left(class);
        if self.dequeue(index, Turn::Kept) {
            self.rank(class);
        }
        let node = self.pass(now, index);
        if !self.classes[class].active() {
            self.retire(class);
        }
        Some(Action::Release { ticket, token, node, waited: now.since(arrived) })
    }

    /// The waiting requests of classes that are not enforced, in order of arrival.
    pub(crate) fn to_pass(&self) -> impl DoubleEndedIterator<Item = Ticket> + use<> {
        let waits = |index: &u32| {
            let entry = &self.tickets[*index];
            entry.state == State::Waiting && self.classes.spec(entry.class).mode != Mode::Enforce
        };
        let mut waiting: Vec<u32> = (0..self.tickets.entries.len() as u32).filter(waits).collect();
        waiting.sort_unstable_by_key(|index| self.tickets[*index].sequence);
        let tickets: Vec<Ticket> = waiting.into_iter().map(|index| self.tickets.ticket(index)).collect();
        tickets.into_iter()
    }

    /// Sends a request to a node beyond all bounds. A node is usable.
    fn pass(&mut self, now: Time, index: u32) -> NodeId {
        let class = self.tickets[index].class;
        let wanted = self.passing_to(index, NodeId::NONE);
        let node = self.nodes.dispatch_passing(&wanted, &self.limit, &mut self.random).unwrap_or(NodeId::NONE);
        debug_assert_ne!(node, NodeId::NONE, "the caller made sure that a node is usable");
        let budget = self.classes.spec(class).retry;
        let state = &mut self.classes[class];
        state.retry.deposit(&budget);
        let alone = state.in_flight + state.passing == 0;
        state.observed.released(now, alone);
        state.passing += 1;
        let entry = &mut self.tickets[index];
        (entry.state, entry.node, entry.window, entry.released) = (State::InFlight, node, NO_WINDOW, now);
        (entry.standing, entry.fair) = (Standing::Owed, false);
        node
    }

    fn passing_to(&self, index: u32, avoid: NodeId) -> Wanted {
        let RequestState { class, sub_queue, locality_key, demand, .. } = self.tickets[index];
        Wanted {
            partition: self.classes[class].partition,
            class,
            sub_queue: usize::from(sub_queue),
            content: self.classes.spec(class).content,
            locality_key,
            demand: self.policy.managed(demand),
            avoid,
            // No window holds back a request that is needed.
            standing: Standing::Needed,
            kept: None,
        }
    }

    /// Retries a request that has passed on another node, if one is usable and the budget of its class allows it.
    /// Otherwise forgets it.
    pub(crate) fn retry_passing(&mut self, now: Time, index: u32) -> Option<NodeId> {
        let RequestState { class, node, .. } = self.tickets[index];
        let wanted = self.passing_to(index, node);
        let budget = self.classes.spec(class).retry;
        self.nodes.passed(node, wanted.content);
        self.tickets[index].node = NodeId::NONE;
        let next = if self.classes[class].retry.take(now, &budget) {
            let next = self.nodes.dispatch_passing(&wanted, &self.limit, &mut self.random);
            if next.is_none() {
                self.classes[class].retry.put_back();
            }
            next
        } else {
            None
        };
        let Some(next) = next else {
            self.leave_passing(index);
            return None;
        };
        self.classes[class].observed.counts.retried += 1;
        let entry = &mut self.tickets[index];
        (entry.node, entry.released) = (next, now);
        entry.retries += 1;
        Some(next)
    }

    /// Forgets a request that has passed.
    #[cold]
    pub(crate) fn leave_passing(&mut self, index: u32) {
        let RequestState { class, node, .. } = self.tickets[index];
        self.tickets.remove(index);
        self.nodes.passed(node, self.classes.spec(class).content);
        self.classes[class].passing -= 1;
        if !self.classes[class].in_use() {
            self.classes.enter_idle(class);
        }
    }
}
