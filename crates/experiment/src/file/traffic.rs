//! Traffic: whose requests come when, and what their clients do.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_config::embed::Token;
use weirgate_spanned_yaml::decode::{Context, Decode, Defaulted, Named, Optional, Required, Switch, unknown_word};
use weirgate_spanned_yaml::record;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Bytes, Count, Frequency, Name, Share, Span, Text, Whole};

use super::change::Changing;
use super::count::Numbers;
use super::demand::{Demand, Times};

record! {
    /// One stream of requests: `rate`, `users` or `trace` says when they come.
    pub(crate) struct TrafficForm {
        /// The class that the requests belong to, or a template.
        class: Required<Name>,
        /// For a template: how many keys there are. Their popularity follows Zipf's law with exponent 1.
        keys: Optional<Count>,
        /// Clients that do not wait for one another: how many come per second in the mean, or a list of rates with
        /// `at` and `over`. Each sends one request, or asks for a page or several.
        rate: Optional<Changing<Frequency>>,
        /// How a rate becomes arrivals: `poisson`, `even`, or `mmpp` for bursts. Poisson by default: many
        /// independent clients.
        arrivals: Defaulted<Arrivals> = "poisson",
        /// Users who send, wait for the reply, think, and send again: how many, or a list with `at` and `over`.
        users: Optional<Changing<Amount>>,
        /// Time between a reply and the user's next request.
        think: Optional<Times>,
        /// A log with a request in each line, as text or gzip, from this file's folder: seconds from the start of the
        /// run, or dates, which count from the earliest.
        trace: Optional<Text>,
        /// How much faster than its own time the trace is played.
        speed: Defaulted<Amount> = 1,
        /// Each arrival of `rate` or `trace` is a client who asks for several pages: a map.
        session: Optional<SessionForm>,
        /// Each request is a page, and these are embedded in it: a map.
        objects: Optional<ObjectsForm>,
        /// Each request asks for one of many files: a map.
        documents: Optional<DocumentsForm>,
        /// What a request takes of a nominal machine, or a list with `at` and `over`.
        demand: Required<Changing<Demand>>,
        /// How long a client waits for the last byte before it leaves. `off` is for ever.
        patience: Defaulted<Switch<Times>> = "off",
        /// Times a client tries again after a shed, a failure or its own leaving.
        retries: Defaulted<Whole> = 0,
        /// How long it waits before that.
        retry_after: Defaulted<Times> = "1s",
        /// What the lab sends: a map. By default what emulated nodes understand, with the header `x-class: NAME`.
        request: Optional<RequestForm>,
    }
}

record! {
    /// The visit of a client.
    pub(crate) struct SessionForm {
        /// How many pages it asks for, one after the other, 1 to 1000: a number or a distribution.
        pages: Required<Numbers>,
        /// Time between the end of a page and the next one's request.
        think: Required<Times>,
    }
}

record! {
    /// Files, the same in every run. How popular one is falls with its rank, and the popular ones are small.
    pub(crate) struct DocumentsForm {
        /// How many.
        files: Required<Count>,
        /// How large all of them are together.
        total: Required<Bytes>,
        /// The exponent of their popularity: the larger, the more requests are for few files.
        zipf: Required<Amount>,
        /// Names the set: other figures, other sizes.
        seed: Defaulted<Whole> = 1,
        /// Other classes that a part of the files belongs to, each with its share of the requests. `class` has the
        /// rest.
        others: Optional<Named<Name, Share>>,
    }
}

record! {
    /// Objects that are embedded in a page. Once the page itself has come, its client asks for them.
    pub(crate) struct ObjectsForm {
        /// The class that they belong to. The page's by default.
        class: Optional<Name>,
        /// How many each page has, 0 to 1000: a number or a distribution.
        count: Required<Numbers>,
        /// What each takes of a nominal machine, or a list with `at` and `over`.
        demand: Required<Changing<Demand>>,
        /// How many are under way at once. 2 is what HTTP/1.1 first allowed a client (RFC 2068, Sec. 8.1.4).
        connections: Defaulted<Count> = 2,
        /// What the lab sends for one: a map. By default as for the page, but for its path.
        request: Optional<RequestForm>,
    }
}

record! {
    /// A request as it goes over the wire. `{cpu_us}`, `{io_us}`, `{disk_us}`, `{link_us}` and `{stream_us}` are what
    /// it takes, `{id}` is its id, `{key}` its key of a template, `{word}` a word of the service's, `{object}` and
    /// `{bytes}` are its document and its size.
    pub(crate) struct RequestForm {
        /// Its method.
        method: Defaulted<Token> = "GET",
        /// Path and query. What the service of the machines understands by default.
        path: Optional<Text>,
        /// Its `Host`. The class's name by default, which every gateway passes on.
        host: Optional<Text>,
        /// Further header fields.
        headers: Optional<Named<Token, Text>>,
    }
}

/// How a rate becomes arrivals.
#[derive(Clone, Debug)]
pub(crate) enum Arrivals {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps.
    Even,
    /// Calm and bursts in turns.
    Mmpp(Box<MmppForm>),
}

record! {
    /// An arrival process with figures.
    pub(crate) struct ArrivalsForm {
        /// Calm and bursts take turns (a Markov-modulated Poisson process).
        mmpp: Required<MmppForm>,
    }
}

record! {
    /// Calm and bursts in turns, both of exponential length; the mean rate is kept.
    pub(crate) struct MmppForm {
        /// Rate in a burst over the mean rate, more than 1.
        burst: Required<Amount>,
        /// Share of time in bursts; `burst` × `share` is below 1, so that something comes between them.
        share: Required<Share>,
        /// Mean length of a burst.
        length: Required<Span>,
    }
}

impl Decode for Arrivals {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) => match &**text {
                "poisson" => Some(Arrivals::Poisson),
                "even" => Some(Arrivals::Even),
                word => {
                    cx.complain(unknown_word(
                        word,
                        &["poisson", "even", "{ mmpp: { burst: …, share: …, length: … } }"],
                    ));
                    None
                }
            },
            Value::Map(_) => ArrivalsForm::decode(node, cx)?.mmpp.value.0.map(|form| Arrivals::Mmpp(Box::new(form))),
            _ => {
                cx.mismatch("`poisson`, `even` or `{ mmpp: { burst: …, share: …, length: … } }`", node);
                None
            }
        }
    }
}

impl JsonSchema for Arrivals {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Arrivals".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "How a rate becomes arrivals.",
            "anyOf": [{ "enum": ["poisson", "even"] }, generator.subschema_for::<ArrivalsForm>()],
        })
    }
}
