//! Where the learned state is kept.

use weirgate_spanned_yaml::decode::{FromText, OneOrMany, Optional};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::Text;
use weirgate_spanned_yaml::{record, text_schema};

use super::address::NodeAddress;

record! {
    /// Costs, windows and states of nodes that outlive the process that learned them.
    pub(crate) struct LearnedStateForm {
        /// File that keeps it over a restart, such as `/var/lib/weirgate/learned.json`. It is written every ten
        /// seconds and at the end, for this user only, and used if it is at most ten minutes old. Paths count from
        /// the folder of the policy.
        file: Optional<Text>,
        /// Admin listeners of other gateways: `HOST:PORT` or `unix:/path`. They are asked once a second, so that
        /// this gateway begins with their learned state when clients come to it. On other machines the policy's
        /// `trust` is required. Gateways can follow one another.
        follow: Optional<OneOrMany<AdminAddress>>,
    }
}

/// Address of another gateway's admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminAddress(pub(crate) String);

impl FromText for AdminAddress {
    const EXPECTED: &'static str = "an address such as `10.0.0.2:9900` or `unix:/run/other/admin.sock`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let bare = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        if let Some(bare) = bare {
            let hint = format!("write `{}`: with `trust` it is reached over TLS", bare.trim_end_matches('/'));
            return Err(Complaint::about(text, "is a URL", hint));
        }
        if !text.contains(':') {
            return Err(Complaint::about(text, "has no port", format!("write `{text}:9900`")));
        }
        let NodeAddress(address) = NodeAddress::from_text(text)?;
        Ok(AdminAddress(address))
    }
}

text_schema! {
    AdminAddress: { "type": "string", "examples": ["10.0.0.2:9900"] };
}
