//! Traffic: binds names, orders changes, and distinguishes the sources of requests.

use std::path::Path;
use std::time::Duration;

use weirgate_spanned_yaml::decode::{At, Context, Mark, Optional};
use weirgate_spanned_yaml::errors::{Complaint, listed, quoted};
use weirgate_spanned_yaml::unit::{Amount, Count, Frequency, Moment, Share, Span, Text, Whole, number_text, span_text};

use super::names::{Names, index_of};
use super::{documents, pages, trace};
use crate::experiment::{Arrivals, DemandFrom, Knot, PARTS, Profile, RequestShape, Source, Traffic, TrafficClass};
use crate::file::{self, Changing, ExperimentFile, Figure, RequestForm, Step, Times, Traced, TrafficForm};

/// Maximum number of requests in a run. A record of each is kept, and 100 million of them take 5 GB.
const MAX_REQUESTS: f64 = 1e8;

/// Maximum number of users and of keys, because each takes memory.
const MAX_POPULATION: f64 = 1e6;

/// Maximum number of retries of a client. Real clients retry less often.
const MAX_RETRIES: u32 = 100;

/// Returns every stream. `end` is the end of the run, if it is known.
pub(super) fn traffic(
    file: &ExperimentFile,
    names: &Names,
    end: Option<Duration>,
    folder: &Path,
    cx: &mut Context,
) -> Vec<Traffic> {
    let (mut all, mut embedded, mut parted) = (Vec::new(), Vec::new(), Vec::new());
    let mut requests = 0.0;
    for At { value: form, mark, .. } in file.traffic.get().map_or(&[][..], Vec::as_slice) {
        let class = target(form, names, cx);
        let source = source(form, *mark, end, folder, cx);
        let demand = form.demand.get().map(|demand| demands(demand, end, cx));
        let patience = form.patience.get().on().map(|times| times.0);
        let Whole(retries) = *form.retries.get();
        if retries > MAX_RETRIES {
            let what = format!("no client tries {retries} times");
            cx.fail(form.retries.mark, what, format!("write at most {MAX_RETRIES}"));
        }
        let Times(retry_after) = *form.retry_after.get();
        let session = pages::session(form, cx);
        let (Some(class), Some((source, traced)), Some(demand)) = (class, source, demand) else { continue };
        let expected = match &source {
            Source::Open { rate, .. } => end.map_or(0.0, |end| rate.mean(Duration::ZERO, end) * end.as_secs_f64()),
            Source::Trace(instants) => instants.len() as f64,
            // Users need no limit, because they wait for replies.
            Source::Users { .. } | Source::Objects { .. } | Source::Part { .. } => 0.0,
        };
        let request = form.request.get().map_or_else(RequestShape::default, |form| request(form, cx));
        let files =
            form.documents.get().and_then(|files| documents::documents(files, form, (all.len(), &class), names, cx));
        let (documents, others) = files.unzip();
        let senders = Vec::new();
        let traffic = Traffic {
            class,
            name: form.name.get().map(|name| name.0.clone()),
            source,
            session,
            documents,
            demand,
            traced,
            senders,
            sources: form.sources.get().map(|count| count.0),
            patience,
            retries,
            retry_after,
            request,
        };
        let objects = form.objects.get().and_then(|form| pages::objects(form, (all.len(), &traffic), names, end, cx));
        let of_a_page = 1.0 + objects.as_ref().map_or(0.0, objects_mean);
        let expected = expected * session.map_or(1.0, |session| session.pages.mean()) * of_a_page;
        requests += expected;
        if requests > MAX_REQUESTS && requests - expected <= MAX_REQUESTS {
            let what = format!("with this the run has about {} million requests", number_text(requests / 1e6));
            cx.fail(*mark, what, "a record of each is kept: make it at most 100 million");
        }
        parted.extend(others.into_iter().flatten().map(|part| (all.len(), part)));
        all.push(traffic);
        embedded.extend(objects);
    }
    // Streams of objects come after all others, so that those keep their numbers and with them their random seeds.
    all.extend(embedded);
    documents::add_parts(&mut all, parted);
    all
}

fn objects_mean(objects: &Traffic) -> f64 {
    if let Source::Objects { count, .. } = &objects.source { count.mean() } else { 0.0 }
}

pub(super) fn request(form: &RequestForm, cx: &mut Context) -> RequestShape {
    let mut text = |field: &Optional<Text>, says: fn(&str) -> bool, hint: &str| {
        let Text(text) = field.get()?;
        if !says(text.as_str()) || text.bytes().any(|b| b.is_ascii_control()) {
            cx.fail(field.mark, format!("{} cannot be sent", quoted(text)), hint);
        }
        Some(text.clone())
    };
    let path =
        text(&form.path, |path| path.starts_with('/') && !path.contains(' '), "write a path: `/search?q={word}`");
    let host = text(&form.host, |host| !host.contains([' ', '/']), "write a host name: `shop.example`");
    let headers = form.headers.get().map_or(&[][..], |named| &named.items);
    let headers = headers.iter().filter_map(|item| {
        let Text(value) = item.value.value.as_ref()?;
        if value.bytes().any(|b| b.is_ascii_control()) {
            let what = format!("{} cannot be sent in a header", quoted(value));
            cx.fail(item.value.mark, what, "write it in one line");
        }
        Some((item.name.0.clone(), value.clone()))
    });
    let headers = headers.collect();
    RequestShape { method: form.method.get().0.clone(), path, host, headers }
}

fn target(form: &TrafficForm, names: &Names, cx: &mut Context) -> Option<TrafficClass> {
    let name = &form.class.get()?.0;
    if let Some(template) = names.templates.iter().position(|template| template == name) {
        let Some(&Count(keys)) = form.keys.get() else {
            if !form.keys.given {
                let what = format!("{} is a template: it makes a class of every key", quoted(name));
                cx.fail(form.class.mark, what, "say how many there are: `keys: 100`");
            }
            return None;
        };
        if f64::from(keys) > MAX_POPULATION {
            cx.fail(form.keys.mark, format!("{keys} keys are too many"), "write at most 1000000");
        }
        return Some(TrafficClass::Template { template, keys });
    }
    let class = class_named(name, names, form.class.mark, cx)?;
    if form.keys.given {
        let what = format!("{} is a class, not a template", quoted(name));
        cx.fail(form.keys.mark, what, "remove `keys:`");
    }
    Some(class)
}

pub(super) fn class_named(name: &str, names: &Names, mark: Mark, cx: &mut Context) -> Option<TrafficClass> {
    let known: Vec<String> = names.classes.iter().chain(&names.templates).cloned().collect();
    index_of("class", name, &known, names.all_classes, mark, cx).map(TrafficClass::Class)
}

/// Returns the arrivals, given by exactly one of three fields, and the costs that a trace gives for each request.
fn source(
    form: &TrafficForm,
    mark: Mark,
    end: Option<Duration>,
    folder: &Path,
    cx: &mut Context,
) -> Option<(Source, Vec<[u64; PARTS]>)> {
    let given: Vec<&str> = [("rate", form.rate.given), ("users", form.users.given), ("trace", form.trace.given)]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
        .collect();
    let [source] = given.as_slice() else {
        let complaint = match given.is_empty() {
            true => Complaint::new("these requests have no arrival times", "give it `rate:`, `users:` or `trace:`"),
            false => Complaint::new(
                format!("{} exclude each other", listed(given)),
                "keep one of them; write two entries for two streams",
            ),
        };
        cx.report(mark, complaint);
        return None;
    };
    let belongs = [
        ("arrivals", form.arrivals.given, form.arrivals.mark, "rate"),
        ("think", form.think.given, form.think.mark, "users"),
        ("speed", form.speed.given, form.speed.mark, "trace"),
    ];
    for (field, given, mark, to) in belongs {
        if given && to != *source {
            let what = format!("`{field}` belongs to `{to}:`, and here is `{source}:`");
            cx.fail(mark, what, "remove it");
        }
    }
    if *source != "trace" {
        let hint = "write a time, or give these requests a `trace:`";
        refuse_traced(form.demand.get(), "there is no trace to take this from", hint, cx);
    } else if form.demand.get().is_some_and(|steps| steps.0.len() > 1) {
        let what = "the demands of a trace do not change over time";
        refuse_traced(form.demand.get(), what, "write one demand, not a list", cx);
    } else if form.session.given || form.objects.given {
        let what = "a line of the trace is one request here, not a page or a visit";
        refuse_traced(form.demand.get(), what, "write a time, or remove `session:` and `objects:`", cx);
    }
    match *source {
        "rate" => {
            let arrivals = arrivals(form, cx);
            let rate = profile(form.rate.get()?, |&Frequency(rate)| rate, end, cx);
            Some((Source::Open { arrivals: arrivals?, rate }, Vec::new()))
        }
        "users" => {
            let users = profile(form.users.get()?, |&Amount(users)| users, end, cx);
            if users.0.iter().any(|knot| knot.value > MAX_POPULATION) {
                cx.fail(form.users.mark, "these are too many users", "write at most 1000000");
            }
            let Some(&Times(think)) = form.think.get() else {
                if !form.think.given {
                    let hint = "say how long users think, such as `think: { exponential: 7s }`";
                    cx.fail_in(mark, "think", "this field is missing", hint);
                }
                return None;
            };
            Some((Source::Users { users, think }, Vec::new()))
        }
        _ => {
            let Amount(speed) = *form.speed.get();
            if speed <= 0.0 {
                cx.fail(form.speed.mark, "at this speed the trace never begins", "write more than 0");
                return None;
            }
            let Text(path) = form.trace.get()?;
            let wanted: Vec<Traced> = traced(form).map(|(traced, _)| traced.clone()).collect();
            match trace::read(&folder.join(path), speed, end?, MAX_REQUESTS as usize, &wanted) {
                Ok((instants, costs)) => Some((Source::Trace(instants), costs)),
                Err(complaint) => {
                    cx.report(form.trace.mark, complaint);
                    None
                }
            }
        }
    }
}

/// Returns the costs to read from the lines of a trace, each with its place in the file.
fn traced(form: &TrafficForm) -> impl Iterator<Item = &(Traced, Mark)> {
    form.demand.get().into_iter().flat_map(|steps| &steps.0).flat_map(|step| &step.value.figure.traced)
}

/// Complains about every part of a cost that refers to a trace.
pub(super) fn refuse_traced(demand: Option<&Changing<file::Demand>>, what: &str, hint: &str, cx: &mut Context) {
    for (_, mark) in demand.into_iter().flat_map(|steps| &steps.0).flat_map(|step| &step.value.figure.traced) {
        cx.fail(*mark, what, hint);
    }
}

fn arrivals(form: &TrafficForm, cx: &mut Context) -> Option<Arrivals> {
    let form = match form.arrivals.get() {
        file::Arrivals::Poisson => return Some(Arrivals::Poisson),
        file::Arrivals::Even => return Some(Arrivals::Even),
        file::Arrivals::Mmpp(form) => form,
    };
    let (&Amount(burst), &Share(share), &Span(length)) = (form.burst.get()?, form.share.get()?, form.length.get()?);
    if burst <= 1.0 {
        let what = format!("a burst of {} × the mean is no burst", number_text(burst));
        cx.fail(form.burst.mark, what, "write more than 1");
    }
    if share <= 0.0 {
        cx.fail(form.share.mark, "there are no bursts", "write `arrivals: poisson`, or a share above 0");
    } else if burst * share >= 1.0 {
        let what = format!(
            "{} × the mean for {} % of the time is more than all arrivals",
            number_text(burst),
            number_text(share * 100.0)
        );
        let hint = format!("make `burst` × `share` less than 1: a share below {} %", number_text(100.0 / burst));
        cx.fail(form.burst.mark, what, hint);
    }
    Some(Arrivals::Mmpp { burst, share, length })
}

/// Returns a value over time, after checking that its steps are in order.
pub(super) fn profile<T: Figure>(
    changing: &Changing<T>,
    figure: fn(&T) -> f64,
    end: Option<Duration>,
    cx: &mut Context,
) -> Profile {
    in_order(changing, end, cx);
    let knot = |step: &At<Step<T>>| {
        let Step { at: Moment(at), over: Moment(over), figure: value } = &step.value;
        Knot { at: *at, over: *over, value: figure(value) }
    };
    Profile(changing.0.iter().map(knot).collect())
}

/// Returns a cost over time, after checking that its steps are in order.
pub(super) fn demands(changing: &Changing<file::Demand>, end: Option<Duration>, cx: &mut Context) -> Vec<DemandFrom> {
    in_order(changing, end, cx);
    if let Some(first) = changing.0.first()
        && first.value.over.0 > Duration::ZERO
    {
        let what = "there is no demand before this to change from";
        cx.fail(first.mark, what, "remove `over:`");
    }
    let from = |step: &At<Step<file::Demand>>| {
        let Step { at: Moment(at), over: Moment(over), figure } = &step.value;
        let &file::Demand { cpu, io, disk, link, stream, .. } = figure;
        DemandFrom { at: *at, over: *over, cpu, io, disk, link, stream }
    };
    changing.0.iter().map(from).collect()
}

/// Complains unless every step begins after the end of the one before it, the first at 0.
fn in_order<T: Figure>(changing: &Changing<T>, end: Option<Duration>, cx: &mut Context) {
    let field = T::FIELD;
    let mut free: Option<Duration> = None;
    for At { value: Step { at: Moment(at), over: Moment(over), .. }, mark, .. } in &changing.0 {
        let (at, over) = (*at, *over);
        match free {
            None if at > Duration::ZERO => {
                let what = format!("no {field} is given before {}", span_text(at));
                cx.fail(*mark, what, format!("begin the list with the {field} at the start of the run"));
            }
            Some(free) if at < free => {
                let what =
                    format!("this change begins at {}, the one before ends at {}", span_text(at), span_text(free));
                cx.fail(*mark, what, "put the changes in order of time");
            }
            Some(_) if at.is_zero() && over.is_zero() => {
                let what = format!("two {field}s are given for the start of the run");
                cx.fail(*mark, what, "say from when on this one holds: `at: 60s`");
            }
            _ => {}
        }
        if end.is_some_and(|end| at >= end) {
            let what = format!("the run ends before this change, at {}", span_text(end.unwrap_or_default()));
            cx.warn(*mark, what, "change earlier, or make the last phase longer");
        }
        free = Some(free.unwrap_or_default().max(at.saturating_add(over)));
    }
}
