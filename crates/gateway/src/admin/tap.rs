//! `/tap`: finished requests as they end, one line of the access log each (newline-delimited JSON).
//!
//! A response ends after [`LASTS`], because no connection to this listener lasts for ever. Its field [`VIEWER`] names
//! the viewer, and `/tap?viewer=ID` goes on with the lines that have come meanwhile. A viewer that does not return
//! within [`RETURNS`] is removed. After lines that it was too slow for, it gets a line `{"lost":N}`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use tokio::sync::mpsc::{Sender, channel};
use weirgate_http_server::answer::{refuse, with_type};

use super::live::Pieces;
use super::operations::Operations;
use crate::tap::{Filter, Viewer, Wanted};

/// Field of a response with the id of its viewer.
pub const VIEWER: &str = "weirgate-viewer";

/// Duration of one response. It is shorter than the time that the listener gives a connection.
const LASTS: Duration = Duration::from_secs(25);

/// Time that a viewer has for its next request: a new connection over a slow network, twice.
const RETURNS: Duration = Duration::from_secs(5);

/// Time for which lines gather before they are sent. It limits a viewer to 20 writes a second, and a person sees no
/// delay.
const GATHER: Duration = Duration::from_millis(50);

/// Selection of requests, or of a viewer that returns.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Query {
    Returns(Returns),
    Wanted(Wanted),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Returns {
    viewer: String,
}

/// Returns the response with the lines of a viewer.
pub(super) fn join(operations: &Arc<Operations>, query: Query) -> Response {
    let tap = operations.gateway().tap();
    let viewer = match query {
        Query::Wanted(wanted) => match Filter::new(&wanted) {
            Ok(filter) => tap.join(filter).ok_or_else(|| {
                refuse(StatusCode::SERVICE_UNAVAILABLE, "too many viewers; the access log has the same lines")
            }),
            Err(why) => Err(refuse(StatusCode::BAD_REQUEST, &why)),
        },
        Query::Returns(Returns { viewer }) => {
            let found = u64::from_str_radix(&viewer, 16).ok().and_then(|id| tap.find(id));
            found.ok_or_else(|| refuse(StatusCode::NOT_FOUND, "this viewer has been away for too long"))
        }
    };
    let viewer = match viewer {
        Ok(viewer) => viewer,
        Err(refusal) => return refusal,
    };
    // One piece is sent while the next one gathers.
    let (pieces, receiver) = channel(1);
    let id = format!("{:016x}", viewer.id);
    let response = viewer.respond();
    tokio::spawn(serve(Arc::clone(operations), viewer, response, pieces));
    let mut answer = with_type(StatusCode::OK, "application/x-ndjson", Body::new(Pieces(receiver)));
    if let Ok(id) = HeaderValue::from_str(&id) {
        answer.headers_mut().insert(VIEWER, id);
    }
    answer
}

/// Sends lines for one response, and removes the viewer if it does not return.
async fn serve(operations: Arc<Operations>, viewer: Arc<Viewer>, response: u64, pieces: Sender<Bytes>) {
    let sending = weirgate_clock::within(LASTS, send(&viewer, response, &pieces));
    let gone = sending.await.is_some();
    drop(pieces);
    if !gone {
        weirgate_clock::sleep(RETURNS).await;
    }
    if viewer.is_latest(response) {
        operations.gateway().tap().leave(&viewer);
    }
}

/// Sends lines until the client leaves, or another response has begun.
async fn send(viewer: &Viewer, response: u64, pieces: &Sender<Bytes>) {
    let mut closed = pin!(pieces.closed());
    loop {
        // Lines are taken only when there is room for them, so that a slow client loses none of them here.
        let Ok(room) = pieces.reserve().await else { return };
        let lines = loop {
            if !viewer.is_latest(response) {
                return;
            }
            let lines = viewer.take();
            if !lines.is_empty() {
                break lines;
            }
            tokio::select! {
                () = viewer.changed.notified() => weirgate_clock::sleep(GATHER).await,
                () = &mut closed => return,
            }
        };
        room.send(Bytes::from(lines));
    }
}
