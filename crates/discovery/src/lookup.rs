//! Asks a source for the nodes.
//!
//! A file is read when its metadata has changed: device, inode, size, and the time of the last change. Programs should
//! replace it by a rename, because half a file is an error until the next look. A page is read every time. A name is
//! asked for when the time to live of its records has passed, within the bounds of the policy.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use weirgate_config::{Discover, NodeSource};
use weirgate_http_client::{Address, Limits, Request, exchange};

use crate::dns::{self, Answered};
use crate::found::Found;
use crate::targets::{MAX_BYTES, parse};

/// Longest time for a page. Prometheus allows 10 s by default as well.
const HTTP_TIME: Duration = Duration::from_secs(10);

/// Metadata of a file: device, inode, size, and the time of its last change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

/// A source and its state.
pub struct Lookup {
    discover: Discover,
    stamp: Option<Stamp>,
    /// Made for the first query. Made again after a failure, because `/etc/resolv.conf` may have changed.
    resolver: Option<TokioResolver>,
    /// Time until the next query.
    ttl: Duration,
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").field("discover", &self.discover).finish_non_exhaustive()
    }
}

/// Result of a look at a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Looked {
    /// Nothing has changed since the last look that found nodes.
    Same,
    /// These are the nodes, at least one, sorted by address.
    Nodes(Vec<Found>),
}

impl Lookup {
    /// Prepares looks at this source.
    pub fn new(discover: Discover) -> Lookup {
        let ttl = discover.ttl.0;
        Lookup { discover, stamp: None, resolver: None, ttl }
    }

    /// The source.
    pub fn source(&self) -> &NodeSource {
        &self.discover.source
    }

    /// Time to wait until the next look.
    pub fn wait(&self) -> Duration {
        match self.discover.source {
            NodeSource::Dns { .. } | NodeSource::Srv(_) => self.ttl,
            NodeSource::File(_) | NodeSource::Http { .. } => self.discover.every,
        }
    }

    /// Looks at the source. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The source cannot be read, or names no node or a wrong one.
    pub async fn look(&mut self) -> Result<Looked, String> {
        let max_nodes = self.discover.max_nodes;
        match self.discover.source.clone() {
            NodeSource::Dns { name, port } => {
                let answered = dns::addresses(&self.resolver()?, &name, port, max_nodes).await;
                self.answered(answered)
            }
            NodeSource::Srv(name) => {
                let answered = dns::services(&self.resolver()?, &name, max_nodes).await;
                self.answered(answered)
            }
            NodeSource::File(path) => {
                let before = self.stamp;
                // A disk may be slow, and other sources have their time.
                let read = tokio::task::spawn_blocking(move || read(&path, before)).await;
                let read = read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
                let Some((stamp, text)) = read else { return Ok(Looked::Same) };
                // A file with an error is read again, so that the error stays visible.
                let nodes = parse(&text, max_nodes)?;
                self.stamp = Some(stamp);
                Ok(Looked::Nodes(nodes))
            }
            NodeSource::Http { address, path } => {
                let request = Request::get(&address, &path).field("user-agent", "weirgate-discovery");
                let limits = Limits { time: HTTP_TIME, body: MAX_BYTES as u64, kept: MAX_BYTES };
                let answer = exchange(&Address::Tcp(address), request, &limits).await;
                let answer = answer.map_err(|error| error.to_string())?;
                if answer.status != 200 {
                    return Err(format!("the status is {}, not 200", answer.status));
                }
                parse(&answer.body, max_nodes).map(Looked::Nodes)
            }
        }
    }
}

impl Lookup {
    /// Returns the resolver, and makes one if there is none.
    fn resolver(&mut self) -> Result<TokioResolver, String> {
        let resolver = match self.resolver.take() {
            Some(resolver) => resolver,
            None => dns::resolver(&self.discover.resolvers)?,
        };
        self.resolver = Some(resolver.clone());
        Ok(resolver)
    }

    /// Sets the time of the next query.
    fn answered(&mut self, answered: Result<Answered, String>) -> Result<Looked, String> {
        let (least, longest) = self.discover.ttl;
        // After a failure the next query comes as soon as it may.
        self.ttl = answered.as_ref().map_or(least, |answered| answered.ttl.clamp(least, longest));
        if answered.is_err() {
            self.resolver = None;
        }
        answered.map(|answered| Looked::Nodes(answered.nodes))
    }
}

/// Reads a file unless its metadata are those of `before`.
fn read(path: &Path, before: Option<Stamp>) -> io::Result<Option<(Stamp, Vec<u8>)>> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let stamp = (found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec());
    if before == Some(stamp) {
        return Ok(None);
    }
    let mut text = Vec::new();
    // One byte more than allowed shows that the file is too long.
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text)?;
    Ok(Some((stamp, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_changes_or_was_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nodes.json");
        let source = NodeSource::File(path.clone());
        let mut lookup = Lookup::new(Discover {
            source,
            every: Duration::from_secs(1),
            ttl: (Duration::from_secs(1), Duration::from_secs(1)),
            resolvers: weirgate_config::Resolvers { servers: Vec::new(), timeout: Duration::from_secs(1), attempts: 1 },
            max_nodes: 10,
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut look = || runtime.block_on(lookup.look());
        assert!(look().expect_err("there is none").contains("No such file"));
        let write = |text: &str| {
            std::fs::write(folder.path().join("new"), text).expect("written");
            std::fs::rename(folder.path().join("new"), &path).expect("replaced");
        };
        write("[");
        assert!(look().is_err() && look().is_err());
        write(r#"[{"targets": ["a:1"]}]"#);
        assert_eq!(look(), Ok(Looked::Nodes(vec![Found { address: "a:1".into(), weight: 1.0 }])));
        assert_eq!(look(), Ok(Looked::Same));
        write(r#"[{"targets": ["b:1"]}]"#);
        assert_eq!(look(), Ok(Looked::Nodes(vec![Found { address: "b:1".into(), weight: 1.0 }])));
    }
}
