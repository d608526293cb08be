//! Classes and templates: their guarantees and how their requests are treated.

use std::net::IpAddr;
use std::rc::Rc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{Context, Decode, Defaulted, FromText, Optional, Required, StepName, Switch};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Bytes, Count, Moment, Name, Rate, Share, Span, Text};
use weirgate_spanned_yaml::{any_of, record, text_schema, words};

use super::conditions::{HeaderName, Match, Token};
use super::headers::Headers;
use super::mode::ModeForm;
use super::page_table::CostForm;
use crate::site::{IpNet, NetworkSize};

record! {
    /// A service class. With `per:` it is a template, which makes one class for every value of a header or cookie,
    /// or for every network of clients.
    pub(crate) struct Class {
        /// Its unique name, in metrics, logs and replies.
        name: Required<Name>,
        /// Conditions on a request: every field given must hold. Without it every request matches.
        r#match: Optional<Match>,
        /// The upstream that serves the class. Not needed if there is only one.
        upstream: Optional<Name>,
        /// Makes this a template: one class for every value. A request without the value goes on to the next class.
        per: Optional<Per>,
        /// Maximum number of classes that a template keeps at once, up to 65,536. Past it, the class that has been
        /// idle longest is removed. If none is idle, new values share the class `NAME/overflow`. 1024 by default:
        /// at one or two kilobytes per class the memory is negligible, and most sites have fewer tenants.
        max_live: Optional<Count>,
        /// The guarantee. Without it the class is best effort.
        guarantee: Optional<Guarantee>,
        /// Whether decisions about it are carried out, as in `mode` of the policy, which is the default.
        mode: Optional<ModeForm>,
        /// Kind of content that its requests ask for: `static` files or computed (`dynamic`) pages. Only the
        /// web switch uses this (`switch_adm`, `static_part`, `dynamic_part`).
        content: Defaulted<Content> = "dynamic",
        /// Declared service time of one request on an unloaded node. Learned by default.
        service_time: Optional<Span>,
        /// Value of serving one of its requests, relative to other classes, when the guarantees do not all
        /// fit. See `infeasible` in discipline `weirgate`.
        utility: Defaulted<Amount> = 1,
        /// Its share of every resource relative to other classes, under `mqos` and `sqos`: the quantum of the
        /// mQoS paper.
        weight: Defaulted<Amount> = 1,
        /// Cost assumed for requests without a route in the page table. The default is
        /// `{ cpu: 1%, disk: 1%, bandwidth: 1% }`.
        cost: Optional<CostForm>,
        /// Initial priority of its requests, where the discipline has priorities (`seda`). By default
        /// the highest for a class with a guarantee, the lowest for best effort.
        priority: Optional<Name>,
        /// Limits of its queue.
        queue: Defaulted<Queue> = {},
        /// The source of a request. The queue is fair among sources. `address` is the client's IPv4 address or IPv6
        /// /64, `/24` its IPv4 network of this size or IPv6 /56, and `/24 /48` gives both sizes. A map names a header
        /// or a cookie, and `visitor` is the visitor that its cookie names. A request without it, or with two, counts
        /// for the client's address.
        source: Defaulted<SourceForm> = "address",
        /// Maximum rate of all its requests, as `500/s`, at least the guaranteed throughput. Requests beyond it, and a
        /// burst of one second, are answered with 429 and `Retry-After`, however idle the nodes are. No limit by
        /// default, because spare capacity costs nothing.
        limit: Optional<Rate>,
        /// Maximum rate of requests of one source, as `50/s`. Requests beyond it, and a burst of one second, are
        /// answered with 429 and `Retry-After`. No limit by default.
        limit_per_source: Optional<Rate>,
        /// Degraded service, tried before the `shed` reply.
        fallback: Optional<Fallback>,
        /// The reply to a request that is turned away.
        shed: Defaulted<Shed> = {},
        /// Changes to the headers of its requests, after those of the whole policy.
        request_headers: Optional<Headers>,
        /// Changes to the headers of its responses, after those of the whole policy.
        response_headers: Optional<Headers>,
        /// How often failed requests are retried: a map, or `off`.
        retry: Defaulted<Switch<Retry>> = {},
        /// Timeouts for connections and requests to the nodes.
        timeouts: Defaulted<NodeTimeouts> = {},
        /// When responses that go on for long, such as event streams and downloads, give their slot back: a map, or
        /// `off`. By default a request holds its slot until the last byte of its response.
        long_responses: Defaulted<Switch<LongResponses>> = "off",
        /// Limits of the tunnels, such as WebSockets, that its requests open.
        tunnels: Defaulted<Tunnels> = {},
    }
}

words! {
    /// Kind of content that requests ask for.
    pub(crate) struct Content(engine::Content) {
        /// Files served as they are stored.
        "static" => engine::Content::Static,
        /// Pages computed for each request.
        "dynamic" => engine::Content::Dynamic,
    }
}

record! {
    /// The value of a request that selects its class: exactly one of the fields.
    pub(crate) struct Per {
        /// The value of this header.
        header: Optional<HeaderName>,
        /// The value of this cookie.
        cookie: Optional<Token>,
        /// The client's `address`, or its network: `/24`, or `/24 /56`.
        source: Optional<Networks>,
    }
}

record! {
    /// The value of a request that tells its source: exactly one of the fields.
    pub(crate) struct SourceField {
        /// The value of this header. If proxies are listed, it counts only if it comes from one of them.
        header: Optional<HeaderName>,
        /// The value of this cookie.
        cookie: Optional<Token>,
    }
}

/// The networks that count as one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Networks(pub(crate) NetworkSize);

/// The value that tells the source of a request: its client's network, its visitor, or a field.
#[derive(Clone, Debug)]
pub(crate) enum SourceForm {
    Networks(Networks),
    Visitor,
    Field(Box<SourceField>),
}

record! {
    /// A guarantee: a throughput, a response time, or both.
    pub(crate) struct Guarantee {
        /// Minimum throughput, as `800/s`, `60/min` or `100/h`.
        throughput: Optional<Rate>,
        /// Maximum response time, measured from the request's head to the node's last byte: one statistic and
        /// its limit, as `p95: 400ms` or `avg: 200ms`.
        response_time: Optional<ResponseTime>,
    }
}

/// A limit on one statistic of the response time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseTime(pub(crate) engine::ResponseTime);

record! {
    /// Limits of a class's queue.
    pub(crate) struct Queue {
        /// Maximum number of waiting requests. 10,000 waiting request heads take about 10 MB.
        max_waiting: Defaulted<Count> = 10000,
        /// Maximum number of waiting requests per source, so that no single client fills the queue.
        /// 1000 by default, because an office or a proxy may share one address.
        max_waiting_per_source: Defaulted<Count> = 1000,
        /// Longest wait. People and clients usually give up after about 30 s. If it is not given and the class has
        /// a longer limit of its response time, the limit applies.
        max_wait: Defaulted<Span> = "30s",
    }
}

record! {
    /// The reply to a request that is turned away. `Retry-After` and `Proxy-Status` are added.
    pub(crate) struct Shed {
        /// 503 (the service is overloaded) or 429 (the client exceeds its contract).
        status: Defaulted<Count> = 503,
        /// The body, at most 64 KiB.
        body: Defaulted<Text> = "overloaded, please try again\n",
        /// Media type of the body.
        content_type: Defaulted<Text> = "text/plain; charset=utf-8",
    }
}

record! {
    /// Degraded service for a request that is turned away: another upstream, a fixed body, or both. With
    /// both, the body is sent if the other upstream is overloaded too.
    pub(crate) struct Fallback {
        /// Another upstream, with its own queue. There the request belongs to the class `NAME/fallback`.
        upstream: Optional<Name>,
        /// A fixed body, at most 64 KiB.
        body: Optional<Text>,
        /// Status of the reply with the fixed body. 200 by default, because a simpler page still is a page.
        status: Defaulted<Count> = 200,
        /// Media type of the body.
        content_type: Defaulted<Text> = "text/html; charset=utf-8",
    }
}

record! {
    /// Retries of failed requests. Only idempotent requests are retried, before any byte of the reply went to
    /// the client, and as long as the budget lasts. The defaults are Linkerd's.
    pub(crate) struct Retry {
        /// Retry budget, as a share of the requests. 20 % cannot turn an overload into a retry storm.
        ratio: Defaulted<Share> = "20%",
        /// Retries per second that are allowed even at a low request rate.
        min_per_second: Defaulted<Amount> = 10,
        /// Maximum number of retries of one request, 1 to 5.
        max_retries: Defaulted<Count> = 1,
    }
}

record! {
    /// Timeouts for connections and requests to the nodes.
    pub(crate) struct NodeTimeouts {
        /// Time to connect. 2 s leave room for one lost packet, which TCP sends again after 1 s.
        connect: Defaulted<Span> = "2s",
        /// Time from the last byte of the request to the first byte of the reply. nginx and HAProxy setups
        /// commonly use 60 s, and slower pages are rare.
        first_byte: Defaulted<Span> = "60s",
        /// Time between two reads of a body, from either side. A peer that is silent for 30 s is considered gone.
        body_progress: Defaulted<Span> = "30s",
        /// Time from release to the node's last byte. It limits how long a request can hold a slot. 10 min
        /// are enough for large downloads.
        total: Defaulted<Span> = "10min",
    }
}

record! {
    /// Responses that give their slot back while their body goes on, because it costs the node next to nothing.
    pub(crate) struct LongResponses {
        /// Time from the head of a response until it gives its slot back, as `2s`, or `0s` for at once. A second holds
        /// the slot for as long as nearly all pages are computed.
        after: Defaulted<Moment> = "1s",
        /// Maximum number of such responses of the class at once, for a template of all its classes together. Further
        /// ones keep their slots until one of these has ended. A thousand idle connections are no burden for
        /// most servers. Lower it for servers with a worker for each connection.
        max: Defaulted<Count> = 1000,
    }
}

record! {
    /// Limits of tunnels, such as WebSockets. An open tunnel holds no slot, and `timeouts` do not apply to it.
    pub(crate) struct Tunnels {
        /// Maximum number of tunnels of the class at once, for a template of all its classes together. A request for
        /// a further one is answered with 503. `off` by default, because `limits.tunnels` bounds all classes together.
        max: Defaulted<Switch<Count>> = "off",
        /// Time without a byte in either direction after which a tunnel is closed. Libraries for WebSockets send a
        /// ping every minute or more often.
        idle: Defaulted<Span> = "10min",
        /// Time after which a tunnel is closed, whether it is used or not. `off` by default, because applications keep
        /// a tunnel for as long as a page is open.
        total: Defaulted<Switch<Span>> = "off",
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
        let (statistic, _) = cx.within(StepName::Key(Rc::clone(&entry.key)), entry.key_position, |cx| {
            statistic(&entry.key).map_err(|complaint| cx.complain(complaint)).ok()
        });
        let (limit, _) =
            cx.within(StepName::Key(Rc::clone(&entry.key)), entry.node.position, |cx| Span::decode(&entry.node, cx));
        Some(ResponseTime(engine::ResponseTime { statistic: statistic?, limit: limit?.0 }))
    }
}

/// Reads `avg` or a percentile such as `p95`.
fn statistic(word: &str) -> Result<engine::Statistic, Complaint> {
    if word == "avg" {
        return Ok(engine::Statistic::Average);
    }
    let digits = word.strip_prefix('p').unwrap_or_default();
    let sound =
        digits.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match digits.parse::<f64>() {
        Ok(percent) if sound && (50.0..=99.9).contains(&percent) => Ok(engine::Statistic::Percentile(percent)),
        Ok(_) if sound => Err(Complaint::about(word, "is out of range", "write one from `p50` to `p99.9`")),
        _ => Err(Complaint::about(word, "is not a statistic", "write `avg`, or `p50` to `p99.9`")),
    }
}

/// Prefix of IPv6 networks beside an IPv4 prefix: the smallest network that providers commonly give to a site.
const IPV6_PREFIX: u8 = 56;

impl FromText for Networks {
    const EXPECTED: &'static str = "`address`, or a network such as `/24` or `/24 /56`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if text == "address" {
            return Ok(Networks(NetworkSize::ADDRESS));
        }
        let prefix = |word: &str, min: u8, max: u8| {
            let digits = word.strip_prefix('/').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
            digits.parse().ok().filter(|prefix| (min..=max).contains(prefix))
        };
        let mut words = text.split_ascii_whitespace();
        let ipv4 = words.next().and_then(|word| prefix(word, 8, 32));
        let ipv6 = words.next().map_or(Some(IPV6_PREFIX), |word| prefix(word, 16, 64));
        match (ipv4, ipv6, words.next()) {
            (Some(ipv4), Some(ipv6), None) => Ok(Networks(NetworkSize { ipv4, ipv6 })),
            _ if text.parse::<IpNet>().is_ok() || text.parse::<IpAddr>().is_ok() => Err(Complaint::about(
                text,
                "is a network of clients",
                "conditions belong in `match:`; write the size of networks alone, such as `/24`",
            )),
            _ => Err(Complaint::about(
                text,
                "is not a size of networks",
                "write `address`, an IPv4 prefix from `/8` to `/32`, or also an IPv6 prefix from `/16` to `/64`, such \
                 as `/24 /56`",
            )),
        }
    }
}

impl Decode for SourceForm {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Map(_) => SourceField::decode(node, cx).map(|field| SourceForm::Field(Box::new(field))),
            Value::Text(text) if &**text == "visitor" => Some(SourceForm::Visitor),
            _ => Networks::decode(node, cx).map(SourceForm::Networks),
        }
    }
}

text_schema! {
    Networks: { "type": "string", "pattern": r"^(address|/[0-9]+( +/[0-9]+)?)$", "examples": ["address", "/24", "/24 /56"] };
}

any_of! {
    SourceForm = [Networks, { "const": "visitor" }, SourceField];
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
            "examples": [{ "p95": "500ms" }, { "avg": "1s" }],
        })
    }
}
