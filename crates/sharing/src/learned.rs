//! Learned costs: a gateway takes over what the others have learned of classes that it does not serve itself.
//!
//! Source: our own (`docs/adr/0028-costs-and-health-are-hints.md`). It asks the others in turn, and its engine decides
//! what is more recent than its own estimates. A gateway that starts asks at once, so it usually knows the costs of
//! classes before their first requests come to it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use tokio::task::spawn_blocking;
use weirgate_engine::Time;
use weirgate_http_client::{Answer, Limits, Request, exchange};
use weirgate_http_server::Peer;
use weirgate_http_server::answer::{json, refuse};
use weirgate_log::Level;
use weirgate_wire::{LearnedState, MAX_LEARNED_BYTES};

use crate::member::{host, of_gateway};
use crate::state::Shared;
use crate::told::say;

/// Path at which a gateway tells what it has learned.
pub(crate) const LEARNED_PATH: &str = "/site/learned";

/// Time between two questions. Costs change with a release or with the time of day. A thousand classes are written and
/// read in some milliseconds, so this is less than a thousandth of a core.
const EVERY: Duration = Duration::from_secs(10);

/// The same until a first gateway has told anything.
const AGAIN: Duration = Duration::from_secs(1);

/// Time for an answer, which takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the other gateways in turn what they have learned, until the task is aborted.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let count = shared.settings.members.len();
    let others: Vec<usize> = (1..count).map(|ahead| (shared.settings.own + ahead) % count).collect();
    let (mut has_answer, mut has_told) = (false, false);
    for member in others.into_iter().cycle() {
        let (name, _) = &shared.settings.members[member];
        let asked = shared.floors.now();
        // One that does not answer is skipped.
        if let Some(learned) = ask(&shared, member).await {
            has_answer |= !learned.classes.is_empty();
            let (floors, age) = (Arc::clone(&shared.floors), shared.floors.now().since(asked));
            let taken = spawn_blocking(move || floors.take_over(learned, age)).await;
            if let Ok(Some(taken)) = taken
                && !std::mem::replace(&mut has_told, true)
            {
                say(Level::Info, format!("site: took over what {name} has learned: {taken}"));
            }
        }
        weirgate_clock::sleep(if has_answer { EVERY } else { AGAIN }).await;
    }
}

/// Asks one gateway. `None` if it has no answer of use.
async fn ask(shared: &Shared, member: usize) -> Option<LearnedState> {
    let (name, address) = &shared.settings.members[member];
    let request = Request::get(host(address), LEARNED_PATH);
    let limits = Limits::new(PATIENCE, MAX_LEARNED_BYTES as u64);
    let answer = exchange(&of_gateway(shared, name, address), request, &limits).await.and_then(Answer::ok).ok()?;
    LearnedState::parse(&answer.body).ok()
}

/// Tells another gateway what this one has learned.
pub(crate) async fn tell(State(shared): State<Arc<Shared>>, Extension(peer): Extension<Peer>) -> Response {
    let sender = shared.member_of(peer.party.as_ref().map(|party| party.name.as_str()));
    if !shared.lock().senders[sender].questions.takes(shared.floors.now().since(Time::ZERO)) {
        return refuse(StatusCode::TOO_MANY_REQUESTS, "there are too many questions under this name");
    }
    let floors = Arc::clone(&shared.floors);
    match spawn_blocking(move || floors.learned()).await {
        Ok(learned) => json(StatusCode::OK, &learned),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
