//! Discovery: where an upstream finds its nodes.

use weirgate_spanned_yaml::decode::{Defaulted, FromText, Optional};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::unit::{Count, Span, Text};
use weirgate_spanned_yaml::{record, text_schema};

use super::address::NodeAddress;

record! {
    /// Where an upstream finds its nodes: one of `file` and `http`. If the source fails or names no node, the last
    /// nodes stay.
    pub(crate) struct Discover {
        /// A file with nodes in JSON, as Prometheus reads it (`file_sd`). The path counts from the folder of the
        /// policy.
        file: Optional<Text>,
        /// A page with nodes in JSON, as Prometheus reads it (`http_sd`): `http://host:port/path`.
        http: Optional<HttpUrl>,
        /// Time between two looks at the source. 1 s by default for a file, which is read only when it has changed,
        /// and 30 s for a page.
        every: Optional<Span>,
        /// Maximum number of nodes. A longer list is an error. 1,000 are more than one gateway can use well.
        max_nodes: Defaulted<Count> = 1000,
    }
}

/// The parts of a URL with the scheme `http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpUrl {
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) path: String,
}

impl FromText for HttpUrl {
    const EXPECTED: &'static str = "a URL such as `http://10.0.0.1:8500/nodes`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let Some(rest) = text.strip_prefix("http://") else {
            let what = format!("{} does not begin with `http://`", quoted(text));
            return Err(Complaint::new(what, "write `http://host:port/path`; pages over TLS are not supported"));
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if port { authority.to_owned() } else { format!("{authority}:80") };
        let NodeAddress(address) = NodeAddress::from_text(&address)?;
        let path = if path.is_empty() { "/" } else { path };
        if !path.bytes().all(|b| b.is_ascii_graphic()) || path.contains('#') {
            let what = format!("{} is not a path", quoted(path));
            return Err(Complaint::new(what, "write one such as `/nodes`, percent-encoded"));
        }
        Ok(HttpUrl { address, path: path.to_owned() })
    }
}

text_schema! {
    HttpUrl: { "type": "string", "pattern": "^http://", "examples": ["http://10.0.0.1:8500/nodes"] };
}
