//! Classes and templates: names, upstreams, guarantees, and the order of the rules.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{At, Context, Defaulted, Mark, Optional, Switch};
use weirgate_spanned_yaml::errors::{Complaint, listed, quoted, unknown};
use weirgate_spanned_yaml::unit::{Amount, Count, Name, Share, number_text, span_text};

use super::gateway::count;
use super::reach::implies;
use super::rule::Compiler;
use super::upstream::Pools;
use super::{headers, mode, page_table, priorities};
use crate::embed::Defaults;
use crate::file::{
    Class, LongResponses, MAX_SHED_BODY, NodeTimeouts, PolicyFile, Queue, Retry, Shed, SourceForm, Tunnels,
};
use crate::headers::HeaderRules;
use crate::site::{self, ClassSite, Key, Listener, Match, NetworkSize, Rule, RuleTarget, ShedReply, ValuePattern};

/// Default and maximum number of live classes of a template. Class tables are sized for 100,000 classes.
const LIVE: u32 = 1_024;
const MAX_LIVE: u32 = 65_536;

/// Maximum number of classes for which every pair is compared to find unreachable ones: half a million
/// comparisons, some 50 ms. Policies with more classes are generated, and a generated order is not an oversight.
const MAX_COMPARED: usize = 1_000;

/// Name of the class that is added if no class matches everything.
const DEFAULT: &str = "default";

/// Every class and template, and the rules that select them.
#[derive(Default)]
pub(super) struct Classes {
    pub(super) classes: Vec<engine::Class>,
    pub(super) templates: Vec<engine::Template>,
    pub(super) class_sites: Vec<ClassSite>,
    pub(super) template_sites: Vec<ClassSite>,
    pub(super) class_marks: Vec<Option<Mark>>,
    pub(super) rules: Vec<Rule>,
}

/// The parts of a policy that all its classes depend on.
struct Common<'a> {
    pools: &'a Pools,
    priorities: &'a [engine::PriorityLevel],
    headers: &'a HeaderRules,
    mode: engine::Mode,
}

impl Common<'_> {
    /// Returns the class at `mark`, without its fallback.
    fn resolve(&self, class: &Class, mark: Mark, cx: &mut Context) -> (engine::Class, ClassSite) {
        let resolved = engine::Class {
            name: class.name.get().map_or_else(String::new, |name| name.0.clone()),
            pool: pool(class, mark, self.pools, cx),
            guarantee: guarantee(class, cx),
            content: class.content.get().0,
            service_time: class.service_time.get().map(|span| span.0),
            utility: utility(class, cx),
            weight: weight(class, cx),
            demand: page_table::unknown(class),
            priority: priorities::priority(class, self.priorities, cx),
            fallback: None,
            queue: queue(class, cx),
            retry: retry(class.retry.get(), cx),
            mode: mode::of_class(class, self.mode, cx),
        };
        let site = ClassSite {
            shed: answer(class, cx),
            timeouts: timeouts(class.timeouts.get(), cx),
            long_responses: long_responses(class.long_responses.get()),
            tunnels: tunnels(class.tunnels.get(), cx),
            source: source(class, cx),
            headers: headers::rules(&class.request_headers, &class.response_headers, self.headers, cx),
        };
        (resolved, site)
    }
}

/// An earlier class with a known condition that takes every request it matches. A later class that matches
/// only such requests is unreachable.
struct Taken {
    name: String,
    mark: Mark,
    matches: Match,
}

/// Binds the classes. `priorities` are those of the discipline, and `headers` the rules of the whole policy. The paths
/// of files start from `folder`.
pub(super) fn classes(
    file: &PolicyFile,
    listeners: &[Listener],
    pools: &Pools,
    priorities: &[engine::PriorityLevel],
    headers: &HeaderRules,
    (folder, defaults): (Option<&Path>, Option<&Defaults>),
    cx: &mut Context,
) -> Classes {
    let mut all = Classes::default();
    let mut compiler =
        Compiler::new((file.listen.given && !file.listen.bad).then_some(listeners), folder, file.visitors.given);
    let mut names: BTreeMap<&str, Mark> = BTreeMap::new();
    let mut taken: Vec<Taken> = Vec::new();
    let mut catch_all: Option<usize> = None;
    let common = Common { pools, priorities, headers, mode: mode::mode(file.mode.get(), cx) };
    let list = file.classes.get().map_or(&[][..], Vec::as_slice);
    all.classes.reserve_exact(list.len());
    all.class_sites.reserve_exact(list.len());
    all.class_marks.reserve_exact(list.len());
    all.rules.reserve_exact(list.len());
    for (at, item) in list.iter().enumerate() {
        let class = &item.value;
        let name = class.name.get().map_or("", |name| name.0.as_str());
        if !name.is_empty()
            && let Some(first) = names.insert(name, class.name.mark)
        {
            let what = format!("the name `{name}` is taken by the class in line {}", cx.position(first).line);
            cx.fail(class.name.mark, what, "give each class its own name");
        }
        let before = cx.problems.reports();
        let implied = defaults.filter(|_| at + 1 < list.len()).and_then(|defaults| implied(class, defaults));
        let matches = match class.r#match.get() {
            Some(condition) => compiler.condition(condition, class.r#match.mark, class.r#match.bad, cx),
            None => implied.clone().unwrap_or(Match::Any),
        };
        // Without a `match`, an unknown field may be a misspelt `match`.
        let known = class.r#match.given || implied.is_some() || !item.bad;
        let sound = !class.r#match.bad && cx.problems.reports() == before && known;
        let sure = sound && !class.per.bad;
        if let Some(first) = earlier(sure.then_some(&matches), &taken, catch_all, list.len()) {
            let (earlier, line) = (quoted(&first.name), cx.position(first.mark).line);
            let complaint = match first.matches {
                Match::Any => Complaint::new(
                    format!("this class is never reached: class {earlier} in line {line} matches everything"),
                    format!("move {earlier} to the end, or give it a `match:`"),
                ),
                _ => Complaint::new(
                    format!("this class is never reached: class {earlier} in line {line} takes all that it matches"),
                    format!("move it before {earlier}"),
                ),
            };
            cx.report(item.mark, complaint);
        }
        if sure && class.per.get().is_none() {
            let everything = matches!(matches, Match::Any);
            // Only the first class that takes everything is compared with many classes.
            if everything || list.len() <= MAX_COMPARED {
                if everything {
                    catch_all.get_or_insert(taken.len());
                }
                taken.push(Taken { name: name.to_owned(), mark: item.mark, matches: matches.clone() });
            }
        }
        let (mut resolved, class_site) = common.resolve(class, item.mark, cx);
        if let Some(pool) = fallback(class, pools, cx) {
            // As the class itself, but without a guarantee.
            resolved.fallback = Some(all.classes.len());
            all.classes.push(engine::Class {
                name: format!("{name}/fallback"),
                pool,
                guarantee: engine::Guarantee::default(),
                service_time: None,
                utility: 1.0,
                priority: 0,
                fallback: None,
                ..resolved.clone()
            });
            all.class_sites.push(class_site.clone());
            all.class_marks.push(None);
        }
        let target = match template_key(class, cx) {
            Some(key) => {
                let template = engine::TemplateId(index(all.templates.len()));
                all.templates.push(engine::Template { class: resolved, max_live: max_live(&class.max_live, cx) });
                all.template_sites.push(class_site);
                RuleTarget::Template(template, key)
            }
            None => {
                if class.max_live.get().is_some() && !class.per.given {
                    let hint = "add `per: { header: … }` to make the class a template, or remove the field";
                    cx.fail(class.max_live.mark, "only a template has live classes", hint);
                }
                let id = engine::ClassId(index(all.classes.len()));
                all.classes.push(resolved);
                all.class_sites.push(class_site);
                all.class_marks.push(Some(item.mark));
                RuleTarget::Class(id)
            }
        };
        all.rules.push(Rule { matches, target });
    }
    if catch_all.is_none() && cx.problems.reports() == 0 {
        add_default(file, &common, &names, &mut all, cx);
    }
    all
}

/// Returns the condition of a class that has neither `match` nor `per`.
fn implied(class: &Class, defaults: &Defaults) -> Option<Match> {
    let name = class.name.get().filter(|_| !class.r#match.given && !class.per.given)?;
    Some(Match::Header(HeaderName::from_static(defaults.class_header), ValuePattern::Exact(name.0.clone())))
}

/// Returns an earlier class that takes every request that `matches` accepts. A condition of `None` is unknown.
fn earlier<'t>(
    matches: Option<&Match>,
    taken: &'t [Taken],
    catch_all: Option<usize>,
    classes: usize,
) -> Option<&'t Taken> {
    let by_catch_all = catch_all.and_then(|index| taken.get(index));
    if by_catch_all.is_some() || classes > MAX_COMPARED {
        return by_catch_all;
    }
    let matches = matches?;
    taken.iter().find(|earlier| implies(matches, &earlier.matches))
}

/// Adds the best-effort class for requests that no other class matches.
fn add_default(
    file: &PolicyFile,
    common: &Common<'_>,
    names: &BTreeMap<&str, Mark>,
    all: &mut Classes,
    cx: &mut Context,
) {
    if let Some(&mark) = names.get(DEFAULT) {
        let what = "`default` is the name of the class that is added because no class matches everything";
        cx.fail(mark, what, "rename this one, or end the list with a class without `match:`");
        return;
    }
    let what = "no class matches everything";
    if common.pools.pools.len() > 1 {
        let upstreams = listed(common.pools.index.keys().map(String::as_str));
        let hint = format!("end the list with `- {{ name: other, upstream: … }}`; the upstreams are {upstreams}");
        cx.fail(file.classes.mark, what, hint);
        return;
    }
    let hint = "a best-effort class `default` was added; write `- { name: default }` last to say so";
    cx.warn(file.classes.mark, what, hint);
    let (class, class_site) = common.resolve(&assumed_class(cx), file.classes.mark, cx);
    all.rules.push(Rule { matches: Match::Any, target: RuleTarget::Class(engine::ClassId(index(all.classes.len()))) });
    all.classes.push(class);
    all.class_sites.push(class_site);
    all.class_marks.push(None);
}

/// Returns `{ name: default }` decoded, so that every default is written in one place only.
fn assumed_class(cx: &mut Context) -> Class {
    use weirgate_spanned_yaml::decode::Decode;
    use weirgate_spanned_yaml::tree::{Entry, Node, Value};
    let position = cx.position(cx.here());
    let name = Entry { key: "name".into(), key_position: position, node: Node::assumed(DEFAULT, position).into() };
    let mut node = Node::assumed("{}", position);
    node.value = Value::Map(vec![name]);
    Class::decode(&node, cx).expect("a class needs nothing but a name")
}

fn index(length: usize) -> u32 {
    // Files are limited to 16 MiB, so there are fewer classes than bytes.
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Returns the index of the class's upstream.
fn pool(class: &Class, mark: Mark, pools: &Pools, cx: &mut Context) -> usize {
    let known = || pools.index.keys().map(String::as_str);
    match class.upstream.get() {
        Some(Name(name)) => pools.index.get(name).copied().unwrap_or_else(|| {
            if pools.complete {
                cx.report(class.upstream.mark, unknown_upstream(name, pools));
            }
            0
        }),
        None => {
            if pools.index.len() > 1 && !class.upstream.bad {
                let what = "this field is missing: there are several upstreams";
                cx.fail_in(mark, "upstream", what, format!("name one of {}", listed(known())));
            }
            0
        }
    }
}

fn unknown_upstream(name: &str, pools: &Pools) -> Complaint {
    unknown("upstream", name, pools.index.keys().map(String::as_str))
}

fn guarantee(class: &Class, cx: &mut Context) -> engine::Guarantee {
    let Some(guarantee) = class.guarantee.get() else { return engine::Guarantee::default() };
    let throughput = guarantee.throughput.get().map(|rate| rate.0);
    let response_time = guarantee.response_time.get().map(|file| file.0);
    if throughput.is_none() && response_time.is_none() && !class.guarantee.bad {
        let hint = "give it `throughput:` or `response_time:`, or remove it for best effort";
        cx.fail(class.guarantee.mark, "this guarantee promises nothing", hint);
    }
    if let (Some(limit), Some(service)) = (response_time.map(|r| r.limit), class.service_time.get()) {
        let mark = guarantee.response_time.mark;
        let (limit_text, service_text) = (span_text(limit), span_text(service.0));
        if limit < service.0 {
            let what =
                format!("no request can meet {limit_text}: an unloaded node needs {service_text} (`service_time`)");
            cx.fail(mark, what, "raise the limit or correct the service time");
        } else if limit < service.0 * 2 {
            let what = format!("{limit_text} is less than twice the service time of {service_text}");
            let hint =
                "requests have hardly time to wait, and Quorum's window shrinks to its least: allow twice as much";
            cx.warn(mark, what, hint);
        }
    }
    engine::Guarantee { throughput, response_time }
}

fn queue(class: &Class, cx: &mut Context) -> engine::QueueBounds {
    let queue: &Queue = class.queue.get();
    let max_waiting = queue.max_waiting.get().0;
    let mut per_source = queue.max_waiting_per_source.get().0;
    if !queue.max_waiting_per_source.given {
        per_source = per_source.min(max_waiting);
    }
    if per_source > max_waiting {
        let what = format!("one source may have {per_source} waiting, the whole queue {max_waiting}");
        cx.fail(queue.max_waiting_per_source.mark, what, "make it at most `max_waiting`");
    }
    let max_rate = class.limit.get().map(|rate| rate.0);
    let owed = class.guarantee.get().and_then(|guarantee| guarantee.throughput.get()).map(|rate| rate.0);
    if let (Some(max), Some(owed)) = (max_rate, owed)
        && max < owed
    {
        let what = "the class may send less than its guaranteed throughput";
        cx.fail(class.limit.mark, what, "make it at least `guarantee.throughput`, or remove it");
    }
    let limit = class.guarantee.get().and_then(|guarantee| guarantee.response_time.get()).map(|file| file.0.limit);
    let max_wait = match limit {
        // A shorter wait would refuse requests that can still be answered within the limit.
        Some(limit) if !queue.max_wait.given => limit.max(queue.max_wait.get().0),
        _ => queue.max_wait.get().0,
    };
    engine::QueueBounds {
        max_waiting,
        max_waiting_per_flow: per_source,
        max_wait,
        max_rate,
        max_rate_per_flow: class.limit_per_source.get().map(|rate| rate.0),
    }
}

fn retry(switch: &Switch<Retry>, cx: &mut Context) -> engine::RetryBudget {
    /// A request that failed five retries will fail again.
    const MAX: u32 = 5;
    let Switch::On(retry) = switch else {
        return engine::RetryBudget { ratio: 0.0, min_per_second: 0.0, max_retries: 0 };
    };
    let (Share(ratio), Amount(min_per_second)) = (*retry.ratio.get(), *retry.min_per_second.get());
    if retry.ratio.given && ratio > 0.2 {
        let what = format!("up to {} % more requests when nodes fail", number_text(ratio * 100.0));
        cx.warn(retry.ratio.mark, what, "more than 20 % can keep an overload alive");
    }
    engine::RetryBudget { ratio, min_per_second, max_retries: count(&retry.max_retries, MAX, cx).min(MAX) as u8 }
}

fn shed(shed: &Shed, cx: &mut Context) -> ShedReply {
    let Count(status) = *shed.status.get();
    if !matches!(status, 503 | 429) {
        let hint = "write 503 (overload) or 429 (over the contract): clients know how to wait on these";
        cx.fail(shed.status.mark, format!("status {status} does not say \"later\""), hint);
    }
    reply(status, (&shed.body.get().0, shed.body.mark), (&shed.content_type.get().0, shed.content_type.mark), cx)
}

fn reply(status: u32, body: (&str, Mark), content_type: (&str, Mark), cx: &mut Context) -> ShedReply {
    if body.0.len() as u64 > MAX_SHED_BODY.0 {
        let what = format!("the body has {} bytes", body.0.len());
        cx.fail(body.1, what, "an overloaded gateway has better to send: at most 64 KiB");
    }
    if HeaderValue::from_str(content_type.0).is_err() || !content_type.0.contains('/') {
        let what = format!("{} is not a media type", quoted(content_type.0));
        cx.fail(content_type.1, what, "write one such as `text/html; charset=utf-8`");
    }
    let status = u16::try_from(status).unwrap_or(503);
    ShedReply { status, content_type: content_type.0.to_owned(), body: body.0.to_owned() }
}

/// Returns the pool that serves requests that the class turns away.
fn fallback(class: &Class, pools: &Pools, cx: &mut Context) -> Option<usize> {
    let file = class.fallback.get()?;
    if !file.upstream.given && !file.body.given {
        let hint = "give it `upstream:` or `body:`, or remove it";
        cx.fail(class.fallback.mark, "this fallback is empty", hint);
    }
    let Name(upstream) = file.upstream.get()?;
    let pool = pools.index.get(upstream).copied();
    if pool.is_none() && pools.complete {
        cx.report(file.upstream.mark, unknown_upstream(upstream, pools));
    }
    pool
}

/// Returns the reply to requests that are turned away and not served elsewhere.
fn answer(class: &Class, cx: &mut Context) -> ShedReply {
    let Some(fallback) = class.fallback.get().filter(|fallback| fallback.body.given) else {
        return shed(class.shed.get(), cx);
    };
    if class.shed.given {
        let hint = "remove one of them: the body of `fallback` is the answer";
        cx.fail(class.shed.mark, "`shed` is never sent: `fallback` has a body", hint);
    }
    let Count(status) = *fallback.status.get();
    if !matches!(status, 200 | 203 | 429 | 503) {
        let hint = "write 200 (a simpler page), 203 (not what the server says), 429 or 503";
        cx.fail(fallback.status.mark, format!("status {status} is no degraded service"), hint);
    }
    let body = fallback.body.get().map(|text| text.0.clone()).unwrap_or_default();
    reply(status, (&body, fallback.body.mark), (&fallback.content_type.get().0, fallback.content_type.mark), cx)
}

/// Returns a timeout that must not exceed `total`. A longer default is shortened.
fn within_total(field: &Defaulted<weirgate_spanned_yaml::unit::Span>, total: Duration, cx: &mut Context) -> Duration {
    let span = field.get().0;
    if field.given && span > total {
        let what = format!("{} never pass: `total` ends the request after {}", span_text(span), span_text(total));
        cx.fail(field.mark, what, "make it at most `total`");
    }
    span.min(total)
}

fn timeouts(file: &NodeTimeouts, cx: &mut Context) -> site::NodeTimeouts {
    let total = file.total.get().0;
    site::NodeTimeouts {
        connect: within_total(&file.connect, total, cx),
        first_byte: within_total(&file.first_byte, total, cx),
        body_progress: within_total(&file.body_progress, total, cx),
        total,
    }
}

fn long_responses(file: &Switch<LongResponses>) -> Option<site::LongResponses> {
    file.on().map(|file| site::LongResponses { after: file.after.get().0, max: file.max.get().0 })
}

fn tunnels(file: &Tunnels, cx: &mut Context) -> site::Tunnels {
    let idle = file.idle.get().0;
    let total = file.total.get().on().map(|span| span.0);
    if let Some(total) = total.filter(|total| file.idle.given && idle > *total) {
        let what = format!("{} never pass: `total` ends the tunnel after {}", span_text(idle), span_text(total));
        cx.fail(file.idle.mark, what, "make it at most `total`");
    }
    site::Tunnels { max: file.max.get().on().map(|max| max.0), idle, total }
}

/// Returns the key, if the class is a template.
fn template_key(class: &Class, cx: &mut Context) -> Option<Key> {
    let per = class.per.get()?;
    match (per.header.get(), per.cookie.get(), per.source.get()) {
        (Some(header), None, None) => Some(Key::Header(header.0.clone())),
        (None, Some(cookie), None) => Some(Key::Cookie(cookie.0.clone())),
        (None, None, Some(networks)) => Some(Key::Network(networks.0)),
        (None, None, None) if class.per.bad => None,
        _ => {
            let hint = "give it one of `header:`, `cookie:` and `source:`";
            cx.fail(class.per.mark, "a template is keyed by one value", hint);
            None
        }
    }
}

/// Returns the value that tells the source of a request.
fn source(class: &Class, cx: &mut Context) -> Key {
    let field = match class.source.get() {
        SourceForm::Networks(networks) => return Key::Network(networks.0),
        SourceForm::Visitor => return Key::Visitor,
        SourceForm::Field(field) => field,
    };
    match (field.header.get(), field.cookie.get()) {
        (Some(header), None) => return Key::Header(header.0.clone()),
        (None, Some(cookie)) => return Key::Cookie(cookie.0.clone()),
        (None, None) if class.source.bad => {}
        _ => {
            let hint = "give it either `header:` or `cookie:`, or write `source: address`";
            cx.fail(class.source.mark, "a source is told by one value", hint);
        }
    }
    Key::Network(NetworkSize::ADDRESS)
}

/// Returns the class's weight for resources. Only ratios matter.
fn weight(class: &Class, cx: &mut Context) -> f64 {
    let Amount(weight) = *class.weight.get();
    if !(1e-3..=1e6).contains(&weight) {
        let what = format!("{} is out of range", number_text(weight));
        cx.fail(class.weight.mark, what, "write a number from 0.001 to 1000000; 1 is usual");
        return 1.0;
    }
    weight
}

/// Returns the utility of a request. Only ratios matter.
fn utility(class: &Class, cx: &mut Context) -> f64 {
    let Amount(utility) = *class.utility.get();
    if !(utility > 0.0 && utility <= 1e6) {
        let what = "a utility of this size orders nothing";
        cx.fail(class.utility.mark, what, "write more than 0 and at most 1000000; 1 is usual");
        return 1.0;
    }
    utility
}

fn max_live(field: &Optional<Count>, cx: &mut Context) -> u32 {
    let live = field.get().map_or(LIVE, |count| count.0);
    if live > MAX_LIVE {
        let what = format!("{live} live classes are too many");
        cx.fail(field.mark, what, format!("write at most {MAX_LIVE}; the rest share `NAME/overflow`"));
    }
    live
}

/// Warns about guarantees that the discipline does not keep, and about identities that clients choose.
pub(super) fn warn(file: &PolicyFile, all: &Classes, discipline: &engine::Discipline, cx: &mut Context) {
    let weighs = matches!(discipline.precedence, engine::Precedence::WeightedFair | engine::Precedence::Tokens(_));
    let window = matches!(discipline.load_control, engine::LoadControl::WindowLinear { .. });
    let list: &[At<Class>] = file.classes.get().map_or(&[], Vec::as_slice);
    let mut limited = false;
    let mut promised = false;
    for item in list {
        let class = &item.value;
        if let Some(per) = class.per.get()
            && let Some(header) = per.header.get()
            && !file.trusted_proxies.given
        {
            let what = format!("any client can choose its class by sending `{}`", header.0);
            let hint = "list the proxies that set it in `trusted_proxies:`, if there are any";
            cx.warn(per.header.mark, what, hint);
        }
        let Some(guarantee) = class.guarantee.get() else { continue };
        promised = true;
        limited |= guarantee.response_time.given;
        if weighs && guarantee.response_time.given && !guarantee.throughput.given {
            let what = "a class without `throughput` has no share of its own: it gets what others leave";
            cx.warn(class.guarantee.mark, what, "add `throughput:` to keep its response time");
        }
    }
    let free = matches!(discipline.load_control, engine::LoadControl::Fixed { window: None });
    if promised && free && discipline.admit == engine::Admit::None {
        let what = "nothing keeps the guarantees: this discipline lets every request in at once";
        cx.warn(file.discipline.mark, what, "use `discipline: weirgate`");
    }
    if let Some(item) = list.iter().find(|item| item.value.per.given)
        && discipline.precedence == engine::Precedence::Mdrr
    {
        let what = "`mdrr` looks at every class that waits, at each release, and here is one per key";
        let hint = "write `discipline: { mqos: { precedence: drfq } }`, which looks at a few";
        cx.warn(item.value.per.mark, what, hint);
    }
    if window && !limited && !all.classes.is_empty() {
        let what = "no class has a `response_time`: the window never shrinks, so shares are not enforced";
        cx.warn(file.classes.mark, what, "give the class that hurts first a response time");
    }
}
