//! Requests under way, from their first sending to the end of their last attempt.
//!
//! A slab: places are reused, so a run allocates as many as are under way at once. A message about a
//! request that ended meanwhile (a reply under way to a gateway that has hung up) is told by its stamp.

use weirgate_emulator::station::Demand;
use weirgate_engine::{Demand as Cost, Ticket};
use weirgate_experiment::traffic::Document;
use weirgate_experiment::traffic::visits::VisitId;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its place in the slab is free.
    Free,
    /// Its client has not sent it yet, or waits before it tries again.
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
    /// Does it hold a slot?
    pub(crate) fn is_inside(self) -> bool {
        matches!(self, Place::Going | Place::Serving(_) | Place::Returning)
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Which stream.
    pub(crate) traffic: u32,
    /// As one of which class or template it is at the gateway: its place in the books.
    pub(crate) spec: u32,
    /// Whose, or [`weirgate_experiment::traffic::NOBODY`].
    pub(crate) user: u32,
    /// Of which page's visit, if it is of one.
    pub(crate) visit: Option<VisitId>,
    /// What it is like.
    pub(crate) demand: Demand,
    /// Which file it asks for.
    pub(crate) document: Option<Document>,
    /// Which key of the template.
    pub(crate) key: u32,
    /// Whom it comes from.
    pub(crate) flow: u64,
    /// How long its client waits, in nanoseconds.
    pub(crate) patience: u64,
    /// Attempts that its client may still make.
    pub(crate) retries: u32,
    /// The record of the present attempt of the client.
    pub(crate) record: u32,
    /// What the page table said of it when it reached the gateway.
    pub(crate) cost: Option<Cost>,
    /// Where it is.
    pub(crate) place: Place,
    /// The gateway has the first byte of its reply.
    pub(crate) begun: bool,
    /// The engine's, while it waits or is inside.
    pub(crate) ticket: Option<Ticket>,
    /// The node it is inside.
    pub(crate) node: u32,
    /// Counts the attempts of clients in this place of the slab; never falls.
    pub(crate) life: u32,
    /// Counts the attempts at nodes in this place of the slab; never falls.
    pub(crate) attempt: u32,
}

/// All requests under way.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    slots: Vec<Request>,
    free: Vec<u32>,
}

impl Requests {
    /// A place for `request`; stamps go on from where its predecessor's ended.
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

    /// The request is over.
    pub(crate) fn remove(&mut self, slot: u32) {
        let request = &mut self.slots[slot as usize];
        request.place = Place::Free;
        request.ticket = None;
        self.free.push(slot);
    }

    /// The request at `slot` if there is one.
    pub(crate) fn get(&self, slot: u64) -> Option<&Request> {
        usize::try_from(slot).ok().and_then(|slot| self.slots.get(slot)).filter(|r| r.place != Place::Free)
    }

    /// All requests under way with their places, in order of place.
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
