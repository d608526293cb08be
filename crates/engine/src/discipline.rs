//! The discipline: one method per stage, with its figures.
//!
//! A preset ([`Discipline::quorum`], [`Discipline::weirgate`], [`Discipline::none`]) is only a named choice. An
//! operator may also choose a method for each stage. The methods are implemented in the modules of the stages.

mod predict;
mod priorities;

use core::time::Duration;

use crate::admission::ServerLoad;
use crate::policy::InvalidPolicy;

/// One method per stage, with the figures of the method.
#[derive(Clone, Debug, PartialEq)]
pub struct Discipline {
    /// The name under which the operator chose it (`quorum`, `none`, `custom`, …).
    pub name: String,
    /// SEDA priorities of waiting requests, for the methods that use them. The code of a priority is its index here.
    pub priorities: Vec<PriorityLevel>,
    /// Stage *admit*.
    pub admit: Admit,
    /// Stage *release*, load control: the limit on requests in flight.
    pub load_control: LoadControl,
    /// Stage *release*, precedence: the order of releases.
    pub precedence: Precedence,
}

/// A priority of waiting requests: SEDA's priority tag (Sec. 4.1). A class gives its requests their first priority.
/// It may change when a request is put back into the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityLevel {
    /// Unique name.
    pub name: String,
    /// Order of the priorities. Greater ranks go first.
    pub rank: u32,
    /// [`Admit::Thresholds`]: factor on the queue's threshold. A request is admitted while the queue is shorter than
    /// the product. Must be > 0.
    pub threshold: f64,
    /// [`Admit::Thresholds`]: maximum number of requests with this priority that wait in a pool (numerus clausus).
    pub quota: Option<u32>,
    /// [`Admit::Thresholds`]: probability of admission to a longer queue, as long as the queue is short enough for
    /// any priority.
    pub beyond: f64,
    /// [`Precedence::Reenqueue`]: whether a request is handled when its turn comes.
    pub handle: Handle,
    /// [`Precedence::Reenqueue`]: code of the priority that a request gets when it is put back.
    pub reenqueued: u32,
}

/// [`Precedence::Reenqueue`]: whether a request is handled when its turn comes, or put back at the end of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Handle {
    /// Handled.
    Always,
    /// Put back. Its next priority must be a different one.
    Never,
    /// Put back while a request with a greater rank waits in its pool.
    Highest,
    /// Handled with this probability, from 0 to 1.
    Chance(f64),
}

/// Stage *admit*: whether a request may wait, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admit {
    /// Every request may wait, up to the bounds of its queue.
    None,
    /// Quorum's selective dropping (Sec. 3.3): the head of a queue is dropped when the time left to its deadline is
    /// less than the expected compute time of its class.
    Deadline {
        /// Treatment of the expected compute time while no request of the class completes.
        stale: StaleEstimate,
    },
    /// Prediction at arrival: a request that would wait too long is refused at once. The head of a queue is dropped
    /// when it can no longer meet its limit.
    Predict(Predict),
    /// SEDA's thresholds (Sec. 4.2): a queue admits requests of a priority while it is shorter than that priority's
    /// multiple of the threshold.
    Thresholds {
        /// The threshold of each pool's queue, in waiting requests, at least 1.
        queue: u32,
    },
    /// The web switch: classes without a guarantee are refused while the load of the nodes exceeds a threshold.
    ServerLoad(ServerLoad),
    /// Controlled delay (RFC 8289): heads are dropped while a queue has been a standing queue for some time.
    Codel(Codel),
}

/// Figures of [`Admit::Predict`]. The reasons for the values are given at their defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predict {
    /// Longest wait of a request beyond the guaranteed rate, as a share of its limit, from 0 to 1.
    pub soft_share: f64,
    /// Lower bound of that wait.
    pub soft_min: Duration,
    /// Share of the limit that the wait and the expected compute time may use together, from 0 to 1.
    pub margin: f64,
    /// Largest share of a limit that the expected compute time may use, from 0 to 1.
    pub max_compute: f64,
    /// A queue younger than this may be a burst.
    pub young: Duration,
    /// Weight of the latest tenth of a second in the rate of releases, more than 0 and at most 1.
    pub fresh: f64,
}

/// Treatment of an estimate that no completion confirms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleEstimate {
    /// The estimate stays. Once it exceeds the deadline the class starves for ever: every request is dropped, none
    /// completes, and the estimate never changes. Kept for study.
    Hold,
    /// The estimate shrinks by 30 % per control period while no request of the class is in flight.
    Decay,
}

/// Stage *release*, load control: the window of outstanding requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadControl {
    /// A constant window. `None` is no limit. The window is scaled by the share of usable nodes.
    Fixed {
        /// Maximum number of requests in flight on all nodes together.
        window: Option<u32>,
    },
    /// Quorum's rule (Sec. 3.1), every 500 ms: one step up if the compute time of the class with the smallest
    /// response-time limit is below half of that limit, otherwise one step down.
    WindowLinear {
        /// The step, in requests.
        delta: u32,
        /// The initial window.
        first: u32,
        /// The minimum window, at least 1.
        min: u32,
        /// The maximum window.
        max: u32,
        /// The condition for a step up.
        grow: Grow,
    },
    /// A window per group of nodes. It seeks the point beyond which more requests in flight only make all of them
    /// slower.
    WindowAdaptive(Adaptive),
    /// mQoS: a request is released if a node has enough of every resource left. When it ends, its cost is returned to
    /// the node (Feng and Lin, Sec. 3.4). Needs [`Precedence::Mdrr`] or [`Precedence::Drfq`].
    ResourceAvailability(Availability),
    /// Netflix's `Gradient2Limit`: the window follows the ratio of long-term to short-term response times.
    Gradient(Gradient),
    /// Additive increase while answers are in time, multiplicative decrease when one is late or fails.
    Aimd(Aimd),
    /// A fixed number of requests in flight per CPU of each node: the threads of a SEDA stage. The CPUs of a node are
    /// its capacity, or its weight if no capacity is given. Every node takes at least one request.
    Slots {
        /// Requests per CPU, finite and > 0.
        per_cpu: f64,
    },
}

/// Figures of [`LoadControl::WindowAdaptive`]. The reasons for the values are given at their defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    /// Swing of the window above its base, as a share of the base, > 0.
    pub swing: f64,
    /// Elasticity of response times that the window seeks. It is 0 far below the knee and 1 above it.
    pub target: f64,
    /// Gain of the base: change of its logarithm per elasticity and per logarithm of the swing.
    pub gain: f64,
    /// Lower bound of the window, as a share of the slots that the guarantees need.
    pub min_share: f64,
    /// Lower bound of the base, in requests per machine.
    pub per_machine: f64,
    /// Share of a limit that compute times may use, beyond the compute time on an unloaded node.
    pub compute_share: f64,
    /// Factor applied to the base when a limit is in danger, from 0 to 1.
    pub back_off: f64,
    /// Minimum duration of a half cycle.
    pub shortest: Duration,
    /// Minimum duration of a half cycle, in mean compute times.
    pub computes: f64,
    /// Duration of the high half relative to the low half.
    pub high: f64,
    /// A half cycle counts if requests were held back for more than this share of it.
    pub held_back: f64,
    /// Completions that a half cycle needs before it is compared at all.
    pub completions: f64,
    /// Completions from which on a half cycle moves the base by the full gain.
    pub trusted: f64,
    /// Largest credible distance of an elasticity from the target.
    pub believed: f64,
    /// Growth of the base per cycle while the knee is far off, > 1.
    pub search: f64,
    /// Elasticity from which on the knee counts as near.
    pub found: f64,
    /// Maximum number of requests in flight on one node, relative to an even spread of the window, ≥ 1.
    pub node_share: f64,
    /// Completions on a machine after which half of the estimate of its speed is new.
    pub speed_completions: f64,
    /// Ratios of machines' compute times count as 1 if the absolute value of their logarithm is smaller than this.
    pub speed_deaf: f64,
    /// Share of a machine's speed estimate that is forgotten in a half cycle without a completion, from 0 to 1.
    pub speed_forget: f64,
    /// Largest ratio of a compute time to its class's mean that counts.
    pub speed_longest: f64,
}

/// Figures of [`LoadControl::ResourceAvailability`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Availability {
    /// Amount of work that a node of weight 1 may have in flight, of every resource: as much as it does in this time.
    /// Must be > 0. The paper's percentages are per second.
    pub horizon: Duration,
    /// Manages only this one of [`crate::Policy::resources`] and ignores the others: the paper's baseline (sQoS).
    pub only: Option<usize>,
}

impl Default for Availability {
    fn default() -> Self {
        // The paper's values: consumption is measured per second, and all of it is available at first.
        Availability { horizon: Duration::from_secs(1), only: None }
    }
}

/// Figures of [`Admit::Codel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Wait of a queue's head beyond which the queue counts as a standing queue, > 0.
    pub target: Duration,
    /// Time for which the queue must be a standing queue before a head is dropped, > 0.
    pub interval: Duration,
}

/// Figures of [`LoadControl::Gradient`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient {
    /// Ratio of short-term to long-term response times that is not yet a sign of a queue, ≥ 1.
    pub tolerance: f64,
    /// Share of the distance to the computed limit that one step covers, above 0 and at most 1.
    pub smoothing: f64,
    /// The initial window.
    pub first: u32,
    /// The minimum window, at least 1.
    pub min: u32,
    /// The maximum window.
    pub max: u32,
}

/// Figures of [`LoadControl::Aimd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aimd {
    /// Factor applied to the window after a late answer or a failure, above 0 and below 1.
    pub back_off: f64,
    /// Time in flight from which on an answer is late, for classes without a response-time limit, > 0.
    pub timeout: Duration,
    /// The initial window.
    pub first: u32,
    /// The minimum window, at least 1.
    pub min: u32,
    /// The maximum window.
    pub max: u32,
}

impl Default for Codel {
    fn default() -> Self {
        // RFC 8289, Sec. 4: the interval is a usual round trip, and the target is a twentieth of it.
        Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

impl Default for Gradient {
    fn default() -> Self {
        // The library's values, except for the minimum and maximum window: its 20 and 200 suit one small service.
        Gradient { tolerance: 1.5, smoothing: 0.2, first: 20, min: 1, max: 65_536 }
    }
}

impl Default for Aimd {
    fn default() -> Self {
        // The library's values, except for the minimum and maximum window, as above.
        Aimd { back_off: 0.9, timeout: Duration::from_secs(5), first: 20, min: 1, max: 65_536 }
    }
}

/// The condition under which a linear window grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grow {
    /// Only if the window held a request back since the last step.
    WhileFull,
    /// Whenever compute times allow it, even at low load: the literal rule of the paper. Kept for study.
    Always,
}

/// Stage *release*, precedence: the queue that gets the next slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precedence {
    /// Arrival order over all classes.
    Fifo,
    /// Quorum's partition of the window (Sec. 3.2): slots in proportion to the weights of the classes. Unclaimed
    /// slots are reassigned.
    WeightedFair,
    /// The guaranteed rate of every class first, by token buckets. The rest is shared in proportion to the weights,
    /// in slot-seconds.
    Tokens(Tokens),
    /// The greatest rank first, in arrival order within a rank: the priority queue that SEDA's Sec. 3.3 asks for.
    Priority,
    /// Arrival order, but the priority may put a request back at the end of the queue (SEDA Sec. 4.3).
    Reenqueue,
    /// mQoS: deficit round robin over several resources at once. Each class gets a share of each resource by its
    /// weight (Feng and Lin, Sec. 3.4).
    Mdrr,
    /// Dominant-resource fair queueing: the class with the smallest use of its dominant resource, relative to its
    /// weight, goes first.
    Drfq,
}

/// Figures of [`Precedence::Tokens`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tokens {
    /// Maximum overdraft of a bucket by releases beyond the guarantee, measured in response-time limits. It is at most
    /// one second of the rate as well.
    pub debt: f64,
    /// Weight of each class without a guaranteed throughput, as a share of the sum of the other classes' weights.
    pub best_effort_share: f64,
    /// Claims per second of such a class.
    pub best_effort_rate: f64,
    /// Cost ratio, corrected for contention, above which a class exceeds its declared cost.
    pub max_cost_ratio: f64,
    /// The rule for guarantees that do not all fit.
    pub infeasible: Infeasible,
}

/// Division of the capacity when the guarantees do not all fit the remaining nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// Each class gets the same share of its guarantee, as in Quorum (Sec. 5.3).
    Proportional,
    /// Classes are served in the order of their utility: each gets the capacity that the ones before it leave.
    /// Classes of equal utility share.
    Strict,
    /// The largest sum of utilities: classes in the order of utility per slot-second.
    Utility,
}

impl Default for Adaptive {
    fn default() -> Self {
        Adaptive {
            // More than the noise of a few hundred completions (7 % in each half). It costs a sixth of a compute
            // time.
            swing: 0.3,
            // The point that reaches all but half a percent of the throughput. Below it nodes run dry. With a target
            // of 1 nothing would pull the base down.
            target: 0.95,
            // At most 10 % per cycle upwards and half a percent downwards. The search covers large distances. The
            // noise of a long cycle moves the base by 2 %.
            gain: 0.4,
            // Requests within the guarantees are admitted anyway, so a smaller window could not swing.
            min_share: 1.0,
            // One request computes while the bytes of the other travel.
            per_machine: 2.0,
            // The other half is for waiting, as in Quorum (Sec. 3.1).
            compute_share: 0.5,
            // As fast as the compute times that show the danger.
            back_off: 0.9,
            // With a few milliseconds of network delay, shorter half cycles would consist of transition only.
            shortest: Duration::from_millis(100),
            // The number in flight has then followed for most of the half.
            computes: 3.0,
            // Nodes may run dry in the low half, so it is the shorter one.
            high: 2.0,
            // A window that binds a fifth of the time already shapes bursts.
            held_back: 0.2,
            // A count of 20 varies by 22 %. With fewer a comparison is meaningless.
            completions: 20.0,
            // A count of 200 varies by 7 %, the ratio of two by 10 %: a third of the swing.
            trusted: 200.0,
            // Values outside are noise. The range is symmetric, or noise would push the base to one side.
            believed: 1.25,
            // From a twentieth of the knee to the knee in eight cycles.
            search: 1.5,
            // Half way: the knee lies within the swing.
            found: 0.5,
            // A node that hangs holds at most half as much again as its even share.
            node_share: 1.5,
            // The mean of 100 exponential times varies by 10 %.
            speed_completions: 100.0,
            // More than twice that noise: equal machines stay equal, and least outstanding stays exact.
            speed_deaf: 0.25,
            // A machine that was slow and now gets no requests is tried again within seconds.
            speed_forget: 0.1,
            // The late completions of a machine that hung say nothing about its speed.
            speed_longest: 8.0,
        }
    }
}

impl Default for Tokens {
    fn default() -> Self {
        Tokens {
            // After surplus, a class waits for less than its limit until it has a claim again.
            debt: 0.5,
            // Keeps best-effort classes alive at a negligible cost to the others.
            best_effort_share: 0.01,
            // Prevents starvation: a client sees that the service is alive.
            best_effort_rate: 1.0,
            // Smaller ratios cannot be told from contention: at the knee requests take half as long again as
            // unloaded.
            max_cost_ratio: 2.0,
            infeasible: Infeasible::Proportional,
        }
    }
}

impl Discipline {
    /// Weirgate's own discipline. See `docs/disciplines/weirgate.md`.
    pub fn weirgate() -> Discipline {
        Discipline {
            name: "weirgate".into(),
            priorities: Vec::new(),
            admit: Admit::Predict(Predict::default()),
            load_control: LoadControl::WindowAdaptive(Adaptive::default()),
            precedence: Precedence::Tokens(Tokens::default()),
        }
    }

    /// Quorum as published: δ = 2, initial window 10, minimum window 1. `docs/adr` discusses the points that the
    /// paper leaves open: unconfirmed estimates decay (2), and the window grows only while it is full (6).
    pub fn quorum() -> Discipline {
        Discipline {
            name: "quorum".into(),
            priorities: Vec::new(),
            admit: Admit::Deadline { stale: StaleEstimate::Decay },
            load_control: LoadControl::WindowLinear { delta: 2, first: 10, min: 1, max: 65_536, grow: Grow::WhileFull },
            precedence: Precedence::WeightedFair,
        }
    }

    /// SEDA's differentiated queues as published (Le Baron and Elkan): priorities `basic`, `again` (basic, put back
    /// once) and `premium` with thresholds i, 3i/2 and 2i, i = 50, and a bottleneck of one thread per CPU.
    pub fn seda() -> Discipline {
        Discipline {
            name: "seda".into(),
            priorities: PriorityLevel::seda(),
            admit: Admit::Thresholds { queue: 50 },
            load_control: LoadControl::Slots { per_cpu: 1.0 },
            precedence: Precedence::Reenqueue,
        }
    }

    /// mQoS as published (Feng and Lin), with a rule that cannot deadlock. See `docs/disciplines/mqos.md`.
    pub fn mqos() -> Discipline {
        Discipline {
            name: "mqos".into(),
            priorities: Vec::new(),
            admit: Admit::None,
            load_control: LoadControl::ResourceAvailability(Availability::default()),
            precedence: Precedence::Mdrr,
        }
    }

    /// The paper's baseline (sQoS): the same with one resource, which is plain deficit round robin.
    pub fn sqos(resource: usize) -> Discipline {
        let figures = Availability { only: Some(resource), ..Availability::default() };
        let load_control = LoadControl::ResourceAvailability(figures);
        Discipline { name: "sqos".into(), load_control, ..Discipline::mqos() }
    }

    /// No control at all: a plain reverse proxy.
    pub fn none() -> Discipline {
        Discipline {
            name: "none".into(),
            priorities: Vec::new(),
            admit: Admit::None,
            load_control: LoadControl::Fixed { window: None },
            precedence: Precedence::Fifo,
        }
    }

    /// The rank of a priority, or 0 if the discipline has none.
    pub(crate) fn rank(&self, code: u32) -> u32 {
        self.priorities.get(code as usize).map_or(0, |priority| priority.rank)
    }

    /// The web switch of Andreolini et al. in one of its forms, `switch_adm`, `static_part` or `dynamic_part`. They
    /// differ only in the dispatch of their pools. See `docs/disciplines/web-switch.md`.
    pub fn web_switch(name: &str, figures: ServerLoad) -> Discipline {
        Discipline { name: name.into(), admit: Admit::ServerLoad(figures), ..Discipline::none() }
    }

    /// Checks the figures.
    pub(crate) fn validate(&self) -> Result<(), InvalidPolicy> {
        let fail = |text: &str| Err(InvalidPolicy(text.into()));
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let positive = |x: f64| x.is_finite() && x > 0.0;
        PriorityLevel::validate(&self.priorities)?;
        let by_priority = matches!(self.admit, Admit::Thresholds { .. })
            || matches!(self.precedence, Precedence::Priority | Precedence::Reenqueue);
        if by_priority && self.priorities.is_empty() {
            return fail("thresholds, priority and re-enqueueing need priorities");
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
                    || g.min == 0
                    || g.first < g.min
                    || g.max < g.first =>
            {
                return fail("gradient needs tolerance ≥ 1, 0 < smoothing ≤ 1 and 1 ≤ least ≤ first ≤ most");
            }
            LoadControl::Aimd(a)
                if !(a.back_off > 0.0 && a.back_off < 1.0)
                    || a.timeout.is_zero()
                    || a.min == 0
                    || a.first < a.min
                    || a.max < a.first =>
            {
                return fail("aimd needs 0 < back_off < 1, a timeout > 0 and 1 ≤ least ≤ first ≤ most");
            }
            LoadControl::WindowLinear { delta, first, min, max, .. }
                if delta == 0 || min == 0 || first < min || max < first =>
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
                if !([a.min_share, a.computes, a.completions, a.speed_completions, a.speed_deaf]
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
            && ![p.soft_share, p.margin, p.max_compute, p.fresh].into_iter().all(share)
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
                && t.max_cost_ratio >= 1.0
                && positive(t.best_effort_rate))
        {
            return fail("token buckets need debt ≥ 0 and a best-effort share between 0 and 1");
        }
        Ok(())
    }
}
