//! Classes and templates: what requests are promised and how they are treated.

use std::rc::Rc;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_spanned_yaml::decode::{Context, Decode, Defaulted, Optional, Required, StepName, Switch};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Bytes, Count, Name, Rate, Share, Span, Text};
use weirgate_spanned_yaml::{record, words};

use super::conditions::{HeaderName, Match, Token};
use super::page_table::CostForm;

record! {
    /// A service class. With `per:` it is a template: one class for every value of a header or cookie.
    pub(crate) struct Class {
        /// Its unique name, in metrics, logs and replies.
        name: Required<Name>,
        /// What a request must look like: every field given must hold. Without it everything matches.
        r#match: Optional<Match>,
        /// The upstream that answers. Not needed if there is only one.
        upstream: Optional<Name>,
        /// Makes this a template: a class of its own for every value. A request without the value goes
        /// on to the next class.
        per: Optional<Per>,
        /// Most classes of a template alive at once, up to 65,536. Past it the one that is idle longest
        /// makes room; if none is idle, new values share the class `NAME/overflow`. 1024 by default: with
        /// a kilobyte or two each, that is nothing, and most sites have fewer tenants.
        max_live: Optional<Count>,
        /// What it is promised. Without it the class is best effort.
        guarantee: Optional<Guarantee>,
        /// What its requests ask for: `static` files, or pages that are computed. Only the web switch asks
        /// (`switch_adm`, `static_part`, `dynamic_part`).
        content: Defaulted<Content> = "dynamic",
        /// Agreed time of one request on an unloaded node. Learned by default.
        service_time: Optional<Span>,
        /// What serving one of its requests is worth where the guarantees do not all fit, relative to other
        /// classes; see `infeasible` in discipline `weirgate`.
        utility: Defaulted<Amount> = 1,
        /// Its part of every resource relative to other classes', under `mqos` and `sqos`: the paper's quantum.
        weight: Defaulted<Amount> = 1,
        /// What a request takes whose route the page table does not know, as `{ cpu: 1%, disk: 1%, bandwidth: 1% }`.
        /// That is the default.
        cost: Optional<CostForm>,
        /// The first tag of its requests, where the discipline has tags (`seda`). By default the highest for a class
        /// that is promised something, the lowest for best effort.
        tag: Optional<Name>,
        /// Bounds of its queue.
        queue: Defaulted<Queue> = {},
        /// Degraded service instead of the answer below.
        fallback: Optional<Fallback>,
        /// The answer to a request that is turned away.
        shed: Defaulted<Shed> = {},
        /// How often failed requests are tried again: a map, or `off`.
        retry: Defaulted<Switch<Retry>> = {},
        /// Time limits towards the nodes.
        timeouts: Defaulted<NodeTimeouts> = {},
    }
}

words! {
    /// What requests ask for.
    pub(crate) enum Content {
        /// Files as they lie there.
        Static = "static",
        /// Pages that are computed.
        Dynamic = "dynamic",
    }
}

record! {
    /// Which value of a request makes its class: exactly one of the fields.
    pub(crate) struct Per {
        /// The value of this header.
        header: Optional<HeaderName>,
        /// The value of this cookie.
        cookie: Optional<Token>,
    }
}

record! {
    /// A promise: either part or both.
    pub(crate) struct Guarantee {
        /// Least throughput, as `800/s`, `60/min` or `100/h`.
        throughput: Optional<Rate>,
        /// Largest response time from the request's head to the node's last byte: one statistic and its limit, as
        /// `p95: 400ms` or `avg: 200ms`.
        response_time: Optional<ResponseTime>,
    }
}

/// A limit on a statistic of the response time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseTime {
    pub(crate) statistic: Percentile,
    pub(crate) limit: Duration,
}

/// A percentile in percent, or the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Percentile {
    /// The mean.
    Average,
    /// 50 to 99.9.
    Of(f64),
}

record! {
    /// Bounds of a class's queue.
    pub(crate) struct Queue {
        /// Most requests that wait. 10,000 waiting request heads are about 10 MB.
        max_waiting: Defaulted<Count> = 10000,
        /// Most requests that wait for one client address, so that no single client fills the queue. 1000 by
        /// default: behind one address there may be an office or a proxy.
        max_waiting_per_source: Defaulted<Count> = 1000,
        /// Longest wait. 30 s is as long as people and clients usually stay.
        max_wait: Defaulted<Span> = "30s",
    }
}

record! {
    /// The answer to a request that is turned away. `Retry-After` and `Proxy-Status` are added.
    pub(crate) struct Shed {
        /// 503 (the service is overloaded) or 429 (the client is over its contract).
        status: Defaulted<Count> = 503,
        /// The body, at most 64 KiB.
        body: Defaulted<Text> = "overloaded, please try again\n",
        /// The body's media type.
        content_type: Defaulted<Text> = "text/plain; charset=utf-8",
    }
}

record! {
    /// What a request gets that is turned away: the answer of another upstream, a fixed body, or the one and, if that
    /// is overloaded as well, the other.
    pub(crate) struct Fallback {
        /// Another upstream, with a queue of its own: it is served there as one of the class `NAME/fallback`.
        upstream: Optional<Name>,
        /// A body, at most 64 KiB.
        body: Optional<Text>,
        /// The body's status. 200 by default: a simpler page is a page.
        status: Defaulted<Count> = 200,
        /// The body's media type.
        content_type: Defaulted<Text> = "text/html; charset=utf-8",
    }
}

record! {
    /// Retries of failed requests: idempotent ones, before any byte of the answer went to the client, as
    /// long as the budget lasts. The defaults are Linkerd's.
    pub(crate) struct Retry {
        /// Retries per request. 20 % cannot turn an overload into a storm.
        ratio: Defaulted<Share> = "20%",
        /// Retries per second that are allowed even at a low rate.
        min_per_second: Defaulted<Amount> = 10,
        /// Further attempts of one request, 1 to 5.
        max_retries: Defaulted<Count> = 1,
    }
}

record! {
    /// Time limits towards the nodes.
    pub(crate) struct NodeTimeouts {
        /// To connect. 2 s leave room for one lost packet, which TCP repeats after 1 s.
        connect: Defaulted<Span> = "2s",
        /// From the last byte of the request to the first of the answer. 60 s is what nginx and
        /// HAProxy setups use; slower pages are rare.
        first_byte: Defaulted<Span> = "60s",
        /// Between two reads of a body, from either side. A peer silent for 30 s is gone.
        body_progress: Defaulted<Span> = "30s",
        /// From release to the node's last byte. It ends what holds a slot for ever; 10 min serve
        /// large downloads.
        total: Defaulted<Span> = "10min",
    }
}

/// Largest body of a shed reply.
pub(crate) const MAX_SHED_BODY: Bytes = Bytes(64 << 10);

impl Decode for ResponseTime {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let one = "write one of `avg`, `p50` … `p99.9` and its limit, such as `{ p95: 400ms }`";
        let Value::Map(entries) = &node.value else {
            cx.mismatch("one statistic and its limit, such as `{ p95: 400ms }`", node);
            return None;
        };
        let [entry] = entries.as_slice() else {
            let what = match entries.len() {
                0 => "no statistic is given".to_owned(),
                n => format!("{n} statistics are given"),
            };
            cx.complain(Complaint::new(what, one));
            return None;
        };
        let (statistic, _) = cx.within(StepName::Key(Rc::clone(&entry.key)), entry.key_place, |cx| {
            statistic(&entry.key).map_err(|complaint| cx.complain(complaint)).ok()
        });
        let (limit, _) =
            cx.within(StepName::Key(Rc::clone(&entry.key)), entry.node.place, |cx| Span::decode(&entry.node, cx));
        Some(ResponseTime { statistic: statistic?, limit: limit?.0 })
    }
}

/// Reads `avg` or `p95`.
fn statistic(word: &str) -> Result<Percentile, Complaint> {
    if word == "avg" {
        return Ok(Percentile::Average);
    }
    let digits = word.strip_prefix('p').unwrap_or_default();
    let sound =
        digits.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match digits.parse::<f64>() {
        Ok(percent) if sound && (50.0..=99.9).contains(&percent) => Ok(Percentile::Of(percent)),
        Ok(_) if sound => {
            Err(Complaint::new(format!("{} is out of range", quoted(word)), "write one from `p50` to `p99.9`"))
        }
        _ => Err(Complaint::new(format!("{} is not a statistic", quoted(word)), "write `avg`, or `p50` to `p99.9`")),
    }
}

impl JsonSchema for ResponseTime {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ResponseTime".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "patternProperties": { r"^(avg|p[5-9][0-9](\.[0-9]+)?)$": generator.subschema_for::<Span>() },
            "additionalProperties": false,
            "minProperties": 1,
            "maxProperties": 1,
        })
    }
}
