//! Discovery of nodes while the gateway runs: one task per upstream, all on a thread of their own.
//!
//! A task looks at its source, and puts a changed list in force like a reload does: the engine carries classes, queues,
//! learned costs and windows, new nodes start slowly if the upstream says so, and requests in flight on nodes that have
//! left finish. Nothing waits for a source but the start, which gives each [`FIRST_WITHIN`] to name its first nodes.
//! Later a source that fails, or names no node, leaves the last nodes in place. The thread starts with the first policy
//! that discovers nodes.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use weirgate_config::{Discover, NodeSource, Site};
use weirgate_discovery::{Change, Found, Looked, Lookup, keep_nodes, set_nodes};
use weirgate_engine::Time;
use weirgate_log::{Level, Message};

use crate::gateway::{Gateway, Phase, Shared, lock};

/// Time for the first nodes at the start. Sources are near and answer within milliseconds. Service managers wait longer
/// before they kill a process, and a gateway without nodes can answer 503 and tell its state, which one that does not
/// start cannot.
const FIRST_WITHIN: Duration = Duration::from_secs(5);

/// The sources of all upstreams.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    state: Mutex<State>,
    /// Signals that the policy has changed, or that the gateway ends.
    pub(crate) changed: Notify,
    /// Signals that a source has been looked at.
    looked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By the name of the upstream.
    pools: BTreeMap<String, Known>,
    running: bool,
}

/// What is known of a source.
#[derive(Clone, Debug)]
struct Known {
    discover: Discover,
    /// The last nodes that it named. `None` if it has named none yet.
    nodes: Option<Vec<Found>>,
    success: Option<Time>,
    /// The error of the last look, if it failed.
    error: Option<String>,
    failures: u64,
    changes: u64,
}

impl State {
    /// Returns what is known of the source of an upstream, unless a reload has given it another one meanwhile.
    fn of(&mut self, upstream: &str, source: &NodeSource) -> Option<&mut Known> {
        self.pools.get_mut(upstream).filter(|known| known.discover.source == *source)
    }
}

impl Discovery {
    /// Gives the upstreams of `site` the nodes that their sources have named. An upstream with a new source keeps its
    /// nodes of `before` until that source has named some. No look may put nodes in force meanwhile.
    pub(crate) fn fill(&self, site: &mut Site, before: &Site) {
        let state = lock(&self.state);
        for pool in 0..site.discover.len() {
            let Some(discover) = site.discover[pool].as_ref() else { continue };
            let known = state.pools.get(&site.policy.pools[pool].name);
            let known = known.filter(|known| known.discover.source == discover.source);
            match known.and_then(|known| known.nodes.as_ref()) {
                Some(nodes) => set_nodes(site, pool, nodes),
                None => keep_nodes(site, pool, before),
            }
        }
    }

    /// Returns the state of all sources.
    pub(crate) fn view(&self, now: Time) -> Vec<weirgate_wire::admin::Discovery> {
        let of = |(upstream, known): (&String, &Known)| weirgate_wire::admin::Discovery {
            upstream: upstream.clone(),
            source: known.discover.source.to_string(),
            nodes: known.nodes.as_ref().map_or(0, Vec::len) as u32,
            changes: known.changes,
            failures: known.failures,
            success_age_seconds: known.success.map(|at| now.since(at).as_secs_f64()),
            error: known.error.clone(),
        };
        lock(&self.state).pools.iter().map(of).collect()
    }

    /// Follows the sources of `site`. Returns true if the thread must be started.
    fn follow(&self, site: &Site) -> bool {
        let mut state = lock(&self.state);
        let mut before = std::mem::take(&mut state.pools);
        for (pool, discover) in site.policy.pools.iter().zip(&site.discover) {
            let Some(discover) = discover else { continue };
            let known = before.remove(&pool.name).filter(|known| known.discover.source == discover.source);
            let known = match known {
                Some(known) => Known { discover: discover.clone(), ..known },
                None => Known {
                    discover: discover.clone(),
                    nodes: None,
                    success: None,
                    error: None,
                    failures: 0,
                    changes: 0,
                },
            };
            state.pools.insert(pool.name.clone(), known);
        }
        self.changed.notify_one();
        let starts = !state.running && !state.pools.is_empty();
        state.running |= starts;
        starts
    }

    /// Waits until every source has been looked at once, for at most [`FIRST_WITHIN`].
    fn wait_for_first(&self) {
        let looked = |known: &Known| known.nodes.is_some() || known.error.is_some();
        let state = lock(&self.state);
        let waited = self.looked.wait_timeout_while(state, FIRST_WITHIN, |state| !state.pools.values().all(looked));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes a failed look. Returns a line for the operator if the error is new.
    fn failed(&self, (upstream, source): (&str, &NodeSource), error: String) -> Option<Message> {
        let mut state = lock(&self.state);
        let known = state.of(upstream, source)?;
        known.failures += 1;
        let stay = match known.nodes.as_ref().map(Vec::len) {
            None => "it has named no nodes yet".to_owned(),
            Some(1) => "the last node stays".to_owned(),
            Some(count) => format!("the last {count} nodes stay"),
        };
        let line = format!("upstream {upstream}: {}: {error}: {stay}", known.discover.source);
        let new = known.error.as_ref() != Some(&error);
        known.error = Some(error);
        self.looked.notify_all();
        new.then(|| Message::new(Level::Warning, line))
    }
}

impl Gateway {
    /// Follows the sources of the configuration in force. No reload may run meanwhile.
    pub(crate) fn follow_sources(&self) -> std::io::Result<()> {
        let shared = &self.shared;
        if shared.discovery.follow(&shared.control.active_config().site) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let gateway = self.clone();
            let run = move || {
                runtime.block_on(watch(gateway));
                // A file on a disk that hangs must not keep the process from ending.
                runtime.shutdown_background();
            };
            let thread = std::thread::Builder::new().name("weirgate-discovery".to_owned()).spawn(run)?;
            lock(&shared.handles).push(thread);
        }
        Ok(())
    }

    /// Waits for the first nodes of all sources.
    pub(crate) fn wait_for_sources(&self) {
        self.shared.discovery.wait_for_first();
    }
}

/// Runs a task for each source until the gateway drains.
async fn watch(gateway: Gateway) {
    let mut tasks: BTreeMap<String, (Discover, JoinHandle<()>)> = BTreeMap::new();
    while matches!(gateway.phase(), Phase::Starting | Phase::Ready) {
        let wanted: BTreeMap<String, Discover> = {
            let state = lock(&gateway.shared.discovery.state);
            state.pools.iter().map(|(name, known)| (name.clone(), known.discover.clone())).collect()
        };
        tasks.retain(|name, (discover, task)| {
            let stays = wanted.get(name) == Some(discover);
            if !stays {
                task.abort();
            }
            stays
        });
        for (name, discover) in wanted {
            tasks.entry(name.clone()).or_insert_with(|| {
                let task = tokio::spawn(look(gateway.clone(), name, Lookup::new(discover.clone())));
                (discover, task)
            });
        }
        gateway.shared.discovery.changed.notified().await;
    }
    tasks.into_values().for_each(|(_, task)| task.abort());
}

/// Looks at one source for ever.
async fn look(gateway: Gateway, upstream: String, mut lookup: Lookup) {
    let source = lookup.source().clone();
    loop {
        let looked = lookup.look().await;
        let (gateway, upstream, source) = (gateway.clone(), upstream.clone(), source.clone());
        // The thread of configurations may be busy with a reload, and other sources have their time.
        let line = tokio::task::spawn_blocking(move || match looked {
            Ok(Looked::Same) => {
                gateway.same_nodes(&upstream, &source);
                None
            }
            Ok(Looked::Nodes(nodes)) => gateway.put_nodes(upstream, source, nodes),
            Err(error) => gateway.shared.discovery.failed((&upstream, &source), error),
        });
        if let Ok(Some(line)) = line.await {
            weirgate_log::write(&[line]);
        }
        weirgate_clock::sleep(weirgate_clock::jittered(lookup.wait())).await;
    }
}

impl Gateway {
    /// Notes that a source names the same nodes as before.
    fn same_nodes(&self, upstream: &str, source: &NodeSource) {
        let now = self.shared.control.clock().now();
        if let Some(known) = lock(&self.shared.discovery.state).of(upstream, source) {
            (known.success, known.error) = (Some(now), None);
        }
    }

    /// Puts the nodes of an upstream in force. Returns a line for the operator if they have changed.
    fn put_nodes(&self, upstream: String, source: NodeSource, nodes: Vec<Found>) -> Option<Message> {
        let gateway = self.clone();
        self.shared.config_thread.run(move || gateway.put_nodes_here(&upstream, &source, nodes))
    }

    fn put_nodes_here(&self, upstream: &str, source: &NodeSource, nodes: Vec<Found>) -> Option<Message> {
        let shared = &self.shared;
        let discovery = &shared.discovery;
        let _one_at_a_time = lock(&shared.reloading);
        if !matches!(self.phase(), Phase::Starting | Phase::Ready) {
            return None;
        }
        let before = lock(&discovery.state).of(upstream, source)?.nodes.clone();
        let change = Change::between(before.as_deref().unwrap_or_default(), &nodes);
        let count = nodes.len();
        if !change.is_empty()
            && let Err(error) = shared.replace_nodes(upstream, &nodes)
        {
            return discovery.failed((upstream, source), format!("its nodes cannot be used: {error}"));
        }
        let now = shared.control.clock().now();
        let mut state = lock(&discovery.state);
        let known = state.of(upstream, source)?;
        known.changes += u64::from(!change.is_empty());
        (known.nodes, known.success, known.error) = (Some(nodes), Some(now), None);
        discovery.looked.notify_all();
        let word = if count == 1 { "node" } else { "nodes" };
        let line = || format!("upstream {upstream}: {source}: {count} {word}: {change}");
        (!change.is_empty()).then(|| Message::new(Level::Info, line()))
    }
}

impl Shared {
    /// Puts the nodes of an upstream in force. No reload may run meanwhile.
    fn replace_nodes(&self, upstream: &str, nodes: &[Found]) -> Result<(), weirgate_engine::InvalidPolicy> {
        let before = self.control.active_config();
        let Some(pool) = before.site.policy.pools.iter().position(|pool| pool.name == upstream) else { return Ok(()) };
        let mut site = before.site.clone();
        set_nodes(&mut site, pool, nodes);
        let active_config = self.control.replace_nodes(&before, site)?;
        self.pages.follow(&active_config);
        Ok(())
    }
}
