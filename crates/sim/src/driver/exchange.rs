//! One request from its sending to its end: the calls of the engine in their order.

use weirgate_emulator::computer::Work;
use weirgate_engine::{Action, Arrival, ClassId, Decision, NodeId, Outcome, Shed, TemplateId, Ticket};
use weirgate_experiment::traffic::visits::{Then, VisitId};
use weirgate_experiment::traffic::{Draw, Event, NO_USER};
use weirgate_experiment::{Fate, Record, TrafficClass};

use super::{CHECK, Driver, Errand, Message, News, Sources};
use crate::late::{Deadline, Limit};
use crate::machine::Reception;
use crate::requests::{Place, Request};

/// The shortest pause of a client between two requests: a round trip in a local network. It also keeps a
/// user with no thinking time from sending requests for ever at one instant.
const TURNAROUND: u64 = 100_000;

/// The time in which a server fails a request without working on it: a millisecond, as the experiment says.
const FAILS_AFTER: u64 = 1_000_000;

/// Returns whether a time limit with this stamp no longer applies to the request.
fn is_over(request: &Request, limit: Limit, stamp: u32) -> bool {
    match limit {
        Limit::FirstByte => request.attempt != stamp || request.begun,
        Limit::Total => request.life != stamp,
    }
}

impl Driver<'_> {
    /// Handles the next event of a stream.
    pub(super) fn come(&mut self, stream: usize, event: Event) {
        match event {
            Event::Arrival => self.first_send(stream, NO_USER),
            Event::Users(count) => {
                for (user, thinks) in self.streams[stream].want_users(count) {
                    self.errand(thinks, Errand::User { traffic: stream as u32, user });
                }
            }
        }
    }

    pub(super) fn first_send(&mut self, stream: usize, user: u32) {
        let traffic = stream as u32;
        let (draw, visit) = self.visits.first(&mut self.streams[stream], traffic, self.now, user);
        self.send_new(traffic, user, visit, draw);
    }

    /// The client of `visit` asks for its next page.
    pub(super) fn next_page(&mut self, visit: VisitId) {
        let (traffic, _) = self.visits.traffic_of(visit);
        let draw = self.visits.page(&mut self.streams[traffic as usize], visit, self.now);
        self.send_new(traffic, NO_USER, Some(visit), draw);
    }

    /// The client of `visit` asks for the next object of its page.
    pub(super) fn next_object(&mut self, visit: VisitId) {
        let (_, traffic) = self.visits.traffic_of(visit);
        let draw = self.visits.object(&mut self.streams[traffic as usize], visit, self.now);
        self.send_new(traffic, NO_USER, Some(visit), draw);
    }

    fn send_new(&mut self, traffic: u32, user: u32, visit: Option<VisitId>, draw: Draw) {
        let traffic = draw.document.map_or(traffic, |document| document.traffic);
        let slot = self.requests.insert(Request {
            traffic,
            spec: 0,
            user,
            visit,
            demand: draw.demand,
            document: draw.document,
            key: draw.key,
            flow: draw.flow,
            patience: draw.patience,
            retries: self.streams[traffic as usize].traffic.retries,
            record: 0,
            cost: None,
            place: Place::AtClient,
            begun: false,
            ticket: None,
            node: 0,
            life: 0,
            attempt: 0,
        });
        self.send(slot);
    }

    /// An attempt of a client reaches the gateway: *classify* and *admit*.
    pub(super) fn send(&mut self, slot: u32) {
        let now = self.time();
        let request = &mut self.requests[slot];
        let stream = request.traffic as usize;
        request.record = self.records.len() as u32;
        let page = request.visit.map(|visit| self.visits.page_of(visit));
        self.records.push(Record { page, ..Record::new(request.traffic, self.now, request.demand) });
        let class = match self.streams[stream].traffic.class {
            TrafficClass::Class(class) => ClassId(class as u32),
            TrafficClass::Template { template, .. } => {
                self.engine.class(now, TemplateId(template as u32), &request.key.to_be_bytes())
            }
        };
        let (patience, life) = (request.patience, request.life);
        self.knock(slot, class, self.specs[stream]);
        if patience != u64::MAX && self.requests[slot].life == life {
            self.errand(patience, Errand::Leave { slot, life });
        }
        self.settle();
    }

    /// *admit* and *queue*: a request asks for admission to `class`. `spec` is the class's index in the
    /// tallies.
    fn knock(&mut self, slot: u32, class: ClassId, spec: usize) {
        let request = &mut self.requests[slot];
        request.spec = spec as u32;
        let locality_key = request.document.map(|document| document.locality_key());
        let demand = self.table.cost_of(request.traffic);
        request.cost = demand;
        let position = weirgate_engine::position(request.flow);
        let arrival = Arrival { class, flow: request.flow, demand, locality_key, position, token: u64::from(slot) };
        self.checks.arrived(spec);
        match self.engine.arrive(self.time(), arrival) {
            Decision::Release { ticket, node } => self.release(slot, ticket, node),
            Decision::Wait { ticket } => {
                let request = &mut self.requests[slot];
                request.place = Place::Waiting;
                request.ticket = Some(ticket);
                self.checks.waits(spec, demand);
            }
            Decision::Shed(shed) => self.turned_away(slot, shed),
        }
    }

    /// A request is shed. Its class may have a fallback.
    fn turned_away(&mut self, slot: u32, shed: Shed) {
        let spec = self.requests[slot].spec as usize;
        self.checks.tallies[spec].shed += 1;
        self.records[self.requests[slot].record as usize].shed = Some(shed.reason);
        match shed.fallback {
            Some(class) => {
                self.checks.fell_back += 1;
                self.knock(slot, class, class.0 as usize);
            }
            None => self.end(slot, Fate::Shed),
        }
    }

    /// Carries out the engine's actions until it has none.
    pub(super) fn settle(&mut self) {
        while let Some(action) = self.engine.poll(self.time()) {
            match action {
                Action::Release { ticket, token, node, .. } => {
                    if let Some(slot) = self.waiting(token, ticket) {
                        self.release(slot, ticket, node);
                    }
                }
                Action::Shed { ticket, token, shed, .. } => {
                    if let Some(slot) = self.waiting(token, ticket) {
                        self.turned_away(slot, shed);
                    }
                }
            }
        }
        let next = self.engine.next_timeout();
        let ahead = self.checks.timer(next);
        // A timer that does not lie ahead is a defect, and `timer` has noted it. The run goes on all the
        // same.
        let at = if ahead { next.map_or(u64::MAX, |next| next.as_nanos()) } else { self.now + 1_000 };
        // An early call does no harm, so a timer that moves later, the usual case, costs nothing.
        if at < self.engine_at {
            self.engine_at = at;
            self.agenda.set(self.sources.engine, Some(at));
        }
    }

    /// Finds the waiting request that the engine names and takes it out of the queue's count.
    fn waiting(&mut self, token: u64, ticket: Ticket) -> Option<u32> {
        if !self.checks.ticket(self.requests.get(token), ticket) {
            return None;
        }
        let slot = token as u32;
        self.checks.waits_no_more(self.requests[slot].spec as usize);
        Some(slot)
    }

    /// *release* and *dispatch*: a request gets its slot and goes to `node`.
    fn release(&mut self, slot: u32, ticket: Ticket, node: NodeId) {
        let request = &mut self.requests[slot];
        request.ticket = Some(ticket);
        // 0 means that the request was never released.
        self.records[request.record as usize].released = self.now.max(1);
        let (life, spec, cost) = (request.life, request.spec as usize, request.cost);
        let owed = self.engine.is_surplus(ticket) == Some(false);
        let must_look = self.checks.released(spec, node, cost, owed);
        self.limit(self.limits[spec][1], slot, life);
        self.forward(slot, spec, node);
        if must_look {
            let (engine, now) = (&self.engine, self.time());
            let classes = || engine.classes(now, ClassId(0), usize::MAX);
            self.checks.look_at_release(spec, (node, None), owed, &engine.snapshot(now), classes);
        }
    }

    /// *forward*: a request is under way to `node`.
    fn forward(&mut self, slot: u32, spec: usize, node: NodeId) {
        let request = &mut self.requests[slot];
        request.place = Place::Going;
        request.begun = false;
        request.node = node.0;
        self.records[request.record as usize].node = Some(node.0);
        let stamp = request.attempt;
        self.limit(self.limits[spec][0], slot, stamp);
        self.depart(u64::from(slot), stamp);
    }

    fn limit(&mut self, queue: usize, slot: u32, stamp: u32) {
        let queue_at = &mut self.late.all[queue];
        let limit = queue_at.limit;
        let over = |deadline: &Deadline| is_over(&self.requests[deadline.slot], limit, deadline.stamp);
        if let Some(at) = queue_at.push(self.now, slot, stamp, over) {
            self.agenda.set(self.sources.late + queue, Some(at));
        }
    }

    /// Sends a request or a check to its machine.
    pub(super) fn depart(&mut self, id: u64, stamp: u32) {
        self.wire.push_back(Message { at: self.now + self.delay, id, stamp, news: News::Request });
    }

    /// A request or a check reaches its machine.
    pub(super) fn reach(&mut self, message: Message) {
        let Message { id, stamp, .. } = message;
        if id >= CHECK {
            return self.check_reaches(message);
        }
        let request = &mut self.requests[id as u32];
        if request.attempt != stamp || request.place != Place::Going {
            return;
        }
        request.place = Place::Returning;
        let (node, document) = (NodeId(request.node), request.document);
        let work = Work {
            demand: request.demand,
            class: request.spec,
            object: document.map(|document| document.object),
            bytes: document.map_or(0, |document| document.bytes),
        };
        match self.machines.receive(self.now, self.machine_of(node), id, work) {
            Reception::Refused => self.answer(id, stamp, News::Broken),
            Reception::Full => self.answer(id, stamp, News::Status(503)),
            Reception::Failed => self.fail_fast(id, stamp),
            Reception::Taken(server) => {
                self.requests[id as u32].place = Place::Serving(server);
                self.touched(server);
            }
        }
    }

    /// Sends back finished requests after a server has advanced, and updates the server's next instant.
    pub(super) fn touched(&mut self, server: u32) {
        self.collect();
        self.agenda.set(self.sources.servers + server as usize, self.machines.next_event(server));
    }

    /// Sends back the replies that servers have begun or finished.
    #[inline]
    pub(super) fn collect(&mut self) {
        for place in 0..self.machines.begun.len() {
            let id = self.machines.begun[place];
            if let Some(request) = self.requests.get(id) {
                self.answer(id, request.attempt, News::FirstByte);
            }
        }
        self.machines.begun.clear();
        for place in 0..self.machines.finished.len() {
            let (id, _) = self.machines.finished[place];
            let stamp = self.leaves_server(id);
            self.answer(id, stamp, News::Status(200));
        }
        self.machines.finished.clear();
    }

    /// A request or a check leaves its server. Returns its stamp.
    pub(super) fn leaves_server(&mut self, id: u64) -> u32 {
        if id >= CHECK {
            let watch = self.watches[(id - CHECK) as usize].as_mut();
            return watch.map_or(0, |watch| {
                watch.server = None;
                watch.round
            });
        }
        let request = &mut self.requests[id as u32];
        request.place = Place::Returning;
        request.attempt
    }

    /// Sends news from a machine to the gateway.
    pub(super) fn answer(&mut self, id: u64, stamp: u32, news: News) {
        self.wire.push_back(Message { at: self.now + self.delay, id, stamp, news });
    }

    /// Sends status 500 from a machine after [`FAILS_AFTER`].
    pub(super) fn fail_fast(&mut self, id: u64, stamp: u32) {
        let at = self.now + FAILS_AFTER + self.delay;
        self.failing.push_back(Message { at, id, stamp, news: News::Status(500) });
        if self.failing.len() == 1 {
            self.agenda.set(Sources::FAILING, Some(at));
        }
    }

    /// *observe*: the first byte of a reply, or another sign of progress, has reached the gateway.
    pub(super) fn hear_first_byte(&mut self, message: Message) {
        let request = &mut self.requests[message.id as u32];
        let is_in_flight = matches!(request.place, Place::Serving(_) | Place::Returning);
        if request.attempt != message.stamp || !is_in_flight || std::mem::replace(&mut request.begun, true) {
            return;
        }
        if let Some(ticket) = request.ticket {
            self.engine.observe(self.time(), ticket, Outcome::FirstByte);
            self.settle();
        }
    }

    /// *observe*: news of a request has reached the gateway.
    pub(super) fn hear(&mut self, message: Message) {
        let Message { id, stamp, news, .. } = message;
        if id >= CHECK {
            return self.check_answers(message);
        }
        let slot = id as u32;
        let request = &self.requests[slot];
        if request.attempt != stamp || request.place != Place::Returning {
            return;
        }
        match news {
            News::Request | News::FirstByte => {}
            // A reply that has begun cannot be retried, because its client has received a part of it.
            News::Broken => {
                let retryable = !request.begun;
                self.fail(slot, retryable);
            }
            News::Status(status) => {
                let (served, spec) = (status < 500, request.spec as usize);
                // A degraded reply does not count as served. It is an answer all the same, so its client
                // does not retry.
                let degraded = spec != self.specs[request.traffic as usize];
                let tally = &mut self.checks.tallies[spec];
                tally.served += u64::from(served);
                tally.failed += u64::from(!served);
                self.give_back(slot, Outcome::LastByte { status });
                let fate = match served {
                    true if degraded => {
                        self.requests[slot].retries = 0;
                        Fate::Shed
                    }
                    true => Fate::Served,
                    false => Fate::Failed,
                };
                self.end(slot, fate);
            }
        }
        self.settle();
    }

    /// The node failed a request. It may be retried at another node, if the engine says so.
    fn fail(&mut self, slot: u32, retryable: bool) {
        let request = &mut self.requests[slot];
        request.attempt = request.attempt.wrapping_add(1);
        let (ticket, spec, from) = (request.ticket, request.spec as usize, NodeId(request.node));
        let demand = request.cost;
        let Some(ticket) = ticket else { return };
        self.checks.tallies[spec].failed += 1;
        if let Some(node) = self.engine.observe(self.time(), ticket, Outcome::Failed { retryable }) {
            let owed = self.engine.is_surplus(ticket) == Some(false);
            let must_look = self.checks.moved(spec, from, node, demand, owed);
            self.forward(slot, spec, node);
            let snapshot = self.engine.snapshot(self.time());
            if must_look {
                let (engine, now) = (&self.engine, self.time());
                let classes = || engine.classes(now, ClassId(0), usize::MAX);
                self.checks.look_at_release(spec, (node, Some(from)), owed, &snapshot, classes);
            } else {
                self.checks.look(&snapshot);
            }
        } else {
            self.checks.freed(spec, from, demand);
            self.checks.look(&self.engine.snapshot(self.time()));
            self.end(slot, Fate::Failed);
        }
    }

    /// Reports the end of a request in flight, other than a failure to be retried.
    pub(super) fn give_back(&mut self, slot: u32, outcome: Outcome) {
        let request = &self.requests[slot];
        let (ticket, spec, node) = (request.ticket, request.spec as usize, NodeId(request.node));
        let demand = request.cost;
        let Some(ticket) = ticket else { return };
        let (traffic, released) = (request.traffic, self.records[request.record as usize].released);
        let whole = matches!(outcome, Outcome::LastByte { .. });
        self.table.left(self.machine_of(node), traffic, (released, self.now), whole);
        self.engine.observe(self.time(), ticket, outcome);
        self.checks.freed(spec, node, demand);
        if matches!(outcome, Outcome::LastByte { status: 500.. }) {
            // The engine may have ejected the node now.
            self.checks.look(&self.engine.snapshot(self.time()));
        }
    }

    /// Handles the deadlines of queue `number` that have passed.
    pub(super) fn expire(&mut self, number: usize) {
        let queue = &mut self.late.all[number];
        let limit = queue.limit;
        let requests = &self.requests;
        let late = queue.pop(self.now, |deadline| is_over(&requests[deadline.slot], limit, deadline.stamp));
        self.agenda.set(self.sources.late + number, queue.arm());
        if let Some(deadline) = late {
            self.cut(deadline.slot);
            self.fail(deadline.slot, limit == Limit::FirstByte);
            self.settle();
        }
    }

    /// Cuts the connection of a request in flight.
    pub(super) fn cut(&mut self, slot: u32) {
        if let Place::Serving(server) = self.requests[slot].place {
            self.machines.cut(self.now, server, u64::from(slot));
            self.touched(server);
        }
    }

    /// A client runs out of patience.
    pub(super) fn leave(&mut self, slot: u32, life: u32) {
        let request = &self.requests[slot];
        if request.life != life || request.place == Place::Free {
            return;
        }
        let (place, ticket, spec) = (request.place, request.ticket, request.spec as usize);
        let Some(ticket) = ticket else { return };
        if place == Place::Waiting {
            let cancelled = self.engine.cancel(self.time(), ticket);
            if !cancelled {
                self.checks.note("ticket", format!("{ticket:?} waits and cannot be cancelled"));
            }
            self.checks.waits_no_more(spec);
        } else {
            self.cut(slot);
            self.give_back(slot, Outcome::Reset);
        }
        self.checks.tallies[spec].cancelled += 1;
        self.end(slot, Fate::Left);
        self.settle();
    }

    /// An attempt of a client is over. The client may retry or think.
    pub(super) fn end(&mut self, slot: u32, fate: Fate) {
        let request = &mut self.requests[slot];
        request.life = request.life.wrapping_add(1);
        request.attempt = request.attempt.wrapping_add(1);
        request.place = Place::AtClient;
        request.ticket = None;
        let record = &mut self.records[request.record as usize];
        if record.fate != Fate::Cut {
            let what = format!("an attempt that was {:?} is {fate:?}", record.fate);
            self.checks.note("conservation", what);
        }
        record.fate = fate;
        record.ended = self.now;
        let (traffic, user, visit) = (request.traffic, request.user, request.visit);
        let stream = &mut self.streams[traffic as usize];
        if fate != Fate::Served && request.retries > 0 {
            request.retries -= 1;
            let after = stream.retry_after().max(TURNAROUND);
            return self.errand(after, Errand::Retry { slot });
        }
        self.requests.remove(slot);
        match visit {
            Some(visit) => self.go_on(visit, traffic, fate),
            None => self.think(traffic, user),
        }
    }

    /// A request of stream `traffic` that belongs to a page is over for good. Its client continues with the
    /// page, asks for another page, or leaves.
    fn go_on(&mut self, visit: VisitId, traffic: u32, fate: Fate) {
        let (of, _) = self.visits.traffic_of(visit);
        match self.visits.ended(visit, traffic, fate, self.now) {
            Then::Waits => {}
            Then::Objects(count) => (0..count).for_each(|_| self.errand(TURNAROUND, Errand::Object { visit })),
            Then::Thinks(thinks) => self.errand(thinks.max(TURNAROUND), Errand::Page { visit }),
            Then::Leaves { user } => self.think(of, user),
        }
    }

    /// Starts the thinking time of a user, if `user` is one.
    fn think(&mut self, traffic: u32, user: u32) {
        if user != NO_USER {
            let traffic = self.experiment.home_of(traffic as usize) as u32;
            let after = self.streams[traffic as usize].think().max(TURNAROUND);
            self.errand(after, Errand::User { traffic, user });
        }
    }
}
