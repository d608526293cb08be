//! Gateways that keep the guarantees of their site together.

use weirgate_spanned_yaml::decode::{Defaulted, FromText, Named, OneOrMany, Optional, Required};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::{Answer, Name, Share, Span, Text};
use weirgate_spanned_yaml::{record, text_schema};

use super::address::{ListenAddress, NodeAddress};
use super::discover::HttpUrl;

record! {
    /// Gateways that keep the guarantees of their site together: each keeps a share of every guaranteed throughput, by
    /// the requests that reach it, and all shares together are at most the whole. Write the same on all of them.
    pub(crate) struct SharingForm {
        /// The gateways by name, each with the address where the others reach it: `HOST:PORT` or `unix:/path`. On other
        /// machines the policy's `trust` is required, and each gateway proves its name by its certificate. At most
        /// 1,000.
        members: Required<Named<Name, NodeAddress>>,
        /// The name of this gateway among `members`. By default the name in its certificate (`trust`), so that all
        /// gateways can have the same policy.
        name: Optional<Name>,
        /// Address where this gateway listens for the others: `IP:PORT` or `unix:/path`. By default its address among
        /// `members`.
        listen: Optional<ListenAddress>,
        /// Names of the gateways that may be elected to divide the guarantees. All by default. The others follow no
        /// other gateway, so one of them in the wrong hands cannot divide anything.
        electable: Optional<OneOrMany<Name>>,
        /// The etcd in which the gateways elect the one that divides the guarantees.
        etcd: Required<EtcdForm>,
        /// How long a gateway keeps its shares without an answer. 5 s by default, in which another gateway is elected.
        lease: Defaulted<Span> = "5s",
        /// Part of its shares that a gateway keeps after that, at most 79 %. Until it ends, no other gateway has this
        /// part, even if the gateway is gone.
        safe: Defaulted<Share> = "50%",
        /// How long it keeps that part, from the same moment as the lease. Then it keeps one hundredth of its equal
        /// part, for as long as necessary. 30 s by default. The same as `lease`: nothing in between.
        safe_for: Defaulted<Span> = "30s",
        /// Whether `weirgate site rollout` may put a policy in force on all gateways through etcd: `true` or `false`.
        /// Every user of etcd with write access to the keys of the site can then change the policy of every gateway.
        rollouts: Defaulted<Answer> = false,
    }
}

record! {
    /// An etcd, version 3.4 or later.
    pub(crate) struct EtcdForm {
        /// URLs of its members: `https://HOST:PORT`. The certificate of a member must name the host, or the address if
        /// that is written, as `etcdctl` asks for as well. Plain `http` is accepted on this machine only.
        endpoints: Required<OneOrMany<EtcdUrl>>,
        /// File with the authorities that sign the certificates of the members (PEM). Those of the system by default.
        ca: Optional<Text>,
        /// File with the certificate that this gateway shows to etcd (PEM). None by default. An etcd with users refuses
        /// one with a common name.
        certificate: Optional<Text>,
        /// File with its private key (PEM), without a passphrase.
        key: Optional<Text>,
        /// User of etcd, if it has users. `{name}` in it is the name of this gateway, so that each can have a user of
        /// its own. The name in a certificate does not count at the interface that is used.
        user: Optional<Text>,
        /// File with the user's password. It is read at each connection.
        password_file: Optional<Text>,
        /// Keys of this site begin with it and `/`. Sites that share an etcd need different ones.
        prefix: Defaulted<Text> = "weirgate",
        /// Whether plain `http` to other machines is accepted: `true` or `false`. Anybody on the way could then change
        /// what is guaranteed.
        insecure: Defaulted<Answer> = false,
    }
}

/// URL of a member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdUrl {
    pub(crate) https: bool,
    /// `host:port`.
    pub(crate) address: String,
}

/// The port of etcd for its clients.
const ETCD_PORT: u16 = 2379;

impl FromText for EtcdUrl {
    const EXPECTED: &'static str = "a URL such as `https://10.0.0.9:2379`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let (https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => {
                let hint = "write one such as `https://10.0.0.9:2379`";
                return Err(Complaint::about(text, "does not begin with `https://`", hint));
            }
        };
        let url = HttpUrl::after_scheme(rest, ETCD_PORT)?;
        if url.path != "/" {
            return Err(Complaint::new("a member of etcd has no path", "write `https://HOST:PORT` and nothing else"));
        }
        Ok(EtcdUrl { https, address: url.address })
    }
}

text_schema! {
    EtcdUrl: { "type": "string", "pattern": "^https?://", "examples": ["https://10.0.0.9:2379"] };
}
