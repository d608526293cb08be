//! Requests that the gateway itself sends to its nodes: active health checks and collectors' reports.
//!
//! There is one task per node and kind of request, all on the thread of [`crate::watch_thread`]. A task lives as long
//! as its node stays in the policy unchanged. Each request uses its own connection, as a new client would.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::active_config::ActiveConfig;
use crate::gateway::Shared;
use crate::{collector, health};

/// The running tasks.
#[derive(Default)]
pub(crate) struct Polls {
    tasks: HashMap<u64, Vec<JoinHandle<()>>>,
    /// Version of the configuration that the tasks follow.
    version: u64,
}

impl Polls {
    /// Starts and stops tasks so that exactly the nodes of `active_config` are polled.
    pub(crate) fn follow(&mut self, active_config: &ActiveConfig, shared: &Arc<Shared>) {
        if std::mem::replace(&mut self.version, active_config.version) == active_config.version {
            return;
        }
        self.tasks.retain(|id, tasks| {
            let stays = active_config.node_of(*id).is_some();
            if !stays {
                tasks.iter().for_each(JoinHandle::abort);
            }
            stays
        });
        let collected = active_config.nodes.iter().filter(|t| t.settings.collector.is_some());
        shared.reports.retain(collected.map(|t| t.id).collect());
        for endpoint in &active_config.nodes {
            self.tasks.entry(endpoint.id).or_insert_with(|| {
                let check = endpoint.settings.health.clone().map(|check| {
                    tokio::task::spawn_local(health::watch(Arc::clone(endpoint), check, Arc::clone(shared)))
                });
                let collector = endpoint.settings.collector.clone().map(|collector| {
                    tokio::task::spawn_local(collector::watch(Arc::clone(endpoint), collector, Arc::clone(shared)))
                });
                check.into_iter().chain(collector).collect()
            });
        }
    }

    /// Stops all tasks.
    pub(crate) fn stop(&mut self) {
        self.tasks.drain().flat_map(|(_, tasks)| tasks).for_each(|task| task.abort());
    }
}
