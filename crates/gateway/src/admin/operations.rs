//! Operations on a running gateway, used by both the admin API and signals.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weirgate_config::{Admin, Site};
use weirgate_engine::{NodeEvent, NodeId};

use crate::access_log::AccessLog;
use crate::active_config::{ActiveConfig, ReloadError};
use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::telemetry::Telemetry;

/// A gateway with its observers. Changes are made one at a time, so that a version compared before a change
/// is still in force when the change is made.
#[derive(Debug)]
pub struct Operations {
    gateway: Gateway,
    metrics: Arc<Metrics>,
    log: Arc<AccessLog>,
    telemetry: Arc<Telemetry>,
    /// The fields of the configuration that take effect only at a start, as they were then.
    at_start: (Option<Admin>, Option<usize>, Option<PathBuf>),
    turn: Mutex<()>,
}

/// A reload that succeeded.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// The configuration now in force.
    pub active_config: Arc<ActiveConfig>,
    /// Changed fields that take effect only at the next start.
    pub later: Vec<&'static str>,
}

/// Reason why a reload was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReloaded {
    /// `If-Match` does not name the policy in force. The field holds the tag in force (see [`etag`]).
    Conflict(String),
    /// The new policy cannot be used.
    Failed(ReloadError),
}

impl fmt::Display for NotReloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReloaded::Conflict(tag) => write!(f, "the policy in force is {tag}, not the one named in If-Match"),
            NotReloaded::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotReloaded {}

/// Returns the entity tag (RFC 9110 Sec. 8.8.3) of the policy in force: its version and checksum, in quotes.
pub fn etag(active_config: &ActiveConfig) -> String {
    format!("\"{}-{}\"", active_config.version, active_config.checksum)
}

impl Operations {
    /// Operates `gateway`, which has `metrics`, `log` and `telemetry` as observers.
    pub fn new(gateway: Gateway, metrics: Arc<Metrics>, log: Arc<AccessLog>, telemetry: Arc<Telemetry>) -> Operations {
        let first = gateway.active_config();
        metrics.retain(names(&first.site), limits(&first.site));
        let at_start = (first.site.admin.clone(), first.site.threads, first.site.trust.clone());
        Operations { gateway, metrics, log, telemetry, at_start, turn: Mutex::new(()) }
    }

    /// Returns the gateway.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    pub(super) fn log(&self) -> &AccessLog {
        &self.log
    }

    /// Reads the policy file again and puts it in force, if `expected` (the value of `If-Match`) allows it.
    /// The access log is reopened in any case.
    ///
    /// # Errors
    /// The reload was refused or failed. The old policy stays in force.
    pub fn reload(&self, expected: Option<&str>) -> Result<Reloaded, NotReloaded> {
        // A panic under this lock leaves nothing half done, because the gateway replaces its configuration as
        // a whole.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let tag = etag(&self.gateway.active_config());
        if let Some(expected) = expected
            && !expected.split(',').map(str::trim).any(|one| one == "*" || one == tag)
        {
            return Err(NotReloaded::Conflict(tag));
        }
        let result = self.gateway.reload();
        let later = self.follow(result.as_deref().ok());
        result.map(|active_config| Reloaded { active_config, later }).map_err(NotReloaded::Failed)
    }

    /// Applies a reload to the metrics, the messages and the access log. `active_config` is `None` if the reload
    /// failed. Returns the changed fields that take effect only at the next start.
    pub fn follow(&self, active_config: Option<&ActiveConfig>) -> Vec<&'static str> {
        let Some(active_config) = active_config else {
            self.log.reopen();
            return Vec::new();
        };
        self.metrics.retain(names(&active_config.site), limits(&active_config.site));
        weirgate_log::follow(active_config.site.log);
        self.log.follow(active_config.site.access_log.as_ref());
        let (now, (admin, threads, trust)) = (&active_config.site, &self.at_start);
        let changed =
            [("admin", now.admin != *admin), ("threads", now.threads != *threads), ("trust", now.trust != *trust)];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(field, _)| field).collect()
    }

    /// Stops sending new requests to a node (`drain`), or resumes. Returns false if there is no such node.
    pub fn drain_node(&self, pool: &str, node: &str, drain: bool) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let active_config = self.gateway.active_config();
        let Some(index) = active_config.nodes.iter().position(|place| place.pool == pool && place.name == node) else {
            return false;
        };
        // A policy with more nodes than that is refused.
        let id = NodeId(u32::try_from(index).unwrap_or(u32::MAX));
        self.gateway.control().node(if drain { NodeEvent::Draining(id) } else { NodeEvent::Resumed(id) });
        true
    }
}

/// Returns the names of all classes and templates.
fn names(site: &Site) -> impl Iterator<Item = &str> {
    site.policy.all_classes().map(|class| class.name.as_str())
}

/// Returns the limits of the response times of the classes.
fn limits(site: &Site) -> impl Iterator<Item = Duration> {
    site.policy.all_classes().filter_map(|class| class.guarantee.response_time).map(|response_time| response_time.limit)
}
