//! A site in force, with its version: what reloads swap as a whole.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use weirgate_config::{ClassSite, PoolSite, ShedReply, Site, TargetOf};

use crate::classify::Classifier;
use crate::record::ClassIndex;

/// A site in force. Never changed: a reload makes the next one.
#[derive(Debug)]
pub struct Edition {
    /// The resolved policy file.
    pub site: Site,
    /// Stage *classify* for this site.
    pub classifier: Classifier,
    /// 1 at the start, one more with every reload that succeeded.
    pub version: u64,
    /// Checksum of the file's text, 16 hex digits (FNV-1a 64).
    pub checksum: String,
    /// Per node of the policy where it is; an unchanged node keeps its `Arc` over reloads.
    pub nodes: Vec<Arc<Target>>,
    class_sheds: Vec<Prepared>,
    template_sheds: Vec<Prepared>,
}

/// Where a node is, and who it is over reloads.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// Never given to another node of this process.
    pub id: u64,
    /// The name of its pool.
    pub pool: String,
    /// Its name in the pool.
    pub name: String,
    /// `host:port`.
    pub address: String,
    /// What its pool says about connections and health checks.
    pub settings: PoolSite,
}

impl Edition {
    /// Builds version `version` of a site; nodes that `before` had unchanged keep their identity. `next_id`
    /// is the first id that no node has had, and is moved on.
    #[must_use]
    pub(crate) fn new(site: Site, text: &str, version: u64, before: Option<&Edition>, next_id: &mut u64) -> Edition {
        let old: HashMap<_, _> =
            before.iter().flat_map(|b| &b.nodes).map(|t| ((t.pool.as_str(), t.name.as_str()), t)).collect();
        let mut targets = Vec::with_capacity(site.nodes.len());
        for (node, place) in site.policy.nodes.iter().zip(&site.nodes) {
            let (Some(pool), Some(settings)) = (site.policy.pools.get(node.pool), site.pools.get(node.pool)) else {
                continue;
            };
            let same = old.get(&(pool.name.as_str(), node.name.as_str()));
            let same = same.filter(|t| t.address == place.address && t.settings == *settings);
            targets.push(same.map_or_else(
                || {
                    *next_id += 1;
                    Arc::new(Target {
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
        let sheds = |of: &[ClassSite]| of.iter().map(|c| Prepared::new(&c.shed)).collect();
        Edition {
            classifier: Classifier::new(&site.rules),
            class_sheds: sheds(&site.classes),
            template_sheds: sheds(&site.templates),
            version,
            checksum: checksum(text),
            nodes: targets,
            site,
        }
    }

    /// What the site says about a class.
    pub(crate) fn class_site(&self, class: ClassIndex) -> Option<&ClassSite> {
        match class {
            ClassIndex::Class(index) => self.site.classes.get(index as usize),
            ClassIndex::Template(template) => self.site.templates.get(template.0 as usize),
        }
    }

    /// What of a request its class's pool takes for the target, if it looks at it.
    pub(crate) fn target_of(&self, class: ClassIndex) -> Option<TargetOf> {
        let policy = &self.site.policy;
        let class = match class {
            ClassIndex::Class(index) => policy.classes.get(index as usize)?,
            ClassIndex::Template(template) => &policy.templates.get(template.0 as usize)?.class,
        };
        self.site.pools.get(class.pool)?.target
    }

    /// The class's name in the policy file.
    pub(crate) fn class_name(&self, class: ClassIndex) -> &str {
        match class {
            ClassIndex::Class(index) => self.site.policy.classes.get(index as usize).map(|c| c.name.as_str()),
            ClassIndex::Template(t) => self.site.policy.templates.get(t.0 as usize).map(|t| t.class.name.as_str()),
        }
        .unwrap_or("-")
    }

    /// The answer to what a class sheds.
    pub(crate) fn shed_reply(&self, class: ClassIndex) -> Option<&Prepared> {
        match class {
            ClassIndex::Class(index) => self.class_sheds.get(index as usize),
            ClassIndex::Template(template) => self.template_sheds.get(template.0 as usize),
        }
    }

    /// Whether what `peer` says about others is believed.
    pub(crate) fn trusts(&self, peer: std::net::IpAddr) -> bool {
        self.site.trusted_proxies.iter().any(|net| net.contains(&peer))
    }
}

/// One thread's hold on the edition in force: requests count their holds on this, so that threads do not
/// contend for one counter.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Edition>);

impl Hold {
    pub(crate) fn on(edition: Arc<Edition>) -> Rc<Hold> {
        Rc::new(Hold(edition))
    }
}

impl Deref for Hold {
    type Target = Edition;

    fn deref(&self) -> &Edition {
        &self.0
    }
}

/// A shed reply, ready to be sent ten thousand times a second.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) status: StatusCode,
    pub(crate) content_type: HeaderValue,
    pub(crate) body: Bytes,
}

impl Prepared {
    fn new(shed: &ShedReply) -> Prepared {
        Prepared {
            status: StatusCode::from_u16(shed.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            content_type: HeaderValue::from_str(&shed.content_type)
                .unwrap_or(HeaderValue::from_static("text/plain; charset=utf-8")),
            body: Bytes::from(shed.body.clone()),
        }
    }
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo): tells texts apart, is no protection against an attacker.
fn checksum(text: &str) -> String {
    let hash =
        text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

/// Where `SIGHUP` and `POST /reload` find the next site.
pub enum ReloadSource {
    /// There is none: reloads fail.
    Nowhere,
    /// A file, read and resolved again by `resolve`.
    File {
        /// The policy file.
        path: PathBuf,
        /// From its path (for messages) and its text to a site, or all its errors as one text.
        resolve: Resolve,
    },
}

/// Turns the name and the text of a policy file into a site, or into all its errors as one text.
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
    /// The file cannot be read.
    Unreadable(String),
    /// The policy has these errors, each with its place.
    Invalid(String),
    /// A new listener cannot be opened.
    Listen(String),
    /// The gateway is draining.
    Draining,
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::NoSource => f.write_str("the gateway was started without a policy file to reload"),
            ReloadError::Unreadable(why) | ReloadError::Invalid(why) | ReloadError::Listen(why) => f.write_str(why),
            ReloadError::Draining => f.write_str("the gateway is draining"),
        }
    }
}

impl std::error::Error for ReloadError {}
