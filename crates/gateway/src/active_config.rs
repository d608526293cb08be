//! A configuration in force with its version. A reload replaces it as a whole.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use weirgate_config::{ClassSite, Key, LocalityKeyOf, NetworkSize, ORIGINAL, PoolSite, ShedReply, Site, socket_path};
use weirgate_engine::NodeId;

use crate::classify::Classifier;
use crate::record::ClassIndex;
use crate::reply::first_lines;

/// A configuration in force. It never changes. A reload creates the next one.
#[derive(Debug)]
pub struct ActiveConfig {
    /// The resolved policy file, without its rules. The classifier has them.
    pub site: Site,
    /// Stage *classify* for this configuration.
    pub classifier: Arc<Classifier>,
    /// Version: 1 at the start, incremented by every successful reload and every change of discovered nodes.
    pub version: u64,
    /// Checksum of the file's text, 16 hex digits (FNV-1a 64).
    pub checksum: String,
    /// Address of each node of the policy. An unchanged node keeps its `Arc` across reloads.
    pub nodes: Vec<Arc<Endpoint>>,
    /// Ids of the endpoints with their nodes, ascending.
    ids: Vec<(u64, NodeId)>,
    class_sheds: Vec<Prepared>,
    template_sheds: Vec<Prepared>,
    /// Whether a class is enforced for a share of its sources.
    pub(crate) divides_sources: bool,
}

/// Address of a node, and its identity across reloads.
#[derive(Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Unique id in this process, never reused.
    pub id: u64,
    /// The name of its pool.
    pub pool: String,
    /// Its name in the pool.
    pub name: String,
    /// `host:port`, `unix:/path`, or [`ORIGINAL`].
    pub address: String,
    /// Settings of its pool for connections and health checks.
    pub settings: PoolSite,
}

impl Endpoint {
    /// Returns the name and port that requests and certificates use for the node: its address, or `localhost` if that
    /// has none.
    pub(crate) fn authority(&self) -> &str {
        let has_host = self.address != ORIGINAL && socket_path(&self.address).is_none();
        if has_host { &self.address } else { "localhost" }
    }

    /// Whether each of its connections serves one client.
    pub(crate) fn is_per_client(&self) -> bool {
        let PoolSite { proxy_protocol, from_client, .. } = &self.settings;
        proxy_protocol.is_some() || *from_client || self.address == ORIGINAL
    }

    /// Whether its address has a name, which is resolved for each connection.
    pub(crate) fn has_name(&self) -> bool {
        self.authority() == self.address && self.address.parse::<SocketAddr>().is_err()
    }
}

impl ActiveConfig {
    /// Builds version `version` of a configuration. Nodes that are unchanged since `before` keep their
    /// identity. `next_id` is the first unused id and is advanced.
    pub(crate) fn new(
        mut site: Site,
        text: &str,
        version: u64,
        before: Option<&ActiveConfig>,
        next_id: &mut u64,
    ) -> ActiveConfig {
        let classifier = Arc::new(Classifier::new(std::mem::take(&mut site.rules)));
        let sheds = (Prepared::all(&site.classes), Prepared::all(&site.templates));
        ActiveConfig::assemble(site, (classifier, sheds), (version, checksum(text)), before, next_id)
    }

    /// Builds the next version, with the nodes of `site` and everything else as it is.
    #[must_use]
    pub(crate) fn with_nodes(&self, site: Site, next_id: &mut u64) -> ActiveConfig {
        let sheds = (self.class_sheds.clone(), self.template_sheds.clone());
        let known = (Arc::clone(&self.classifier), sheds);
        ActiveConfig::assemble(site, known, (self.version + 1, self.checksum.clone()), Some(self), next_id)
    }

    fn assemble(
        site: Site,
        (classifier, (class_sheds, template_sheds)): (Arc<Classifier>, (Vec<Prepared>, Vec<Prepared>)),
        (version, checksum): (u64, String),
        before: Option<&ActiveConfig>,
        next_id: &mut u64,
    ) -> ActiveConfig {
        let old: HashMap<_, _> =
            before.iter().flat_map(|b| &b.nodes).map(|t| ((t.pool.as_str(), t.name.as_str()), t)).collect();
        let mut endpoints = Vec::with_capacity(site.nodes.len());
        for (node, place) in site.policy.nodes.iter().zip(&site.nodes) {
            let (Some(pool), Some(settings)) = (site.policy.pools.get(node.pool), site.pools.get(node.pool)) else {
                continue;
            };
            let same = old.get(&(pool.name.as_str(), node.name.as_str()));
            let same = same.filter(|t| t.address == place.address && t.settings == *settings);
            endpoints.push(same.map_or_else(
                || {
                    *next_id += 1;
                    Arc::new(Endpoint {
                        id: *next_id - 1,
                        pool: pool.name.clone(),
                        name: node.name.clone(),
                        address: place.address.clone(),
                        settings: settings.clone(),
                    })
                },
                |t| Arc::clone(t),
            ));
        }
        let mut ids: Vec<(u64, NodeId)> = (0..).map(NodeId).zip(&endpoints).map(|(node, e)| (e.id, node)).collect();
        ids.sort_unstable_by_key(|(id, _)| *id);
        let (divides_sources, nodes) = (site.policy.divides_sources(), endpoints);
        ActiveConfig { classifier, class_sheds, template_sheds, divides_sources, version, checksum, nodes, ids, site }
    }

    /// Returns the endpoint of a node.
    pub(crate) fn endpoint(&self, node: NodeId) -> Option<Arc<Endpoint>> {
        self.nodes.get(node.0 as usize).cloned()
    }

    /// Returns the node of the endpoint with this id.
    pub(crate) fn node_of(&self, id: u64) -> Option<NodeId> {
        let at = self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.ids.get(at).map(|(_, node)| *node)
    }

    /// Returns the endpoint with this id.
    pub(crate) fn endpoint_with(&self, id: u64) -> Option<&Arc<Endpoint>> {
        self.nodes.get(self.node_of(id)?.0 as usize)
    }

    /// Returns the settings of a class.
    pub(crate) fn class_site(&self, class: ClassIndex) -> Option<&ClassSite> {
        match class {
            ClassIndex::Class(index) => self.site.classes.get(index as usize),
            ClassIndex::Template(template) => self.site.templates.get(template.0 as usize),
        }
    }

    /// Returns the value of a request of this class that tells its source.
    pub(crate) fn source_of(&self, class: Option<ClassIndex>) -> &Key {
        const ADDRESS: &Key = &Key::Network(NetworkSize::ADDRESS);
        class.and_then(|class| self.class_site(class)).map_or(ADDRESS, |site| &site.source)
    }

    /// Whether the class has a guaranteed throughput.
    pub(crate) fn is_guaranteed(&self, class: ClassIndex) -> bool {
        let policy = &self.site.policy;
        let class = match class {
            ClassIndex::Class(index) => policy.classes.get(index as usize),
            ClassIndex::Template(template) => policy.templates.get(template.0 as usize).map(|t| &t.class),
        };
        class.is_some_and(|class| class.guarantee.throughput.is_some())
    }

    /// Returns the part of a request that the class's pool uses as its locality key, if it uses one.
    pub(crate) fn locality_key_of(&self, class: ClassIndex) -> Option<LocalityKeyOf> {
        let policy = &self.site.policy;
        let class = match class {
            ClassIndex::Class(index) => policy.classes.get(index as usize)?,
            ClassIndex::Template(template) => &policy.templates.get(template.0 as usize)?.class,
        };
        self.site.pools.get(class.pool)?.locality_key
    }

    /// Returns the class's name in the policy file.
    pub(crate) fn class_name(&self, class: ClassIndex) -> &str {
        match class {
            ClassIndex::Class(index) => self.site.policy.classes.get(index as usize).map(|c| c.name.as_str()),
            ClassIndex::Template(t) => self.site.policy.templates.get(t.0 as usize).map(|t| t.class.name.as_str()),
        }
        .unwrap_or("-")
    }

    /// Returns the response for shed requests of a class.
    pub(crate) fn shed_reply(&self, class: ClassIndex) -> Option<&Prepared> {
        match class {
            ClassIndex::Class(index) => self.class_sheds.get(index as usize),
            ClassIndex::Template(template) => self.template_sheds.get(template.0 as usize),
        }
    }
}

/// One thread's handle to the configuration in force. Requests count their references on this handle, so that
/// the threads do not contend for one counter.
pub(crate) struct ConfigHandle(Arc<ActiveConfig>);

impl ConfigHandle {
    pub(crate) fn on(active_config: Arc<ActiveConfig>) -> Rc<ConfigHandle> {
        Rc::new(ConfigHandle(active_config))
    }
}

impl Deref for ConfigHandle {
    type Target = ActiveConfig;

    fn deref(&self) -> &ActiveConfig {
        &self.0
    }
}

/// A shed response, prepared so that ten thousand a second can be sent. Clones share its memory.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) status: StatusCode,
    /// First lines of the head.
    pub(crate) first: Bytes,
    pub(crate) body: Bytes,
}

impl Prepared {
    /// Prepares the responses of all classes. Neighbours with equal responses share one.
    fn all(classes: &[ClassSite]) -> Vec<Prepared> {
        let mut all: Vec<Prepared> = Vec::with_capacity(classes.len());
        for (at, class) in classes.iter().enumerate() {
            let before = at.checked_sub(1).filter(|before| classes[*before].shed == class.shed);
            let same = before.and_then(|before| all.get(before)).cloned();
            all.push(same.unwrap_or_else(|| Prepared::new(&class.shed)));
        }
        all
    }

    fn new(shed: &ShedReply) -> Prepared {
        let status = StatusCode::from_u16(shed.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let first = first_lines(status, &shed.content_type, shed.body.len());
        Prepared { status, first: first.into(), body: shed.body.clone().into() }
    }
}

/// Returns the FNV-1a hash with 64 bits (Fowler, Noll, Vo). It distinguishes texts and does not resist an
/// attacker.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn checksum(text: &str) -> String {
    format!("{:016x}", fnv1a(text.as_bytes()))
}

/// Source of the next configuration for `SIGHUP` and `POST /reload`.
pub enum ReloadSource {
    /// No source. Reloads fail.
    Nowhere,
    /// A file, read again and resolved by `resolve`.
    File {
        /// The policy file.
        path: PathBuf,
        /// Turns the file's path (for messages) and text into a site, or into a text with all its errors.
        resolve: Resolve,
    },
}

/// Turns the name and the text of a policy file into a site, or into a text with all its errors.
pub type Resolve = Box<dyn Fn(&str, &str) -> Result<Site, String> + Send + Sync>;

impl fmt::Debug for ReloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadSource::Nowhere => f.write_str("Nowhere"),
            ReloadSource::File { path, .. } => write!(f, "File({})", path.display()),
        }
    }
}

/// Why a reload changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadError {
    /// There is no file to read.
    NoSource,
    /// The file cannot be read, with the reason.
    Unreadable(String),
    /// The policy has these errors, each with its position.
    Invalid(String),
    /// A new listener cannot be opened, with the reason.
    Listen(String),
    /// The gateway is draining.
    Draining,
    /// Another process is about to take over.
    HandingOver,
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::NoSource => f.write_str(
                "the gateway was started without a policy file, so it cannot reload \
                                                  one",
            ),
            ReloadError::Unreadable(why) | ReloadError::Invalid(why) | ReloadError::Listen(why) => f.write_str(why),
            ReloadError::Draining => f.write_str("the gateway is draining"),
            ReloadError::HandingOver => {
                f.write_str("a new process is about to take over, and it reads the policy itself")
            }
        }
    }
}

impl std::error::Error for ReloadError {}
