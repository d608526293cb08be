//! A small certificate authority for a site: it names Weirgate's processes and their operators, so that they can
//! trust one another ([`weirgate_tls::trust`]).
//!
//! Sources: RFC 5280 (certificates, revocation lists), the SPIFFE standard "X.509-SVID" (names). The authority is a
//! folder, as that of easy-rsa and of `consul tls`:
//!
//! ```text
//! pki/ca.key              key of the authority, readable by its owner only
//! pki/ca.crt  pki/ca.crl  its certificate and its revocation list
//! pki/index.json          every certificate that it has issued
//! pki/issued/agent-n1/    a trust folder for each party, to copy to its machine
//! ```
//!
//! Every certificate that exists is in the index, because the index is written first. So a revocation finds all
//! certificates of a party. Files are replaced as a whole.
//!
//! # Modules
//! `authority` is the folder, `sign` makes certificates and lists, `index` the record, `file` writes files.
#![forbid(unsafe_code)]

mod authority;
mod file;
mod index;
mod sign;

pub use authority::{Authority, DEFAULT_DAYS, ISSUED, MAX_DAYS, Status};
pub use index::Entry;
pub use sign::day;
