//! The engine's side of precedence: what it is told of classes, and what it answers.

use super::{Bucket, Claim, Claimed, Share, Sight};
use crate::classify::Classes;
use crate::demand::{Demand, RESOURCES};
use crate::discipline::{Infeasible, Precedence};
use crate::dispatch::Nodes;
use crate::engine::{ASSUMED_COMPUTE, Engine};
use crate::policy::Policy;
use crate::request::ClassId;
use crate::ticket::{NONE, State, Tickets};

/// What precedence sees where it shares the nodes' resources.
struct Queued<'a> {
    classes: &'a Classes,
    tickets: &'a Tickets,
    nodes: &'a mut Nodes,
    policy: &'a Policy,
}

impl Sight for Queued<'_> {
    fn head(&self, class: ClassId, line: usize) -> Option<Demand> {
        let head = self.classes[class].queue.lines[line].head;
        (head != NONE).then(|| self.policy.managed(self.tickets[head].demand))
    }

    fn ready(&self, pool: usize) -> bool {
        self.nodes.is_ready(pool)
    }

    fn fits(&self, class: ClassId, demand: Demand) -> bool {
        self.nodes.fits(self.classes[class].pool, demand)
    }

    fn left(&self, domain: usize) -> [f64; RESOURCES] {
        self.nodes.left(Some(domain))
    }

    fn lacking(&self, class: ClassId, demand: Demand) -> [bool; RESOURCES] {
        self.nodes.lacking(self.classes[class].pool, demand)
    }

    fn keep(&mut self, domain: usize, head: Option<(ClassId, Demand)>) -> bool {
        let head = head.map(|(class, demand)| (self.classes[class].pool, demand));
        self.nodes.keep(domain, head)
    }
}

impl Engine {
    /// The class and line whose head is next.
    pub(crate) fn next(&mut self) -> Option<(ClassId, usize)> {
        if self.nodes.available {
            let Engine { precedence, classes, tickets, nodes, policy, .. } = self;
            let pools = nodes.sections.len();
            return precedence.next_by_resources(pools, &mut Queued { classes, tickets, nodes, policy });
        }
        // A partition of the window knows one window; methods that divide it do not look at its size.
        let size = self.windows[0].size;
        let room = |pool, line| self.nodes.has_room(pool, self.windows_of(line), None);
        self.precedence.next(size, room)
    }

    /// A waiting request that fits none of the nodes that are left: it would keep back everybody behind it until its node
    /// returns.
    pub(crate) fn too_large(&mut self) -> Option<u32> {
        let from = self.nodes.unseen?;
        let mut entries = self.tickets.entries.iter().skip(from);
        let found = entries.position(|entry| {
            // Free places have classes that may be gone.
            entry.state == State::Waiting && {
                let pool = self.classes[entry.class].pool;
                self.nodes.is_too_large(pool, self.policy.managed(entry.demand))
            }
        });
        // Who arrives from now on was looked at then.
        self.nodes.unseen = found.map(|found| from + found + 1);
        found.map(|found| (from + found) as u32)
    }

    /// Opens the accounts of these live classes in the nodes' resources.
    pub(crate) fn open_accounts(&mut self, classes: impl Iterator<Item = ClassId>) {
        for (class, share) in self.accounts(classes) {
            self.precedence.open(class, share);
        }
    }

    /// The nodes are larger or smaller together than they were.
    pub(crate) fn resize_accounts(&mut self) {
        for (class, share) in self.accounts(self.classes.all.ids()) {
            self.precedence.resize(class, share);
        }
    }

    /// What share of the resources each class has. Nobody has one where they are not managed.
    fn accounts(&self, classes: impl Iterator<Item = ClassId>) -> Vec<(ClassId, Share)> {
        if !self.nodes.available {
            return Vec::new();
        }
        // Per domain the weights of its classes, and what its nodes do.
        let mut whole: Vec<(f64, f64)> =
            (0..self.nodes.sections.len()).map(|domain| (0.0, self.nodes.whole(domain))).collect();
        for spec in &self.classes.specs {
            whole[self.nodes.domain(self.nodes.sections.of_class(spec))].0 += spec.weight;
        }
        let share = |class: ClassId| {
            let pool = self.classes[class].pool;
            let domain = self.nodes.domain(pool);
            let ((weights, whole), weight) = (whole[domain], self.classes.spec(class).weight);
            (class, Share { pool, domain, weight, weights, whole })
        };
        classes.map(share).collect()
    }

    /// How many agreed requests fit into one of the class's: a class that is dearer than agreed is owed its
    /// capacity, not its rate. Less than `dear` is not told from noise and contention and counts as one.
    pub(crate) fn dearness(&self, class: ClassId) -> f64 {
        let dear = match self.policy.discipline.precedence {
            Precedence::Tokens(figures) => figures.dear,
            _ => return 1.0,
        };
        let state = &self.classes[class];
        let (Some(mean), Some(agreed)) = (state.expected.seconds(), self.classes.service_time(class)) else {
            return 1.0;
        };
        let dearness = mean / agreed;
        // A stretch only makes it less.
        let dearness = if dearness >= dear { dearness / self.stretch(state.pool) } else { 1.0 };
        if dearness >= dear { dearness } else { 1.0 }
    }

    /// φ for fair queueing: a class without a throughput has a small part of everybody's.
    pub(crate) fn fair_weight(&self, class: ClassId) -> u64 {
        match (self.classes[class].weight, self.policy.discipline.precedence) {
            (0, Precedence::Tokens(figures)) => {
                ((figures.best_effort_share * self.classes.total_weight as f64) as u64).max(1)
            }
            (weight, _) => weight,
        }
    }

    /// Brings a class's place in precedence and expiry up to date.
    pub(crate) fn rank(&mut self, class: ClassId) {
        let state = &self.classes[class];
        let pool = state.pool;
        let (waits, known) = (state.queue.len > 0, self.expiry.contains(class));
        if !waits && !known {
            return;
        }
        for line in 0..self.lines {
            let state = &self.classes[class];
            let head = state.queue.lines[line].head;
            if head == NONE {
                self.precedence.remove(class, pool, line);
                continue;
            }
            let claim = Claim {
                class,
                pool,
                line,
                weight: self.fair_weight(class),
                outstanding: state.outstanding,
                tag: state.tag,
                sequence: self.tickets[head].sequence,
                rank: self.policy.discipline.rank(self.tickets[head].code),
                claimed: Claimed::Guaranteed { rank: 0.0 },
            };
            let claimed = self.claimed(class);
            self.precedence.set(&Claim { claimed, ..claim });
        }
        if !waits {
            self.expiry.remove(0, class);
            return;
        }
        let (due, _) = self.drop_at(self.now, self.classes[class].queue.oldest(&self.tickets));
        self.expiry.set(0, class, due);
    }

    /// What a class claims under [`Precedence::Tokens`].
    fn claimed(&mut self, class: ClassId) -> Claimed {
        let Precedence::Tokens(figures) = self.policy.discipline.precedence else {
            return Claimed::Guaranteed { rank: 0.0 };
        };
        let spec = self.classes.spec(class);
        let (throughput, utility) = (spec.guarantee.throughput, spec.utility);
        let rank = match figures.infeasible {
            Infeasible::Proportional => 0.0,
            Infeasible::Strict => -utility,
            Infeasible::Utility => -utility / self.classes.service_time(class).unwrap_or(ASSUMED_COMPUTE),
        };
        let rate = throughput.unwrap_or(figures.best_effort_rate);
        let level = self.classes[class].bucket.level(self.now, rate);
        if level >= 1.0 {
            Claimed::Guaranteed { rank }
        } else {
            Claimed::Surplus { until: Bucket::whole_at(self.now, level, rate) }
        }
    }

    /// A class has nothing waiting or inside any more.
    pub(crate) fn retire(&mut self, class: ClassId) {
        self.precedence.claim(self.classes[class].weight, false);
        self.classes.enter_idle(class);
    }

    /// A class's service time or the others' became known: its weight may be another.
    pub(crate) fn reweigh(&mut self, class: ClassId) {
        let due = self.classes.due_weight(class);
        let old = self.classes.change_weight(class, due);
        if old == due {
            return;
        }
        if self.classes[class].active() {
            self.precedence.claim(old, false);
            self.precedence.claim(due, true);
            self.rank(class);
        }
    }
}
