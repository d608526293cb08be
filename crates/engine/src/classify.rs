//! Stage *classify*, the engine's part: live classes, and classes made from templates.
//!
//! The driver matches requests to rules, because that needs HTTP. The engine keeps the state of every live
//! class: the classes that the policy names, and one per key of a template (a tenant, for example). Their
//! number is bounded. Beyond `max_live` the class that has been idle longest is evicted. If none is idle,
//! the request goes to the template's overflow class, which all such keys share. The counts of an evicted
//! class move to the overflow class, so that sums per template never fall.
//!
//! Keys are kept in a sorted map: no hash to flood, the same order in every run, O(log n).

use std::collections::BTreeMap;

use crate::dispatch::Partitions;
use crate::expected::{Estimation, Expected};
use crate::forward::RetryTokens;
use crate::index::{PartitionId, Table};
use crate::observed::Observed;
use crate::policy::{Class as Spec, Policy};
use crate::queue::Queue;
use crate::request::{ClassId, TemplateId};
use crate::source_rate::Bucket;
use crate::time::Time;

/// State of one live class.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// Index into [`Classes::specs`].
    pub(crate) spec: u32,
    /// Its partition: its whole pool, or the part of the pool for its set of services.
    pub(crate) partition: PartitionId,
    /// φ in billionths of a slot; 0 is best effort.
    pub(crate) weight: u64,
    /// Its share of [`Classes::pool_slots`].
    slots: f64,
    pub(crate) queue: Queue,
    /// Requests in flight that count for load control and precedence.
    pub(crate) in_flight: u32,
    /// Further ones that have passed: see `passing`.
    pub(crate) passing: u32,
    pub(crate) expected: Expected,
    pub(crate) observed: Observed,
    pub(crate) retry: RetryTokens,
    /// Tokens of its maximum rate.
    pub(crate) bucket: Bucket,
    /// The template and the key that it was made for.
    pub(crate) made: Option<Made>,
    /// False for free entries.
    pub(crate) live: bool,
}

impl Class {
    fn new(now: Time, spec: usize, partition: PartitionId) -> Class {
        Class {
            spec: spec as u32,
            partition,
            weight: 0,
            slots: 0.0,
            queue: Queue::EMPTY,
            in_flight: 0,
            passing: 0,
            expected: Expected::UNKNOWN,
            observed: Observed::new(now),
            retry: RetryTokens::new(now),
            bucket: Bucket::FULL,
            made: None,
            live: true,
        }
    }

    /// Whether it has a request waiting, or one in flight that has not passed.
    pub(crate) fn active(&self) -> bool {
        self.queue.len > 0 || self.in_flight > 0
    }

    /// Whether it has any request. Then it is not idle and not evicted.
    pub(crate) fn in_use(&self) -> bool {
        self.active() || self.passing > 0
    }

    /// Whether it has less in flight than its guarantee needs by Little's law, throughput × service time.
    /// Always false without a guarantee.
    #[inline]
    pub(crate) fn lacks_need(&self) -> bool {
        f64::from(self.in_flight) * 1e9 < self.weight as f64
    }
}

/// A class made from a template.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) template: TemplateId,
    pub(crate) key: Box<[u8]>,
    /// Neighbours among the idle classes of the template.
    older: ClassId,
    newer: ClassId,
}

#[derive(Clone, Debug)]
struct Template {
    by_key: BTreeMap<Box<[u8]>, ClassId>,
    max_live: usize,
    oldest: ClassId,
    newest: ClassId,
}

/// All live classes.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    pub(crate) all: Table<ClassId, Class>,
    /// Classes of the policy, followed by its templates.
    pub(crate) specs: Vec<Spec>,
    /// Partition of each spec.
    partitions: Vec<PartitionId>,
    named: usize,
    templates: Vec<Template>,
    free: Vec<ClassId>,
    /// Σφ over all live classes.
    pub(crate) total_weight: u64,
    /// Slots that the guarantees need, per partition, over classes with a known service time.
    pub(crate) partition_slots: Table<PartitionId, f64>,
    /// Sum and number of the known service times, used for classes without one.
    known: (f64, u32),
    /// Mean cost of recent requests of each class on its dominant resource, in node-seconds. `None` if costs
    /// are not shared.
    mean_costs: Table<ClassId, Option<f64>>,
    pub(crate) estimation: Estimation,
}

/// Service time in seconds assumed while none is known of any class. Only ratios matter, so any value will
/// do.
const ASSUMED_SERVICE: f64 = 0.010;

impl Classes {
    /// The named classes and one overflow class per template.
    pub(crate) fn new(now: Time, policy: &Policy) -> Classes {
        let specs: Vec<Spec> = policy.all_classes().cloned().collect();
        let all_partitions = Partitions::new(policy);
        let partitions: Vec<_> = specs.iter().map(|spec| all_partitions.of_class(spec)).collect();
        let all: Table<ClassId, Class> =
            (0..specs.len()).map(|index| Class::new(now, index, partitions[index])).collect();
        let templates = policy
            .templates
            .iter()
            .map(|t| Template {
                by_key: BTreeMap::new(),
                max_live: t.max_live as usize,
                oldest: ClassId::NONE,
                newest: ClassId::NONE,
            })
            .collect();
        let named = policy.classes.len();
        let partition_slots = Table::filled(all_partitions.len(), 0.0);
        let free = Vec::new();
        let (total_weight, known) = (0, (0.0, 0));
        let mean_costs = Table::filled(all.len(), None);
        let estimation = Estimation::of(&policy.discipline.admit);
        let mut classes = Classes {
            all,
            specs,
            partitions,
            named,
            templates,
            free,
            total_weight,
            partition_slots,
            known,
            mean_costs,
            estimation,
        };
        classes.weigh();
        classes
    }

    /// Recomputes every weight.
    pub(crate) fn weigh(&mut self) {
        self.known = (0.0, 0);
        self.total_weight = 0;
        self.partition_slots.fill(0.0);
        let live = |classes: &Classes, index: ClassId| classes.all[index].live;
        for index in self.all.ids() {
            if let Some(t) = self.service_time(index).filter(|_| live(self, index)) {
                self.known.0 += t;
                self.known.1 += 1;
            }
        }
        for index in self.all.ids() {
            self.all[index].weight = self.due_weight(index);
            if live(self, index) {
                let (partition, slots) = (self.all[index].partition, self.slots(index));
                self.total_weight += self.all[index].weight;
                self.partition_slots[partition] += slots;
                self.all[index].slots = slots;
            }
        }
    }

    /// Takes over the mean cost of a class of `old`.
    pub(crate) fn carry_cost(&mut self, old: &Classes, from: ClassId, to: ClassId) {
        self.mean_costs[to] = old.mean_costs[from];
    }

    /// Mean cost on the dominant resource in node-seconds, if it is known.
    pub(crate) fn mean_cost(&self, class: ClassId) -> Option<f64> {
        self.mean_costs[class]
    }

    /// Takes over the mean cost that another engine has learned, in node-seconds.
    pub(crate) fn adopt_cost(&mut self, class: ClassId, cost: f64) {
        self.mean_costs[class] = Some(cost);
    }

    /// Takes over the service time that another engine has learned, in seconds. A declared one has precedence.
    pub(crate) fn adopt_service_time(&mut self, class: ClassId, seconds: f64) {
        if self.declared(class).is_some() {
            return;
        }
        let observed = &mut self.all[class].observed;
        let before = observed.learned();
        observed.adopt_service_time(seconds);
        self.known.0 += seconds - before.unwrap_or(0.0);
        self.known.1 += u32::from(before.is_none());
    }

    /// Brings the estimate of a class's compute time up to `now`.
    #[inline]
    pub(crate) fn roll(&mut self, now: Time, class: ClassId) {
        let (limit, estimation) = (self.spec(class).guarantee.response_time, self.estimation);
        let state = &mut self.all[class];
        state.expected.roll(now, state.in_flight > 0, estimation, limit);
    }

    pub(crate) fn spec(&self, class: ClassId) -> &Spec {
        &self.specs[self.all[class].spec as usize]
    }

    /// Sets the guaranteed throughput of a class of the policy, in requests a second. Its weight stays as it is.
    pub(crate) fn set_throughput(&mut self, class: ClassId, rate: f64) {
        self.specs[self.all[class].spec as usize].guarantee.throughput = Some(rate);
    }

    /// The class for requests of classes that no longer exist.
    pub(crate) fn default_class(&self) -> ClassId {
        ClassId(self.named as u32 - 1)
    }

    /// The overflow class of a template.
    fn overflow(&self, template: TemplateId) -> ClassId {
        ClassId(self.named as u32 + template.0)
    }

    /// The class of `key`, or the overflow class if there is none.
    pub(crate) fn known(&self, template: TemplateId, key: &[u8]) -> ClassId {
        let state = self.templates.get(template.0 as usize);
        state.and_then(|state| state.by_key.get(key)).copied().unwrap_or(self.overflow(template))
    }

    /// The class of `key`, made if there is none. The flag says whether it was made.
    pub(crate) fn intern(&mut self, now: Time, template: TemplateId, key: &[u8]) -> (ClassId, bool) {
        let Some(state) = self.templates.get(template.0 as usize) else { return (self.default_class(), false) };
        if let Some(class) = state.by_key.get(key).copied() {
            if !self.all[class].in_use() {
                self.leave_idle(class);
                self.enter_idle(class);
            }
            return (class, false);
        }
        if state.by_key.len() >= state.max_live {
            let oldest = state.oldest;
            if oldest == ClassId::NONE {
                return (self.overflow(template), false);
            }
            self.evict(oldest);
        }
        let spec = self.named + template.0 as usize;
        let mut class = Class::new(now, spec, self.partitions[spec]);
        class.made = Some(Made { template, key: key.into(), older: ClassId::NONE, newer: ClassId::NONE });
        let index = if let Some(index) = self.free.pop() {
            self.all[index] = class;
            index
        } else {
            self.all.push(class)
        };
        self.mean_costs.put(index, None);
        let weight = self.due_weight(index);
        self.change_weight(index, weight);
        self.templates[template.0 as usize].by_key.insert(key.into(), index);
        self.enter_idle(index);
        (index, true)
    }

    fn evict(&mut self, class: ClassId) {
        self.leave_idle(class);
        let gone = &mut self.all[class];
        gone.live = false;
        let (counts, learned) = (gone.observed.counts, gone.observed.learned());
        let would = gone.observed.would.take();
        let Some(made) = gone.made.take() else { return };
        self.change_weight(class, 0);
        if let (None, Some(learned)) = (self.declared(class), learned) {
            self.known.0 -= learned;
            self.known.1 -= 1;
        }
        self.templates[made.template.0 as usize].by_key.remove(&made.key);
        let overflow = self.overflow(made.template);
        self.all[overflow].observed.counts.add(&counts);
        self.all[overflow].observed.add_would(would.as_deref());
        self.free.push(class);
    }

    /// Marks a made class idle: it has no request waiting or in flight.
    pub(crate) fn enter_idle(&mut self, class: ClassId) {
        let Some(made) = &mut self.all[class].made else { return };
        let template = &mut self.templates[made.template.0 as usize];
        made.older = template.newest;
        made.newer = ClassId::NONE;
        let older = core::mem::replace(&mut template.newest, class);
        if older == ClassId::NONE {
            template.oldest = class;
        } else if let Some(made) = &mut self.all[older].made {
            made.newer = class;
        }
    }

    /// Marks a made class busy: it has a request again.
    pub(crate) fn leave_idle(&mut self, class: ClassId) {
        let Some(made) = &self.all[class].made else { return };
        let (template, older, newer) = (made.template.0 as usize, made.older, made.newer);
        match newer {
            ClassId::NONE => self.templates[template].newest = older,
            newer => {
                if let Some(made) = &mut self.all[newer].made {
                    made.older = older;
                }
            }
        }
        match older {
            ClassId::NONE => self.templates[template].oldest = newer,
            older => {
                if let Some(made) = &mut self.all[older].made {
                    made.newer = newer;
                }
            }
        }
    }

    /// Sets φ of a live class and returns the old value.
    pub(crate) fn change_weight(&mut self, index: ClassId, weight: u64) -> u64 {
        let class = &mut self.all[index];
        let old = core::mem::replace(&mut class.weight, weight);
        self.total_weight = self.total_weight - old + weight;
        let slots = if weight == 0 { 0.0 } else { self.slots(index) };
        let class = &mut self.all[index];
        self.partition_slots[class.partition] = (self.partition_slots[class.partition] - class.slots + slots).max(0.0);
        class.slots = slots;
        old
    }

    /// Slots that all guarantees need. `None` if no service time is known of any class. `priced` says that
    /// costs come from a page table.
    pub(crate) fn demanded(&self, priced: bool) -> Option<f64> {
        (priced || self.known.1 > 0 || self.total_weight == 0).then_some(self.total_weight as f64 / 1e9)
    }

    /// Slots that its guarantee needs, or 0 if its service time is unknown.
    fn slots(&self, class: ClassId) -> f64 {
        let Some(service) = self.service_time(class) else { return 0.0 };
        match self.mean_costs[class] {
            Some(_) => self.spec(class).guarantee.throughput.unwrap_or(0.0) * service,
            None => self.all[class].weight as f64 * 1e-9,
        }
    }

    /// Records the cost of a request on its dominant resource, in node-seconds.
    pub(crate) fn takes(&mut self, class: ClassId, seconds: f64) {
        /// Number of requests in the mean: enough for a stable value that still follows a change of the
        /// class.
        const REQUESTS: f64 = 64.0;
        let mean = &mut self.mean_costs[class];
        let known = mean.unwrap_or(seconds);
        *mean = Some(known + (seconds - known) / REQUESTS);
    }

    /// Declared service time in seconds.
    fn declared(&self, class: ClassId) -> Option<f64> {
        self.spec(class).service_time.map(|t| t.as_secs_f64())
    }

    /// Declared or learned service time in seconds.
    pub(crate) fn service_time(&self, class: ClassId) -> Option<f64> {
        self.declared(class).or_else(|| self.all[class].observed.learned())
    }

    /// Whether the class's limit is below the cost of its requests on an unloaded node. A learned service
    /// time is a mean: single requests may meet the limit of a percentile, but far fewer than the guarantee
    /// promises.
    pub(crate) fn is_impossible(&self, class: ClassId) -> bool {
        let limit = self.spec(class).guarantee.response_time.map(|rt| rt.limit.as_secs_f64());
        let known = self.declared(class).is_some() || self.all[class].observed.has_learned();
        limit.zip(self.service_time(class)).is_some_and(|(limit, service)| known && service > limit)
    }

    /// Learns from a compute time of a class without a declared service time. Returns true if the service
    /// time changed.
    pub(crate) fn learn(&mut self, class: ClassId, compute: f64) -> bool {
        if self.declared(class).is_some() {
            return false;
        }
        let observed = &mut self.all[class].observed;
        let before = observed.learned();
        if !observed.learn(compute) {
            return false;
        }
        let after = observed.learned().unwrap_or(compute);
        self.known.0 += after - before.unwrap_or(0.0);
        self.known.1 += u32::from(before.is_none());
        true
    }

    /// φ = throughput × service time (Quorum Sec. 3.2), in billionths of a slot, at least one. Where costs
    /// are known, φ is the dominant share of the guarantee: throughput × cost on the dominant resource.
    pub(crate) fn due_weight(&self, class: ClassId) -> u64 {
        let Some(throughput) = self.spec(class).guarantee.throughput else { return 0 };
        let mean = if self.known.1 > 0 { self.known.0 / f64::from(self.known.1) } else { ASSUMED_SERVICE };
        let service = self.mean_costs[class].or(self.service_time(class)).unwrap_or(mean);
        // 2⁵³ billionths are nine million slots. The sum over all classes still fits into 64 bits.
        (throughput * service * 1e9).clamp(1.0, 9_007_199_254_740_992.0) as u64
    }
}

impl core::ops::Index<ClassId> for Classes {
    type Output = Class;

    #[inline]
    fn index(&self, class: ClassId) -> &Class {
        &self.all[class]
    }
}

impl core::ops::IndexMut<ClassId> for Classes {
    #[inline]
    fn index_mut(&mut self, class: ClassId) -> &mut Class {
        &mut self.all[class]
    }
}
