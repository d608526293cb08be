//! Certificates from an authority that speaks ACME (RFC 8555), such as Let's Encrypt.
//!
//! One task orders all certificates, one after the other, and renews them. It never touches a connection of a client:
//! the gateway asks [`Challenges`] for the answers that the authority wants to see, and reads the files of certificates
//! when they have changed, like all others. instant-acme speaks the protocol.
//!
//! # Modules
//! `schedule` decides when, `authority` orders, `client` sends its requests, `challenges` has the answers, `store` the
//! files.

mod authority;
mod challenges;
mod client;
mod schedule;
mod store;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use weirgate_config::{Acme as Settings, AcmeCertificate, Challenge};
use weirgate_log::Level;
use weirgate_tls::Certificate;
use weirgate_wire::admin;

use authority::{Failure, RenewalId, Session};
pub use challenges::Challenges;
use schedule::{ASK_EVERY, Schedule, Task, Validity};

/// Time until a certificate is looked at again that another process orders. It takes seconds.
const OTHERS: Duration = Duration::from_secs(10);

/// Longest sleep. The calendar may jump meanwhile, as when a machine has been suspended.
const MAX_SLEEP: Duration = Duration::from_secs(600);

/// The certificates of a gateway that an authority issues.
#[derive(Debug, Default)]
pub struct Acme {
    /// The answers for the authority.
    pub challenges: Challenges,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    settings: Option<Arc<Settings>>,
    /// By file.
    certificates: BTreeMap<PathBuf, Known>,
    running: bool,
}

/// The known state of a certificate.
#[derive(Debug)]
struct Known {
    wanted: AcmeCertificate,
    schedule: Schedule,
    /// Number of certificates that the authority has issued.
    issued: u64,
    /// Number of failed attempts.
    failed: u64,
    /// Reason of the last failure, until a certificate is issued.
    error: Option<String>,
}

impl Acme {
    /// Follows the settings of a new configuration. Returns true if [`Acme::run`] must be started.
    pub fn follow(&self, settings: Option<&Settings>) -> bool {
        let mut state = self.lock();
        let now = weirgate_clock::calendar();
        let mut before = std::mem::take(&mut state.certificates);
        let same = |a: &Settings, b: &Settings| (&a.directory, &a.storage) == (&b.directory, &b.storage);
        if !state.settings.as_deref().zip(settings).is_some_and(|(a, b)| same(a, b)) {
            before.clear();
        }
        for wanted in settings.iter().flat_map(|settings| &settings.certificates) {
            let file = wanted.files.certificate.clone();
            let known = match before.remove(&file).filter(|known| known.wanted == *wanted) {
                Some(known) => known,
                None => {
                    let schedule = Schedule::new(present(wanted).map(|(validity, _)| validity), now, random());
                    Known { wanted: wanted.clone(), schedule, issued: 0, failed: 0, error: None }
                }
            };
            state.certificates.insert(file, known);
        }
        state.settings = settings.cloned().map(Arc::new);
        self.changed.notify_one();
        let starts = !state.running && settings.is_some();
        state.running |= starts;
        starts
    }

    /// Ends [`Acme::run`], if its `ended` agrees.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Orders and renews certificates until `ended`. Needs a runtime of its own, because it reads and writes files.
    /// `issued` is called after the files of a certificate have changed.
    pub async fn run(&self, ended: impl Fn() -> bool, issued: impl Fn()) {
        while !ended() {
            let now = weirgate_clock::calendar();
            let due = self.due();
            match due {
                Some((at, task, settings, wanted)) if at <= now => {
                    let work = async {
                        match task {
                            Task::Order => self.order(&settings, &wanted, &issued).await,
                            Task::AskWindow => self.ask(&settings, &wanted, &issued).await,
                        }
                    };
                    // A process that ends does not wait for an authority.
                    tokio::select! {
                        () = work => {}
                        () = self.told_to_end(&ended) => {}
                    }
                }
                due => {
                    let at = due.map_or(now + MAX_SLEEP, |(at, ..)| at);
                    let span = at.duration_since(now).unwrap_or_default().min(MAX_SLEEP);
                    let _ = weirgate_clock::within(span, self.changed.notified()).await;
                }
            }
        }
    }

    async fn told_to_end(&self, ended: &impl Fn() -> bool) {
        while !ended() {
            self.changed.notified().await;
        }
    }

    /// Returns the certificate with the earliest task.
    fn due(&self) -> Option<(SystemTime, Task, Arc<Settings>, AcmeCertificate)> {
        let state = self.lock();
        let settings = Arc::clone(state.settings.as_ref()?);
        let next = state.certificates.values().map(|known| (known.schedule.next(), known));
        let ((at, task), known) = next.min_by_key(|((at, _), _)| *at)?;
        Some((at, task, settings, known.wanted.clone()))
    }

    /// Asks the authority when to renew a certificate.
    async fn ask(&self, settings: &Settings, wanted: &AcmeCertificate, issued: &impl Fn()) {
        let found = self.look(wanted, issued);
        let suggested = async {
            let (_, id) = found?;
            // A session may make the account, which two processes must not do at once.
            let _lock = store::lock(&settings.storage).ok()??;
            Session::open(settings).await.ok()?.window(&id?).await
        };
        let suggested = suggested.await;
        let (window, again) = suggested.map_or((None, ASK_EVERY), |(window, again)| (Some(window), again));
        self.change(wanted, |known, now| known.schedule.suggested(window, again, now, random()));
    }

    /// Orders a certificate, unless another process does or has done so.
    async fn order(&self, settings: &Settings, wanted: &AcmeCertificate, issued: &impl Fn()) {
        let _lock = match store::lock(&settings.storage) {
            Ok(Some(lock)) => lock,
            Ok(None) => return self.change(wanted, |known, now| known.schedule.postpone(now + OTHERS)),
            Err(why) => return self.failed(wanted, "", why.into()),
        };
        let before = self.lock().certificates.get(&wanted.files.certificate).map(|known| known.schedule.clone());
        let Some(schedule) = before else { return };
        let found = self.look(wanted, issued);
        if found.as_ref().is_some_and(|(validity, _)| Some(*validity) != schedule.present) {
            // Another process has ordered it. This one has noted that, and decides anew.
            return;
        }
        let challenges = &settings.challenges;
        let turn = schedule.failures as usize % challenges.len().max(1);
        let challenge = challenges.get(turn).copied().unwrap_or(Challenge::TlsAlpn01);
        let word = match challenge {
            Challenge::Http01 => "http-01: ",
            Challenge::TlsAlpn01 => "tls-alpn-01: ",
        };
        // An authority that does not know the old certificate any more may refuse its name once, and not again.
        let replaces = found.and_then(|(_, id)| id).filter(|_| schedule.failures == 0);
        let ordered = async {
            let session = Session::open(settings).await?;
            let replaces = match &replaces {
                Some(id) if session.window(id).await.is_some() => replaces.as_ref(),
                _ => None,
            };
            session.order(settings, &wanted.names, replaces, (challenge, &self.challenges)).await
        };
        match ordered.await.and_then(|pem| Ok(store::write(&wanted.files.certificate, pem.as_bytes())?)) {
            Err(failure) => self.failed(wanted, word, failure),
            Ok(()) => match present(wanted) {
                None => self.failed(wanted, word, "the issued certificate cannot be used".to_owned().into()),
                Some((validity, _)) => {
                    let end = httpdate::fmt_http_date(validity.to);
                    say(wanted, Level::Info, &format!("the authority has issued a certificate until {end}"));
                    self.renewed(wanted, validity, issued);
                    // Counted when it is in force.
                    self.change(wanted, |known, _| known.issued += 1);
                }
            },
        }
    }

    /// Looks at the file of a certificate. If another process has put another one there, that is noted.
    fn look(&self, wanted: &AcmeCertificate, issued: &impl Fn()) -> Option<(Validity, Option<RenewalId>)> {
        let (validity, id) = present(wanted)?;
        let before = self.lock().certificates.get(&wanted.files.certificate).and_then(|known| known.schedule.present);
        if before != Some(validity) {
            self.renewed(wanted, validity, issued);
        }
        Some((validity, id))
    }

    /// Notes a new certificate in the file.
    fn renewed(&self, wanted: &AcmeCertificate, validity: Validity, issued: &impl Fn()) {
        self.change(wanted, |known, now| {
            known.schedule.issued(validity, now, random());
            known.error = None;
        });
        issued();
    }

    fn failed(&self, wanted: &AcmeCertificate, challenge: &str, failure: Failure) {
        let Failure { why, retry_after } = failure;
        let why = format!("{challenge}{why}");
        let mut wait = Duration::ZERO;
        self.change(wanted, |known, now| {
            known.schedule.failed(retry_after, now, random());
            known.failed += 1;
            known.error = Some(why.clone());
            wait = known.schedule.next().0.duration_since(now).unwrap_or_default();
        });
        let wait = match wait.as_secs() {
            seconds @ 0..120 => format!("{seconds} s"),
            seconds => format!("{} min", seconds / 60),
        };
        say(wanted, Level::Warning, &format!("{why}: next attempt in {wait}"));
    }

    /// Changes the state of a certificate, if it is still wanted.
    fn change(&self, wanted: &AcmeCertificate, change: impl FnOnce(&mut Known, SystemTime)) {
        let now = weirgate_clock::calendar();
        let mut state = self.lock();
        let known = state.certificates.get_mut(&wanted.files.certificate).filter(|known| known.wanted == *wanted);
        if let Some(known) = known {
            change(known, now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of all certificates.
    pub fn view(&self) -> Vec<admin::AcmeCertificate> {
        let now = weirgate_clock::calendar();
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let of = |known: &Known| admin::AcmeCertificate {
            names: known.wanted.names.clone(),
            file: known.wanted.files.certificate.display().to_string(),
            not_after_seconds: known.schedule.present.map(|present| since(present.to)),
            next_order_in_seconds: known.schedule.order().duration_since(now).unwrap_or_default().as_secs_f64(),
            issued: known.issued,
            failures: known.failed,
            error: known.error.clone(),
        };
        self.lock().certificates.values().map(of).collect()
    }
}

/// Returns the certificate in the file, if it can be used and has all names.
fn present(wanted: &AcmeCertificate) -> Option<(Validity, Option<RenewalId>)> {
    let found = Certificate::load(&wanted.files, 0).ok()?;
    let validity = Validity { from: found.not_before, to: found.not_after };
    wanted.names.iter().all(|name| found.covers(name)).then(|| (validity, found.renewal_id()))
}

/// Tells the operator about a certificate.
fn say(wanted: &AcmeCertificate, level: Level, what: &str) {
    let name = wanted.names.first().map_or("", String::as_str);
    weirgate_log::say(level, &format!("acme: {name}: {what}"));
}

/// Returns a random number from 0 to less than 1.
fn random() -> f64 {
    (weirgate_clock::seed() >> 11) as f64 / (1u64 << 53) as f64
}
