//! The gateway among those of its site: a thread that takes part, and the engine's side of the shares.
//!
//! `weirgate_sharing` decides nothing about requests: it tells the engine which part of each guaranteed throughput to
//! keep, and until when. From the first moment on a gateway of a site keeps the minimum, because the others may keep
//! the rest.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use tokio::runtime::Builder;
use tokio::sync::Notify;
use weirgate_config::{Sharing, Site};
use weirgate_engine::{Beside, ClassId, Engine, Lease, Part, Time, WindowUse};
use weirgate_sharing::{End, Floors, Seen};
use weirgate_wire::admin::{EventKind, SiteStatus};
use weirgate_wire::{LearnedClass, LearnedState, LearnedTimes};

use crate::active_config::ActiveConfig;
use crate::gateway::{Gateway, Phase, Shared, lock};
use crate::learned;
use crate::rollout::{self, Reload};

/// Millionths of a request.
const MILLION: f64 = 1e6;

/// This gateway's part in its site.
#[derive(Default)]
pub(crate) struct Membership {
    /// Present while the policy names a site.
    running: Mutex<Option<Arc<weirgate_sharing::Shared>>>,
    /// Whether there is a thread.
    started: AtomicBool,
    /// Another policy or phase is in force.
    pub(crate) changed: Notify,
    /// Puts the policy file in force.
    pub(crate) reload: OnceLock<Reload>,
}

/// Brings the engine's parts in line with a policy that is in force from now on. Classes that the site shares from now
/// on begin with the minimum.
pub(crate) fn begin(engine: &mut Engine, now: Time, site: &Site) {
    let Some(sharing) = &site.sharing else { return engine.keep_whole(now) };
    let is_new = |(_, (_, class)): &(usize, &(String, ClassId))| engine.part(*class).is_none();
    let minimum = |budget| {
        let least = sharing.agreed.minimum(budget) as f64 / MILLION;
        Part { granted: least, safe: least, least }
    };
    let new = sharing.classes.iter().enumerate().filter(is_new);
    let parts: Vec<(ClassId, Part)> = new.map(|(budget, (_, class))| (*class, minimum(budget))).collect();
    engine.keep_parts(now, engine.lease(), &parts);
}

/// Starts the thread if the policy in force names a site and there is none. It ends with the gateway.
///
/// # Errors
/// The system has no thread or no file descriptor left.
pub(crate) fn follow(gateway: &Gateway) -> io::Result<()> {
    let membership = &gateway.shared.membership;
    membership.changed.notify_one();
    let wanted = gateway.active_config().site.sharing.is_some();
    if !wanted || membership.started.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let gateway = gateway.clone();
    let handles = Arc::clone(&gateway.shared);
    let run = move || {
        runtime.block_on(take_part(&gateway.shared));
        // A name server that does not answer must not keep the process from ending.
        runtime.shutdown_background();
    };
    lock(&handles.handles).push(std::thread::Builder::new().name("weirgate-site".to_owned()).spawn(run)?);
    Ok(())
}

/// Takes part in the site of the policy in force, until the gateway drains.
async fn take_part(shared: &Arc<Shared>) {
    let changed = &shared.membership.changed;
    let mut before = None;
    loop {
        match shared.phase() {
            // The process before this one may still take part under the same name.
            Phase::Starting => {
                changed.notified().await;
                continue;
            }
            Phase::Ready => {}
            Phase::Draining | Phase::Stopped => return,
        }
        let active_config = shared.control.active_config();
        let Some(sharing) = active_config.site.sharing.clone() else {
            before = None;
            changed.notified().await;
            continue;
        };
        let classes = sharing.classes.iter().map(|(_, class)| *class).collect();
        let version = AtomicU64::new(active_config.version);
        drop(active_config);
        let floors = Arc::new(OfEngine { shared: Arc::clone(shared), sharing: sharing.clone(), classes, version });
        let end = async {
            loop {
                changed.notified().await;
                match shared.phase() {
                    Phase::Starting | Phase::Ready => {
                        if shared.control.active_config().site.sharing.as_ref() != Some(&floors.sharing) {
                            return End::Change;
                        }
                    }
                    Phase::Draining | Phase::Stopped => return End::Leave,
                }
            }
        };
        let publish = |running| *lock(&shared.membership.running) = Some(running);
        let floors: Arc<dyn Floors> = Arc::<OfEngine>::clone(&floors);
        before = Some(weirgate_sharing::run(sharing, shared.trust.clone(), floors, before.take(), publish, end).await);
        *lock(&shared.membership.running) = None;
    }
}

/// The engine under the policy with these settings.
struct OfEngine {
    shared: Arc<Shared>,
    sharing: Sharing,
    classes: Vec<ClassId>,
    /// The last version of the configuration that is known to have them.
    version: AtomicU64,
}

impl OfEngine {
    /// Whether the configuration in force has the same settings. Discovered nodes make a new version, too.
    fn is_of(&self, active_config: &ActiveConfig) -> bool {
        let known = self.version.load(Ordering::Relaxed);
        let same = known == active_config.version || active_config.site.sharing.as_ref() == Some(&self.sharing);
        if same {
            self.version.store(active_config.version, Ordering::Relaxed);
        }
        same
    }
}

impl Floors for OfEngine {
    fn now(&self) -> Time {
        self.shared.control.clock().now()
    }

    fn arrivals(&self, counts: &mut Vec<u64>) {
        self.shared.control.asked(|active_config| self.is_of(active_config), &self.classes, counts);
    }

    fn keep(&self, lease: Lease, parts: &[(usize, Part)]) {
        let parts: Vec<(ClassId, Part)> = parts.iter().map(|(budget, part)| (self.classes[*budget], *part)).collect();
        self.shared.control.keep_parts(|active_config| self.is_of(active_config), lease, &parts);
    }

    fn windows(&self) -> Vec<WindowUse> {
        self.shared.control.window_uses(|active_config| self.is_of(active_config))
    }

    fn beside(&self, until: Time, groups: &[Beside]) {
        self.shared.control.beside(|active_config| self.is_of(active_config), until, groups);
    }

    fn ejected(&self) -> Vec<String> {
        self.shared.control.ejected()
    }

    fn ejected_at_site(&self, nodes: &[String]) {
        self.shared.control.ejected_elsewhere(nodes);
    }

    fn learned(&self) -> LearnedState {
        costs(learned::export(&self.shared))
    }

    fn take_over(&self, state: LearnedState, age: Duration) -> Option<String> {
        let taken = learned::import(&self.shared, &costs(state), age);
        (!taken.is_nothing()).then(|| taken.to_string())
    }

    fn tell(&self, kind: EventKind, text: String) {
        let unix = weirgate_clock::calendar().duration_since(UNIX_EPOCH).unwrap_or_default();
        let message = self.shared.events.add(self.now(), unix, kind, text);
        // Not on this thread: a slow reader of standard error would delay reports.
        weirgate_log::pass(message);
    }

    fn check(&self, text: &str) -> Result<(), String> {
        rollout::check(&self.shared, &self.sharing, text)
    }

    fn put(&self, id: &str, text: &str, is_decided: bool) -> Result<(), String> {
        rollout::put(&self.shared, id, text, is_decided)
    }

    fn put_back(&self, id: &str) -> Result<(), String> {
        rollout::put_back(&self.shared, id)
    }

    fn seen(&self) -> Seen {
        rollout::seen(&self.shared)
    }
}

/// Returns the costs in a learned state. Gateways tell each other nothing else, and believe nothing else. Windows are
/// shared by reports, each gateway judges nodes by its own answers, and load and classes of templates belong to its own
/// clients.
fn costs(state: LearnedState) -> LearnedState {
    let of_class = |class: LearnedClass| {
        let times = class.times.map(|times| LearnedTimes { arrivals_per_second: 0.0, ..times });
        LearnedClass { rate_full_in_seconds: 0.0, times, ..class }
    };
    let classes = state.classes.into_iter().filter(|class| class.key.is_none()).map(of_class).collect();
    LearnedState { classes, windows: Vec::new(), nodes: Vec::new(), ..state }
}

impl Gateway {
    /// Puts the policy file in force by `reload` when a rollout has written it, as a signal does. Without it observers
    /// do not follow.
    pub fn reload_by(&self, reload: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        // Only the first one counts: a process has one.
        let _ = self.shared.membership.reload.set(Box::new(reload));
    }

    /// Returns this gateway's part in its site, if it has one.
    pub(crate) fn sharing(&self) -> Option<Arc<weirgate_sharing::Shared>> {
        lock(&self.shared.membership.running).clone()
    }

    /// Returns the site as this gateway knows it. `None` if it keeps all guarantees alone.
    pub fn site(&self) -> Option<SiteStatus> {
        self.sharing().map(|running| running.status())
    }
}
