//! Routes for the agents: sessions, reports, and shares as soon as there are new ones.
//!
//! With TLS a certificate speaks for one node only: that of its name. `weirgate_wire` describes the messages.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post, put};
use http::StatusCode;
use serde::Deserialize;
use weirgate_clock as clock;
use weirgate_http_server::Peer;
use weirgate_http_server::answer::{json, refuse};
use weirgate_wire::{Hello, NodeReport, NodeShares, SESSIONS_PATH, Session, WIRE_VERSION};

use crate::shared_state::{Refusal, SharedState};

/// Time after which a request for shares is answered although there are no new ones. It is below the time after which
/// the listener closes old connections.
const HOLD: Duration = Duration::from_secs(10);

/// Maximum number of characters repeated from a name that a peer sent.
const MAX_QUOTED: usize = 64;

type Shared = State<Arc<SharedState>>;

pub(crate) fn routes(shared: Arc<SharedState>) -> Router {
    Router::new()
        .route(SESSIONS_PATH, post(open))
        .route(&format!("{SESSIONS_PATH}/{{session}}/reports/{{number}}"), put(report))
        .route(&format!("{SESSIONS_PATH}/{{session}}/shares"), get(shares))
        .fallback(async || refuse(StatusCode::NOT_FOUND, "here are only agents of Cluster Reserves"))
        .with_state(shared)
}

async fn open(State(shared): Shared, Extension(peer): Extension<Peer>, body: Bytes) -> Response {
    let hello: Hello = match serde_json::from_slice(&body) {
        Ok(hello) => hello,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("this is no greeting of an agent: {error}")),
    };
    if hello.version != WIRE_VERSION {
        let why = format!(
            "the agent speaks version {}, and this coordinator {WIRE_VERSION}: run the same Weirgate on both",
            hello.version
        );
        return refuse(StatusCode::BAD_REQUEST, &why);
    }
    let Some(node) = shared.node_called(&hello.node) else {
        let name: String = hello.node.chars().take(MAX_QUOTED).collect();
        return refused(
            &shared,
            &peer,
            Refusal::new(StatusCode::NOT_FOUND, format!("the coordinator's policy has no node {name:?}")),
        );
    };
    let opened = shared.speaks_for(node, &peer).and_then(|()| shared.attach(node, &peer));
    match opened {
        Ok(session) => json(StatusCode::CREATED, &Session { session }),
        Err(refusal) => refused(&shared, &peer, refusal),
    }
}

async fn report(
    State(shared): Shared,
    Extension(peer): Extension<Peer>,
    path: Result<Path<(String, u64)>, PathRejection>,
    body: Bytes,
) -> Response {
    let Ok(Path((session, number))) = path else { return refuse(StatusCode::NOT_FOUND, "reports have numbers") };
    let report: NodeReport = match serde_json::from_slice(&body) {
        Ok(report) => report,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("this is no report: {error}")),
    };
    let node = shared.session(&session);
    let done = node.and_then(|node| {
        shared.speaks_for(node, &peer)?;
        shared.report(node, &session, number, report)
    });
    match done {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refused(&shared, &peer, refusal),
    }
}

/// The last run of which an agent has the shares.
#[derive(Debug, Deserialize)]
struct After {
    after: u64,
}

async fn shares(
    State(shared): Shared,
    Extension(peer): Extension<Peer>,
    path: Result<Path<String>, PathRejection>,
    after: Result<Query<After>, QueryRejection>,
) -> Response {
    let (Ok(Path(session)), Ok(Query(After { after }))) = (path, after) else {
        return refuse(StatusCode::BAD_REQUEST, "write /shares?after=RUN with a whole number");
    };
    let node = shared.session(&session);
    let found = node.and_then(|node| {
        shared.speaks_for(node, &peer)?;
        Ok((node, shared.newest(node, &session)?))
    });
    let (node, mut newest) = match found {
        Ok(found) => found,
        Err(refusal) => return refused(&shared, &peer, refusal),
    };
    let mut waiting = Waiting { shared: &shared, node, session: &session, answered: false };
    let next = clock::within(HOLD, newest.wait_for(|shares| shares.as_ref().is_some_and(|shares| shares.run > after)));
    let next = next.await.map(|next| next.map(|shares| shares.clone()));
    waiting.answered = true;
    match next {
        None => StatusCode::NO_CONTENT.into_response(),
        Some(Ok(shares)) => {
            let shares = shares.map(|shares| NodeShares { run: shares.run, shares: shares.shares });
            shares.map_or_else(|| StatusCode::NO_CONTENT.into_response(), |shares| json(StatusCode::OK, &shares))
        }
        // The session has ended.
        Some(Err(_)) => match shared.newest(node, &session) {
            Ok(_) => StatusCode::NO_CONTENT.into_response(),
            Err(refusal) => refused(&shared, &peer, refusal),
        },
    }
}

/// A request for shares that is not answered yet. If its agent closes the connection, the session ends at once.
struct Waiting<'a> {
    shared: &'a SharedState,
    node: usize,
    session: &'a str,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.shared.detach(self.node, self.session, "it closed the connection");
        }
    }
}

/// Answers a request that is refused. One that pretends to be another node is reported.
fn refused(shared: &SharedState, peer: &Peer, refusal: Refusal) -> Response {
    if refusal.status != StatusCode::CONFLICT {
        let from = peer.address.map_or_else(String::new, |address| address.to_string());
        shared.refused(&format!("refused {from}: {}", refusal.why));
    }
    refuse(refusal.status, &refusal.why)
}
