//! Who sends what when: the streams of an experiment.
//!
//! Open-loop clients do not wait for one another; users of a closed loop send, wait for the reply, think
//! and send again (Schroeder, Wierman and Harchol-Balter, *Open Versus Closed*, NSDI 2006). What a
//! request is like is drawn once, when it is first sent; a client's further attempts are the same
//! request. Clients who ask for pages are in [`visits`].

mod arrivals;
mod demand;
mod documents;
pub mod visits;

use weirgate_emulator::random::Random;
use weirgate_emulator::station::Demand;

use self::arrivals::Process;
use self::demand::Demands;
pub use self::documents::Library;
use crate::random::{Lot, Purpose, draw, generator};
use crate::{Distribution, Experiment, Source, Traffic, TrafficClass};

/// Nobody in particular sends a request.
pub const NOBODY: u32 = u32::MAX;

/// What a request is like.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// What it takes.
    pub demand: Demand,
    /// How long its client waits, in nanoseconds; `u64::MAX` is for ever.
    pub patience: u64,
    /// Which key of the template.
    pub key: u32,
    /// Whom it comes from, as a hash.
    pub flow: u64,
    /// Which file it asks for, if it asks for one.
    pub document: Option<Document>,
}

/// A file that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// Its name: no two files of an experiment have the same.
    pub object: u64,
    /// Its size.
    pub bytes: u64,
    /// The stream that a request for it counts for.
    pub traffic: u32,
}

impl Document {
    /// Its name, as a hash that is spread evenly.
    #[must_use]
    pub fn target(&self) -> u64 {
        hash(self.object)
    }
}

/// One stream of requests.
#[derive(Debug)]
pub struct Stream<'a> {
    /// As in the experiment.
    pub traffic: &'a Traffic,
    when: When<'a>,
    demands: Demands,
    patience: Random,
    retry_after: Random,
    think: Random,
    keys: Random,
    /// Cumulative popularity of a template's keys.
    popularity: Vec<f64>,
    documents: Option<Library>,
    which: Random,
    /// Distinguishes the sources of this stream from those of others.
    salt: u64,
    drawn: u64,
}

#[derive(Debug)]
enum When<'a> {
    Open(Box<Process>),
    Trace(std::slice::Iter<'a, std::time::Duration>),
    /// When the pages say so that they are embedded in, or the stream that they are a part of.
    WithOthers,
    Users {
        changes: std::vec::IntoIter<(u64, u32)>,
        active: u32,
        state: Vec<User>,
        think: Distribution,
    },
}

/// What a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// It is not there.
    Away,
    /// It sends, waits or thinks.
    Active,
}

/// What a stream does next, of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request comes.
    Arrival,
    /// So many users are wanted from now on.
    Users(u32),
}

impl<'a> Stream<'a> {
    /// Stream `index` of `experiment` in the run named by `seed`.
    pub fn new(experiment: &'a Experiment, index: usize, seed: u64) -> Stream<'a> {
        let traffic = &experiment.traffic[index];
        let end = experiment.duration();
        let when = match &traffic.source {
            Source::Open { arrivals, rate } => When::Open(Box::new(Process::new(*arrivals, rate, end, seed, index))),
            Source::Trace(instants) => When::Trace(instants.iter()),
            Source::Objects { .. } | Source::Part { .. } => When::WithOthers,
            Source::Users { users, think } => {
                let changes = arrivals::changes(users, end);
                let most = changes.iter().map(|(_, count)| *count).max().unwrap_or(0);
                let state = vec![User::Away; most as usize];
                When::Users { changes: changes.into_iter(), active: 0, state, think: *think }
            }
        };
        let keys = if let TrafficClass::Template { keys, .. } = traffic.class { keys } else { 0 };
        let mut total = 0.0;
        let popularity: Vec<f64> = (1..=keys)
            .map(|rank| {
                total += 1.0 / f64::from(rank);
                total
            })
            .collect();
        let random = |purpose| generator(seed, purpose, index);
        Stream {
            traffic,
            when,
            demands: Demands::new(&traffic.demand, seed, index),
            patience: random(Purpose::Patience),
            retry_after: random(Purpose::RetryAfter),
            think: random(Purpose::Think),
            keys: random(Purpose::Keys),
            popularity,
            documents: traffic.documents.as_ref().map(|files| Library::new(files, index)),
            which: random(Purpose::Documents),
            salt: random(Purpose::Flows).bits(),
            drawn: 0,
        }
    }

    /// When it does something next, in nanoseconds, and what. Each call is about the one after.
    pub fn next_event(&mut self) -> Option<(u64, Event)> {
        match &mut self.when {
            When::Open(process) => process.next().map(|at| (at, Event::Arrival)),
            When::Trace(instants) => {
                instants.next().map(|at| (u64::try_from(at.as_nanos()).unwrap_or(u64::MAX), Event::Arrival))
            }
            When::Users { changes, .. } => changes.next().map(|(at, count)| (at, Event::Users(count))),
            When::WithOthers => None,
        }
    }

    /// What the next request is like, sent at `at` by `user` (or [`NOBODY`]).
    pub fn draw(&mut self, at: u64, user: u32) -> Draw {
        let mut demand = self.demands.next(at);
        // Of a trace the request drawn now is that of the next line.
        if let Some(cost) = self.traffic.traced.get(self.drawn as usize) {
            let Demand { cpu, io, disk, link, stream } = &mut demand;
            [cpu, io, disk, link, stream]
                .into_iter()
                .zip(cost)
                .for_each(|(part, cost)| *part = part.saturating_add(*cost));
        }
        let patience = self.traffic.patience.as_ref().map_or(u64::MAX, |p| draw(p, &mut self.patience));
        let key = if self.popularity.is_empty() { 0.0 } else { self.keys.unit() };
        // Clients of an open loop send one request each.
        let client = if user == NOBODY { self.drawn } else { u64::from(user) };
        self.drawn += 1;
        let document = self.documents.as_ref().map(|library| library.at(self.which.unit()));
        Draw { demand, patience, key: self.key_at(key), flow: self.flow_of(client), document }
    }

    /// What a request of a page is like, sent at `at`, from the page's own generator.
    fn draw_by(&mut self, random: &mut Random, at: u64, key: u32, flow: u64) -> Draw {
        let [cpu, io, patience] = std::array::from_fn(|_| Lot::draw(random));
        let lots = self.demands.lots(random, cpu, io);
        let demand = self.demands.at(at, &lots);
        let patience = self.traffic.patience.as_ref().map_or(u64::MAX, |times| patience.time(times));
        Draw { demand, patience, key, flow, document: None }
    }

    /// The key at a point from 0 to 1, 1 excluded, of all requests.
    fn key_at(&self, point: f64) -> u32 {
        let Some(total) = self.popularity.last() else { return 0 };
        self.popularity.partition_point(|below| *below <= point * total) as u32
    }

    /// Where requests of this client come from, as a hash.
    fn flow_of(&self, client: u64) -> u64 {
        hash(self.salt ^ client)
    }

    /// How long a client waits before it tries again, in nanoseconds.
    pub fn retry_after(&mut self) -> u64 {
        draw(&self.traffic.retry_after, &mut self.retry_after)
    }

    /// From now on `count` users are wanted. Returns those that come, with the time for which each thinks
    /// first: nobody's visit begins at the same instant as all others'.
    pub fn want_users(&mut self, count: u32) -> Vec<(u32, u64)> {
        let When::Users { active, state, think, .. } = &mut self.when else { return Vec::new() };
        *active = count;
        let mut coming = Vec::new();
        for (user, state) in state.iter_mut().enumerate().take(count as usize) {
            if *state == User::Away {
                *state = User::Active;
                coming.push((user as u32, draw(think, &mut self.think)));
            }
        }
        coming
    }

    /// `user` is about to send. False if it is one too many by now and goes away instead.
    pub fn is_wanted(&mut self, user: u32) -> bool {
        let When::Users { active, state, .. } = &mut self.when else { return false };
        let wanted = user < *active;
        if !wanted && let Some(state) = state.get_mut(user as usize) {
            *state = User::Away;
        }
        wanted
    }

    /// How long a user thinks now, in nanoseconds.
    pub fn think(&mut self) -> u64 {
        match &self.when {
            When::Users { think, .. } => draw(think, &mut self.think),
            When::Open(_) | When::Trace(_) | When::WithOthers => 0,
        }
    }
}

/// A bijection that spreads small numbers over 64 bits (the finaliser of SplitMix64).
fn hash(n: u64) -> u64 {
    let z = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
