//! TLS without sockets: certificates and keys from their files, the choice of a certificate by name, and the settings
//! of rustls for listeners and for connections to nodes.
//!
//! Sources: RFC 8446 (TLS 1.3), RFC 5246 (TLS 1.2), RFC 6066 (server names and stapled OCSP responses), RFC 9525
//! (names in certificates), RFC 5280 (certificates and revocation lists). The protocol itself is done by rustls with
//! the cryptography of aws-lc (ADR 16).
//!
//! # Modules
//! `file` reads PEM files, `certificate` joins a certificate with its key, `names` chooses one for a client,
//! `server` makes the settings of a listener, `client` those of connections to nodes, `pinned` verifies nodes by a
//! `rule`, `stamp` notices changed files, `signing` has signatures by a shared secret, `identity` reads the
//! certificate of a client, `party` names Weirgate's own processes, and `trust` makes the settings of what they say
//! to one another.

mod certificate;
mod client;
mod file;
mod identity;
mod names;
mod party;
mod pinned;
mod rule;
mod server;
mod signing;
mod stamp;
pub mod trust;

use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use certificate::{Certificate, CertificateFiles, Named};
pub use client::{Client, ClientSettings, https, is_server_name, server_name};
pub use file::{Fault, Part, told};
pub use identity::{Identity, has_ended};
pub use names::Certificates;
pub use party::{Party, Role, Wanted, is_party_name, is_site};
pub use server::{ALPN, ClientAuth, ClientMode, MinVersion, Server, ServerSettings};
pub use signing::{SIGNATURE_BYTES, SigningKey};
pub use stamp::{Look, Stamps};
pub use trust::{LiveTrust, Trust};

/// Contents of files that may be replaced by newer ones.
pub trait Watched: Sized {
    /// Returns the state of the files before they were read.
    fn stamps(&self) -> &Stamps;

    /// Returns their present state.
    fn present_stamps(&self) -> Stamps;

    /// Reads them again.
    ///
    /// # Errors
    /// All faults of all files.
    fn again(&self) -> Result<Self, Vec<Fault>>;
}

/// Returns the cryptography of the process.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())))
}
