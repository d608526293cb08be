//! TLS in force: the certificates of the listeners, and the authorities and certificates for connections to nodes.
//!
//! They are apart from the configuration, because files are renewed more often than policies change. Files are looked
//! at every [`LOOK_EVERY`] (see [`Look`]). New files that cannot be used change nothing and are reported once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use weirgate_config::{ListenerName, Site};
use weirgate_log::{Level, Message};
use weirgate_tls::trust::LOOK_EVERY;
use weirgate_tls::{Client, ClientSettings, LiveTrust, Look, Server, Watched};

use crate::events::Certificate;
use crate::gateway::{Gateway, Shared, lock};
use crate::metrics::Tls;

/// All TLS in force.
#[derive(Debug, Default)]
pub(crate) struct TlsFiles {
    /// By the listener.
    pub(crate) listeners: Table<ListenerName, Server>,
    /// By the settings of the upstream.
    pub(crate) nodes: Table<ClientSettings, Client>,
    /// Number of times that changed files were put in force.
    pub(crate) renewals: AtomicU64,
    /// Number of times that changed files could not be used.
    pub(crate) failures: AtomicU64,
}

/// TLS of a site, not yet in force.
pub(crate) struct Loaded {
    listeners: BTreeMap<ListenerName, Arc<Server>>,
    nodes: BTreeMap<ClientSettings, Arc<Client>>,
}

/// Contents of files, by their use.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    in_force: RwLock<BTreeMap<K, Arc<V>>>,
    looks: Mutex<BTreeMap<K, Look>>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { in_force: RwLock::default(), looks: Mutex::default() }
    }
}

impl<K: Ord + Clone, V: Watched> Table<K, V> {
    /// Returns the contents for `key`.
    pub(crate) fn of(&self, key: &K) -> Option<Arc<V>> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Returns everything.
    pub(crate) fn all(&self) -> BTreeMap<K, Arc<V>> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, all: BTreeMap<K, Arc<V>>) {
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Looks at the files, and puts changed ones in force. `tell` is called for each use of changed files, with the
    /// fault that keeps them from being used, if any.
    fn look(&self, mut tell: impl FnMut(&K, Result<(), String>)) {
        let mut all = self.all();
        let mut looks = lock(&self.looks);
        looks.retain(|key, _| all.contains_key(key));
        let mut renewed = false;
        for (key, value) in &mut all {
            match looks.entry(key.clone()).or_default().at(&**value) {
                None => {}
                Some(Ok(new)) => {
                    *value = Arc::new(new);
                    renewed = true;
                    tell(key, Ok(()));
                }
                Some(Err(faults)) => {
                    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
                    tell(key, Err(lines.join("\n")));
                }
            }
        }
        drop(looks);
        if renewed {
            self.set(all);
        }
    }
}

impl TlsFiles {
    /// Reads all files of `site`. Changes nothing.
    ///
    /// # Errors
    /// The faults of all files, one a line.
    pub(crate) fn load(&self, site: &Site) -> Result<Loaded, String> {
        let mut loaded = Loaded { listeners: BTreeMap::new(), nodes: BTreeMap::new() };
        let mut faults = String::new();
        for listener in &site.listeners {
            let Some(settings) = &listener.tls else { continue };
            match Server::load(settings, self.listeners.of(&listener.name).as_deref()) {
                Ok(server) => drop(loaded.listeners.insert(listener.name.clone(), Arc::new(server))),
                Err(found) => found.iter().for_each(|fault| faults += &format!("{}: {fault}\n", listener.name)),
            }
        }
        for settings in site.pools.iter().filter_map(|pool| pool.tls.as_ref()) {
            match Client::load(settings) {
                Ok(client) => drop(loaded.nodes.insert(settings.clone(), Arc::new(client))),
                Err(found) => found.iter().for_each(|fault| faults += &format!("upstream: {fault}\n")),
            }
        }
        if faults.is_empty() { Ok(loaded) } else { Err(faults) }
    }

    /// Puts `loaded` in force for new connections.
    pub(crate) fn set(&self, loaded: Loaded) {
        self.listeners.set(loaded.listeners);
        self.nodes.set(loaded.nodes);
    }

    /// Looks at all files, also those of `trust`. No reload may run meanwhile. Returns messages for the operator.
    fn look(&self, trust: Option<&LiveTrust>) -> Vec<Message> {
        let mut lines = Vec::new();
        let mut tell = |line: Result<String, String>| {
            let count = if line.is_ok() { &self.renewals } else { &self.failures };
            count.fetch_add(1, Ordering::Relaxed);
            let level = if line.is_ok() { Level::Info } else { Level::Error };
            lines.push(Message::new(level, line.unwrap_or_else(|faults| faults)));
        };
        let changed = |place: &str, result: Result<(), String>| match result {
            Ok(()) => Ok(format!("the certificates of {place} have changed and are in force")),
            Err(faults) => Err(format!(
                "the certificates of {place} have changed and cannot be used:\n{faults}\nthose in force stay"
            )),
        };
        self.listeners.look(|address, result| tell(changed(&address.to_string(), result)));
        self.nodes.look(|_, result| tell(changed("an upstream", result)));
        trust.and_then(LiveTrust::look).into_iter().for_each(tell);
        lines
    }
}

impl Shared {
    /// Returns the certificates in force on listeners, and that of the site's trust.
    pub(crate) fn certificates(&self) -> Vec<Certificate> {
        let servers = self.tls.listeners.all();
        let certificates = servers.values().flat_map(|server| server.certificates.all());
        let trust = self.trust.as_ref().map(|trust| trust.now());
        let certificates = certificates.chain(trust.as_ref().map(|trust| trust.certificate()));
        let one = |one: &weirgate_tls::Certificate| Certificate {
            name: one.files.certificate.display().to_string(),
            not_before: one.not_before,
            not_after: one.not_after,
        };
        certificates.map(one).collect()
    }
}

impl Gateway {
    /// Returns the metrics of TLS.
    pub(crate) fn tls_metrics(&self) -> Tls {
        let handshakes = &self.shared.counters.handshakes;
        Tls {
            handshakes: [&handshakes.full, &handshakes.resumed].map(|count| count.load(Ordering::Relaxed)),
            failures: handshakes.failures().collect(),
            renewals: [&self.shared.tls.renewals, &self.shared.tls.failures].map(|n| n.load(Ordering::Relaxed)),
            ends: self.shared.certificates().into_iter().map(|one| (one.name, one.not_after)).collect(),
        }
    }
}

/// Looks at the files for ever.
pub(crate) async fn watch(shared: Arc<Shared>) {
    loop {
        weirgate_clock::sleep(LOOK_EVERY).await;
        let shared = Arc::clone(&shared);
        // Not on this thread: a slow disk, or a slow reader of standard error, would delay requests.
        let _ = tokio::task::spawn_blocking(move || look(&shared)).await;
    }
}

/// Looks at the files once, and tells the operator about changes.
pub(crate) fn look(shared: &Shared) {
    let lines = {
        let _not_during_a_reload = lock(&shared.reloading);
        shared.tls.look(shared.trust.as_deref())
    };
    weirgate_log::write(&lines);
}
