//! The discipline: one method per stage, with its figures.
//!
//! A preset ([`Discipline::quorum`], [`Discipline::weirgate`], [`Discipline::none`]) is nothing but a named
//! choice; an operator may choose per stage. The methods themselves live in the stages' modules.

mod predict;
mod tags;

use core::time::Duration;

use crate::admission::ServerLoad;
use crate::policy::InvalidPolicy;

/// One method per stage, plus the method's own figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Discipline {
    /// The name under which the operator chose it (`quorum`, `none`, `custom`, …).
    pub name: String,
    /// States of waiting requests, for the methods that look at them. A tag's code is its place here.
    pub tags: Vec<Tag>,
    /// Stage *admit*.
    pub admit: Admit,
    /// Stage *release*, load control: how many requests may be inside.
    pub load_control: LoadControl,
    /// Stage *release*, precedence: whose turn it is.
    pub precedence: Precedence,
}

/// The state of a waiting request: SEDA's priority tag (Sec. 4.1). A class gives its requests their first one; being
/// put back into the queue may change it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tag {
    /// Unique name.
    pub name: String,
    /// Its place in the order of tags: greater ranks go first.
    pub rank: u32,
    /// [`Admit::Thresholds`]: it is admitted to queues shorter than so many times the threshold; > 0.
    pub threshold: f64,
    /// [`Admit::Thresholds`]: most requests with this tag that wait in a pool (numerus clausus).
    pub quota: Option<u32>,
    /// [`Admit::Thresholds`]: probability with which it is admitted to a longer queue, as long as any tag is.
    pub beyond: f64,
    /// [`Precedence::Reenqueue`]: is it handled when its turn comes.
    pub handle: Handle,
    /// [`Precedence::Reenqueue`]: the code that it has after it was put back.
    pub reenqueued: u32,
}

/// [`Precedence::Reenqueue`]: is a request handled when its turn comes, or put back at the end of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Handle {
    /// Handled.
    Always,
    /// Put back. Its next tag must be another.
    Never,
    /// Put back while a request with a greater rank waits in its pool.
    Highest,
    /// Handled with this probability, 0 to 1.
    Chance(f64),
}

/// Stage *admit*: may a request wait here, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admit {
    /// Everything may wait, up to the bounds of its queue.
    None,
    /// Quorum's selective dropping (Sec. 3.3): the head of a queue is dropped when the time left to
    /// its deadline is less than the expected compute time of its class.
    Deadline {
        /// What the expected compute time is while no request of the class completes.
        stale: StaleEstimate,
    },
    /// Prediction at arrival: who would wait too long is turned away at once, and the head of a queue is
    /// dropped when it is too late for it.
    Predict(Predict),
    /// SEDA's thresholds (Sec. 4.2): a queue takes requests of a tag while it is shorter than that tag's multiple of
    /// its threshold.
    Thresholds {
        /// The threshold of each pool's queue, in waiting requests, at least 1.
        queue: u32,
    },
    /// The web switch: who is promised nothing is refused while the nodes are loaded beyond a threshold.
    ServerLoad(ServerLoad),
    /// Controlled delay (RFC 8289): heads are dropped while a queue has been a standing one.
    Codel(Codel),
}

/// Figures of [`Admit::Predict`]. The reasons for the values stand at their defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predict {
    /// Longest wait of a request beyond the guaranteed rate, as a share of its limit; 0 to 1.
    pub soft_share: f64,
    /// The least such wait.
    pub soft_least: Duration,
    /// Part of the limit that a predicted wait and the compute time may use up; 0 to 1.
    pub margin: f64,
    /// Largest part of a limit that may be expected to go to computing; 0 to 1.
    pub most_compute: f64,
    /// A queue younger than this may be a burst.
    pub young: Duration,
    /// A queue older than this is no burst.
    pub old: Duration,
    /// Weight of the latest tenth of a second in the rate of releases; more than 0, at most 1.
    pub fresh: f64,
}

/// What an estimate is worth when nothing confirms it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleEstimate {
    /// It stays. Once it exceeds the deadline the class is starved for good: everything is dropped,
    /// nothing completes, the estimate never changes. Kept for study.
    Hold,
    /// It shrinks by 30 % a control period while nothing of the class is inside.
    Decay,
}

/// Stage *release*, load control: the window of outstanding requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadControl {
    /// A window that never moves; `None` is no limit. Scaled by the share of nodes that are usable.
    Fixed {
        /// Requests that may be inside all nodes together.
        window: Option<u32>,
    },
    /// Quorum's rule (Sec. 3.1): every 500 ms one step up while the compute time of the class with
    /// the smallest response-time limit is below half of that limit, else one step down.
    WindowLinear {
        /// The step, in requests.
        delta: u32,
        /// The first window.
        first: u32,
        /// The smallest window, at least 1.
        least: u32,
        /// The largest window.
        most: u32,
        /// When a step up may be taken.
        grow: Grow,
    },
    /// A window per group of nodes that seeks the point from which on more requests inside only make all
    /// of them slower.
    WindowAdaptive(Adaptive),
    /// mQoS: a request goes inside if a node has enough left of every resource; what it takes is that node's again when
    /// it is over (Feng and Lin, Sec. 3.4). Needs [`Precedence::Mdrr`] or [`Precedence::Drfq`].
    ResourceAvailability(Availability),
    /// Netflix' `Gradient2Limit`: the window follows the ratio of long-term to short-term response times.
    Gradient(Gradient),
    /// Additive increase while answers are in time, multiplicative decrease when one is late or fails.
    Aimd(Aimd),
    /// So many requests inside each node per CPU: the threads of a stage. A node's CPUs are its capacity, or else
    /// its weight; it takes at least one request.
    Slots {
        /// Requests per CPU; finite and > 0.
        per_cpu: f64,
    },
}

/// Figures of [`LoadControl::WindowAdaptive`]. The reasons for the values stand at their defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    /// How far the window swings above its base, as a share of it; > 0.
    pub swing: f64,
    /// The elasticity of response times that is sought; 0 is far below the knee, 1 above it.
    pub target: f64,
    /// How fast the base follows: change of its logarithm per elasticity and logarithm of the swing.
    pub gain: f64,
    /// The window is never below this share of what the guarantees need.
    pub least_share: f64,
    /// The base is never below as many requests a machine.
    pub per_machine: f64,
    /// Share of a limit that compute times may take, beyond what they take on an unloaded node.
    pub compute_share: f64,
    /// What is left of the base when a limit is in danger; 0 to 1.
    pub back_off: f64,
    /// Shortest half cycle.
    pub shortest: Duration,
    /// Mean compute times that a half cycle lasts at least.
    pub computes: f64,
    /// How much longer the high half lasts than the low one.
    pub high: f64,
    /// A half cycle counts if requests were held back for more than this share of it.
    pub held_back: f64,
    /// Completions that a half cycle needs to be compared at all.
    pub completions: f64,
    /// Completions from which on it moves the base by the full gain.
    pub trusted: f64,
    /// Largest distance of an elasticity from the target that is believed.
    pub believed: f64,
    /// Growth of the base per cycle while the knee is far off; > 1.
    pub search: f64,
    /// Elasticity from which on the knee is near.
    pub found: f64,
    /// Most requests inside one node, relative to an even spread of the window; ≥ 1.
    pub node_share: f64,
    /// Completions on a machine after which half of what is known of its speed is new.
    pub speed_completions: f64,
    /// Ratios of machines' compute times count as 1 if their logarithms are closer to 0.
    pub speed_deaf: f64,
    /// What is forgotten of a machine's speed in a half cycle without a completion; 0 to 1.
    pub speed_forget: f64,
    /// Largest ratio of a compute time to its class's mean that counts.
    pub speed_longest: f64,
}

/// Figures of [`LoadControl::ResourceAvailability`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Availability {
    /// A node of weight 1 may have as much work inside as it does in this time, of every resource; > 0. The paper's
    /// percentages are of a second.
    pub horizon: Duration,
    /// Manage this one of [`crate::Policy::resources`] and be blind to the others: the paper's baseline (sQoS).
    pub only: Option<usize>,
}

impl Default for Availability {
    fn default() -> Self {
        // The paper's: what a request consumes is measured per second, and all of it is available at first.
        Availability { horizon: Duration::from_secs(1), only: None }
    }
}

/// Figures of [`Admit::Codel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Wait of a queue's head beyond which the queue is a standing one; > 0.
    pub target: Duration,
    /// For how long it must be one before a head is dropped; > 0.
    pub interval: Duration,
}

/// Figures of [`LoadControl::Gradient`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient {
    /// Ratio of short-term to long-term response times that is no sign of a queue; ≥ 1.
    pub tolerance: f64,
    /// Part of the way to the limit sought that a step takes; above 0, at most 1.
    pub smoothing: f64,
    /// The first window.
    pub first: u32,
    /// The smallest window, at least 1.
    pub least: u32,
    /// The largest window.
    pub most: u32,
}

/// Figures of [`LoadControl::Aimd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aimd {
    /// What is left of the window after a late answer or a failure; above 0, below 1.
    pub back_off: f64,
    /// Time in flight from which on an answer is late whose class has no limit; > 0.
    pub timeout: Duration,
    /// The first window.
    pub first: u32,
    /// The smallest window, at least 1.
    pub least: u32,
    /// The largest window.
    pub most: u32,
}

impl Default for Codel {
    fn default() -> Self {
        // RFC 8289, Sec. 4: the interval is a usual round trip, the target a twentieth of it.
        Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

impl Default for Gradient {
    fn default() -> Self {
        // The library's, but for the smallest and largest window: its 20 and 200 are for one small service.
        Gradient { tolerance: 1.5, smoothing: 0.2, first: 20, least: 1, most: 65_536 }
    }
}

impl Default for Aimd {
    fn default() -> Self {
        // The library's, but for the smallest and largest window, as above.
        Aimd { back_off: 0.9, timeout: Duration::from_secs(5), first: 20, least: 1, most: 65_536 }
    }
}

/// When a linear window may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grow {
    /// Only if the window held a request back since the last step.
    WhileFull,
    /// Whenever compute times allow, also in a calm: the letter of the paper. For study.
    Always,
}

/// Stage *release*, precedence: which queue the next slot goes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precedence {
    /// Arrival order over all classes.
    Fifo,
    /// Quorum's partition of the window (Sec. 3.2): slots in proportion to the classes' weights,
    /// unclaimed slots reassigned.
    WeightedFair,
    /// Every class its guaranteed rate first, by token buckets; what is left in proportion to the
    /// weights, in slot-seconds.
    Tokens(Tokens),
    /// The greatest rank first, arrival order within it: the priority queue that SEDA's Sec. 3.3 asks for.
    Priority,
    /// Arrival order, but a request whose tag says so is put back at the end of the queue (SEDA Sec. 4.3).
    Reenqueue,
    /// mQoS: deficit round robin over several resources at once, each class its weight's part of each (Feng and Lin,
    /// Sec. 3.4).
    Mdrr,
    /// Dominant-resource fair queueing: the class goes first that has had least, by its weight, of the resource of
    /// which it has had most.
    Drfq,
}

/// Figures of [`Precedence::Tokens`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tokens {
    /// How far releases beyond the guarantee may overdraw a bucket, in limits of response time.
    pub debt: f64,
    /// Weight of each class without a throughput, as a share of the sum of the others'.
    pub best_effort_share: f64,
    /// Claims a second of such a class.
    pub best_effort_rate: f64,
    /// A class this many times dearer than agreed, beyond what all suffer inside, is dearer than agreed.
    pub dear: f64,
    /// What gives way when the guarantees do not all fit.
    pub infeasible: Infeasible,
}

/// Who gets what where the guarantees do not all fit the nodes that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// Each class the same part of its guarantee, as Quorum has it (Sec. 5.3).
    Proportional,
    /// Classes in the order of their utility: the next gets what the ones before leave. Equals share.
    Strict,
    /// The largest sum of utilities: classes in the order of utility per slot-second.
    Utility,
}

impl Default for Adaptive {
    fn default() -> Self {
        Adaptive {
            // More than the noise of a few hundred completions (7 % each half); costs a sixth of a compute time.
            swing: 0.3,
            // Where the last half percent of the throughput is. Below it nodes run dry, and sought at 1 nothing would
            // pull the base down.
            target: 0.95,
            // At most 10 % a cycle upwards, half a percent downwards: what is far off is found by the search. The noise
            // of a long cycle moves the base by 2 %.
            gain: 0.4,
            // What guarantees need is let in anyhow: a smaller window could not swing.
            least_share: 1.0,
            // One computes while the other's bytes travel.
            per_machine: 2.0,
            // The other half is for waiting, as in Quorum (Sec. 3.1).
            compute_share: 0.5,
            // As fast as the compute times that tell.
            back_off: 0.9,
            // Shorter ones would be all transition on a network with a few milliseconds of delay.
            shortest: Duration::from_millis(100),
            // Then the number inside has followed for most of the half.
            computes: 3.0,
            // In the low half nodes may run dry, so it is the shorter one.
            high: 2.0,
            // A window that binds a fifth of the time shapes bursts already.
            held_back: 0.2,
            // The count of 20 varies by 22 %: less is not worth a comparison.
            completions: 20.0,
            // The count of 200 varies by 7 %, the ratio of two by 10 %: a third of the swing.
            trusted: 200.0,
            // What lies outside is noise; the same on both sides, or noise would push the base to one of them.
            believed: 1.25,
            // From a twentieth of the knee in eight cycles.
            search: 1.5,
            // Half way: the knee lies within the swing.
            found: 0.5,
            // A node that hangs keeps no more than half as much again as its part.
            node_share: 1.5,
            // The mean of 100 exponential times varies by 10 %.
            speed_completions: 100.0,
            // Twice that noise and more: equal machines stay equal, and least outstanding exact.
            speed_deaf: 0.25,
            // A machine that was slow and now gets nothing is tried again within seconds.
            speed_forget: 0.1,
            // What a machine that hung completes at last says nothing about its speed.
            speed_longest: 8.0,
        }
    }
}

impl Default for Tokens {
    fn default() -> Self {
        Tokens {
            // A class that has just had surplus waits for less than its limit until it has a claim again.
            debt: 0.5,
            // Keeps best-effort classes alive and costs nobody anything.
            best_effort_share: 0.01,
            // So that nothing starves: a client sees that the service lives.
            best_effort_rate: 1.0,
            // Less is not told from contention: at the knee all compute a half longer than unloaded.
            dear: 2.0,
            infeasible: Infeasible::Proportional,
        }
    }
}

impl Discipline {
    /// Weirgate's own: see `docs/disciplines/weirgate.md`.
    #[must_use]
    pub fn weirgate() -> Discipline {
        Discipline {
            name: "weirgate".into(),
            tags: Vec::new(),
            admit: Admit::Predict(Predict::default()),
            load_control: LoadControl::WindowAdaptive(Adaptive::default()),
            precedence: Precedence::Tokens(Tokens::default()),
        }
    }

    /// Quorum as published: δ = 2, first window 10, least window 1. What the paper leaves open is argued in
    /// `docs/adr`: estimates that nothing confirms decay (2), and the window grows only while it is full (6).
    #[must_use]
    pub fn quorum() -> Discipline {
        Discipline {
            name: "quorum".into(),
            tags: Vec::new(),
            admit: Admit::Deadline { stale: StaleEstimate::Decay },
            load_control: LoadControl::WindowLinear {
                delta: 2,
                first: 10,
                least: 1,
                most: 65_536,
                grow: Grow::WhileFull,
            },
            precedence: Precedence::WeightedFair,
        }
    }

    /// SEDA's differentiated queues as published (Le Baron and Elkan): tags `basic`, `again` (a basic request that was
    /// put back once) and `premium` with thresholds i, 3i/2 and 2i, i = 50; a bottleneck of one thread a CPU.
    #[must_use]
    pub fn seda() -> Discipline {
        Discipline {
            name: "seda".into(),
            tags: Tag::seda(),
            admit: Admit::Thresholds { queue: 50 },
            load_control: LoadControl::Slots { per_cpu: 1.0 },
            precedence: Precedence::Reenqueue,
        }
    }

    /// mQoS as published (Feng and Lin), with the rule that does not deadlock: see `docs/disciplines/mqos.md`.
    #[must_use]
    pub fn mqos() -> Discipline {
        Discipline {
            name: "mqos".into(),
            tags: Vec::new(),
            admit: Admit::None,
            load_control: LoadControl::ResourceAvailability(Availability::default()),
            precedence: Precedence::Mdrr,
        }
    }

    /// The paper's baseline: the same with one resource, deficit round robin as everybody knows it.
    #[must_use]
    pub fn sqos(resource: usize) -> Discipline {
        let figures = Availability { only: Some(resource), ..Availability::default() };
        let load_control = LoadControl::ResourceAvailability(figures);
        Discipline { name: "sqos".into(), load_control, ..Discipline::mqos() }
    }

    /// No control at all: a plain reverse proxy.
    #[must_use]
    pub fn none() -> Discipline {
        Discipline {
            name: "none".into(),
            tags: Vec::new(),
            admit: Admit::None,
            load_control: LoadControl::Fixed { window: None },
            precedence: Precedence::Fifo,
        }
    }

    /// The rank of a tag; 0 where there are none.
    pub(crate) fn rank(&self, code: u32) -> u32 {
        self.tags.get(code as usize).map_or(0, |tag| tag.rank)
    }

    /// The web switch of Andreolini et al. in one of its forms, `switch_adm`, `static_part` or `dynamic_part`: they
    /// differ in the dispatch of their pools alone. See `docs/disciplines/web-switch.md`.
    #[must_use]
    pub fn web_switch(name: &str, figures: ServerLoad) -> Discipline {
        Discipline { name: name.into(), admit: Admit::ServerLoad(figures), ..Discipline::none() }
    }

    /// Checks the figures.
    pub(crate) fn validate(&self) -> Result<(), InvalidPolicy> {
        let fail = |text: &str| Err(InvalidPolicy(text.into()));
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let positive = |x: f64| x.is_finite() && x > 0.0;
        Tag::validate(&self.tags)?;
        let tagged = matches!(self.admit, Admit::Thresholds { .. })
            || matches!(self.precedence, Precedence::Priority | Precedence::Reenqueue);
        if tagged && self.tags.is_empty() {
            return fail("thresholds, priority and re-enqueueing need tags");
        }
        if matches!(self.admit, Admit::Thresholds { queue: 0 }) {
            return fail("the threshold of a queue must be at least 1");
        }
        match self.load_control {
            LoadControl::Fixed { window: Some(0) } => return fail("a fixed window must be at least 1"),
            LoadControl::Slots { per_cpu } if !positive(per_cpu) => {
                return fail("requests per CPU must be finite and > 0");
            }
            LoadControl::ResourceAvailability(figures)
                if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&figures.horizon) =>
            {
                return fail("the horizon must lie between 1 ms and 1 h");
            }
            LoadControl::Gradient(g)
                if !(g.tolerance >= 1.0 && g.tolerance.is_finite() && g.smoothing > 0.0 && g.smoothing <= 1.0)
                    || g.least == 0
                    || g.first < g.least
                    || g.most < g.first =>
            {
                return fail("gradient needs tolerance ≥ 1, 0 < smoothing ≤ 1 and 1 ≤ least ≤ first ≤ most");
            }
            LoadControl::Aimd(a)
                if !(a.back_off > 0.0 && a.back_off < 1.0)
                    || a.timeout.is_zero()
                    || a.least == 0
                    || a.first < a.least
                    || a.most < a.first =>
            {
                return fail("aimd needs 0 < back_off < 1, a timeout > 0 and 1 ≤ least ≤ first ≤ most");
            }
            LoadControl::WindowLinear { delta, first, least, most, .. }
                if delta == 0 || least == 0 || first < least || most < first =>
            {
                return fail("a linear window needs delta ≥ 1 and 1 ≤ least ≤ first ≤ most");
            }
            LoadControl::WindowAdaptive(a)
                if ![a.swing, a.gain, a.per_machine, a.high, a.trusted, a.believed, a.speed_longest]
                    .into_iter()
                    .all(positive) =>
            {
                return fail("an adaptive window needs figures > 0");
            }
            LoadControl::WindowAdaptive(a)
                if ![a.target, a.compute_share, a.back_off, a.held_back, a.found, a.speed_forget]
                    .into_iter()
                    .all(share) =>
            {
                return fail("shares of an adaptive window must lie between 0 and 1");
            }
            LoadControl::WindowAdaptive(a)
                if !([a.least_share, a.computes, a.completions, a.speed_completions, a.speed_deaf]
                    .into_iter()
                    .all(|x| x.is_finite() && x >= 0.0)
                    && a.node_share >= 1.0
                    && a.node_share.is_finite()
                    && a.search > 1.0
                    && a.search.is_finite()) =>
            {
                return fail("an adaptive window needs node_share ≥ 1, search > 1 and no negative figures");
            }
            _ => {}
        }
        if let Admit::Predict(p) = self.admit
            && ![p.soft_share, p.margin, p.most_compute, p.fresh].into_iter().all(share)
        {
            return fail("shares of a prediction must lie between 0 and 1");
        }
        if let Admit::Codel(codel) = self.admit
            && (codel.target.is_zero() || codel.interval.is_zero())
        {
            return fail("codel needs a target and an interval > 0");
        }
        if let Admit::ServerLoad(s) = self.admit {
            s.validate()?;
        }
        if let Precedence::Tokens(t) = self.precedence
            && !(share(t.best_effort_share)
                && t.debt.is_finite()
                && t.debt >= 0.0
                && t.dear >= 1.0
                && positive(t.best_effort_rate))
        {
            return fail("token buckets need debt ≥ 0 and a best-effort share between 0 and 1");
        }
        Ok(())
    }
}
