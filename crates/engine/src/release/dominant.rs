//! [`crate::Precedence::Drfq`]: dominant-resource fair queueing over the nodes' resources.
//!
//! Source: the idea is that of Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011), and of its queueing form,
//! "Multi-Resource Fair Queueing for Packet Processing" (SIGCOMM 2012): a class has a virtual time per resource, which
//! advances by what it took of that resource over its weight; the largest of them is that of its *dominant* resource, and
//! the class where that is smallest goes first. What is released here are requests that hold all their resources at once
//! until they are answered, not packets that use them one after the other; and mQoS (Feng and Lin) gives every class a
//! queue per resource. Hence:
//! - of its own heads a class releases that for the resource of which it has had least: so it comes to have the same part of
//!   every resource, and its dominant share grows no faster than it must;
//! - who does not fit is passed over, so that nothing is idle that somebody can use. *Overtaking is bounded*, twice. Nobody's
//!   dominant virtual time runs further than [`AHEAD`] of the one that is furthest behind, unless what it
//!   takes is nothing of the resources that the other one waits for. And a head that has been passed over for
//!   [`PATIENCE`] gets the nodes' resources *reserved* as they become free: until it fits, nothing is released that takes of what it
//!   lacks. So a request that needs most of a node does not wait for ever among many that need little of it, be they
//!   its own class's. A class that is too far ahead (by a resource that nobody else wants, say) has to wait longer, by
//!   its part of the weights, and not for ever either;
//! - a class that begins to wait has the virtual time of the one that is furthest behind, in every resource: it does not
//!   catch up on what it did not use (start-time fair queueing, Goyal, Vin and Cheng 1996). Nor does it by another mix: what it has
//!   had less of one resource than of its dominant one counts up to [`MEMORY`] (their Δ-DRFQ).
//!
//! Beside `mdrr` no class waits for a round to end: turns are as short as the requests. A choice costs O(resources ×
//! [`LOOK`] + log classes), whatever the number of classes, and as many looks at the nodes.

use super::precedence::Share;
use super::rounds::Sight;
use crate::demand::{Demand, RESOURCES};
use crate::heap::Heaps;

/// How far one class may run ahead of another, in what all nodes of the pool do in a horizon: so much is released while a
/// class waits for one resource, and nothing is idle meanwhile.
const AHEAD: f64 = 0.25;

/// How much may be released before a head that does not fit. Under saturation every head waits for some of its turn: at a
/// quarter of a horizon reserving for them left 10 % of the resources unused, at one 6.5 %, at two 6 %, at four 5.5 %,
/// which is what the grain of the requests costs; and what is waited for is soon over at two.
const PATIENCE: f64 = 2.0;

/// How far a class's virtual time of one resource may be behind its largest, in what all nodes of the pool do in a horizon: a
/// class that asks for one thing now and for another the next moment has used half of each, and after that it is past. At one
/// horizon the chance that a class of a tenth gets three requests of another kind in a row cost it 1 % of its part.
const MEMORY: f64 = 5.0;

/// Classes that are looked at. The first has had least; if the nodes have no room for the heads of so many, those of others
/// seldom fit.
const LOOK: usize = 16;

/// Per resource what a class has had by its weight, in node-seconds.
type Times = [f64; RESOURCES];

/// The virtual times of every class.
#[derive(Clone, Debug)]
pub(crate) struct Dominant {
    lines: usize,
    pools: Vec<Pool>,
    /// Per class.
    accounts: Vec<Account>,
    /// Per pool the classes that wait, by their dominant virtual time.
    waiting: Heaps<f64>,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    /// The dominant virtual time of who was furthest behind, at the latest release.
    now: f64,
    /// How far ahead is too far, by weight as virtual times are.
    ahead: f64,
    /// How far a class's times may lie apart.
    memory: f64,
    /// How much may be released before a head that does not fit, in node-seconds.
    patience: f64,
    /// What was released so far, in node-seconds of each request's dominant resource.
    released: f64,
    /// The class and line for whose head resources are reserved.
    reserved: Option<(u32, usize)>,
}

#[derive(Clone, Debug)]
struct Account {
    weight: f64,
    /// Its part of the weights of its pool's classes.
    part: f64,
    times: Times,
    /// In which lines it has a head.
    heads: [bool; RESOURCES],
    /// What had been released when the head was passed over first.
    passed: [Option<f64>; RESOURCES],
}

impl Account {
    /// The largest of its virtual times.
    fn dominant(&self) -> f64 {
        self.times.iter().copied().fold(0.0, f64::max)
    }

    /// Its lines, that of the resource first of which it has had least.
    fn lines(&self, lines: usize) -> impl Iterator<Item = usize> + use<> {
        let mut order: [usize; RESOURCES] = core::array::from_fn(|line| line);
        order[..lines].sort_by(|a, b| self.times[*a].total_cmp(&self.times[*b]));
        order.into_iter().take(lines)
    }
}

/// Takes it nothing of what is marked?
fn spares(marked: &[bool; RESOURCES], demand: Demand) -> bool {
    marked.iter().zip(demand.0).all(|(marked, demand)| !marked || demand == 0)
}

impl Dominant {
    /// For so many pools and `lines` resources. Classes come with [`Dominant::open`].
    pub(crate) fn new(pools: usize, lines: usize) -> Dominant {
        Dominant { lines, pools: vec![Pool::default(); pools], accounts: Vec::new(), waiting: Heaps::new(pools, 0) }
    }

    /// A class with its part of its pool.
    pub(crate) fn open(&mut self, class: u32, pool: usize, share: Share) {
        let pool = &mut self.pools[pool];
        pool.patience = PATIENCE * share.whole;
        pool.ahead = AHEAD * share.whole / share.weights;
        pool.memory = MEMORY * share.whole / share.weights;
        let (heads, passed) = ([false; RESOURCES], [None; RESOURCES]);
        let part = share.weight / share.weights;
        let fresh = Account { weight: share.weight, part, times: [pool.now; RESOURCES], heads, passed };
        if self.accounts.len() <= class as usize {
            self.accounts.resize(class as usize + 1, fresh.clone());
            self.waiting.grow(self.accounts.len());
        }
        self.accounts[class as usize] = fresh;
    }

    /// A class has a head for a resource, or another one, or was charged.
    pub(crate) fn waits(&mut self, class: u32, pool: usize, line: usize) {
        let (account, now) = (&mut self.accounts[class as usize], self.pools[pool].now);
        if account.heads == [false; RESOURCES] {
            account.times.iter_mut().for_each(|time| *time = time.max(now));
        }
        account.heads[line] = true;
        self.waiting.set(pool, class, account.dominant());
    }

    /// It has none any more.
    pub(crate) fn waits_no_more(&mut self, class: u32, pool: usize, line: usize) {
        self.settled(class, pool, line);
        let account = &mut self.accounts[class as usize];
        account.heads[line] = false;
        if account.heads == [false; RESOURCES] {
            self.waiting.remove(pool, class);
        }
    }

    /// A release of the head for `line` is charged to its class. [`Dominant::waits`] follows for the lines that have heads.
    pub(crate) fn charge(&mut self, class: u32, pool: usize, line: usize, demand: Demand) {
        let (account, own) = (&mut self.accounts[class as usize], &mut self.pools[pool]);
        own.released += f64::from(demand.dominant()) / 1e9;
        own.now = own.now.max(self.waiting.peek(pool).map_or(0.0, |(least, _)| least));
        for (time, demand) in account.times.iter_mut().zip(demand.0) {
            *time += f64::from(demand) / 1e9 / account.weight;
        }
        let least = account.dominant() - own.memory;
        account.times.iter_mut().for_each(|time| *time = time.max(least));
        self.settled(class, pool, line);
    }

    /// The head of a line is gone.
    fn settled(&mut self, class: u32, pool: usize, line: usize) {
        self.accounts[class as usize].passed[line] = None;
        let reserved = &mut self.pools[pool].reserved;
        if *reserved == Some((class, line)) {
            *reserved = None;
        }
    }

    /// The head of a line does not fit, or its class is far ahead. Resources are reserved for it if that has been so for long.
    fn pass(&mut self, class: u32, pool: usize, line: usize, near: bool) {
        let (account, own) = (&mut self.accounts[class as usize], &mut self.pools[pool]);
        let since = *account.passed[line].get_or_insert(own.released);
        let patience = if near { own.patience } else { own.patience / account.part };
        if own.reserved.is_none() && own.released - since >= patience {
            own.reserved = Some((class, line));
        }
    }

    /// The class and the resource whose head is released next.
    pub(crate) fn next(&mut self, pool: usize, sight: &impl Sight) -> Option<(u32, usize)> {
        let (least, last) = self.waiting.peek(pool)?;
        // What is kept for the head that was passed over.
        let mut kept = [false; RESOURCES];
        if let Some((class, line)) = self.pools[pool].reserved
            && let Some(head) = sight.head(class, line)
        {
            if sight.fits(class, head) {
                return Some((class, line));
            }
            kept = sight.lacking(class, head);
        }
        let mut first = [0; LOOK];
        let mut count = 0;
        for (place, (_, class)) in first.iter_mut().zip(self.waiting.first::<LOOK>(pool)) {
            *place = class;
            count += 1;
        }
        // What the class that is furthest behind waits for.
        let mut lacking = [false; RESOURCES];
        for class in first[..count].iter().copied() {
            let near = self.accounts[class as usize].dominant() <= least + self.pools[pool].ahead;
            for line in self.accounts[class as usize].lines(self.lines) {
                let Some(head) = sight.head(class, line) else { continue };
                let fits = sight.fits(class, head);
                if fits && (near || spares(&lacking, head)) && spares(&kept, head) {
                    return Some((class, line));
                }
                self.pass(class, pool, line, near);
                if class == last && !fits {
                    let more = sight.lacking(class, head);
                    lacking.iter_mut().zip(more).for_each(|(all, more)| *all |= more);
                }
            }
        }
        None
    }
}
