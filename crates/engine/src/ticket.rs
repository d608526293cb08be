//! Tickets: every request that the engine has accepted and not yet seen the end of.
//!
//! A slab with generations. A ticket is an index and the generation it was given under, so that a
//! stale one (a cancel that crosses a release, a report that comes twice) is recognised and ignored.
//! Places are reused; in steady state nothing is allocated.

use crate::demand::Demand;
use crate::limit::Slot;
use crate::request::{ClassId, NodeId, Ticket};
use crate::scheduler::Standing;
use crate::time::Time;

/// No ticket, no node.
pub(crate) const NONE: u32 = u32::MAX;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The place is free; `next` links the free places.
    Free,
    /// In its class's queue; `next` and `prev` link the queue.
    Waiting,
    /// Released to a node; it holds a slot.
    Inside,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) generation: u32,
    pub(crate) state: State,
    pub(crate) class: ClassId,
    /// The node it is inside, or [`NONE`] once the policy no longer names that node.
    pub(crate) node: NodeId,
    /// The window that it is inside.
    pub(crate) window: u32,
    pub(crate) next: u32,
    pub(crate) prev: u32,
    /// Order of arrival; one that is put back arrives again.
    pub(crate) sequence: u64,
    /// Its tag.
    pub(crate) code: u32,
    pub(crate) tag: u64,
    pub(crate) flow: u64,
    pub(crate) target: Option<u64>,
    pub(crate) arrived: Time,
    pub(crate) released: Time,
    /// What it takes of its node.
    pub(crate) demand: Demand,
    /// Its sub_queue in its class's queue.
    pub(crate) sub_queue: u8,
    /// Slot-seconds charged in advance.
    pub(crate) charged: f64,
    /// Its slot-seconds are charged to its class's tag.
    pub(crate) fair: bool,
    /// In which standing it was released, and among how many requests on its machine.
    pub(crate) standing: Standing,
    pub(crate) among: u32,
    pub(crate) retries: u8,
    /// Its response has begun: it is not tried again.
    pub(crate) first_byte: bool,
    /// It arrived within the guaranteed rate of its class.
    pub(crate) owed: bool,
    /// Its class was removed while it was here: its times say nothing about its new class.
    pub(crate) adopted: bool,
}

impl Entry {
    /// What load control counts of it while it is in flight.
    pub(crate) fn slot(&self, demand: Demand) -> Slot {
        let Entry { class, standing, window, node, released, .. } = *self;
        Slot { class, standing, window, node, demand, released }
    }
}

/// All requests that wait or are inside.
#[derive(Clone, Debug)]
pub(crate) struct Tickets {
    pub(crate) entries: Vec<Entry>,
    free: u32,
    sequence: u64,
}

impl Tickets {
    pub(crate) fn new() -> Tickets {
        Tickets { entries: Vec::new(), free: NONE, sequence: 0 }
    }

    /// A place for a new request, in state `Waiting` and in no queue yet.
    pub(crate) fn insert(&mut self, class: ClassId, flow: u64, tag: u64, arrived: Time) -> u32 {
        let sequence = self.next_number();
        let fresh = Entry {
            generation: 0,
            state: State::Waiting,
            class,
            node: NodeId::NONE,
            window: 0,
            next: NONE,
            prev: NONE,
            sequence,
            code: 0,
            tag,
            flow,
            target: None,
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
        *place = Entry { generation: place.generation, ..fresh };
        index
    }

    /// A number for an arrival, later than all before.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Frees a place; its ticket is stale from now on.
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

    /// The place of a ticket that is not stale and in `state`.
    pub(crate) fn find(&self, ticket: Ticket, state: State) -> Option<u32> {
        let entry = self.entries.get(ticket.index as usize)?;
        (entry.generation == ticket.generation && entry.state == state).then_some(ticket.index)
    }
}

impl core::ops::Index<u32> for Tickets {
    type Output = Entry;

    fn index(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }
}

impl core::ops::IndexMut<u32> for Tickets {
    fn index_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }
}
