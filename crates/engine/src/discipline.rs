//! The discipline: one method per stage, with its figures.
//!
//! A preset ([`Discipline::quorum`], [`Discipline::weirgate`], [`Discipline::none`]) is nothing but a named
//! choice; an operator may choose per stage. The methods themselves live in the stages' modules.

use core::time::Duration;

use crate::policy::InvalidPolicy;

/// One method per stage, plus the method's own figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Discipline {
    /// The name under which the operator chose it (`quorum`, `none`, `custom`, …).
    pub name: String,
    /// Stage *admit*.
    pub admit: Admit,
    /// Stage *release*, load control: how many requests may be inside.
    pub load_control: LoadControl,
    /// Stage *release*, precedence: whose turn it is.
    pub precedence: Precedence,
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
}

/// Figures of [`Admit::Predict`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predict {
    /// Longest wait of a class beyond its guarantee, as a share of its limit; 0 to 1.
    pub soft_share: f64,
    /// The least such wait: shorter queues run empty between two bursts.
    pub soft_least: Duration,
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
}

/// Figures of [`LoadControl::WindowAdaptive`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    /// How far the window swings above its base, as a share of it; > 0. The swing measures, and it is the
    /// room above the knee that keeps nodes from running dry.
    pub swing: f64,
    /// The elasticity of response times that is sought; 0 is far below the knee, 1 above it.
    pub target: f64,
    /// How fast the base follows: change of its logarithm per unit of elasticity and swing.
    pub gain: f64,
    /// The window is never below this share of what the guarantees need.
    pub least_share: f64,
    /// Share of a limit that compute times may take, beyond what they take on an unloaded node.
    pub compute_share: f64,
    /// Most requests inside one node, relative to an even spread of the window; ≥ 1.
    pub node_share: f64,
}

/// When a linear window may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grow {
    /// Whenever compute times allow, as published.
    Always,
    /// Only if the window held a request back since the last step.
    WhileFull,
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
}

/// Figures of [`Precedence::Tokens`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tokens {
    /// How far releases beyond the guarantee may overdraw a bucket, in limits of response time.
    pub debt: f64,
    /// Weight of all classes without a throughput, each, as a share of the sum of the others'.
    pub best_effort_share: f64,
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

impl Default for Predict {
    /// A tenth of the limit, at least 20 ms: a class beyond its guarantee is overloaded by itself, and a long
    /// queue serves nobody more; 20 ms of requests keep nodes busy between two arrivals at any rate worth a
    /// gateway.
    fn default() -> Self {
        Predict { soft_share: 0.1, soft_least: Duration::from_millis(20) }
    }
}

impl Default for Adaptive {
    /// See `docs/disciplines/weirgate.md` for what each figure costs if it is half or half again as large.
    fn default() -> Self {
        Adaptive { swing: 0.3, target: 0.85, gain: 0.4, least_share: 0.5, compute_share: 0.5, node_share: 1.5 }
    }
}

impl Default for Tokens {
    /// A debt of half a limit makes a
    /// class that has just had surplus wait for its turn less long than its limit. One percent keeps
    /// best-effort classes alive and costs nobody anything.
    fn default() -> Self {
        Tokens { debt: 0.5, best_effort_share: 0.01, infeasible: Infeasible::Proportional }
    }
}

impl Discipline {
    /// Weirgate's own: see `docs/disciplines/weirgate.md`.
    #[must_use]
    pub fn weirgate() -> Discipline {
        Discipline {
            name: "weirgate".into(),
            admit: Admit::Predict(Predict::default()),
            load_control: LoadControl::WindowAdaptive(Adaptive::default()),
            precedence: Precedence::Tokens(Tokens::default()),
        }
    }

    /// Quorum as published: δ = 2, first window 10, least window 1. The paper is silent on estimates
    /// that nothing confirms; they decay here (see `docs/adr/0002-stale-estimates-decay.md`).
    #[must_use]
    pub fn quorum() -> Discipline {
        Discipline {
            name: "quorum".into(),
            admit: Admit::Deadline { stale: StaleEstimate::Decay },
            load_control: LoadControl::WindowLinear { delta: 2, first: 10, least: 1, most: 65_536, grow: Grow::Always },
            precedence: Precedence::WeightedFair,
        }
    }

    /// No control at all: a plain reverse proxy.
    #[must_use]
    pub fn none() -> Discipline {
        Discipline {
            name: "none".into(),
            admit: Admit::None,
            load_control: LoadControl::Fixed { window: None },
            precedence: Precedence::Fifo,
        }
    }

    /// Checks the figures.
    pub(crate) fn validate(&self) -> Result<(), InvalidPolicy> {
        let fail = |text: &str| Err(InvalidPolicy(text.into()));
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let positive = |x: f64| x.is_finite() && x > 0.0;
        match self.load_control {
            LoadControl::Fixed { window: Some(0) } => return fail("a fixed window must be at least 1"),
            LoadControl::WindowLinear { delta, first, least, most, .. }
                if delta == 0 || least == 0 || first < least || most < first =>
            {
                return fail("a linear window needs delta ≥ 1 and 1 ≤ least ≤ first ≤ most");
            }
            LoadControl::WindowAdaptive(a)
                if !(positive(a.swing)
                    && share(a.target)
                    && positive(a.gain)
                    && a.least_share.is_finite()
                    && a.least_share >= 0.0
                    && share(a.compute_share)
                    && a.node_share.is_finite()
                    && a.node_share >= 1.0) =>
            {
                return fail("an adaptive window needs swing, gain > 0, shares between 0 and 1, node_share ≥ 1");
            }
            _ => {}
        }
        if let Admit::Predict(p) = self.admit
            && !share(p.soft_share)
        {
            return fail("soft_share must lie between 0 and 1");
        }
        if let Precedence::Tokens(t) = self.precedence
            && !(share(t.best_effort_share) && t.debt.is_finite() && t.debt >= 0.0)
        {
            return fail("token buckets need debt ≥ 0 and a best-effort share between 0 and 1");
        }
        Ok(())
    }
}
