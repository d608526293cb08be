//! Gateways that keep the guarantees of their site together.

use std::path::PathBuf;
use std::sync::Arc;

use weirgate_engine::ClassId;
use weirgate_listening::Address;
use weirgate_tls::ClientSettings;

/// The settings with which a gateway keeps its share of the guarantees of its site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Names of the gateways, ascending, each with the address where it listens for the others: `HOST:PORT` or
    /// `unix:/path`.
    pub members: Vec<(String, String)>,
    /// Index of this gateway among them.
    pub own: usize,
    /// Indexes of those that may be elected.
    pub electable: Vec<usize>,
    /// Address where it listens.
    pub listen: Address,
    /// The etcd of the site.
    pub etcd: Etcd,
    /// Classes with a guaranteed throughput, ascending by name, each with its number in the policy. Their order is that
    /// of the budgets in `agreed`.
    pub classes: Vec<(String, ClassId)>,
    /// The agreement of all gateways of the site: number of members, guaranteed throughputs in millionths of a request
    /// a second, and times.
    pub agreed: Arc<weirgate_site::Site>,
    /// Whether policies are rolled out through etcd.
    pub rollouts: bool,
    /// Checksum of `agreed`, and of the names that belong to it. Gateways with different ones share nothing.
    pub checksum: String,
}

/// An etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etcd {
    /// Its members, each with whether it speaks TLS, and `host:port`.
    pub endpoints: Vec<(bool, String)>,
    /// Authorities of its members, and the gateway's own certificate.
    pub tls: ClientSettings,
    /// User, and the file with the password.
    pub user: Option<(String, PathBuf)>,
    /// Beginning of all keys, without the slash after it.
    pub prefix: String,
}
