//! A site in force, with its version: what reloads swap as a whole.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use weirgate_config::Site;

use crate::classify::Classifier;

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
    /// Per node of the policy where it is; the same node keeps its `Arc` over reloads.
    pub nodes: Vec<Arc<Target>>,
}

/// Where a node is, and who it is over reloads.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// Never given to another node of this process.
    pub id: u64,
    /// Index into `site.policy.pools` is not stable over reloads: this is the pool's name.
    pub pool: String,
    /// Its name in the pool.
    pub name: String,
    /// `host:port`.
    pub address: String,
}

impl Edition {
    /// Builds version `version` of a site; nodes that `before` had keep their identity.
    #[must_use]
    pub fn new(site: Site, text: &str, version: u64, before: Option<&Edition>) -> Edition {
        let mut next = before.map_or(0, |b| b.nodes.iter().map(|n| n.id + 1).max().unwrap_or(0).max(b.next_id()));
        let old = before.map(|b| b.nodes.as_slice()).unwrap_or_default();
        let nodes = site
            .policy
            .nodes
            .iter()
            .zip(&site.nodes)
            .map(|(node, place)| {
                let pool = site.policy.pools.get(node.pool).map(|p| p.name.clone()).unwrap_or_default();
                let same = |t: &&Arc<Target>| t.pool == pool && t.name == node.name && t.address == place.address;
                old.iter().find(same).cloned().unwrap_or_else(|| {
                    next += 1;
                    Arc::new(Target { id: next - 1, pool, name: node.name.clone(), address: place.address.clone() })
                })
            })
            .collect();
        let classifier = Classifier::new(&site.rules);
        Edition { site, classifier, version, checksum: checksum(text), nodes }
    }

    fn next_id(&self) -> u64 {
        // Ids of nodes that are gone must not come back: versions only grow, so this bound does too.
        self.version.saturating_mul(1 << 20)
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
