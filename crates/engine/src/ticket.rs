//! Tickets: every request that the engine has accepted and that has not ended.
//!
//! A slab with generations. A ticket holds an index and a generation, so that a stale ticket (a cancel that
//! crosses a release, an outcome reported twice) is recognised and ignored. Entries are reused. In steady
//! state nothing is allocated.

use crate::demand::Demand;
use crate::limit::Slot;
use crate::queue::SourceId;
use crate::request::{ClassId, NodeId, Ticket};
use crate::scheduler::Standing;
use crate::time::Time;

/// Marks the absence of a ticket.
pub(crate) const NONE: u32 = u32::MAX;

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The entry is free. `next` links the free entries.
    Free,
    /// In the queue of its class. `next` and `prev` link the queue in order of arrival.
    Waiting,
    /// Released to a node. It holds a slot.
    InFlight,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct RequestState {
    pub(crate) generation: u32,
    pub(crate) state: State,
    pub(crate) class: ClassId,
    /// The node that serves it, or [`NodeId::NONE`] once the policy no longer names that node.
    pub(crate) node: NodeId,
    /// The window that counts it.
    pub(crate) window: u32,
    pub(crate) next: u32,
    pub(crate) prev: u32,
    /// The next and the last request of its source in its sub-queue.
    pub(crate) younger: u32,
    pub(crate) older: u32,
    /// The requests with the turns before and after its own, while it is the oldest of its source.
    pub(crate) turn_before: u32,
    pub(crate) turn_after: u32,
    /// Its source, while it waits.
    pub(crate) source: SourceId,
    /// Order of arrival. A request that is put back gets a new number.
    pub(crate) sequence: u64,
    /// Its SEDA priority.
    pub(crate) code: u32,
    pub(crate) token: u64,
    pub(crate) flow: u64,
    pub(crate) locality_key: Option<u64>,
    pub(crate) arrived: Time,
    pub(crate) released: Time,
    /// Its cost on its node.
    pub(crate) demand: Demand,
    /// Its sub-queue in the queue of its class.
    pub(crate) sub_queue: u8,
    /// Slot-seconds charged in advance.
    pub(crate) charged: f64,
    /// Whether its slot-seconds are charged to its class.
    pub(crate) fair: bool,
    /// Its standing at release, and the number of requests on its machine at that time.
    pub(crate) standing: Standing,
    pub(crate) among: u32,
    pub(crate) retries: u8,
    /// The response has begun, so the request is not retried.
    pub(crate) first_byte: bool,
    /// It arrived within the guaranteed rate of its class.
    pub(crate) owed: bool,
    /// Its class was removed before it ended. Its times say nothing about its new class.
    pub(crate) adopted: bool,
}

impl RequestState {
    /// The facts that load control counts while the request is in flight.
    pub(crate) fn slot(&self, demand: Demand) -> Slot {
        let RequestState { class, standing, window, node, released, .. } = *self;
        Slot { class, standing, window, node, demand, released }
    }
}

/// All requests that wait or are in flight.
#[derive(Clone, Debug)]
pub(crate) struct Tickets {
    pub(crate) entries: Vec<RequestState>,
    free: u32,
    sequence: u64,
}

impl Tickets {
    pub(crate) fn new() -> Tickets {
        Tickets { entries: Vec::new(), free: NONE, sequence: 0 }
    }

    /// Creates the entry of a new request, in state `Waiting` and in no queue yet.
    pub(crate) fn insert(&mut self, class: ClassId, flow: u64, token: u64, arrived: Time) -> u32 {
        let sequence = self.next_number();
        let fresh = RequestState {
            generation: 0,
            state: State::Waiting,
            class,
            node: NodeId::NONE,
            window: 0,
            next: NONE,
            prev: NONE,
            younger: NONE,
            older: NONE,
            turn_before: NONE,
            turn_after: NONE,
            source: NONE,
            sequence,
            code: 0,
            token,
            flow,
            locality_key: None,
            demand: Demand::default(),
            sub_queue: 0,
            arrived,
            released: arrived,
            charged: 0.0,
            fair: true,
            standing: Standing::Owed,
            among: 0,
            retries: 0,
            first_byte: false,
            owed: false,
            adopted: false,
        };
        if self.free == NONE {
            self.entries.push(fresh);
            return self.entries.len() as u32 - 1;
        }
        let index = self.free;
        let place = &mut self.entries[index as usize];
        self.free = place.next;
        *place = RequestState { generation: place.generation, ..fresh };
        index
    }

    /// A sequence number, larger than all before.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Frees an entry. Its ticket is stale from now on.
    pub(crate) fn remove(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = index;
    }

    /// The ticket of the request at `index`.
    pub(crate) fn ticket(&self, index: u32) -> Ticket {
        Ticket { index, generation: self.entries[index as usize].generation }
    }

    /// The index of a ticket, if the ticket is not stale and its request is in `state`.
    pub(crate) fn find(&self, ticket: Ticket, state: State) -> Option<u32> {
        let entry = self.entries.get(ticket.index as usize)?;
        (entry.generation == ticket.generation && entry.state == state).then_some(ticket.index)
    }
}

impl core::ops::Index<u32> for Tickets {
    type Output = RequestState;

    fn index(&self, index: u32) -> &RequestState {
        &self.entries[index as usize]
    }
}

impl core::ops::IndexMut<u32> for Tickets {
    fn index_mut(&mut self, index: u32) -> &mut RequestState {
        &mut self.entries[index as usize]
    }
}
