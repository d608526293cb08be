//! The number of workers of a machine, found by the order of its answers.
//!
//! Many servers have a fixed number of workers, and requests wait in front of them in the order in which they came:
//! PHP behind Apache or FPM, gunicorn, a pool of threads or of database connections. Once a request is there, nobody
//! can change that order any more, and an owed one may stand behind expensive ones of other classes. A machine with a
//! known number of workers therefore has only a few requests more than workers in flight, whatever the window and the
//! guarantees allow. The others wait in the gateway, in the order of the policy.
//!
//! A pool of *k* workers takes a request when fewer than *k* of those before it are left. So with an assumed *k* the
//! gateway sees that moment, and what the time from there on looks like tells whether *k* is right: see [`evidence`].
//! The order tells even more if times vary: an answer with *d* − 1 older requests in flight has overtaken all of them,
//! so there are at least *d* workers.
//! - *k* grows and shrinks by a quarter, as the evidence says. The comparison begins anew with each number, and when
//!   the times of a class have changed.
//! - It grows at once to what the order shows.
//! - A number that nobody waits for, and that no answer shows, falls by one in [`LOOK`] answers until it is found.
//! - Once it is found, the machine has at most *k* and a quarter more requests in flight, and at least one more. A
//!   worker that becomes free then has its next request already.
//! - While all requests wait, there is one more in flight now and then. If the crowd were always the same, a number
//!   that is too small would never be noticed, and a machine that gets more workers would not use them.
//!
//! This is ours: no source that we know finds the workers of a server by the order of its answers. On a machine that
//! shares its processors among all requests no number is right, and hardly ever is one found. Where all requests take
//! the same time and leave in order, such a machine is a pool of as many workers as it has processors, and may be
//! taken for one. A number that has become too large is noticed late, because hardly a request waits by it.

mod evidence;
#[cfg(test)]
mod tests;

use super::Nodes;
use super::speed::Settled;
use crate::index::{Id as _, MachineGroupId, MachineId};
use crate::request::{ClassId, NodeId};
use crate::time::Time;

use evidence::{Evidence, Verdict};

pub(super) use evidence::Figures;

/// Maximum number of requests in flight that are listed, and of workers that can be found. The list is searched at each
/// answer. More than a few hundred workers are no small pool, and the window serves them well.
const LISTED: usize = 256;

/// Number of answers between two looks at what the order shows. A pool at work shows all of its workers in fewer.
const LOOK: u32 = 200;

/// Part of the workers by which the number changes at once, and by which requests in flight may exceed it. With as many
/// in flight as workers, twice as many runs of small pools miss a guarantee. With twice as many in flight, five times.
const PART: usize = 4;

/// Number of answers in a row for which the evidence has to stay. When the times of a class change, crowds and times
/// grow together until the change test notices it, after about twenty answers.
const CONFIRMED: u32 = 30;

/// Bit of the number of answers that alternates between the usual bound and one request more: every four answers, about
/// as fast as the usual figures of a class follow.
const TURN: u32 = 4;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Listed {
    ticket: u32,
    released: Time,
    /// Requests in flight after its release, itself included.
    among: u32,
    taken: Taken,
}

/// Time at which a worker took a request, with the assumed number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// It waits.
    Not,
    At(Time),
    /// Another number was assumed at its release.
    Unknown,
}

/// The requests in flight of a machine, and the number of its workers.
#[derive(Clone, Debug)]
pub(super) struct Workers {
    /// Oldest first.
    list: Vec<Listed>,
    /// Older requests that are not listed.
    unlisted: usize,
    /// The assumed number of workers.
    assumed: usize,
    is_found: bool,
    evidence: Evidence,
    /// Answers in a row after which the evidence spoke for the assumed number.
    right: u32,
    /// Answers since the latest look.
    answers: u32,
    /// Largest number of workers that one of them has shown.
    shown: usize,
    /// Whether all of them have waited so far.
    all_waited: bool,
    /// Whether all of them had waited at the latest look.
    alternates: bool,
}

impl Default for Workers {
    fn default() -> Workers {
        Workers {
            list: Vec::new(),
            unlisted: 0,
            assumed: 1,
            is_found: false,
            evidence: Evidence::default(),
            right: 0,
            answers: 0,
            shown: 0,
            all_waited: true,
            alternates: false,
        }
    }
}

impl Workers {
    /// Returns the number of workers, if it is known.
    pub(super) fn found(&self) -> Option<u32> {
        self.is_found.then_some(self.assumed as u32)
    }

    /// Returns the maximum number of requests in flight.
    pub(super) fn bound(&self) -> u32 {
        match self.found() {
            Some(found) => found + self.part() as u32 + u32::from(self.has_one_more()),
            None => u32::MAX,
        }
    }

    /// Whether one more request may be in flight, in turns while all of them wait.
    fn has_one_more(&self) -> bool {
        self.alternates && self.answers & TURN != 0
    }

    fn part(&self) -> usize {
        (self.assumed / PART).max(1)
    }

    fn began(&mut self, now: Time, ticket: u32) {
        if self.list.len() == LISTED {
            // They are the oldest ones of an even longer list, so none of them is next.
            self.unlisted += self.list.len();
            self.list.clear();
        }
        let before = self.in_flight();
        let taken = if before < self.assumed { Taken::At(now) } else { Taken::Not };
        self.list.push(Listed { ticket, released: now, among: before as u32 + 1, taken });
    }

    fn ended(&mut self, now: Time, ticket: u32) {
        match self.place(ticket) {
            Some(place) => drop(self.list.remove(place)),
            None => self.unlisted = self.unlisted.saturating_sub(1),
        }
        let place = (self.assumed - 1).checked_sub(self.unlisted);
        let next = place.and_then(|place| self.list.get_mut(place));
        if let Some(next) = next.filter(|next| next.taken == Taken::Not) {
            next.taken = Taken::At(now);
        }
    }

    /// Learns from an answer whose request is still listed.
    fn answered(&mut self, now: Time, ticket: u32, usual: &mut Option<Figures>) {
        let Some(place) = self.place(ticket) else { return };
        let Listed { released, among, taken, .. } = self.list[place];
        let shown = self.unlisted + place + 1;
        self.answers += 1;
        self.shown = self.shown.max(shown);
        if shown > self.assumed {
            self.assume(shown);
        } else if let Taken::At(taken) = taken {
            if shown > 1 && shown == self.assumed && place + 1 < self.list.len() {
                self.evidence.overtook();
            }
            let has_waited = taken > released;
            self.all_waited &= has_waited;
            let nanos = |since: Time| now.as_nanos().saturating_sub(since.as_nanos()).max(1) as f64;
            let time = nanos(taken).ln();
            let (stretch, crowd) = match has_waited {
                true => {
                    // The next larger number of workers would explain no more.
                    let most = (self.part() as f64 / self.assumed as f64).ln_1p();
                    ((nanos(released).ln() - time).min(most), 1.0 - self.assumed as f64 / f64::from(among))
                }
                false => (0.0, 0.0),
            };
            self.evidence.add(Figures { time, stretch, crowd }, usual);
            let verdict = self.evidence.verdict();
            self.right = if verdict == Verdict::Right { self.right + 1 } else { 0 };
            match verdict {
                Verdict::Open => {}
                Verdict::Right => self.is_found |= self.right > CONFIRMED,
                Verdict::TooSmall => self.reject(self.assumed + self.part()),
                Verdict::TooLarge => self.reject((self.assumed - self.part()).max(self.shown)),
            }
        }
        if self.answers >= LOOK {
            self.look();
        }
    }

    fn look(&mut self) {
        if !self.is_found && self.evidence.nobody_waits() && self.shown < self.assumed {
            self.assume(self.assumed - 1);
        }
        self.alternates = self.all_waited;
        (self.answers, self.shown, self.all_waited) = (0, 0, true);
    }

    fn reject(&mut self, assumed: usize) {
        self.is_found = false;
        self.assume(assumed);
    }

    /// Begins the comparison anew. A number that was found stays until it is refuted.
    fn begin_again(&mut self) {
        self.evidence = Evidence::default();
        self.right = 0;
    }

    fn assume(&mut self, assumed: usize) {
        self.assumed = assumed.clamp(1, LISTED);
        self.begin_again();
        self.list.iter_mut().for_each(|listed| listed.taken = Taken::Unknown);
    }

    /// Continues with what another policy has learned. Requests in flight are not listed: their nodes may be gone.
    pub(super) fn inherit(&mut self, known: &Workers, in_flight: u32) {
        *self = Workers { list: Vec::new(), unlisted: in_flight as usize, ..known.clone() };
    }

    fn in_flight(&self) -> usize {
        self.unlisted + self.list.len()
    }

    fn place(&self, ticket: u32) -> Option<usize> {
        self.list.iter().position(|listed| listed.ticket == ticket)
    }
}

impl Nodes {
    /// Lists a request that was sent to a node.
    pub(crate) fn began(&mut self, now: Time, node: NodeId, ticket: u32) {
        if let Some(index) = self.searched(node) {
            let machine = &mut self.machines[index];
            machine.workers.began(now, ticket);
            debug_assert_eq!(machine.workers.in_flight(), machine.in_flight as usize);
        }
    }

    /// Forgets a request that has left its node.
    pub(crate) fn ended(&mut self, now: Time, node: NodeId, ticket: u32) {
        if let Some(index) = self.searched(node) {
            let machine = &mut self.machines[index];
            machine.workers.ended(now, ticket);
            debug_assert_eq!(machine.workers.in_flight(), machine.in_flight as usize);
        }
    }

    /// Learns from a good answer of a request that has not left its node yet.
    pub(crate) fn answered(&mut self, now: Time, node: NodeId, ticket: u32, class: ClassId) {
        let Some(index) = self.searched(node) else { return };
        self.usual.grow(class.row() + 1, None);
        let workers = &mut self.machines[index].workers;
        let bound = workers.bound();
        workers.answered(now, ticket, &mut self.usual[class]);
        if workers.bound() != bound {
            self.bound_again(index);
        }
    }

    /// Compares the answers of a group's machines anew, because the times of a class have changed. The number in flight
    /// follows them, so that the times of all classes would seem to follow it.
    pub(crate) fn times_changed(&mut self, group: MachineGroupId, class: ClassId) {
        if let Some(usual) = self.usual.get_mut(class) {
            *usual = None;
        }
        for index in &self.groups[group].machines {
            self.machines[*index].workers.begin_again();
        }
    }

    /// The number of workers of a node's machine, if it is known.
    pub(crate) fn workers(&self, node: NodeId) -> Option<u32> {
        self.machines[self.nodes[node].machine].workers.found()
    }

    /// The machine of a node that still exists, if its workers are searched for.
    fn searched(&self, node: NodeId) -> Option<MachineId> {
        self.nodes.get(node).filter(|_| self.finds_workers).map(|node| node.machine)
    }

    /// Applies a bound that has changed. It may be higher only after the next spread of the window.
    fn bound_again(&mut self, index: MachineId) {
        let machine = &self.machines[index];
        let (group, max) = (machine.group, machine.max.min(machine.workers.bound()));
        self.groups[group].settled = Settled::NEVER;
        self.bound_machine(index, max);
    }
}
