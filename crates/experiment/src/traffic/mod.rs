//! Streams of requests of an experiment.
//!
//! Open-loop clients do not wait for one another. Users of a closed loop send, wait for the reply, think
//! and send again (Schroeder, Wierman and Harchol-Balter, *Open Versus Closed*, NSDI 2006). The properties
//! of a request are drawn once, when it is first sent. Further attempts of a client are the same request.
//! Clients that ask for pages are in [`visits`].

mod arrivals;
mod demand;
mod documents;
pub mod visits;

use weirgate_emulator::random::Random;
use weirgate_emulator::station::Demand;
use weirgate_engine::mixed;

use self::arrivals::Process;
use self::demand::Demands;
pub use self::documents::Library;
use crate::random::{Lot, Purpose, draw, generator};
use crate::{Distribution, Experiment, Sender, Source, Traffic, TrafficClass};

/// Sender of a request that comes from no particular user.
pub const NO_USER: u32 = u32::MAX;

/// Properties of a request.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// Its demand.
    pub demand: Demand,
    /// Time for which its client waits, in nanoseconds. `u64::MAX` means for ever.
    pub patience: u64,
    /// Key of the template.
    pub key: u32,
    /// Hash of its source.
    pub flow: u64,
    /// File that it asks for, if any.
    pub document: Option<Document>,
}

/// A file that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// Name of the file. No two files of an experiment have the same.
    pub object: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Stream that a request for the file counts for.
    pub traffic: u32,
}

impl Document {
    /// Name of the file, as a hash that is spread evenly.
    pub fn locality_key(&self) -> u64 {
        mixed(self.object)
    }
}

/// One stream of requests.
#[derive(Debug)]
pub struct Stream<'a> {
    /// Its definition in the experiment.
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
    /// Requests come with the pages in which they are embedded, or with the stream of which they are a part.
    WithOthers,
    Users {
        changes: std::vec::IntoIter<(u64, u32)>,
        active: u32,
        state: Vec<User>,
        think: Distribution,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// The user is absent.
    Away,
    /// The user sends, waits or thinks.
    Active,
}

/// Next event of a stream that needs no input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request arrives.
    Arrival,
    /// The number of users changes to this one.
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
                let max = changes.iter().map(|(_, count)| *count).max().unwrap_or(0);
                let state = vec![User::Away; max as usize];
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

    /// Returns the next event and its instant in nanoseconds. Each call returns the one after.
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

    /// Draws the next request, sent at `at` by `user` (or [`NO_USER`]).
    pub fn draw(&mut self, at: u64, user: u32) -> Draw {
        let mut demand = self.demands.next(at);
        // In a trace, the request drawn now is that of the next line.
        if let Some(cost) = self.traffic.traced.get(self.drawn as usize) {
            let Demand { cpu, io, disk, link, stream } = &mut demand;
            [cpu, io, disk, link, stream]
                .into_iter()
                .zip(cost)
                .for_each(|(part, cost)| *part = part.saturating_add(*cost));
        }
        let patience = self.traffic.patience.as_ref().map_or(u64::MAX, |p| draw(p, &mut self.patience));
        let key = if self.popularity.is_empty() { 0.0 } else { self.keys.unit() };
        let sender = self.traffic.senders.get(self.drawn as usize).copied();
        // Clients of an open loop send one request each.
        let client = if user == NO_USER { self.drawn } else { u64::from(user) };
        self.drawn += 1;
        let document = self.documents.as_ref().map(|library| library.at(self.which.unit()));
        let drawn = Draw { demand, patience, key: self.key_at(key), flow: self.flow_of(client), document };
        sender.map_or(drawn, |Sender { key, flow, patience }| Draw { key, flow, patience, ..drawn })
    }

    /// Draws a request of a page, sent at `at`, from the page's own generator.
    fn draw_by(&mut self, random: &mut Random, at: u64, key: u32, flow: u64) -> Draw {
        let [cpu, io, patience] = std::array::from_fn(|_| Lot::draw(random));
        let lots = self.demands.lots(random, cpu, io);
        let demand = self.demands.at(at, &lots);
        let patience = self.traffic.patience.as_ref().map_or(u64::MAX, |times| patience.time(times));
        Draw { demand, patience, key, flow, document: None }
    }

    /// The key at point `point` of all requests, 0 to 1, 1 excluded.
    fn key_at(&self, point: f64) -> u32 {
        let Some(total) = self.popularity.last() else { return 0 };
        self.popularity.partition_point(|below| *below <= point * total) as u32
    }

    /// Hash of the source of this client's requests.
    fn flow_of(&self, client: u64) -> u64 {
        let client = self.traffic.sources.map_or(client, |sources| mixed(client) % u64::from(sources.max(1)));
        mixed(self.salt ^ client)
    }

    /// Draws the time that a client waits before it retries, in nanoseconds.
    pub fn retry_after(&mut self) -> u64 {
        draw(&self.traffic.retry_after, &mut self.retry_after)
    }

    /// Changes the number of users to `count`. Returns the new users, each with the time for which it
    /// thinks first. Visits therefore do not all begin at the same instant.
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

    /// Asks whether `user`, which is about to send, is still needed. If not, returns `false` and the user
    /// leaves instead.
    pub fn is_wanted(&mut self, user: u32) -> bool {
        let When::Users { active, state, .. } = &mut self.when else { return false };
        let wanted = user < *active;
        if !wanted && let Some(state) = state.get_mut(user as usize) {
            *state = User::Away;
        }
        wanted
    }

    /// Draws a think time of a user, in nanoseconds.
    pub fn think(&mut self) -> u64 {
        match &self.when {
            When::Users { think, .. } => draw(think, &mut self.think),
            When::Open(_) | When::Trace(_) | When::WithOthers => 0,
        }
    }
}

#[cfg(test)]
mod tests;
