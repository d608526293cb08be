//! The stream behind the live page: a look at the gateway each second, the same for all viewers.
//!
//! It has the form of server-sent events (WHATWG HTML, Sec. 9.2), so `curl -N` shows it as well. A look is taken and
//! formatted once, and only while there are viewers. A viewer that does not read misses looks, and costs no memory
//! beyond one of them. A response ends after [`LOOKS`], because no connection to this listener lasts for ever. The
//! page then asks for the next one.

use std::cmp::Ordering;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::StatusCode;
use hyper::body::{Body as HttpBody, Frame};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use weirgate_engine::ClassSnapshot;

use super::operations::Operations;
use super::view;
use weirgate_http_server::answer::{refuse, with_type};

/// Time between two looks. People do not read faster.
const EVERY: Duration = Duration::from_secs(1);

/// Number of looks in one response. They take less time than the listener gives a connection.
const LOOKS: u32 = 25;

/// Maximum number of viewers. It leaves half of the listener's connections to scrapers and commands.
const VIEWERS: usize = 32;

/// Maximum number of classes in a look. A page with more is not read.
const CLASSES: usize = 200;

/// The viewers.
#[derive(Debug, Default)]
pub(super) struct Live {
    viewers: Mutex<Vec<Viewer>>,
}

#[derive(Debug)]
struct Viewer {
    looks: Sender<Bytes>,
    left: u32,
}

impl Live {
    /// Adds a viewer, and returns the response with its looks.
    pub(super) fn join(self: &Arc<Self>, operations: Arc<Operations>) -> Response {
        let (looks, receiver) = channel(1);
        let mut viewers = self.viewers.lock().unwrap_or_else(PoisonError::into_inner);
        if viewers.len() >= VIEWERS {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open; /snapshot shows the same");
        }
        viewers.push(Viewer { looks, left: LOOKS });
        if viewers.len() == 1 {
            tokio::spawn(Arc::clone(self).show(operations));
        }
        with_type(StatusCode::OK, "text/event-stream", Body::new(Pieces(receiver)))
    }

    /// Shows looks for as long as there are viewers.
    async fn show(self: Arc<Self>, operations: Arc<Operations>) {
        loop {
            let look = look(&operations).await;
            {
                let mut viewers = self.viewers.lock().unwrap_or_else(PoisonError::into_inner);
                viewers.retain_mut(|viewer| viewer.show(&look));
                // Under the lock, so that a viewer that joins now starts this anew.
                if viewers.is_empty() {
                    return;
                }
            }
            weirgate_clock::sleep(EVERY).await;
        }
    }
}

impl Viewer {
    /// Gives the viewer a look, unless it has not taken the one before. Returns whether it stays.
    fn show(&mut self, look: &Bytes) -> bool {
        let gone = matches!(self.looks.try_send(look.clone()), Err(TrySendError::Closed(_)));
        self.left -= 1;
        !gone && self.left > 0
    }
}

/// Takes a look, and formats it as an event.
async fn look(operations: &Operations) -> Bytes {
    let gateway = operations.gateway();
    let mut classes = Vec::new();
    let mut left_out = 0;
    let take = |class| {
        classes.push(class);
        // Half of them are kept at once, so that the list is cut rarely and stays short.
        if classes.len() == 2 * CLASSES {
            left_out += cut(&mut classes);
        }
    };
    gateway.control().each_class(take).await;
    left_out += cut(&mut classes);
    classes.sort_by_key(|class| class.class);
    let known = (&gateway.collectors(), gateway.discovery(), gateway.phase().as_str());
    let (active_config, whole) = (gateway.active_config(), gateway.control().snapshot());
    let mut look = view::look(&active_config, &whole, &classes, left_out, known, gateway.events(0));
    look.page.tunnels = gateway.tunnels().by_class();
    look.page.long_responses = gateway.long_responses().by_class();
    look.page.acme = gateway.acme();
    look.page.learned = gateway.learned_state();
    look.page.site = gateway.site();
    let mut text = b"retry: 1000\ndata: ".to_vec();
    // Fails only for maps with keys that are not strings, and these types have none.
    if serde_json::to_writer(&mut text, &look).is_err() {
        text.truncate(0);
    }
    text.extend_from_slice(b"\n\n");
    Bytes::from(text)
}

/// Keeps the classes that a reader looks for first, and returns how many are left out.
fn cut(classes: &mut Vec<ClassSnapshot>) -> usize {
    let left_out = classes.len().saturating_sub(CLASSES);
    if left_out > 0 {
        classes.sort_by(first);
        classes.truncate(CLASSES);
    }
    left_out
}

/// Orders classes: those that miss a guarantee first, then by their arrivals.
fn first(a: &ClassSnapshot, b: &ClassSnapshot) -> Ordering {
    let misses = |class: &ClassSnapshot| {
        class.achieved.throughput_held == Some(false) || class.achieved.response_time_held == Some(false)
    };
    let sent = |class: &ClassSnapshot| class.achieved.offered_per_s;
    misses(b).cmp(&misses(a)).then(sent(b).total_cmp(&sent(a))).then(a.class.cmp(&b.class))
}

/// A response body of pieces that are made while it is sent.
pub(super) struct Pieces(pub(super) Receiver<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
