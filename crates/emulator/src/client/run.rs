//! The loop that sends: one thread, one alarm, a pool of connections per class.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::exchange::{Exchange, Progress, READ, Reply};
use super::generator::{Due, Generator};
use super::plan::{ClassPlan, Plan, Statistic};
use super::report::{ClassPoint, ClassReport, Ended, PhaseReport, Point, Report, Tally, histogram, statistic};
use super::running::Shared;
use crate::clock::{self, Alarm, nanos};

/// The token of the alarm; that of the waker is 0.
pub(super) const ALARM: Token = Token(1);
/// Tokens of connections start here.
const FIRST: usize = 2;

/// Events taken from the system at once.
const EVENTS: usize = 1024;

/// Requests begun at once before replies are looked at again: a late generator catches up without
/// making the replies late as well.
const BATCH: usize = 256;

/// Unused connections are closed after so long, before common servers do it (Apache: 5 s), as a
/// request could meet the server's close half-way.
const IDLE: u64 = 4 * clock::SECOND;

/// A class while it runs.
struct Class {
    plan: ClassPlan,
    is_head: bool,
    generator: Generator,
    timeout: u64,
    open: usize,
    opened: u64,
    /// Unused connections: place, serial number, since when.
    idle: VecDeque<(usize, u64, u64)>,
    /// Requests that wait for a connection, in order.
    backlog: VecDeque<Request>,
    /// Requests on connections in order of their intended instants: the instant, place, id.
    deadlines: VecDeque<(u64, usize, u64)>,
    phases: Vec<[Tally; 2]>,
    /// Of the present tick.
    point: ClassPoint,
    responses: Histogram<u32>,
    under_way: u64,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    due: Due,
}

/// A connection in its place.
struct Slot {
    class: usize,
    serial: u64,
    exchange: Exchange,
    request: Option<Request>,
}

pub(super) struct Run {
    plan: Plan,
    poll: Poll,
    alarm: Alarm,
    shared: Arc<Shared>,
    classes: Vec<Class>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Counts connections.
    serial: u64,
    /// Counts requests.
    requests: u64,
    start: u64,
    ended: Option<Ended>,
    elapsed: u64,
    lateness: Histogram<u32>,
    ticks: u64,
    tick_from: u64,
    buffer: Vec<u8>,
}

impl Run {
    pub(super) fn new(plan: Plan, poll: Poll, alarm: Alarm, shared: Arc<Shared>) -> Run {
        let class = |(i, of): (usize, &ClassPlan)| Class {
            plan: of.clone(),
            is_head: of.method == "HEAD",
            generator: Generator::new(&plan, i),
            timeout: nanos(of.timeout),
            open: 0,
            opened: 0,
            idle: VecDeque::new(),
            backlog: VecDeque::new(),
            deadlines: VecDeque::new(),
            phases: plan.phases.iter().map(|_| [Tally::default(), Tally::default()]).collect(),
            point: ClassPoint::default(),
            responses: histogram(3),
            under_way: 0,
        };
        let classes = plan.classes.iter().enumerate().map(class).collect();
        Run {
            classes,
            plan,
            poll,
            alarm,
            shared,
            slots: Vec::new(),
            free: Vec::new(),
            serial: 0,
            requests: 0,
            start: 0,
            ended: None,
            elapsed: 0,
            lateness: histogram(3),
            ticks: 0,
            tick_from: 0,
            buffer: vec![0; READ],
        }
    }

    pub(super) fn run(mut self) -> io::Result<Report> {
        let mut events = Events::with_capacity(EVENTS);
        self.start = clock::now();
        loop {
            let due = self.due().map(|at| self.start.saturating_add(at));
            self.alarm.wait(&mut self.poll, &mut events, due)?;
            self.send_due();
            for event in &events {
                if let Some(place) = event.token().0.checked_sub(FIRST)
                    && let Some(Some(slot)) = self.slots.get_mut(place)
                {
                    slot.exchange.ready(event);
                    self.go_on(place);
                }
            }
            let now = self.now();
            self.give_up(now);
            if now >= self.next_tick() {
                self.tick(now);
            }
            if self.shared.stopped() {
                self.end(now, Ended::Asked);
                self.cut();
            }
            if self.ended.is_some() && self.classes.iter().all(|c| c.under_way == 0) {
                return Ok(self.finish(now));
            }
        }
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        clock::now() - self.start
    }

    fn next_tick(&self) -> u64 {
        nanos(self.plan.tick).saturating_mul(self.ticks + 1)
    }

    /// When something is to be done without any event from outside.
    fn due(&mut self) -> Option<u64> {
        let mut due = self.next_tick();
        for class in &mut self.classes {
            while let Some(&(_, place, id)) = class.deadlines.front()
                && self.slots[place].as_ref().is_none_or(|s| s.request.is_none_or(|r| r.id != id))
            {
                class.deadlines.pop_front();
            }
            let oldest =
                class.deadlines.front().map(|d| d.0).into_iter().chain(class.backlog.front().map(|r| r.due.at));
            let deadline = oldest.min().map_or(u64::MAX, |at| at.saturating_add(class.timeout));
            let arrival = if self.ended.is_none() { class.generator.due() } else { None };
            due = due.min(deadline).min(arrival.unwrap_or(u64::MAX));
        }
        if self.ended.is_none() {
            due = due.min(nanos(self.plan.length()));
        }
        Some(due)
    }

    /// Begins what is due.
    fn send_due(&mut self) {
        let mut left = BATCH;
        for c in 0..self.classes.len() {
            while self.ended.is_none()
                && left > 0
                && let now = self.now()
                && self.classes[c].generator.due().is_some_and(|at| at <= now)
                && let Some(due) = self.classes[c].generator.take()
            {
                left -= 1;
                self.requests += 1;
                self.lateness.saturating_record(((now - due.at) / 1000).max(1));
                let class = &mut self.classes[c];
                class.phases[due.phase][usize::from(!due.settling)].arrived(&due);
                class.point.arrivals += 1;
                class.under_way += 1;
                let request = Request { id: self.requests, due };
                if !self.begin(c, request) {
                    let class = &mut self.classes[c];
                    class.phases[due.phase][usize::from(!due.settling)].delayed += 1;
                    class.backlog.push_back(request);
                }
                if self.requests >= self.plan.most_requests {
                    self.end(now, Ended::Count);
                }
            }
        }
        let now = self.now();
        let over = self.classes.iter().all(|c| c.generator.due().is_none()) && now >= nanos(self.plan.length());
        if over {
            self.end(now, Ended::Schedule);
        }
    }

    /// Puts a request on a connection; `false`: none may be had.
    fn begin(&mut self, c: usize, request: Request) -> bool {
        let class = &mut self.classes[c];
        while let Some((place, serial, _)) = class.idle.pop_back() {
            if self.slots[place].as_ref().is_some_and(|s| s.serial == serial && s.request.is_none()) {
                self.put(place, request);
                return true;
            }
        }
        if class.open >= class.plan.connections {
            return false;
        }
        match self.connect(c) {
            Some(place) => self.put(place, request),
            None => self.count(c, request, |tally, point| {
                tally.failed.connect += 1;
                point.failed += 1;
            }),
        }
        true
    }

    fn connect(&mut self, c: usize) -> Option<usize> {
        let class = &mut self.classes[c];
        let mut stream = TcpStream::connect(class.plan.target).ok()?;
        // Requests are written whole: waiting to fill a segment could only delay them.
        let _ = stream.set_nodelay(true);
        let place = self.free.pop().unwrap_or(self.slots.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut stream, Token(FIRST + place), interest).is_err() {
            if place < self.slots.len() {
                self.free.push(place);
            }
            return None;
        }
        if place == self.slots.len() {
            self.slots.push(None);
        }
        self.serial += 1;
        class.open += 1;
        class.opened += 1;
        let exchange = Exchange::new(stream);
        self.slots[place] = Some(Slot { class: c, serial: self.serial, exchange, request: None });
        Some(place)
    }

    fn put(&mut self, place: usize, request: Request) {
        let Some(slot) = &mut self.slots[place] else { return };
        let class = &mut self.classes[slot.class];
        slot.request = Some(request);
        class.deadlines.push_back((request.due.at, place, request.id));
        let write = |out: &mut Vec<u8>| class.generator.write(request.due.phase, request.due.demand, request.id, out);
        slot.exchange.send(class.is_head, write);
        self.go_on(place);
    }

    /// Goes on with a connection, and with what waits for it once it is free.
    fn go_on(&mut self, place: usize) {
        let Some(Some(slot)) = self.slots.get_mut(place) else { return };
        let (c, serial) = (slot.class, slot.serial);
        let progress = slot.exchange.go_on(&mut self.buffer);
        if progress == Progress::Wait {
            return;
        }
        let request = slot.request.take();
        let again = matches!(progress, Progress::Reply(_, true));
        if again {
            let now = self.now();
            self.classes[c].idle.push_back((place, serial, now));
        } else {
            self.close(place);
        }
        if let Some(request) = request {
            let took = self.now() - request.due.at;
            self.count(c, request, |tally, point| match progress {
                Progress::Reply(reply, _) => tally.reply(point, reply, took),
                Progress::NoConnection => tally.fail(point, |failed| failed.connect += 1),
                Progress::Reset | Progress::Wait => tally.fail(point, |failed| failed.reset += 1),
                Progress::Garbled => tally.fail(point, |failed| failed.garbled += 1),
            });
            if let Progress::Reply(Reply { status: 200..=399, .. }, _) = progress {
                self.classes[c].responses.saturating_record(took / 1000);
            }
        }
        self.begin_waiting(c);
    }

    /// Begins what waits for a connection, as far as there are any.
    fn begin_waiting(&mut self, c: usize) {
        // Each round takes one request away or ends the loop, also when connecting fails at once.
        while let Some(&request) = self.classes[c].backlog.front() {
            self.classes[c].backlog.pop_front();
            if !self.begin(c, request) {
                self.classes[c].backlog.push_front(request);
                return;
            }
        }
    }

    fn close(&mut self, place: usize) {
        if let Some(slot) = self.slots[place].take() {
            self.classes[slot.class].open -= 1;
            self.free.push(place);
        }
    }

    /// Counts what became of a request.
    fn count(&mut self, c: usize, request: Request, counts: impl FnOnce(&mut Tally, &mut ClassPoint)) {
        let class = &mut self.classes[c];
        class.under_way -= 1;
        counts(&mut class.phases[request.due.phase][usize::from(!request.due.settling)], &mut class.point);
    }

    /// Gives up what has waited too long.
    fn give_up(&mut self, now: u64) {
        for c in 0..self.classes.len() {
            let timeout = self.classes[c].timeout;
            let late = |at: u64| at.saturating_add(timeout) <= now;
            while let Some(&(at, place, id)) = self.classes[c].deadlines.front()
                && late(at)
            {
                self.classes[c].deadlines.pop_front();
                if let Some(slot) = &mut self.slots[place]
                    && let Some(request) = slot.request.take_if(|r| r.id == id)
                {
                    self.close(place);
                    self.count(c, request, |tally, point| tally.fail(point, |failed| failed.timeout += 1));
                }
            }
            while let Some(&request) = self.classes[c].backlog.front()
                && late(request.due.at)
            {
                self.classes[c].backlog.pop_front();
                self.count(c, request, |tally, point| tally.fail(point, |failed| failed.timeout += 1));
            }
            self.begin_waiting(c);
        }
    }

    fn end(&mut self, now: u64, why: Ended) {
        if self.ended.is_none() {
            self.ended = Some(why);
            self.elapsed = now;
        }
    }

    /// Cuts off what is under way.
    fn cut(&mut self) {
        for c in 0..self.classes.len() {
            while let Some(request) = self.classes[c].backlog.pop_front() {
                self.count(c, request, |tally, _| tally.cut += 1);
            }
        }
        for place in 0..self.slots.len() {
            if let Some(slot) = &mut self.slots[place] {
                let (c, request) = (slot.class, slot.request.take());
                self.close(place);
                if let Some(request) = request {
                    self.count(c, request, |tally, _| tally.cut += 1);
                }
            }
        }
    }

    fn tick(&mut self, now: u64) {
        let phase = self.phase(now);
        let classes = self.classes.iter_mut().map(Class::end_tick).collect();
        let [at, from] = [now, self.tick_from].map(Duration::from_nanos);
        let point = Point { at, length: at - from, phase, classes };
        self.shared.points().push(point);
        self.tick_from = now;
        // A tick that was missed altogether is part of the one before.
        self.ticks = now / nanos(self.plan.tick);
        for c in 0..self.classes.len() {
            while let Some(&(place, serial, since)) = self.classes[c].idle.front()
                && since + IDLE <= now
            {
                self.classes[c].idle.pop_front();
                if self.slots[place].as_ref().is_some_and(|s| s.serial == serial && s.request.is_none()) {
                    self.close(place);
                }
            }
        }
    }

    /// The phase at an instant.
    fn phase(&self, now: u64) -> usize {
        let mut end = 0;
        let over = |p: &&super::Phase| {
            end += nanos(p.length);
            end <= now
        };
        self.plan.phases.iter().take_while(over).count().min(self.plan.phases.len() - 1)
    }

    fn finish(mut self, now: u64) -> Report {
        if now > self.tick_from {
            self.tick(now);
        }
        let phases = &self.plan.phases;
        let classes = self.classes.into_iter().map(|class| ClassReport {
            name: class.plan.name,
            guarantee: class.plan.guarantee,
            connections: class.opened,
            phases: phases
                .iter()
                .zip(class.phases)
                .map(|(phase, [settling, settled])| PhaseReport { name: phase.name.clone(), settling, settled })
                .collect(),
        });
        Report {
            classes: classes.collect(),
            points: self.shared.points().clone(),
            elapsed: Duration::from_nanos(self.elapsed),
            ended: self.ended.unwrap_or(Ended::Schedule),
            lateness: self.lateness,
        }
    }
}

impl Class {
    fn end_tick(&mut self) -> ClassPoint {
        let which = self.plan.guarantee.response_time.map_or(Statistic::Percentile(95.0), |r| r.0);
        let mut point = std::mem::take(&mut self.point);
        point.under_way = self.under_way;
        point.response = statistic(&self.responses, which);
        point.mean = statistic(&self.responses, Statistic::Average);
        self.responses.reset();
        point
    }
}

impl Tally {
    fn reply(&mut self, point: &mut ClassPoint, reply: Reply, took: u64) {
        *self.statuses.entry(reply.status).or_default() += 1;
        self.bytes += reply.bytes;
        match reply.status {
            200..=399 => {
                self.served(Duration::from_nanos(took));
                point.served += 1;
            }
            429 | 503 => {
                self.shed += 1;
                point.shed += 1;
                self.shed_response.saturating_record(took / 1000);
            }
            _ => self.fail(point, |failed| failed.status += 1),
        }
    }

    fn fail(&mut self, point: &mut ClassPoint, count: impl FnOnce(&mut super::Failures)) {
        count(&mut self.failed);
        point.failed += 1;
    }
}
