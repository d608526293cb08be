//! The sending loop: streams, errands of single clients, connections, records.
//!
//! Clients behave as in the simulator's driver. Patience counts from each attempt's intended instant. A
//! client retries after a shed, a failure or its own departure. A user thinks after the last attempt. A
//! client that requests pages follows [`weirgate_experiment::traffic::visits`].
//!
//! Departures: replies to attempts in flight at the end still count during a grace period, a client's time
//! between a reply and its next request is the real one, and all clients have this machine's address.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connections::{Connections, Ending, Over, Target, Ticket};
use hdrhistogram::Histogram;
use mio::Waker;
use weirgate_emulator::clock;
use weirgate_emulator::random::Random;
use weirgate_emulator::station::Demand;
use weirgate_experiment::random::{Purpose, generator};
use weirgate_experiment::traffic::visits::{Then, VisitId, Visits};
use weirgate_experiment::traffic::{Document, Draw, Event, NO_USER, Stream};
use weirgate_experiment::{Experiment, Fate, Record};

use super::Plan;
use super::sent::{Answer, Ended, Id, Ledger, Sent, StreamSent, histogram, histograms};
use super::template::{Filling, Head};

/// Grace period for replies after the end, in nanoseconds. It exceeds the longest limit of the published
/// experiments (3.5 s), so that every reply within its limit counts. An attempt that takes longer has
/// missed its limit and is cut off.
const GRACE: u64 = 5 * clock::SECOND;

/// Maximum number of errands between two checks for replies, so that a late generator can catch up without
/// making the replies late as well.
const BATCH: usize = 256;

/// Minimum time in nanoseconds before a client's next request, except after a reply that serves it, as in
/// the simulator. A user without think time must not ask a dead address in an endless loop.
const TURNAROUND: u64 = 100_000;

/// One request of one client, through all its attempts. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    traffic: u32,
    user: u32,
    visit: Option<VisitId>,
    demand: Demand,
    key: u32,
    flow: u64,
    word: u32,
    document: Option<Document>,
    patience: u64,
    /// Number of attempts left.
    retries: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    request: Request,
    /// Index of its record.
    record: u32,
}

/// An action that is due at an instant. Errands at the same instant may run in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Errand {
    /// The next event of this stream is due.
    Stream(u32),
    /// A user has finished thinking.
    User { traffic: u32, user: u32 },
    /// A client has finished thinking and requests its next page.
    Page(VisitId),
    /// A client requests an object of its page.
    Object(VisitId),
    /// A client retries.
    Retry(Request),
    /// A client runs out of patience.
    Leave(Ticket),
}

/// The parts that can be made without an experiment, so that their errors are reported by the start.
pub(super) struct Prepared {
    connections: Connections<Attempt>,
    heads: Vec<Head>,
    ledger: Arc<[Ledger]>,
    start: u64,
    max_requests: u64,
}

/// A running load.
pub(super) struct Play<'a> {
    experiment: &'a Experiment,
    prepared: Prepared,
    streams: Vec<Stream<'a>>,
    /// Next event of each stream.
    coming: Vec<Option<Event>>,
    visits: Visits,
    words: Vec<Random>,
    errands: BinaryHeap<Reverse<(u64, Errand)>>,
    end: u64,
    ended: Option<(u64, Ended)>,
    records: Vec<Record>,
    ids: Vec<Id>,
    /// Number of attempts per traffic source.
    numbers: Vec<u32>,
    traffic: Vec<StreamSent>,
    lateness: Histogram<u32>,
}

impl<'a> Play<'a> {
    /// Opens the connections of a run.
    pub(super) fn prepare(plan: &Plan, heads: Vec<Head>, ledger: Arc<[Ledger]>) -> io::Result<(Waker, Prepared)> {
        let target = Target { address: plan.target, max: plan.connections };
        let (connections, waker) = Connections::new(heads.iter().map(|_| target))?;
        let (start, max_requests) = (plan.start, plan.max_requests);
        Ok((waker, Prepared { connections, heads, ledger, start, max_requests }))
    }

    pub(super) fn new(experiment: &'a Experiment, seed: u64, prepared: Prepared) -> Play<'a> {
        let indices = 0..experiment.traffic.len();
        // The numbers below this range belong to the streams' own keys.
        let words = indices.clone().map(|index| generator(seed, Purpose::Keys, experiment.traffic.len() + index));
        let mut play = Play {
            experiment,
            prepared,
            streams: indices.clone().map(|index| Stream::new(experiment, index, seed)).collect(),
            coming: vec![None; indices.len()],
            visits: Visits::new(experiment, seed),
            words: words.collect(),
            errands: BinaryHeap::new(),
            end: clock::nanos(experiment.duration()),
            ended: None,
            records: Vec::new(),
            ids: Vec::new(),
            numbers: vec![0; indices.len()],
            traffic: vec![StreamSent::default(); indices.len()],
            lateness: histogram(),
        };
        indices.for_each(|index| play.expect(index as u32));
        play
    }

    /// Plays the experiment until its end, or until `stop` becomes true.
    pub(super) fn play(mut self, stop: &AtomicBool) -> io::Result<Sent> {
        loop {
            let until = self.prepared.start.saturating_add(self.due());
            self.prepared.connections.wait(Some(until))?;
            self.run_errands();
            self.prepared.connections.go_on();
            self.take_over();
            if let Some(error) = self.prepared.connections.trouble() {
                let what = format!("the load generator could not open its connections, so the run is invalid: {error}");
                return Err(io::Error::new(error.kind(), what));
            }
            let now = self.now();
            let schedule_over = now >= self.end && self.errands.peek().is_none_or(|Reverse((at, _))| *at > self.end);
            if stop.load(Ordering::Relaxed) {
                self.end(now, Ended::Asked);
                return Ok(self.finish(now));
            } else if schedule_over {
                self.end(now, Ended::Schedule);
            }
            if let Some((at, _)) = self.ended
                && (self.prepared.connections.under_way() == 0 || now >= at.saturating_add(GRACE))
            {
                return Ok(self.finish(now));
            }
        }
    }

    /// Returns the nanoseconds since the start, or 0 before it.
    fn now(&self) -> u64 {
        clock::now().saturating_sub(self.prepared.start)
    }

    /// Returns the instant of the next action that needs no outside event.
    fn due(&self) -> u64 {
        let limit = self.ended.map_or(self.end, |(at, _)| at.saturating_add(GRACE));
        self.errands.peek().map_or(limit, |Reverse((at, _))| limit.min(*at))
    }

    fn end(&mut self, now: u64, why: Ended) {
        if self.ended.is_none() {
            self.ended = Some((now, why));
        }
    }

    fn errand(&mut self, at: u64, errand: Errand) {
        self.errands.push(Reverse((at, errand)));
    }

    /// Looks up the next event of a stream.
    fn expect(&mut self, traffic: u32) {
        let next = self.streams[traffic as usize].next_event();
        self.coming[traffic as usize] = next.map(|(_, event)| event);
        if let Some((at, _)) = next {
            self.errand(at, Errand::Stream(traffic));
        }
    }

    fn run_errands(&mut self) {
        for _ in 0..BATCH {
            // Before the start nothing is due, not even errands at instant 0.
            let Some(now) = clock::now().checked_sub(self.prepared.start) else { return };
            if self.errands.peek().is_none_or(|Reverse((at, _))| *at > now) {
                return;
            }
            let Some(Reverse((at, errand))) = self.errands.pop() else { return };
            match errand {
                Errand::Leave(ticket) => {
                    if let Some(attempt) = self.prepared.connections.give_up(ticket) {
                        self.close(attempt, Fate::Left, now, None);
                    }
                }
                // After the end no new attempt begins.
                _ if at > self.end || self.ended.is_some() => {}
                Errand::Stream(traffic) => {
                    match self.coming[traffic as usize].take() {
                        Some(Event::Arrival) => self.first_send(traffic, NO_USER, at),
                        Some(Event::Users(count)) => {
                            for (user, thinks) in self.streams[traffic as usize].want_users(count) {
                                self.errand(at.saturating_add(thinks), Errand::User { traffic, user });
                            }
                        }
                        None => {}
                    }
                    self.expect(traffic);
                }
                Errand::User { traffic, user } => {
                    if self.streams[traffic as usize].is_wanted(user) {
                        self.first_send(traffic, user, at);
                    }
                }
                Errand::Page(visit) => {
                    let (traffic, _) = self.visits.traffic_of(visit);
                    let draw = self.visits.page(&mut self.streams[traffic as usize], visit, at);
                    self.send_new(traffic, NO_USER, Some(visit), draw, at);
                }
                Errand::Object(visit) => {
                    let (_, traffic) = self.visits.traffic_of(visit);
                    let draw = self.visits.object(&mut self.streams[traffic as usize], visit, at);
                    self.send_new(traffic, NO_USER, Some(visit), draw, at);
                }
                Errand::Retry(request) => self.send(request, at),
            }
        }
    }

    /// Sends a new request that is due at `at`.
    fn first_send(&mut self, traffic: u32, user: u32, at: u64) {
        let (draw, visit) = self.visits.first(&mut self.streams[traffic as usize], traffic, at, user);
        self.send_new(traffic, user, visit, draw, at);
    }

    fn send_new(&mut self, traffic: u32, user: u32, visit: Option<VisitId>, draw: Draw, at: u64) {
        let traffic = draw.document.map_or(traffic, |document| document.traffic);
        let index = traffic as usize;
        let words = self.prepared.heads[index].words.len();
        let word = if words == 0 { 0 } else { (self.words[index].unit() * words as f64) as u32 };
        let request = Request {
            traffic,
            user,
            visit,
            demand: draw.demand,
            key: draw.key,
            flow: draw.flow,
            word,
            document: draw.document,
            patience: draw.patience,
            retries: self.streams[index].traffic.retries,
        };
        self.send(request, at);
    }

    /// Sends an attempt that is due at `at`.
    fn send(&mut self, request: Request, at: u64) {
        let index = request.traffic as usize;
        let late = self.now().saturating_sub(at) / 1000;
        self.lateness.saturating_record(late.max(1));
        let id = Id { traffic: request.traffic, number: self.numbers[index] };
        self.numbers[index] += 1;
        let attempt = Attempt { request, record: self.records.len() as u32 };
        let page = request.visit.map(|visit| self.visits.page_of(visit));
        self.records.push(Record { page, ..Record::new(request.traffic, at, request.demand) });
        self.ids.push(id);
        let Prepared { connections, heads, ledger, .. } = &mut self.prepared;
        ledger[index].sent();
        let Request { demand, key, flow, word, document, .. } = request;
        let (object, bytes) = document.map_or((0, 0), |document| (document.object, document.bytes));
        let write =
            |out: &mut Vec<u8>| heads[index].write(&Filling { id, demand, key, flow, word, object, bytes }, out);
        let (ticket, waits) = connections.begin(index, attempt, heads[index].is_head, write);
        self.traffic[index].delayed += u64::from(waits);
        if request.patience != u64::MAX {
            self.errand(at.saturating_add(request.patience), Errand::Leave(ticket));
        }
        if self.records.len() as u64 >= self.prepared.max_requests {
            self.end(self.now(), Ended::Count);
        }
    }

    /// Takes finished attempts from the connections.
    fn take_over(&mut self) {
        while let Some(Over { request: attempt, at, ending }) = self.prepared.connections.take() {
            let index = attempt.request.traffic as usize;
            let answer = Answer::of(ending);
            *self.traffic[index].answers.entry(answer).or_default() += 1;
            let fate = answer.fate(self.prepared.heads[index].signed);
            let by_node = fate == Fate::Served || matches!(answer, Answer::Node(_));
            let in_flight = if let Ending::Reply(reply) = ending { reply.in_flight } else { None };
            let at = at.saturating_sub(self.prepared.start);
            // A node reports the time from receiving the request to the first byte of its reply.
            let stream = attempt.request.demand.stream;
            let since = |micros: u64| at.saturating_sub(micros.saturating_mul(1000).saturating_add(stream));
            let released = by_node.then(|| in_flight.map_or(0, since));
            self.close(attempt, fate, at, released);
        }
    }

    /// Closes an attempt that ended at `at`. A node answered it if `released` is set. Its client may retry or think.
    fn close(&mut self, attempt: Attempt, fate: Fate, at: u64, released: Option<u64>) {
        let Attempt { mut request, record } = attempt;
        let record = &mut self.records[record as usize];
        record.fate = fate;
        record.ended = at;
        record.released = released.map_or(0, |released| released.max(record.arrived).max(1));
        self.prepared.ledger[request.traffic as usize].ended(fate, at.saturating_sub(record.arrived));
        if fate == Fate::Cut {
            return;
        }
        let stream = &mut self.streams[request.traffic as usize];
        if fate != Fate::Served && request.retries > 0 {
            request.retries -= 1;
            let after = stream.retry_after().max(TURNAROUND);
            self.errand(at.saturating_add(after), Errand::Retry(request));
        } else {
            let min = if fate == Fate::Served { 0 } else { TURNAROUND };
            self.go_on(&request, fate, at, min);
        }
    }

    /// Continues after the last attempt of a request. Its client goes on with its page, requests another
    /// one, or thinks, in each case at least `min` nanoseconds later.
    fn go_on(&mut self, request: &Request, fate: Fate, at: u64, min: u64) {
        let (mut traffic, mut user) = (request.traffic, request.user);
        if let Some(visit) = request.visit {
            let of = self.visits.traffic_of(visit).0;
            match self.visits.ended(visit, traffic, fate, at) {
                Then::Waits => return,
                Then::Objects(count) => {
                    let then = at.saturating_add(min);
                    return (0..count).for_each(|_| self.errand(then, Errand::Object(visit)));
                }
                Then::Thinks(thinks) => return self.errand(at.saturating_add(thinks.max(min)), Errand::Page(visit)),
                Then::Leaves { user: own } => (traffic, user) = (of, own),
            }
        }
        if user != NO_USER {
            traffic = self.experiment.home_of(traffic as usize) as u32;
            let after = self.streams[traffic as usize].think().max(min);
            self.errand(at.saturating_add(after), Errand::User { traffic, user });
        }
    }

    /// Ends the run. Attempts in flight are cut off.
    fn finish(mut self, now: u64) -> Sent {
        self.take_over();
        for attempt in self.prepared.connections.cut() {
            self.close(attempt, Fate::Cut, now.max(self.records[attempt.record as usize].arrived), None);
        }
        for (index, traffic) in self.traffic.iter_mut().enumerate() {
            traffic.connections = self.prepared.connections.opened(index);
        }
        let (elapsed, ended) = self.ended.unwrap_or((now, Ended::Schedule));
        Sent {
            histograms: histograms(self.experiment, &self.records),
            pages: self.visits.finish(now),
            records: self.records,
            ids: self.ids,
            traffic: self.traffic,
            lateness: self.lateness,
            ended,
            elapsed: Duration::from_nanos(elapsed),
        }
    }
}
