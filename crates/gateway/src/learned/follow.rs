//! A gateway that follows others: it asks their admin API once a second what they have learned, and takes over what is
//! more recent than its own.
//!
//! Two gateways may follow each other without an election. The one that serves a class decides about it: a record is
//! replaced only by a more recent one, and a gateway's own record only after five quiet seconds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking, spawn_local};
use weirgate_config::LearnedStateSettings;
use weirgate_engine::Time;
use weirgate_http_client::{Address, Answer, Limits, Request, exchange};
use weirgate_http_server::Token;
use weirgate_log::{Level, Message};
use weirgate_tls::{Role, Wanted};
use weirgate_wire::{LearnedState, MAX_LEARNED_BYTES, admin as shape};

use super::{Taken, file, import};
use crate::admin::TOKEN_VARIABLE;
use crate::gateway::{Phase, Shared, lock};

/// Time between two requests, and so the longest time by which a standby lags behind.
const EVERY: Duration = Duration::from_secs(1);

/// Time for an answer, which takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Number of requests without an answer after which a message is written. One or two can be a pause or a restart.
const MISSED: u32 = 3;

/// Prefix of the path of a Unix socket.
const UNIX: &str = "unix:";

/// A gateway that is followed.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    address: String,
    /// Time of the last answer, and age of the most recent record in it.
    heard: Option<(Time, Option<Duration>)>,
    /// Time at which something was last taken over.
    adopted: Option<Time>,
    missed: u32,
    failures: u64,
    error: Option<String>,
}

impl Followed {
    pub(super) fn shape(&self, now: Time) -> shape::Followed {
        let since = |at: Time| now.since(at).as_secs_f64();
        shape::Followed {
            gateway: self.address.clone(),
            age_seconds: self.heard.map(|(at, _)| since(at)),
            answer_age_seconds: self.heard.and_then(|(at, age)| Some(since(at) + age?.as_secs_f64())),
            adopted_age_seconds: self.adopted.map(since),
            failures: self.failures,
            error: self.error.clone(),
        }
    }

    /// Counts an answer at `now`, and returns a message if there is something to say.
    fn hears(&mut self, now: Time, age: Option<Duration>, taken: Taken) -> Option<Message> {
        let first = self.heard.is_none();
        let back = self.missed >= MISSED;
        (self.heard, self.missed, self.error) = (Some((now, age)), 0, None);
        if !taken.is_nothing() {
            self.adopted = Some(now);
        }
        let address = &self.address;
        let again = if back { " again" } else { "" };
        let what = match taken.is_nothing() {
            true => "it knows nothing more recent".to_owned(),
            false => format!("took over {taken}"),
        };
        let text = format!("following the gateway at {address}{again}: {what}");
        (first || back).then(|| Message::new(Level::Info, text))
    }

    /// Counts a request without a useful answer, and returns a message if there is something to say.
    fn misses(&mut self, now: Time, why: String) -> Option<Message> {
        self.missed = self.missed.saturating_add(1);
        self.failures += 1;
        self.error = Some(why.clone());
        (self.missed == MISSED).then(|| {
            let known = match self.heard {
                Some((at, _)) => format!("What is known of it is {:.0} s old", now.since(at).as_secs_f64()),
                None => "Nothing is known of it".to_owned(),
            };
            let text = format!("the gateway at {} cannot be followed: {why}. {known}", self.address);
            Message::new(Level::Warning, text)
        })
    }
}

/// Follows the gateways that the policy names, and writes its file, until the task is aborted.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut tasks: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    let (mut version, mut write_at) = (0, Time::ZERO + file::EVERY);
    loop {
        let active_config = shared.control.active_config();
        if std::mem::replace(&mut version, active_config.version) != active_config.version {
            let settings = active_config.site.learned_state.clone().unwrap_or_default();
            follow(&shared, &mut tasks, &settings);
        }
        let now = shared.control.clock().now();
        if now >= write_at {
            write_at = now + file::EVERY;
            let shared = Arc::clone(&shared);
            // Not on this thread, because a disk may be slow. The call returns nothing and does not panic.
            let _ = spawn_blocking(move || file::keep(&shared)).await;
        }
        weirgate_clock::sleep(EVERY).await;
    }
}

/// Starts and ends tasks, so that exactly these gateways are followed.
fn follow(shared: &Arc<Shared>, tasks: &mut BTreeMap<String, JoinHandle<()>>, settings: &LearnedStateSettings) {
    tasks.retain(|address, task| {
        let stays = settings.follow.contains(address);
        if !stays {
            task.abort();
        }
        stays
    });
    {
        let mut state = lock(&shared.learning.0);
        state.followed.retain(|followed| settings.follow.contains(&followed.address));
        for address in &settings.follow {
            if state.followed.iter().all(|followed| followed.address != *address) {
                state.followed.push(Followed { address: address.clone(), ..Followed::default() });
            }
        }
    }
    for address in &settings.follow {
        let task = || spawn_local(follow_one(Arc::clone(shared), address.clone()));
        tasks.entry(address.clone()).or_insert_with(task);
    }
}

/// Follows one gateway until the task is aborted.
async fn follow_one(shared: Arc<Shared>, address: String) {
    let clock = shared.control.clock();
    loop {
        let asked = clock.now();
        let answer = ask(&shared, &address).await;
        // A gateway that drains finishes its requests and learns nothing more.
        if shared.phase() == Phase::Draining {
            return;
        }
        // The age includes the whole time of the exchange, so that no record becomes younger on its way.
        let result = answer.map(|state| {
            let age = clock.now().since(asked);
            let recent = state.classes.iter().map(|class| class.age_seconds).reduce(f64::min);
            let recent = recent.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            (import(&shared, &state, age), recent)
        });
        let now = clock.now();
        let message = {
            let mut state = lock(&shared.learning.0);
            let followed = state.followed.iter_mut().find(|followed| followed.address == address);
            followed.and_then(|followed| match result {
                Ok((taken, recent)) => followed.hears(now, recent, taken),
                Err(why) => followed.misses(now, why),
            })
        };
        if let Some(message) = message {
            // Not on this thread: a slow reader of standard error would delay health checks.
            spawn_blocking(move || weirgate_log::write(&[message]));
        }
        weirgate_clock::sleep(EVERY).await;
    }
}

/// Asks a gateway what it has learned.
async fn ask(shared: &Shared, address: &str) -> Result<LearnedState, String> {
    let (to, host) = match (address.strip_prefix(UNIX), &shared.trust) {
        (Some(path), _) => (Address::Unix(PathBuf::from(path)), "localhost"),
        (None, Some(trust)) => {
            let wanted = Wanted { role: Role::Gateway, name: None };
            (Address::Trusted(address.to_owned(), Arc::clone(trust), wanted), address)
        }
        (None, None) => (Address::Tcp(address.to_owned()), address),
    };
    let request = Request::get(host, "/learned").field("user-agent", "weirgate-standby");
    let request = match (&to, token(shared)?) {
        // Certificates prove more than a token, and another machine need not know the token.
        (Address::Trusted(..), _) | (_, None) => request,
        (_, Some(token)) => request.authorization(&token.authorization()),
    };
    let answer = exchange(&to, request, &Limits::new(PATIENCE, MAX_LEARNED_BYTES as u64)).await;
    let answer = answer.and_then(Answer::ok).map_err(|error| error.to_string())?;
    LearnedState::parse(&answer.body).map_err(|why| format!("its answer cannot be used: {why}"))
}

/// Returns the token of this gateway's admin API, which gateways on one machine share.
fn token(shared: &Shared) -> Result<Option<Token>, String> {
    let active_config = shared.control.active_config();
    let file = active_config.site.admin.as_ref().and_then(|admin| admin.token_file.as_deref());
    let variable = std::env::var(TOKEN_VARIABLE).ok().map(|value| (TOKEN_VARIABLE, value));
    Token::find("admin", file, variable).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use weirgate_engine::Adopted;

    use super::*;

    #[test]
    fn the_third_missed_answer_is_told_and_the_next_one_that_comes() {
        let at = |seconds: u64| Time::from_millis(1000 * seconds);
        let mut followed = Followed { address: "10.0.0.2:9900".into(), ..Followed::default() };
        let nothing = Taken::default();
        let two = Taken { engine: Adopted { classes: 2, windows: 1, nodes: 1 }, routes: 3 };
        let text = |message: Option<Message>| message.map(|message| message.text);
        let first = text(followed.hears(at(1), Some(Duration::from_secs(4)), two));
        assert_eq!(
            first.as_deref(),
            Some("following the gateway at 10.0.0.2:9900: took over 2 classes, 1 window, 1 node, 3 routes")
        );
        assert_eq!(text(followed.hears(at(2), None, nothing)), None);
        assert_eq!([3, 4].map(|s| text(followed.misses(at(s), "refused".into()))), [None, None]);
        let third = text(followed.misses(at(5), "refused".into()));
        let expected = "the gateway at 10.0.0.2:9900 cannot be followed: refused. What is known of it is 3 s old";
        assert_eq!(third.as_deref(), Some(expected));
        assert_eq!(text(followed.misses(at(6), "refused".into())), None);
        let shape = followed.shape(at(7));
        assert_eq!((shape.age_seconds, shape.adopted_age_seconds, shape.failures), (Some(5.0), Some(6.0), 4));
        assert_eq!(shape.error.as_deref(), Some("refused"));
        let again = text(followed.hears(at(8), Some(Duration::from_secs(1)), nothing));
        let expected = "following the gateway at 10.0.0.2:9900 again: it knows nothing more recent";
        assert_eq!(again.as_deref(), Some(expected));
        assert_eq!(followed.shape(at(9)).answer_age_seconds, Some(2.0));
    }
}
