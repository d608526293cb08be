//! The discipline: the method used at each stage.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{At, Context, Decode, Defaulted, FromText, Optional, Required, unknown_word};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Count, Span};
use weirgate_spanned_yaml::{record, words};

use super::mqos::{Mqos, ResourceWord, Sqos};
use super::tags::{Seda, TagForm};
use super::web_switch::{DynamicPart, ServerLoad};

/// A discipline.
#[derive(Clone, Debug)]
pub(crate) enum Discipline {
    /// No control.
    None,
    /// Weirgate's own discipline and its parameters.
    Weirgate(Box<Weirgate>),
    /// Quorum and its parameters.
    Quorum(Box<Quorum>),
    /// SEDA's differentiated queues and their parameters.
    Seda(Box<Seda>),
    /// Refusal by load.
    SwitchAdm(Box<ServerLoad>),
    /// Refusal by load, with nodes partitioned once.
    StaticPart(Box<ServerLoad>),
    /// Refusal by load, with nodes partitioned again as the demand changes.
    DynamicPart(Box<DynamicPart>),
    /// mQoS.
    Mqos(Box<Mqos>),
    /// The baseline of mQoS, with one resource.
    Sqos(Box<Sqos>),
    /// One method per stage.
    Custom(Box<Custom>),
}

record! {
    /// A discipline with parameters: exactly one of the fields.
    pub(crate) struct DisciplineForm {
        /// Weirgate's own discipline with your parameters.
        weirgate: Optional<Weirgate>,
        /// Quorum (Blanquer et al., NSDI 2005) with your parameters.
        quorum: Optional<Quorum>,
        /// SEDA's differentiated queues (Le Baron and Elkan) with your parameters.
        seda: Optional<Seda>,
        /// The web switch (Andreolini et al.) with your parameters: refusal by load.
        switch_adm: Optional<ServerLoad>,
        /// The web switch with the nodes partitioned over the service sets once.
        static_part: Optional<ServerLoad>,
        /// The web switch with the nodes partitioned again as the demand changes.
        dynamic_part: Optional<DynamicPart>,
        /// mQoS (Feng and Lin) with your parameters.
        mqos: Optional<Mqos>,
        /// mQoS with one resource, the paper's baseline.
        sqos: Optional<Sqos>,
        /// One method per stage, for experiments.
        custom: Optional<Custom>,
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
        least_share: Defaulted<Amount> = 1,
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
        soft_least: Defaulted<Span> = "20ms",
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
        least_window: Defaulted<Count> = 1,
        /// Largest window. 65,536 by default, more than any cluster of this size serves at once.
        most_window: Defaulted<Count> = 65536,
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
        tags: Optional<Vec<At<TagForm>>>,
    }
}

/// A method of the admit stage.
#[derive(Clone, Debug)]
pub(crate) enum Admit {
    /// Every request may wait.
    None,
    /// Quorum's selective dropping.
    Deadline(StaleEstimate),
    /// Prediction at arrival.
    Predict(Box<Predict>),
    /// SEDA's thresholds.
    Thresholds(Box<Thresholds>),
    /// Refusal by load, as in the web switch.
    ServerLoad(Box<ServerLoad>),
    /// Controlled delay.
    Codel(Box<Codel>),
}

record! {
    /// An admit method with parameters: exactly one of the fields.
    pub(crate) struct AdmitForm {
        /// Quorum's selective dropping: a request that can no longer meet its limit is shed.
        deadline: Optional<DeadlineFigures>,
        /// A request that would wait too long is shed at arrival.
        predict: Optional<Predict>,
        /// Classes without a guarantee are refused while the load of the nodes exceeds a threshold.
        server_load: Optional<ServerLoad>,
        /// SEDA's thresholds: the longer the queue, the fewer priorities are admitted.
        thresholds: Optional<Thresholds>,
        /// Controlled delay (RFC 8289): requests at the head are dropped while the queue is a standing queue.
        codel: Optional<Codel>,
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

record! {
    /// A load control: exactly one of the fields.
    pub(crate) struct LoadControlForm {
        /// A window of fixed size: a number, or `unlimited`.
        fixed: Optional<FixedWindow>,
        /// Quorum's rule.
        window_linear: Optional<LinearWindow>,
        /// One window per group of nodes, which seeks the knee.
        window_adaptive: Optional<AdaptiveWindow>,
        /// A number of requests in flight at each node per CPU.
        slots: Optional<Slots>,
        /// mQoS: a node's work in flight may use as much of every resource as the node has. Needs `mdrr` or `drfq`.
        resource_availability: Optional<ResourceAvailability>,
        /// The window follows the ratio of long-term to short-term response times (Netflix' Gradient2).
        gradient: Optional<Gradient>,
        /// Additive increase, multiplicative decrease.
        aimd: Optional<Aimd>,
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
        least_window: Defaulted<Count> = 1,
        /// Largest window.
        most_window: Defaulted<Count> = 65536,
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
        least_window: Defaulted<Count> = 1,
        /// Largest window.
        most_window: Defaulted<Count> = 65536,
    }
}

/// A load control of the release stage.
#[derive(Clone, Debug)]
pub(crate) enum LoadControl {
    /// A window of fixed size.
    Fixed(FixedWindow),
    /// Quorum's rule.
    Linear(Box<LinearWindow>),
    /// Windows that seek the knee.
    Adaptive(Box<AdaptiveWindow>),
    /// Slots per CPU.
    Slots(Box<Slots>),
    /// Availability of the nodes' resources.
    Availability(Box<ResourceAvailability>),
    /// The gradient of response times.
    Gradient(Box<Gradient>),
    /// Additive increase, multiplicative decrease.
    Aimd(Box<Aimd>),
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
        least_window: Defaulted<Count> = 1,
        /// Largest window.
        most_window: Defaulted<Count> = 65536,
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
#[derive(Clone, Debug)]
pub(crate) enum Precedence {
    /// Slots in proportion to the classes' weights (throughput × service time). Unclaimed slots are reassigned.
    WeightedFair,
    /// Order of arrival over all classes.
    Fifo,
    /// Guaranteed rates first.
    Tokens(Box<PrecedenceForm>),
    /// Order of arrival. A request that may not be handled yet goes back to the end.
    Reenqueue,
    /// By priority.
    Priority,
    /// Deficit round robin over several resources.
    Mdrr,
    /// Dominant-resource fair queueing.
    Drfq,
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

/// Returns the one field that is present, and complains unless there is exactly one. `bad` means that one of
/// them was invalid and was reported.
pub(super) fn one_of<T>(fields: Vec<(&str, Option<T>)>, bad: bool, cx: &mut Context) -> Option<T> {
    let names: Vec<String> = fields.iter().map(|(name, _)| format!("`{name}:`")).collect();
    let mut given: Vec<(&str, T)> = fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    match given.len() {
        0 if bad => None,
        0 => {
            let mend = format!("give it {}", names.join(" or "));
            cx.complain(Complaint::new("this map is empty", mend));
            None
        }
        1 => given.pop().map(|(_, value)| value),
        _ => {
            let what = format!("`{}` and `{}` exclude each other", given[0].0, given[1].0);
            cx.complain(Complaint::new(what, "keep one of them"));
            None
        }
    }
}

/// Words that name a discipline.
const DISCIPLINES: &[&str] =
    &["weirgate", "quorum", "seda", "switch_adm", "static_part", "dynamic_part", "mqos", "sqos", "none", "custom"];

/// Returns a record with every field at its default.
pub(super) fn defaults<T: Decode>(node: &Node, cx: &mut Context) -> Option<Box<T>> {
    T::decode(&Node::assumed("{}", node.place), cx).map(Box::new)
}

impl Decode for Discipline {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) => match &**text {
                "weirgate" => defaults(node, cx).map(Discipline::Weirgate),
                "quorum" => defaults(node, cx).map(Discipline::Quorum),
                "seda" => defaults(node, cx).map(Discipline::Seda),
                "switch_adm" => defaults(node, cx).map(Discipline::SwitchAdm),
                "static_part" => defaults(node, cx).map(Discipline::StaticPart),
                "dynamic_part" => defaults(node, cx).map(Discipline::DynamicPart),
                "mqos" => defaults(node, cx).map(Discipline::Mqos),
                "sqos" => defaults(node, cx).map(Discipline::Sqos),
                "none" => Some(Discipline::None),
                "custom" => {
                    let mend = "write `discipline: { custom: { admit: …, load_control: …, precedence: … } }`";
                    cx.complain(Complaint::new("`custom` needs its methods", mend));
                    None
                }
                word => {
                    cx.complain(unknown_word(word, DISCIPLINES));
                    None
                }
            },
            Value::Map(_) => {
                let form = DisciplineForm::decode(node, cx)?;
                let switch = form.switch_adm.bad || form.static_part.bad || form.dynamic_part.bad;
                let bad = form.weirgate.bad || form.quorum.bad || form.seda.bad || switch || form.custom.bad;
                let bad = bad || form.mqos.bad || form.sqos.bad;
                let fields = vec![
                    ("weirgate", form.weirgate.value.map(|w| Discipline::Weirgate(Box::new(w)))),
                    ("quorum", form.quorum.value.map(|q| Discipline::Quorum(Box::new(q)))),
                    ("seda", form.seda.value.map(|s| Discipline::Seda(Box::new(s)))),
                    ("switch_adm", form.switch_adm.value.map(|s| Discipline::SwitchAdm(Box::new(s)))),
                    ("static_part", form.static_part.value.map(|s| Discipline::StaticPart(Box::new(s)))),
                    ("dynamic_part", form.dynamic_part.value.map(|d| Discipline::DynamicPart(Box::new(d)))),
                    ("mqos", form.mqos.value.map(|m| Discipline::Mqos(Box::new(m)))),
                    ("sqos", form.sqos.value.map(|s| Discipline::Sqos(Box::new(s)))),
                    ("custom", form.custom.value.map(|c| Discipline::Custom(Box::new(c)))),
                ];
                one_of(fields, bad, cx)
            }
            _ => {
                cx.mismatch("the name of a discipline, such as `weirgate`, or a map", node);
                None
            }
        }
    }
}

impl Decode for Admit {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) => match &**text {
                "none" => Some(Admit::None),
                "deadline" => Some(Admit::Deadline(StaleEstimate(engine::StaleEstimate::Decay))),
                "predict" => defaults(node, cx).map(Admit::Predict),
                "thresholds" => defaults(node, cx).map(Admit::Thresholds),
                "server_load" => defaults(node, cx).map(Admit::ServerLoad),
                "codel" => defaults(node, cx).map(Admit::Codel),
                word => {
                    let known = &["none", "deadline", "predict", "thresholds", "server_load", "codel"];
                    cx.complain(unknown_word(word, known));
                    None
                }
            },
            Value::Map(_) => {
                let form = AdmitForm::decode(node, cx)?;
                let bad = form.deadline.bad || form.predict.bad || form.thresholds.bad || form.server_load.bad;
                let bad = bad || form.codel.bad;
                let fields = vec![
                    ("deadline", form.deadline.value.map(|figures| Admit::Deadline(*figures.stale_estimate.get()))),
                    ("predict", form.predict.value.map(|figures| Admit::Predict(Box::new(figures)))),
                    ("thresholds", form.thresholds.value.map(|figures| Admit::Thresholds(Box::new(figures)))),
                    ("server_load", form.server_load.value.map(|figures| Admit::ServerLoad(Box::new(figures)))),
                    ("codel", form.codel.value.map(|figures| Admit::Codel(Box::new(figures)))),
                ];
                one_of(fields, bad, cx)
            }
            _ => {
                cx.mismatch("the name of an admit method, such as `predict`, or a map", node);
                None
            }
        }
    }
}

impl Decode for LoadControl {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) if **text == *"window_adaptive" => defaults(node, cx).map(LoadControl::Adaptive),
            Value::Text(text) if **text == *"window_linear" => defaults(node, cx).map(LoadControl::Linear),
            Value::Text(text) if **text == *"gradient" => defaults(node, cx).map(LoadControl::Gradient),
            Value::Text(text) if **text == *"aimd" => defaults(node, cx).map(LoadControl::Aimd),
            Value::Text(text) if **text == *"slots" => defaults(node, cx).map(LoadControl::Slots),
            Value::Text(text) if **text == *"resource_availability" => {
                defaults(node, cx).map(LoadControl::Availability)
            }
            _ => {
                let form = LoadControlForm::decode(node, cx)?;
                let bad = form.fixed.bad || form.window_linear.bad || form.window_adaptive.bad || form.slots.bad;
                let bad = bad || form.resource_availability.bad || form.gradient.bad || form.aimd.bad;
                let fields = vec![
                    ("fixed", form.fixed.value.map(LoadControl::Fixed)),
                    ("window_linear", form.window_linear.value.map(|l| LoadControl::Linear(Box::new(l)))),
                    (
                        "resource_availability",
                        form.resource_availability.value.map(|a| LoadControl::Availability(Box::new(a))),
                    ),
                    ("slots", form.slots.value.map(|s| LoadControl::Slots(Box::new(s)))),
                    ("gradient", form.gradient.value.map(|g| LoadControl::Gradient(Box::new(g)))),
                    ("aimd", form.aimd.value.map(|a| LoadControl::Aimd(Box::new(a)))),
                    ("window_adaptive", form.window_adaptive.value.map(|a| LoadControl::Adaptive(Box::new(a)))),
                ];
                one_of(fields, bad, cx)
            }
        }
    }
}

impl Decode for Precedence {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) => match &**text {
                "weighted_fair" => Some(Precedence::WeightedFair),
                "fifo" => Some(Precedence::Fifo),
                "tokens" => defaults(node, cx).map(Precedence::Tokens),
                "reenqueue" => Some(Precedence::Reenqueue),
                "priority" => Some(Precedence::Priority),
                "mdrr" => Some(Precedence::Mdrr),
                "drfq" => Some(Precedence::Drfq),
                word => {
                    let known = &["weighted_fair", "fifo", "tokens", "reenqueue", "priority", "mdrr", "drfq"];
                    cx.complain(unknown_word(word, known));
                    None
                }
            },
            Value::Map(_) => PrecedenceForm::decode(node, cx).map(|form| Precedence::Tokens(Box::new(form))),
            _ => {
                let methods = "`weighted_fair`, `fifo`, `tokens`, `reenqueue`, `priority`, `mdrr`, `drfq` or a map";
                cx.mismatch(methods, node);
                None
            }
        }
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
            Err(_) => Err(Complaint::new(
                format!("{} is not a window", quoted(text)),
                "write a whole number of at least 1, or `unlimited`",
            )),
        }
    }
}

/// The schema of a form that has a short and a long spelling.
macro_rules! form_schema {
    ($($Name:ident: $about:literal $(short $short:tt)? long $Long:ty;)+) => {
        $( impl JsonSchema for $Name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let long = generator.subschema_for::<$Long>();
                json_schema!({ "description": $about, "anyOf": [$($short,)? long] })
            }
        } )+
    };
}

form_schema! {
    Discipline: "How the guarantees are kept." short { "enum": ["weirgate", "quorum", "seda", "switch_adm", "static_part", "dynamic_part", "mqos", "sqos", "none"] } long DisciplineForm;
    Admit: "May a request wait, and for how long." short { "enum": ["none", "deadline", "predict", "thresholds", "server_load", "codel"] } long AdmitForm;
    LoadControl: "How many requests may be inside." short { "enum": ["window_linear", "window_adaptive", "slots", "resource_availability", "gradient", "aimd"] } long LoadControlForm;
    Precedence: "Whose turn it is." short { "enum": ["weighted_fair", "fifo", "tokens", "reenqueue", "priority", "mdrr", "drfq"] } long PrecedenceForm;
    FixedWindow: "A window that does not move." short { "const": "unlimited" } long Count;
}
