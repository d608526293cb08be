//! Routes of the admin API. GET only reads, and only POST changes anything.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use weirgate_engine::ClassId;
use weirgate_http_server::answer::{json, refuse};
use weirgate_http_server::{exposition, page};
use weirgate_log::Level;
use weirgate_wire::{MAX_ROLLOUT_BYTES, RolloutRequest, RolloutTaken};

use super::live::Live;
use super::operations::{NotReloaded, Operations, etag};
use super::{scrape, tap, view};
use crate::active_config::ReloadError;
use crate::metrics;

/// Default number of live classes in one response of `/snapshot`.
const PAGE: usize = 100;
/// Maximum number of live classes in one response. The engine's lock is held while they are copied.
const MAX_PAGE: usize = 1000;

/// Longest time for which one gateway may try a policy before the others, in milliseconds.
const MAX_WATCH_MS: u64 = 3_600_000;

/// Time to write a rollout to etcd.
const ROLLOUT: Duration = Duration::from_secs(4);

/// The page at `/`.
const LIVE_PAGE: page::Page = page::Page {
    title: "Weirgate",
    process: "gateway",
    sections: include_str!("page/sections.html"),
    api: include_str!("page/api.html"),
    figures: "snapshot",
    script: include_str!("page/page.js"),
};

type Shared = State<Arc<Operations>>;

/// Builds the routes of a gateway's admin API.
pub(super) fn of_gateway(operations: Arc<Operations>) -> Router {
    let live = Arc::new(Live::default());
    Router::new()
        .merge(page::routes(&LIVE_PAGE))
        .route("/stream", get(async move |State(operations): Shared| live.join(operations)))
        .route("/events", get(events))
        .route("/tap", get(tapped))
        .route("/live", get(async || json(StatusCode::OK, &view::Live { live: true })))
        .route("/ready", get(ready))
        .route("/metrics", get(scraped))
        .route("/policy", get(policy))
        .route("/snapshot", get(snapshot))
        .route("/nodes", get(nodes))
        .route("/learned", get(learned))
        .route("/reload", post(reload))
        .route("/rollout", post(roll_out))
        .route("/drain", post(drain))
        .route("/nodes/{pool}/{node}/drain", post(drain_node))
        .route("/nodes/{pool}/{node}/undrain", post(undrain_node))
        .fallback(async || refuse(StatusCode::NOT_FOUND, "there is no such page; GET / lists them"))
        .method_not_allowed_fallback(async || {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "this page has another method; GET / lists pages and methods")
        })
        .with_state(operations)
}

async fn ready(State(operations): Shared) -> Response {
    // A connection that was open at a hand-over still leads here, while clients reach the new process.
    let gateway = operations.gateway();
    // A gateway that can only refuse is of no use to a balancer in front of it.
    let (unusable, none_is_usable) = gateway.unusable_upstreams();
    let unusable_upstreams = (unusable > 0).then_some(unusable);
    let ready = gateway.accepts() && !none_is_usable;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let followed = gateway.learned_state().map_or(Vec::new(), |state| state.follows);
    // Of several the most recent one counts, because its state is the one that would be used.
    let follows = (!followed.is_empty())
        .then(|| view::Follows { age_seconds: followed.iter().filter_map(|one| one.age_seconds).reduce(f64::min) });
    json(status, &view::Ready { ready, phase: gateway.phase().as_str(), unusable_upstreams, follows })
}

/// Selection of classes with series of their own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Series {
    classes: Option<EveryClass>,
}

/// The only value of the parameter.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EveryClass {
    All,
}

async fn scraped(
    State(operations): Shared,
    headers: HeaderMap,
    series: Result<Query<Series>, QueryRejection>,
) -> Response {
    let Ok(Query(Series { classes })) = series else {
        return refuse(StatusCode::BAD_REQUEST, "use /metrics, or /metrics?classes=all for every class");
    };
    let page = metrics::render(scrape::collect(&operations, classes.is_some()).await);
    exposition::metrics(&headers, page)
}

async fn policy(State(operations): Shared) -> Response {
    let active_config = operations.gateway().active_config();
    tagged(json(StatusCode::OK, &view::policy(&active_config)), &etag(&active_config))
}

/// Selection of live classes to show.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    /// Id of the first class.
    #[serde(default)]
    from: u32,
    /// Maximum number of classes.
    limit: Option<usize>,
}

/// Maximum number of page table routes in one response: all that are learned separately, and other busy ones.
const MAX_ROUTES: usize = 256;

async fn snapshot(State(operations): Shared, page: Result<Query<Page>, QueryRejection>) -> Response {
    let Ok(Query(Page { from, limit })) = page else {
        return refuse(StatusCode::BAD_REQUEST, "use /snapshot?from=ID&limit=N with whole numbers");
    };
    let limit = limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let control = operations.gateway().control();
    let active_config = control.active_config();
    let whole = control.snapshot();
    // One more than requested shows whether there is a next page.
    let mut classes = control.classes(ClassId(from), limit + 1);
    let next = classes.get(limit).map(|class| class.class.0);
    classes.truncate(limit);
    let page_table = scrape::page_table(operations.gateway(), MAX_ROUTES).await;
    let gateway = operations.gateway();
    let said = (page_table, gateway.discovery(), gateway.acme());
    let mut page = view::snapshot(&active_config, &whole, &classes, next, said, &gateway.collectors());
    page.tunnels = gateway.tunnels().by_class();
    page.long_responses = gateway.long_responses().by_class();
    page.learned = gateway.learned_state();
    page.site = gateway.site();
    json(StatusCode::OK, &page)
}

/// Selection of events to show.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    /// Number of the last event that is known.
    #[serde(default)]
    after: u64,
}

async fn events(State(operations): Shared, after: Result<Query<After>, QueryRejection>) -> Response {
    let Ok(Query(After { after })) = after else {
        return refuse(StatusCode::BAD_REQUEST, "use /events?after=NUMBER with the number of the last event you know");
    };
    json(StatusCode::OK, &operations.gateway().events(after))
}

async fn tapped(State(operations): Shared, query: Result<Query<tap::Query>, QueryRejection>) -> Response {
    match query {
        Ok(Query(query)) => tap::join(&operations, query),
        Err(_) => {
            let why = "use /tap?FIELD=VALUE with class, node, client, path, status, ending, slower_than or sample";
            refuse(StatusCode::BAD_REQUEST, why)
        }
    }
}

async fn learned(State(operations): Shared) -> Response {
    json(StatusCode::OK, &operations.gateway().learned())
}

async fn nodes(State(operations): Shared) -> Response {
    let active_config = operations.gateway().active_config();
    let whole = operations.gateway().control().snapshot();
    json(StatusCode::OK, &view::nodes(&active_config, &whole, &operations.gateway().collectors()))
}

/// Returns whether a body is empty or `{}`.
fn is_empty(body: &[u8]) -> bool {
    let body = body.trim_ascii();
    body.is_empty()
        || serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(body).is_ok_and(|m| m.is_empty())
}

const WANTS_NOTHING: &str = "the body must be empty or {}: the policy is read from its file";

async fn reload(State(operations): Shared, headers: HeaderMap, body: Bytes) -> Response {
    if !is_empty(&body) {
        return refuse(StatusCode::BAD_REQUEST, WANTS_NOTHING);
    }
    let expected: Vec<&str> = headers.get_all(IF_MATCH).iter().map(|v| v.to_str().unwrap_or_default()).collect();
    let expected = (!expected.is_empty()).then(|| expected.join(","));
    // Reading and checking a large policy takes a while, and other requests are answered meanwhile.
    let reloaded = tokio::task::spawn_blocking(move || operations.reload(expected.as_deref())).await;
    match reloaded {
        Ok(Ok(reloaded)) => {
            let answer = view::Reloaded {
                version: reloaded.active_config.version,
                checksum: &reloaded.active_config.checksum,
                at_next_start: &reloaded.later,
            };
            tagged(json(StatusCode::OK, &answer), &etag(&reloaded.active_config))
        }
        Ok(Err(NotReloaded::Conflict(tag))) => {
            let why = NotReloaded::Conflict(tag.clone()).to_string();
            tagged(refuse(StatusCode::PRECONDITION_FAILED, &why), &tag)
        }
        Ok(Err(NotReloaded::Failed(error))) => {
            let status = match error {
                ReloadError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
                ReloadError::Draining | ReloadError::HandingOver | ReloadError::NoSource => StatusCode::CONFLICT,
                ReloadError::Unreadable(_) | ReloadError::Listen(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            refuse(status, &error.to_string())
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("the reload broke off: {error}")),
    }
}

async fn roll_out(State(operations): Shared, body: Bytes) -> Response {
    let request = match serde_json::from_slice::<RolloutRequest>(&body) {
        Ok(request) => request,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("this is no rollout: {error}")),
    };
    let RolloutRequest { policy, watch_ms } = request;
    if policy.len() > MAX_ROLLOUT_BYTES || watch_ms > MAX_WATCH_MS {
        let why = "a policy that is rolled out has at most 60 KiB, and is tried for at most one hour";
        return refuse(StatusCode::BAD_REQUEST, why);
    }
    let Some(sharing) = operations.gateway().sharing() else {
        return refuse(StatusCode::CONFLICT, "this gateway has no `site:`");
    };
    let asked = sharing.roll_out(policy, Duration::from_millis(watch_ms));
    match weirgate_clock::within(ROLLOUT, asked).await {
        Some(Ok(id)) => json(StatusCode::OK, &RolloutTaken { id }),
        Some(Err(why)) => refuse(StatusCode::CONFLICT, &why),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "etcd does not answer"),
    }
}

async fn drain(State(operations): Shared, body: Bytes) -> Response {
    if !is_empty(&body) {
        return refuse(StatusCode::BAD_REQUEST, "the body must be empty or {}");
    }
    weirgate_log::say(Level::Info, "POST /drain: accepting no new connections, finishing requests in flight");
    operations.gateway().drain();
    json(StatusCode::ACCEPTED, &view::Draining { draining: true })
}

async fn drain_node(state: Shared, path: Result<Path<(String, String)>, PathRejection>, body: Bytes) -> Response {
    set_draining(state, path, body, true)
}

async fn undrain_node(state: Shared, path: Result<Path<(String, String)>, PathRejection>, body: Bytes) -> Response {
    set_draining(state, path, body, false)
}

fn set_draining(
    State(operations): Shared,
    path: Result<Path<(String, String)>, PathRejection>,
    body: Bytes,
    drain: bool,
) -> Response {
    let Ok(Path((pool, node))) = path else { return refuse(StatusCode::BAD_REQUEST, "the path is not UTF-8") };
    if !is_empty(&body) {
        return refuse(StatusCode::BAD_REQUEST, "the body must be empty or {}");
    }
    if operations.drain_node(&pool, &node, drain) {
        json(StatusCode::OK, &view::NodeDraining { upstream: &pool, node: &node, draining: drain })
    } else {
        refuse(StatusCode::NOT_FOUND, "the policy has no such node; GET /nodes lists them")
    }
}

/// Adds the entity tag to a response.
fn tagged(mut answer: Response, tag: &str) -> Response {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}
