//! [`crate::Precedence::Drfq`]: dominant-resource fair queueing over the nodes' resources.
//!
//! Source: the idea is that of Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011), and of its queueing form,
//! "Multi-Resource Fair Queueing for Packet Processing" (SIGCOMM 2012): a class has a virtual time per resource, which
//! advances by what it took of that resource over its weight; classes are served so that the largest of each one's
//! virtual times, that of its *dominant* resource, stay together. What is released here are requests that hold all
//! their resources at once until they are answered, not packets that use them one after the other; and mQoS (Feng and Lin)
//! gives every class a queue per resource. Hence:
//! - as in mQoS the most available resource is tried first, and of the classes with a head for it the one that has had
//!   least of *that* resource goes first: so each resource by itself is shared by weight where all want it;
//! - a class is passed over when the nodes have not enough for its head, and others overtake it, so that nothing is idle
//!   that somebody can use. *Overtaking is bounded*: nobody's dominant virtual time runs further than [`OVERTAKE`] ahead of
//!   the one that is furthest behind. Who is further ahead is released only if it takes nothing of the resources
//!   that the other one waits for;
//! - a class that begins to wait for a resource has at least that resource's virtual time: it does not catch up on
//!   what it did not use (start-time fair queueing, Goyal, Vin and Cheng 1996).
//!
//! Beside `mdrr` no class waits for a round to end: turns are as short as the requests. A choice costs O(resources ×
//! ([`LOOK`] + log classes)), whatever the number of classes, and as many looks at the nodes.

use super::rounds::Sight;
use crate::demand::{Demand, RESOURCES};
use crate::heap::Heaps;

/// How far one class may run ahead of another, in what all nodes of the pool do in a horizon. A quarter keeps every
/// resource busy while a class waits for one of them, and bounds the wait: after that much work only what cannot harm
/// it is released before it.
const OVERTAKE: f64 = 0.25;

/// Classes that are looked at per resource. The first has had least; if the nodes have no room for the heads of so many,
/// those of others seldom fit.
const LOOK: usize = 16;

/// Per resource what a class has had by its weight, in node-seconds.
type Times = [f64; RESOURCES];

/// The virtual times of every class.
#[derive(Clone, Debug)]
pub(crate) struct Dominant {
    lines: usize,
    /// Largest start of a release so far, per pool and resource.
    now: Vec<Times>,
    /// How far ahead is too far, per pool.
    ahead: Vec<f64>,
    /// Per class.
    times: Vec<Times>,
    weights: Vec<f64>,
    /// Per pool and line the classes with a head, by what they have had of that resource. An item is a class's line.
    lines_by_time: Heaps<f64>,
    /// Per pool the classes that wait, by their dominant virtual time.
    classes: Heaps<f64>,
}

impl Dominant {
    /// For so many pools and `lines` resources. Classes come with [`Dominant::open`].
    pub(crate) fn new(pools: usize, lines: usize) -> Dominant {
        Dominant {
            lines,
            now: vec![[0.0; RESOURCES]; pools],
            ahead: vec![0.0; pools],
            times: Vec::new(),
            weights: Vec::new(),
            lines_by_time: Heaps::new(pools * lines, 0),
            classes: Heaps::new(pools, 0),
        }
    }

    /// A class with this weight. `whole` is what the nodes of its pool do in a horizon, in node-seconds, over the weights of
    /// all its classes.
    pub(crate) fn open(&mut self, class: u32, pool: usize, weight: f64, whole: f64) {
        let classes = class as usize + 1;
        if self.times.len() < classes {
            self.times.resize(classes, [0.0; RESOURCES]);
            self.weights.resize(classes, 1.0);
            self.lines_by_time.grow(classes * self.lines);
            self.classes.grow(classes);
        }
        self.weights[class as usize] = weight;
        self.times[class as usize] = self.now[pool];
        self.ahead[pool] = OVERTAKE * whole;
    }

    fn item(&self, class: u32, line: usize) -> u32 {
        class * self.lines as u32 + line as u32
    }

    /// The largest of a class's virtual times.
    fn dominant(&self, class: u32) -> f64 {
        self.times[class as usize].iter().copied().fold(0.0, f64::max)
    }

    /// A class has a head for a resource, or another one, or was charged.
    pub(crate) fn waits(&mut self, class: u32, pool: usize, line: usize) {
        let item = self.item(class, line);
        if !self.lines_by_time.contains(item) {
            let (times, now) = (&mut self.times[class as usize], &self.now[pool]);
            match self.classes.contains(class) {
                true => times[line] = times[line].max(now[line]),
                false => times.iter_mut().zip(now).for_each(|(time, now)| *time = time.max(*now)),
            }
        }
        let time = self.times[class as usize][line];
        self.lines_by_time.set(pool * self.lines + line, item, time);
        self.classes.set(pool, class, self.dominant(class));
    }

    /// It has none any more.
    pub(crate) fn waits_no_more(&mut self, class: u32, pool: usize, line: usize) {
        let item = self.item(class, line);
        self.lines_by_time.remove(pool * self.lines + line, item);
        if (0..self.lines).all(|line| !self.lines_by_time.contains(self.item(class, line))) {
            self.classes.remove(pool, class);
        }
    }

    /// A release of the head for `line` is charged to its class. [`Dominant::waits`] follows for the lines that have heads.
    pub(crate) fn charge(&mut self, class: u32, pool: usize, line: usize, demand: Demand) {
        let weight = self.weights[class as usize];
        let times = &mut self.times[class as usize];
        self.now[pool][line] = self.now[pool][line].max(times[line]);
        for (time, demand) in times.iter_mut().zip(demand.0) {
            *time += f64::from(demand) / 1e9 / weight;
        }
    }

    /// The class and the resource whose head is released next.
    pub(crate) fn next(&self, pool: usize, sight: &impl Sight) -> Option<(u32, usize)> {
        let (least, last) = self.classes.peek(pool)?;
        // What the class that is furthest behind waits for, or the head that it could release.
        let mut lacking = [false; RESOURCES];
        let mut own = None;
        for line in 0..self.lines {
            let Some(head) = sight.head(last, line) else { continue };
            if sight.fits(pool, head) {
                own = own.or(Some((last, line)));
                continue;
            }
            for (all, more) in lacking.iter_mut().zip(sight.lacking(pool, head)) {
                *all |= more;
            }
        }
        let harmless = |head: Demand| own.is_none() && (0..RESOURCES).all(|r| !lacking[r] || head.0[r] == 0);
        let mut order: [usize; RESOURCES] = core::array::from_fn(|line| line);
        let left = sight.left(pool);
        order[..self.lines].sort_by(|a, b| left[*b].total_cmp(&left[*a]));
        for line in order[..self.lines].iter().copied() {
            for (_, item) in self.lines_by_time.first::<LOOK>(pool * self.lines + line) {
                let class = item / self.lines as u32;
                let Some(head) = sight.head(class, line) else { continue };
                let near = class == last || self.dominant(class) <= least + self.ahead[pool];
                if (near || harmless(head)) && sight.fits(pool, head) {
                    return Some((class, line));
                }
            }
        }
        own
    }
}
