//! Requests under way, from their first sending to the end of their last attempt.
//!
//! The requests are kept in a slab. Entries are reused, so a run allocates as many as there are requests
//! under way at once. A message about a request that ended meanwhile (a reply under way to a gateway that
//! has hung up) is recognised by its stamp.

use weirgate_emulator::station::Demand;
use weirgate_engine::{Demand as Cost, Ticket};
use weirgate_experiment::traffic::Document;
use weirgate_experiment::traffic::visits::VisitId;

/// The position of a request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The slab entry is free.
    Free,
    /// Its client has not sent it yet, or waits before a retry.
    AtClient,
    /// At the gateway, in its class's queue.
    Waiting,
    /// Under way to a machine.
    Going,
    /// In this server.
    Serving(u32),
    /// Its reply (or the news of its failure) is under way to the gateway.
    Returning,
}

impl Place {
    /// Returns whether the request holds a slot.
    pub(crate) fn is_in_flight(self) -> bool {
        matches!(self, Place::Going | Place::Serving(_) | Place::Returning)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Index of its traffic stream.
    pub(crate) traffic: u32,
    /// Index of its class or template at the gateway, in the checkers' tallies.
    pub(crate) spec: u32,
    /// Its user, or [`weirgate_experiment::traffic::NO_USER`].
    pub(crate) user: u32,
    /// The visit of its page, if it belongs to one.
    pub(crate) visit: Option<VisitId>,
    pub(crate) demand: Demand,
    /// The file that it asks for.
    pub(crate) document: Option<Document>,
    /// Its key within the template.
    pub(crate) key: u32,
    pub(crate) flow: u64,
    /// The patience of its client, in nanoseconds.
    pub(crate) patience: u64,
    /// Number of attempts that its client may still make.
    pub(crate) retries: u32,
    /// Index of the record of the client's present attempt.
    pub(crate) record: u32,
    /// Its cost by the page table when it reached the gateway.
    pub(crate) cost: Option<Cost>,
    pub(crate) place: Place,
    /// Whether the gateway has the first byte of its reply.
    pub(crate) begun: bool,
    /// The engine's ticket, while it waits or is in flight.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) node: u32,
    /// Counts the attempts of clients in this slab entry. Never falls.
    pub(crate) life: u32,
    /// Counts the attempts at nodes in this slab entry. Never falls.
    pub(crate) attempt: u32,
}

/// All requests under way.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    slots: Vec<Request>,
    free: Vec<u32>,
}

impl Requests {
    /// Stores `request` and returns its entry. The stamps continue from those of the entry's previous
    /// request.
    pub(crate) fn insert(&mut self, request: Request) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                let place = &mut self.slots[slot as usize];
                let (life, attempt) = (place.life, place.attempt);
                *place = Request { life, attempt, ..request };
                slot
            }
            None => {
                self.slots.push(request);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Frees the entry of a request that is over.
    pub(crate) fn remove(&mut self, slot: u32) {
        let request = &mut self.slots[slot as usize];
        request.place = Place::Free;
        request.ticket = None;
        self.free.push(slot);
    }

    /// Returns the request at `slot`, if there is one.
    pub(crate) fn get(&self, slot: u64) -> Option<&Request> {
        usize::try_from(slot).ok().and_then(|slot| self.slots.get(slot)).filter(|r| r.place != Place::Free)
    }

    /// Returns all requests under way with their entries, in order of entry.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Request)> {
        (0u32..).zip(&self.slots).filter(|(_, request)| request.place != Place::Free)
    }
}

impl std::ops::Index<u32> for Requests {
    type Output = Request;

    fn index(&self, slot: u32) -> &Request {
        &self.slots[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for Requests {
    fn index_mut(&mut self, slot: u32) -> &mut Request {
        &mut self.slots[slot as usize]
    }
}
