//! Pages: sessions of several pages, and the objects embedded in pages.

use std::time::Duration;

use weirgate_spanned_yaml::decode::{Context, Mark};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_spanned_yaml::unit::Count;

use super::names::Names;
use super::traffic::{class_named, demands, refuse_traced, request};
use crate::distribution::Counts;
use crate::experiment::{MAX_OF_A_PAGE, RequestShape, Session, Source, Traffic, TrafficClass};
use crate::file::{Numbers, ObjectsForm, Times, TrafficForm};

/// Returns the session of each client. Users need none, because they ask for one page after another.
pub(super) fn session(form: &TrafficForm, cx: &mut Context) -> Option<Session> {
    if form.session.given && form.users.given {
        let what = "`session` belongs to `rate:` or `trace:`, and here is `users:`, which send the next request after every page";
        cx.fail(form.session.mark, what, "remove it");
    }
    let session = form.session.get()?;
    let (&Numbers(pages), &Times(think)) = (session.pages.get()?, session.think.get()?);
    if pages == Counts::Fixed(0) {
        let hint = "write at least 1, or a rate of 0";
        cx.fail(session.pages.mark, "a session without a page sends nothing", hint);
    }
    within_bounds(&pages, "pages", session.pages.mark, cx);
    Some(Session { pages, think })
}

/// Returns the stream of the objects embedded in the pages of stream number `page`.
pub(super) fn objects(
    form: &ObjectsForm,
    page: (usize, &Traffic),
    names: &Names,
    end: Option<Duration>,
    cx: &mut Context,
) -> Option<Traffic> {
    let (index, page) = page;
    let class = match form.class.get() {
        None if form.class.given => None,
        None => Some(page.class.clone()),
        Some(name) => match names.templates.iter().position(|template| *template == name.0) {
            Some(own) if matches!(page.class, TrafficClass::Template { template, .. } if template == own) => {
                Some(page.class.clone())
            }
            Some(_) => {
                let what = format!("{} is a template, and these pages have no keys of its", quoted(&name.0));
                cx.fail(form.class.mark, what, "name a class, or leave `class:` out");
                None
            }
            None => class_named(&name.0, names, form.class.mark, cx),
        },
    };
    let count = form.count.get().map(|&Numbers(count)| count);
    if let Some(count) = &count {
        within_bounds(count, "objects", form.count.mark, cx);
    }
    let demand = form.demand.get().map(|demand| demands(demand, end, cx));
    refuse_traced(form.demand.get(), "these objects are no lines of a trace", "write a time", cx);
    let request = match form.request.get() {
        Some(form) => request(form, cx),
        // The objects certainly have another path. They keep the page's host and headers if their class is the same.
        None if class.as_ref() == Some(&page.class) => RequestShape { path: None, ..page.request.clone() },
        None => RequestShape::default(),
    };
    let Count(connections) = *form.connections.get();
    Some(Traffic {
        class: class?,
        name: None,
        source: Source::Objects { page: index, count: count?, connections },
        session: None,
        documents: None,
        demand: demand?,
        traced: Vec::new(),
        senders: Vec::new(),
        sources: page.sources,
        request,
        patience: page.patience,
        retries: page.retries,
        retry_after: page.retry_after,
    })
}

fn within_bounds(count: &Counts, what: &str, mark: Mark, cx: &mut Context) {
    if count.max() > MAX_OF_A_PAGE {
        let what = format!("{} {what} are too many", count.max());
        cx.fail(mark, what, format!("write at most {MAX_OF_A_PAGE}"));
    }
}
