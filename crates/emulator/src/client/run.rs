//! The schedule of a plan and what came of it, on connections: one thread, one loop.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use mio::Waker;

use super::connections::{Connections, Ending, Over, Reply, Target, Ticket};
use super::generator::{Due, Generator};
use super::plan::{ClassPlan, Plan, Statistic};
use super::report::{ClassPoint, ClassReport, Ended, PhaseReport, Point, Report, Tally, histogram, statistic};
use super::running::Points;
use crate::clock::{self, nanos};

/// Requests begun at once before replies are looked at again: a late generator catches up without
/// making the replies late as well.
const BATCH: usize = 256;

/// A class while it runs.
struct Class {
    plan: ClassPlan,
    is_head: bool,
    generator: Generator,
    timeout: u64,
    /// Requests in order of their intended instants.
    deadlines: VecDeque<(u64, Ticket)>,
    phases: Vec<[Tally; 2]>,
    /// Of the present tick.
    point: ClassPoint,
    responses: Histogram<u32>,
    under_way: u64,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    class: usize,
    due: Due,
}

pub(super) struct Run {
    plan: Plan,
    connections: Connections<Request>,
    points: Arc<Points>,
    classes: Vec<Class>,
    /// Counts requests.
    requests: u64,
    start: u64,
    ended: Option<Ended>,
    elapsed: u64,
    lateness: Histogram<u32>,
    ticks: u64,
    tick_from: u64,
}

impl Run {
    pub(super) fn new(plan: Plan, points: Arc<Points>) -> io::Result<(Run, Waker)> {
        let targets = plan.classes.iter().map(|class| Target { address: class.target, most: class.connections });
        let (connections, waker) = Connections::new(targets)?;
        let class = |(i, of): (usize, &ClassPlan)| Class {
            plan: of.clone(),
            is_head: of.method == "HEAD",
            generator: Generator::new(&plan, i),
            timeout: nanos(of.timeout),
            deadlines: VecDeque::new(),
            phases: plan.phases.iter().map(|_| [Tally::default(), Tally::default()]).collect(),
            point: ClassPoint::default(),
            responses: histogram(3),
            under_way: 0,
        };
        let classes = plan.classes.iter().enumerate().map(class).collect();
        let run = Run {
            classes,
            plan,
            connections,
            points,
            requests: 0,
            start: 0,
            ended: None,
            elapsed: 0,
            lateness: histogram(3),
            ticks: 0,
            tick_from: 0,
        };
        Ok((run, waker))
    }

    /// Plays the plan; `stop` becomes true if its owner wants the end.
    pub(super) fn run(mut self, stop: &AtomicBool) -> io::Result<Report> {
        self.start = clock::now();
        loop {
            let due = self.due();
            self.connections.wait(Some(self.start.saturating_add(due)))?;
            self.send_due();
            self.connections.go_on();
            while let Some(over) = self.connections.take() {
                self.end_request(over);
            }
            let now = self.now();
            self.give_up(now);
            if now >= self.next_tick() {
                self.tick(now);
            }
            if stop.load(Ordering::Relaxed) {
                self.end(now, Ended::Asked);
                for request in self.connections.cut() {
                    self.count(request, |tally, _| tally.cut += 1);
                }
            }
            if self.ended.is_some() && self.connections.under_way() == 0 {
                while let Some(over) = self.connections.take() {
                    self.end_request(over);
                }
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
    fn due(&mut self) -> u64 {
        let mut due = self.next_tick();
        for class in &mut self.classes {
            while class.deadlines.front().is_some_and(|(_, ticket)| !self.connections.is_under_way(*ticket)) {
                class.deadlines.pop_front();
            }
            let deadline = class.deadlines.front().map(|(at, _)| at.saturating_add(class.timeout));
            let arrival = class.generator.due().filter(|_| self.ended.is_none());
            due = due.min(deadline.unwrap_or(u64::MAX)).min(arrival.unwrap_or(u64::MAX));
        }
        if self.ended.is_none() { due.min(nanos(self.plan.length())) } else { due }
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
                self.begin(c, due);
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

    fn begin(&mut self, c: usize, due: Due) {
        let (class, id) = (&mut self.classes[c], self.requests);
        let write = |out: &mut Vec<u8>| class.generator.write(due.phase, due.demand, id, out);
        let (ticket, waits) = self.connections.begin(c, Request { class: c, due }, class.is_head, write);
        class.deadlines.push_back((due.at, ticket));
        let tally = &mut class.phases[due.phase][usize::from(!due.settling)];
        tally.arrived(&due);
        tally.delayed += u64::from(waits);
        class.point.arrivals += 1;
        class.under_way += 1;
    }

    /// Counts what became of a request.
    fn end_request(&mut self, over: Over<Request>) {
        let took = over.at - self.start - over.request.due.at;
        self.count(over.request, |tally, point| match over.ending {
            Ending::Reply(reply) => tally.reply(point, reply, took),
            Ending::NoConnection => tally.fail(point, |failed| failed.connect += 1),
            Ending::Reset => tally.fail(point, |failed| failed.reset += 1),
            Ending::Garbled => tally.fail(point, |failed| failed.garbled += 1),
        });
        if let Ending::Reply(Reply { status: 200..=399, .. }) = over.ending {
            self.classes[over.request.class].responses.saturating_record(took / 1000);
        }
    }

    fn count(&mut self, request: Request, counts: impl FnOnce(&mut Tally, &mut ClassPoint)) {
        let class = &mut self.classes[request.class];
        class.under_way -= 1;
        counts(&mut class.phases[request.due.phase][usize::from(!request.due.settling)], &mut class.point);
    }

    /// Gives up what has waited too long.
    fn give_up(&mut self, now: u64) {
        for c in 0..self.classes.len() {
            while let Some(&(at, ticket)) = self.classes[c].deadlines.front()
                && at.saturating_add(self.classes[c].timeout) <= now
            {
                self.classes[c].deadlines.pop_front();
                if let Some(request) = self.connections.give_up(ticket) {
                    self.count(request, |tally, point| tally.fail(point, |failed| failed.timeout += 1));
                }
            }
        }
    }

    fn end(&mut self, now: u64, why: Ended) {
        if self.ended.is_none() {
            self.ended = Some(why);
            self.elapsed = now;
        }
    }

    fn tick(&mut self, now: u64) {
        let phase = self.phase(now);
        let classes = self.classes.iter_mut().map(Class::end_tick).collect();
        let [at, from] = [now, self.tick_from].map(Duration::from_nanos);
        let point = Point { at, length: at - from, phase, classes };
        self.points.lock().push(point);
        self.tick_from = now;
        // A tick that was missed altogether is part of the one before.
        self.ticks = now / nanos(self.plan.tick);
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
        let classes = self.classes.into_iter().enumerate().map(|(c, class)| ClassReport {
            name: class.plan.name,
            guarantee: class.plan.guarantee,
            connections: self.connections.opened(c),
            phases: phases
                .iter()
                .zip(class.phases)
                .map(|(phase, [settling, settled])| PhaseReport { name: phase.name.clone(), settling, settled })
                .collect(),
        });
        Report {
            classes: classes.collect(),
            points: self.points.lock().clone(),
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
