//! The discipline: which method stands at each stage.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::decode::{Context, Decode, Defaulted, FromText, Optional, Required, record, unknown_word, words};
use crate::errors::{Complaint, quoted};
use crate::tree::{Node, Value};
use crate::unit::Count;

/// A discipline.
#[derive(Clone, Debug)]
pub(crate) enum Discipline {
    /// No control.
    None,
    /// Quorum with its figures.
    Quorum(Box<Quorum>),
    /// One method per stage.
    Custom(Box<Custom>),
}

record! {
    /// A discipline with figures: exactly one of the fields.
    pub(crate) struct DisciplineForm {
        /// Quorum (Blanquer et al., NSDI 2005) with its own figures.
        quorum: Optional<Quorum>,
        /// One method per stage, for study.
        custom: Optional<Custom>,
    }
}

record! {
    /// Quorum: a window on requests inside, a fair partition of it, and selective dropping.
    pub(crate) struct Quorum {
        /// Step of the window in requests, every 500 ms. 2 by default, as in the paper's figures.
        delta: Defaulted<Count> = 2,
        /// First window. 10 by default: it grows within seconds and does no harm until then.
        first_window: Defaulted<Count> = 10,
        /// Smallest window.
        least_window: Defaulted<Count> = 1,
        /// Largest window. 65,536 by default: more than any cluster of this size serves at once.
        most_window: Defaulted<Count> = 65536,
        /// When the window may grow. `always` by default, as published.
        grow: Defaulted<GrowWhen> = "always",
        /// What the estimate of a class's compute time is worth while none of its requests completes.
        /// `decay` by default: with `hold` a class can starve for good.
        stale_estimate: Defaulted<StaleEstimate> = "decay",
    }
}

record! {
    /// One method per stage.
    pub(crate) struct Custom {
        /// Stage admit: may a request wait, and for how long.
        admit: Required<Admit>,
        /// Stage release: how many requests may be inside.
        load_control: Required<LoadControl>,
        /// Stage release: whose turn it is.
        precedence: Required<Precedence>,
    }
}

/// Stage admit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Admit {
    /// Everything may wait.
    None,
    /// Quorum's selective dropping.
    Deadline(StaleEstimate),
}

record! {
    /// An admit method with figures.
    pub(crate) struct AdmitForm {
        /// Quorum's selective dropping: a request that cannot make its limit any more is shed.
        deadline: Required<DeadlineFigures>,
    }
}

record! {
    /// Figures of selective dropping.
    pub(crate) struct DeadlineFigures {
        /// What the estimate of a class's compute time is worth while none of its requests completes.
        stale_estimate: Defaulted<StaleEstimate> = "decay",
    }
}

record! {
    /// A load control: exactly one of the fields.
    pub(crate) struct LoadControlForm {
        /// A window that does not move: a number, or `unlimited`.
        fixed: Optional<FixedWindow>,
        /// Quorum's rule.
        window_linear: Optional<LinearWindow>,
    }
}

/// Stage release: how many.
#[derive(Clone, Debug)]
pub(crate) enum LoadControl {
    /// A window that does not move.
    Fixed(FixedWindow),
    /// Quorum's rule.
    Linear(Box<LinearWindow>),
}

/// A window that does not move; `None` is no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedWindow(pub(crate) Option<u32>);

record! {
    /// Quorum's rule: every 500 ms one step up while the class with the smallest limit computes in
    /// less than half of it, else one step down.
    pub(crate) struct LinearWindow {
        /// Step in requests.
        delta: Defaulted<Count> = 2,
        /// First window.
        first_window: Defaulted<Count> = 10,
        /// Smallest window.
        least_window: Defaulted<Count> = 1,
        /// Largest window.
        most_window: Defaulted<Count> = 65536,
        /// When the window may grow.
        grow: Defaulted<GrowWhen> = "always",
    }
}

words! {
    /// When a linear window may grow.
    pub(crate) enum GrowWhen {
        /// Whenever compute times allow, as published.
        Always = "always",
        /// Only if the window held a request back since the last step.
        WhileFull = "while_full",
    }
}

words! {
    /// What an estimate is worth that nothing confirms.
    pub(crate) enum StaleEstimate {
        /// It shrinks by 30 % a control period.
        Decay = "decay",
        /// It stays. For study: a class can starve for good.
        Hold = "hold",
    }
}

words! {
    /// Whose turn it is.
    pub(crate) enum Precedence {
        /// Slots in proportion to the classes' weights (throughput × service time), unclaimed ones reassigned.
        WeightedFair = "weighted_fair",
        /// Order of arrival over all classes.
        Fifo = "fifo",
    }
}

/// Exactly one of two.
enum Either<A, B> {
    First(A),
    Second(B),
}

/// Which of two fields is there; complains unless it is exactly one.
fn one_of<A, B>(a: (&str, Option<A>), b: (&str, Option<B>), bad: bool, cx: &mut Context) -> Option<Either<A, B>> {
    match (a.1, b.1) {
        (Some(first), None) => Some(Either::First(first)),
        (None, Some(second)) => Some(Either::Second(second)),
        (None, None) if bad => None,
        (None, None) => {
            let mend = format!("give it `{}:` or `{}:`", a.0, b.0);
            cx.complain(Complaint::new("this map is empty", mend));
            None
        }
        (Some(_), Some(_)) => {
            let what = format!("`{}` and `{}` exclude each other", a.0, b.0);
            cx.complain(Complaint::new(what, "keep one of them"));
            None
        }
    }
}

/// Words that name a discipline.
const DISCIPLINES: &[&str] = &["quorum", "none", "custom"];

impl Decode for Discipline {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) => match &**text {
                "quorum" => {
                    let figures = Quorum::decode(&Node::assumed("{}", node.place), cx)?;
                    Some(Discipline::Quorum(Box::new(figures)))
                }
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
                let bad = form.quorum.bad || form.custom.bad;
                match one_of(("quorum", form.quorum.value), ("custom", form.custom.value), bad, cx)? {
                    Either::First(quorum) => Some(Discipline::Quorum(Box::new(quorum))),
                    Either::Second(custom) => Some(Discipline::Custom(Box::new(custom))),
                }
            }
            _ => {
                cx.mismatch("`quorum`, `none` or a map", node);
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
                "deadline" => Some(Admit::Deadline(StaleEstimate::Decay)),
                word => {
                    cx.complain(unknown_word(word, &["none", "deadline"]));
                    None
                }
            },
            Value::Map(_) => {
                let form = AdmitForm::decode(node, cx)?;
                form.deadline.get().map(|figures| Admit::Deadline(*figures.stale_estimate.get()))
            }
            _ => {
                cx.mismatch("`none`, `deadline` or `deadline: { stale_estimate: … }`", node);
                None
            }
        }
    }
}

impl Decode for LoadControl {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let form = LoadControlForm::decode(node, cx)?;
        let bad = form.fixed.bad || form.window_linear.bad;
        match one_of(("fixed", form.fixed.value), ("window_linear", form.window_linear.value), bad, cx)? {
            Either::First(window) => Some(LoadControl::Fixed(window)),
            Either::Second(linear) => Some(LoadControl::Linear(Box::new(linear))),
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

/// The schema of a form with a short and a long way to write it.
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
    Discipline: "How the guarantees are kept." short { "enum": ["quorum", "none"] } long DisciplineForm;
    Admit: "May a request wait, and for how long." short { "enum": ["none", "deadline"] } long AdmitForm;
    LoadControl: "How many requests may be inside." long LoadControlForm;
    FixedWindow: "A window that does not move." short { "const": "unlimited" } long Count;
}
