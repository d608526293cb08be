//! The discipline: the method used at each stage.

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{At, Defaulted, FromText, Optional, Required, TextOrMap};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::{Amount, Count, Span};
use weirgate_spanned_yaml::{any_of, choice, record, words};

use super::mqos::{Mqos, ResourceWord, Sqos};
use super::priorities::{PriorityForm, Seda};
use super::web_switch::{DynamicPart, ServerLoad};

choice! {
    /// How the guarantees are kept.
    pub(crate) enum Discipline expects "the name of a discipline, such as `weirgate`, or a map" {
        /// Weirgate's own discipline.
        Weirgate(Weirgate) = "weirgate",
        /// Quorum (Blanquer et al., NSDI 2005).
        Quorum(Quorum) = "quorum",
        /// SEDA's differentiated queues (Le Baron and Elkan).
        Seda(Seda) = "seda",
        /// The web switch (Andreolini et al.): refusal by load.
        SwitchAdm(ServerLoad) = "switch_adm",
        /// The web switch with the nodes partitioned over the service sets once.
        StaticPart(ServerLoad) = "static_part",
        /// The web switch with the nodes partitioned again as the demand changes.
        DynamicPart(DynamicPart) = "dynamic_part",
        /// mQoS (Feng and Lin).
        Mqos(Mqos) = "mqos",
        /// mQoS with one resource, the paper's baseline.
        Sqos(Sqos) = "sqos",
        /// No control: a plain reverse proxy.
        None = "none",
        /// One method per stage, for experiments.
        Custom(Custom) = "custom"
            needs "its methods": "discipline: { custom: { admit: …, load_control: …, precedence: … } }",
    }
}

record! {
    /// Weirgate's own discipline: adaptive windows that seek the knee, token buckets for guaranteed rates,
    /// and prediction at arrival. `docs/disciplines/weirgate.md` says how much worse the result is when a
    /// parameter is half or one and a half times its default.
    pub(crate) struct Weirgate {
        /// How capacity is divided when the guarantees do not all fit.
        infeasible: Defaulted<Infeasible> = "proportional",
        /// Parameters of the windows.
        window: Defaulted<AdaptiveWindow> = {},
        /// Parameters of the token buckets.
        tokens: Defaulted<TokenBuckets> = {},
        /// Parameters of the prediction at arrival.
        predict: Defaulted<Predict> = {},
    }
}

words! {
    /// How capacity is divided when the guarantees do not all fit the remaining nodes.
    pub(crate) struct Infeasible(engine::Infeasible) {
        /// Every class gets the same share of its guarantee.
        "proportional" => engine::Infeasible::Proportional,
        /// Classes are served in the order of their `utility`. Classes of equal utility share.
        "strict" => engine::Infeasible::Strict,
        /// The sum of utilities is maximised: classes are served in the order of `utility` per slot-second.
        "utility" => engine::Infeasible::Utility,
    }
}

record! {
    /// Parameters of windows that seek the knee.
    pub(crate) struct AdaptiveWindow {
        /// Amplitude of the window's swing above its base, as a share of the base.
        swing: Defaulted<Amount> = 0.3,
        /// Target elasticity of response times: 0 is far below the knee, 1 above it.
        elasticity: Defaulted<Amount> = 0.95,
        /// Gain with which the base follows the measured elasticity.
        gain: Defaulted<Amount> = 0.4,
        /// Minimum window, as a share of the slots that the guarantees need.
        min_share: Defaulted<Amount> = 1,
        /// Share of a response-time limit that compute time may take, in addition to the unloaded compute time.
        compute_share: Defaulted<Amount> = 0.5,
        /// Maximum number of requests in flight at a node, relative to an even spread. At least 1.
        node_share: Defaulted<Amount> = 1.5,
    }
}

record! {
    /// Parameters of token buckets, which serve guaranteed rates first.
    pub(crate) struct TokenBuckets {
        /// How far surplus may overdraw a bucket, in response-time limits.
        debt: Defaulted<Amount> = 0.5,
        /// Weight of each class without a throughput, as a share of the sum of the other classes' weights.
        best_effort_share: Defaulted<Amount> = 0.01,
    }
}

record! {
    /// Parameters of prediction at arrival.
    pub(crate) struct Predict {
        /// Longest wait of requests beyond their class's guarantee, as a share of its response-time limit.
        soft_share: Defaulted<Amount> = 0.1,
        /// Lower bound of that longest wait.
        soft_min: Defaulted<Span> = "20ms",
    }
}

record! {
    /// Quorum: a window on requests in flight, its fair partition among the classes, and selective dropping.
    pub(crate) struct Quorum {
        /// Step of the window in requests, every 500 ms. 2 by default, as in the paper's figures.
        delta: Defaulted<Count> = 2,
        /// Initial window. 10 by default: it grows within seconds and does no harm until then.
        first_window: Defaulted<Count> = 10,
        /// Smallest window.
        min_window: Defaulted<Count> = 1,
        /// Largest window. 65,536 by default, more than any cluster of this size serves at once.
        max_window: Defaulted<Count> = 65536,
        /// When the window may grow. `while_full` by default: a window that holds nothing back has no
        /// influence on compute times, so they say nothing about it.
        grow: Defaulted<GrowWhen> = "while_full",
        /// How the estimate of a class's compute time changes while none of its requests completes. `decay`
        /// by default, because with `hold` a class can starve permanently.
        stale_estimate: Defaulted<StaleEstimate> = "decay",
    }
}

record! {
    /// One method per stage.
    pub(crate) struct Custom {
        /// Admit stage: whether a request may wait, and for how long.
        admit: Required<Admit>,
        /// Release stage: number of requests that may be in flight.
        load_control: Required<LoadControl>,
        /// Release stage: the order in which waiting requests are released.
        precedence: Required<Precedence>,
        /// Table of priorities, for `thresholds`, `reenqueue` and `priority`. SEDA's by default.
        priorities: Optional<Vec<At<PriorityForm>>>,
    }
}

choice! {
    /// Whether a request may wait, and for how long.
    pub(crate) enum Admit expects "the name of an admit method, such as `predict`, or a map" {
        /// Every request may wait.
        None = "none",
        /// Quorum's selective dropping: a request that can no longer meet its limit is shed.
        Deadline(DeadlineFigures) = "deadline",
        /// A request that would wait too long is shed at arrival.
        Predict(Predict) = "predict",
        /// SEDA's thresholds: the longer the queue, the fewer priorities are admitted.
        Thresholds(Thresholds) = "thresholds",
        /// Classes without a guarantee are refused while the load of the nodes exceeds a threshold.
        ServerLoad(ServerLoad) = "server_load",
        /// Controlled delay (RFC 8289): requests at the head are dropped while the queue is a standing queue.
        Codel(Codel) = "codel",
    }
}

record! {
    /// Parameters of controlled delay, as in RFC 8289.
    pub(crate) struct Codel {
        /// Wait of the request at the head beyond which a queue is a standing queue.
        target: Defaulted<Span> = "5ms",
        /// How long the queue must be a standing queue before a request is dropped.
        interval: Defaulted<Span> = "100ms",
    }
}

record! {
    /// Parameters of SEDA's thresholds.
    pub(crate) struct Thresholds {
        /// Threshold of each upstream's queue, in waiting requests.
        queue: Defaulted<Count> = 50,
    }
}

record! {
    /// Parameters of slots per CPU.
    pub(crate) struct Slots {
        /// Requests in flight at a node per CPU (its `capacity`, else its `weight`).
        per_cpu: Defaulted<Amount> = 1,
    }
}

record! {
    /// Parameters of selective dropping.
    pub(crate) struct DeadlineFigures {
        /// How the estimate of a class's compute time changes while none of its requests completes.
        stale_estimate: Defaulted<StaleEstimate> = "decay",
    }
}

choice! {
    /// How many requests may be in flight.
    pub(crate) enum LoadControl expects "the name of a load control, such as `window_adaptive`, or a map" {
        /// A window of fixed size: a number, or `unlimited`.
        Fixed(FixedWindow) = "fixed" needs "its size": "load_control: { fixed: 100 }",
        /// Quorum's rule.
        Linear(LinearWindow) = "window_linear",
        /// One window per group of nodes, which seeks the knee.
        Adaptive(AdaptiveWindow) = "window_adaptive",
        /// A number of requests in flight at each node per CPU.
        Slots(Slots) = "slots",
        /// mQoS: a node's work in flight may use as much of every resource as the node has. Needs `mdrr` or `drfq`.
        Availability(ResourceAvailability) = "resource_availability",
        /// The window follows the ratio of long-term to short-term response times (Netflix' Gradient2).
        Gradient(Gradient) = "gradient",
        /// Additive increase, multiplicative decrease.
        Aimd(Aimd) = "aimd",
    }
}

record! {
    /// Parameters of the gradient, as in Netflix' concurrency-limits.
    pub(crate) struct Gradient {
        /// Largest ratio of short-term to long-term response times that is not taken as a sign of a queue.
        tolerance: Defaulted<Amount> = 1.5,
        /// Share of the distance to the new window that one step covers.
        smoothing: Defaulted<Amount> = 0.2,
        /// Initial window.
        first_window: Defaulted<Count> = 20,
        /// Smallest window.
        min_window: Defaulted<Count> = 1,
        /// Largest window.
        max_window: Defaulted<Count> = 65536,
    }
}

record! {
    /// Parameters of additive increase and multiplicative decrease, as in Netflix' concurrency-limits.
    pub(crate) struct Aimd {
        /// Factor applied to the window after a late answer or a failure.
        back_off: Defaulted<Amount> = 0.9,
        /// Time in flight beyond which an answer is late, for classes without a response-time limit.
        timeout: Defaulted<Span> = "5s",
        /// Initial window.
        first_window: Defaulted<Count> = 20,
        /// Smallest window.
        min_window: Defaulted<Count> = 1,
        /// Largest window.
        max_window: Defaulted<Count> = 65536,
    }
}

record! {
    /// Parameters of resource availability.
    pub(crate) struct ResourceAvailability {
        /// A node's work in flight may be as much as it completes in this time, for every resource.
        horizon: Defaulted<Span> = "1s",
        /// Resource to manage, instead of all.
        resource: Optional<ResourceWord>,
    }
}

/// A window of fixed size. `None` means no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedWindow(pub(crate) Option<u32>);

record! {
    /// Quorum's rule: every 500 ms the window grows by one step while the compute time of the class with the
    /// smallest limit is less than half of that limit, else it shrinks by one step.
    pub(crate) struct LinearWindow {
        /// Step in requests.
        delta: Defaulted<Count> = 2,
        /// Initial window.
        first_window: Defaulted<Count> = 10,
        /// Smallest window.
        min_window: Defaulted<Count> = 1,
        /// Largest window.
        max_window: Defaulted<Count> = 65536,
        /// When the window may grow.
        grow: Defaulted<GrowWhen> = "while_full",
    }
}

words! {
    /// When a linear window may grow.
    pub(crate) struct GrowWhen(engine::Grow) {
        /// Only if the window held a request back since the last step.
        "while_full" => engine::Grow::WhileFull,
        /// Whenever compute times allow, even while load is low. For experiments.
        "always" => engine::Grow::Always,
    }
}

words! {
    /// How an estimate changes while no completed request confirms it.
    pub(crate) struct StaleEstimate(engine::StaleEstimate) {
        /// It shrinks by 30 % per control period.
        "decay" => engine::StaleEstimate::Decay,
        /// It stays. For experiments: a class can starve permanently.
        "hold" => engine::StaleEstimate::Hold,
    }
}

/// The order in which waiting requests are released.
pub(crate) type Precedence = TextOrMap<PrecedenceWord, PrecedenceForm>;

words! {
    /// The order in which waiting requests are released.
    pub(crate) struct PrecedenceWord(engine::Precedence) {
        /// Slots in proportion to the classes' weights (throughput × service time). Unclaimed slots are reassigned.
        "weighted_fair" => engine::Precedence::WeightedFair,
        /// Order of arrival over all classes.
        "fifo" => engine::Precedence::Fifo,
        /// Guaranteed rates first.
        "tokens" => engine::Precedence::Tokens(engine::Tokens::default()),
        /// Order of arrival. A request that may not be handled yet goes back to the end.
        "reenqueue" => engine::Precedence::Reenqueue,
        /// Highest priority first.
        "priority" => engine::Precedence::Priority,
        /// Deficit round robin over several resources.
        "mdrr" => engine::Precedence::Mdrr,
        /// Dominant-resource fair queueing.
        "drfq" => engine::Precedence::Drfq,
    }
}

record! {
    /// A precedence with parameters.
    pub(crate) struct PrecedenceForm {
        /// Every class gets its guaranteed rate first. The remainder is divided in proportion to the weights.
        tokens: Defaulted<TokenBuckets> = {},
        /// How capacity is divided when the guarantees do not all fit.
        infeasible: Defaulted<Infeasible> = "proportional",
    }
}

impl FromText for FixedWindow {
    const EXPECTED: &'static str = "a whole number of at least 1, or `unlimited`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if text == "unlimited" {
            return Ok(FixedWindow(None));
        }
        match Count::from_text(text) {
            Ok(Count(window)) => Ok(FixedWindow(Some(window))),
            Err(_) => {
                Err(Complaint::about(text, "is not a window", "write a whole number of at least 1, or `unlimited`"))
            }
        }
    }
}

any_of! {
    FixedWindow: "A window that does not move." = [{ "const": "unlimited" }, Count];
}
