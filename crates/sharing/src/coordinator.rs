//! The listener for the other gateways, and the machine of the elected one, which divides.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, put};
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use tokio::sync::oneshot;
use weirgate_engine::Time;
use weirgate_http_server::answer::{json, refuse};
use weirgate_http_server::{Access, Listener, Peer};
use weirgate_listening::FileAccess;
use weirgate_log::Level;
use weirgate_tls::Role;

use crate::learned::{self, LEARNED_PATH};
use crate::messages::{SITE_PATH, SITE_VERSION, SiteReport};
use crate::state::Shared;
use crate::told::say;

/// Time between two attempts to open the listener. A process that is handed over to waits for the one before it.
const AGAIN: Duration = Duration::from_millis(250);

/// Number of attempts to open the listener after which people are told: longer than a hand-over takes.
const ATTEMPTS: u32 = 20;

/// Number of connections beyond those of the gateways, for strangers and for gateways that connect anew.
const SPARE: usize = 32;

/// Maximum number of characters repeated from a name that a peer sent.
const MAX_QUOTED: usize = 64;

/// Runs the machine of the elected gateway whenever it is due, until the task is aborted.
pub(crate) async fn divide(shared: Arc<Shared>) {
    loop {
        let next = shared.divide_once();
        shared.wait(next, &shared.coordinator).await;
    }
}

impl Shared {
    /// Lets the machine act, and delivers its messages. Returns when it is due again.
    pub(crate) fn divide_once(&self) -> Time {
        let now = self.floors.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(coordinator) = &mut state.coordinator else { return Time::NEVER };
        if coordinator.next_timeout() <= now {
            coordinator.run(now);
        }
        while let Some((member, grant)) = coordinator.poll_grant() {
            if member == self.settings.own {
                // A refused message is as good as a lost one.
                if state.member.granted(now, grant).is_ok() {
                    state.answers.hears(now);
                }
                self.member.notify_one();
            } else if let Some(reply) = state.replies[member].take() {
                // The member may have closed its connection.
                let _ = reply.send(grant);
            }
        }
        while let Some(record) = coordinator.poll_record() {
            state.records.push_back(record);
        }
        if !state.records.is_empty() {
            self.election.notify_one();
        }
        coordinator.next_timeout()
    }

    /// Counts a refused report.
    fn refused(&self) {
        self.lock().refused += 1;
    }

    /// Writes a warning about a sender, unless there were too many.
    fn warn(&self, sender: usize, text: String) {
        self.lock().senders[sender].warn(self.floors.now(), text);
    }

    /// Returns the number of the member with this name, and the one after all members for strangers.
    pub(crate) fn member_of(&self, name: Option<&str>) -> usize {
        let members = &self.settings.members;
        members.iter().position(|(known, _)| Some(known.as_str()) == name).unwrap_or(members.len())
    }

    /// Counts a report of a gateway, and returns its number. Those without a member's name have one number together.
    fn sender(&self, name: &str) -> Result<usize, (StatusCode, String)> {
        let sender = self.member_of(Some(name));
        let now = self.floors.now().since(Time::ZERO);
        if self.lock().senders[sender].reports.takes(now) {
            return Ok(sender);
        }
        Err((StatusCode::TOO_MANY_REQUESTS, "there are too many reports under this name".to_owned()))
    }
}

/// Serves the other gateways, until the task is aborted.
pub(crate) async fn serve(shared: Arc<Shared>) {
    let settings = &shared.settings;
    let mut attempts = 0;
    loop {
        let served = match Listener::open(&settings.listen, FileAccess::OWNER, "site", shared.trust.is_some()) {
            Ok(listener) => {
                if attempts >= ATTEMPTS {
                    say(Level::Info, format!("site: listening on {}", settings.listen));
                }
                attempts = 0;
                shared.lock().listens = true;
                shared.election.notify_one();
                let connections = u32::try_from(4 * settings.members.len() + SPARE).unwrap_or(u32::MAX);
                listener.serve(access(&shared), routes(&shared), connections, std::future::pending()).await
            }
            Err(error) => Err(error),
        };
        shared.lock().listens = false;
        attempts += 1;
        if attempts == ATTEMPTS {
            let why = served.err().map_or_else(|| "it was closed".to_owned(), |error| error.to_string());
            let text = format!("site: this gateway has no share and cannot be elected: it cannot listen: {why}");
            say(Level::Error, text);
        }
        weirgate_clock::sleep(AGAIN).await;
    }
}

fn access(shared: &Arc<Shared>) -> Access {
    let (_, own) = &shared.settings.members[shared.settings.own];
    let host = own.rsplit_once(':').map_or(own.as_str(), |(host, _)| host);
    let told = Arc::clone(shared);
    Access {
        hosts: Some(vec![host.to_owned()]),
        token: None,
        trust: shared.trust.clone(),
        readers: &[],
        paths: &[],
        writers: &[Role::Gateway],
        open: &[],
        say: Box::new(move |line| {
            told.refused();
            told.warn(told.settings.members.len(), format!("site: {line}"));
        }),
    }
}

fn routes(shared: &Arc<Shared>) -> Router {
    Router::new()
        .route(SITE_PATH, put(report))
        .route(LEARNED_PATH, get(learned::tell))
        .fallback(async || refuse(StatusCode::NOT_FOUND, "here are only the gateways of a site"))
        .with_state(Arc::clone(shared))
}

/// Takes a report, and answers when the machine does.
async fn report(State(shared): State<Arc<Shared>>, Extension(peer): Extension<Peer>, body: Bytes) -> Response {
    let taken = match serde_json::from_slice::<SiteReport>(&body) {
        Ok(report) => shared.take(&peer, report),
        Err(error) => Err((StatusCode::BAD_REQUEST, format!("this is no report of a gateway: {error}"))),
    };
    let reply = match taken {
        Ok(reply) => reply,
        Err((status, why)) => {
            shared.refused();
            let mut answer = refuse(status, &why);
            // After a change of the policy, connections lead to the time before it.
            if shared.lock().ending.is_some() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            return answer;
        }
    };
    // The machine answers within `hold`, or another report of the member takes the place of this one.
    let hold = 2 * shared.settings.agreed.settings().hold;
    match weirgate_clock::within(hold, reply).await {
        Some(Ok(grant)) => json(StatusCode::OK, &grant),
        Some(Err(_)) | None => StatusCode::NO_CONTENT.into_response(),
    }
}

impl Shared {
    /// Passes a report to the machine, if it may come from this peer. Returns its answer to come.
    pub(crate) fn take(
        &self,
        peer: &Peer,
        report: SiteReport,
    ) -> Result<oneshot::Receiver<weirgate_site::Grant>, (StatusCode, String)> {
        let sender = self.sender(peer.party.as_ref().map_or(&report.member, |party| &party.name))?;
        let name: String = report.member.chars().take(MAX_QUOTED).collect();
        let own = self.name();
        if let Some(party) = peer.party.as_ref().filter(|party| party.name != report.member) {
            let why = format!("{party} reports as {name:?}");
            self.warn(sender, format!("site: refused: {why}"));
            return Err((StatusCode::FORBIDDEN, why));
        }
        if report.version != SITE_VERSION {
            let why = format!(
                "{name:?} speaks version {}, and {own} {SITE_VERSION}: run the same Weirgate on both",
                report.version
            );
            return Err((StatusCode::CONFLICT, why));
        }
        let Some(member) = self.settings.members.iter().position(|(known, _)| *known == report.member) else {
            return Err((StatusCode::NOT_FOUND, format!("{own} knows no gateway {name:?}")));
        };
        if report.checksum != self.settings.checksum {
            let why = format!(
                "{name} and {own} do not agree on the members, the guarantees or the times of the site: put the same \
                 policy in force on both"
            );
            if self.lock().disagrees(member, &report.checksum) {
                self.warn(sender, format!("site: {name} gets no shares: {why}"));
            }
            return Err((StatusCode::CONFLICT, why));
        }
        let now = self.floors.now();
        let (send, receive) = oneshot::channel();
        {
            let mut state = self.lock();
            let Some(coordinator) = state.coordinator.as_mut().filter(|one| one.revision() == report.report.revision)
            else {
                return Err((StatusCode::CONFLICT, format!("{own} is not the elected gateway")));
            };
            let taken = coordinator.report(now, member, report.report);
            taken.map_err(|refused| (StatusCode::CONFLICT, format!("the report is {refused}")))?;
            // An earlier report of the member is answered with nothing.
            state.replies[member] = Some(send);
        }
        self.coordinator.notify_one();
        Ok(receive)
    }
}
