//! The part of the page about TLS: handshakes, and the ends of certificates.

use std::collections::BTreeMap;
use std::fmt;
use std::time::UNIX_EPOCH;

use weirgate_http_server::families::Families;

use crate::handshake::HandshakeFailure;

/// Data about TLS.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    /// Numbers of full handshakes and of resumed sessions.
    pub(crate) handshakes: [u64; 2],
    /// Numbers of handshakes that failed.
    pub(crate) failures: Vec<(HandshakeFailure, u64)>,
    /// Numbers of renewals: changed certificates that were put in force, and those that could not be used.
    pub(crate) renewals: [u64; 2],
    /// The end of validity of each certificate, by its file.
    pub(crate) ends: BTreeMap<String, std::time::SystemTime>,
}

impl Tls {
    pub(super) fn write(&self, page: &mut Families<'_>) -> fmt::Result {
        page.counters(
            "tls_handshakes",
            "TLS handshakes of clients, full or resumed",
            ["full", "resumed"].iter().zip(self.handshakes).map(|(kind, n)| (vec![("kind", *kind)], n)),
        )?;
        page.counters(
            "tls_handshake_failures",
            "TLS handshakes of clients that failed, by reason",
            self.failures.iter().map(|(reason, n)| (vec![("reason", reason.as_str())], *n)),
        )?;
        let [renewals, failures] = self.renewals;
        let one = |count: u64| std::iter::once((Vec::new(), count));
        page.counters(
            "tls_certificate_renewals",
            "Times that changed certificates of a listener were put in force without a reload",
            one(renewals),
        )?;
        page.counters(
            "tls_certificate_renewal_failures",
            "Times that changed certificates of a listener could not be used, so that the old ones stayed",
            one(failures),
        )?;
        page.gauges(
            "tls_certificate_not_after_seconds",
            "End of a certificate's validity, in seconds since 1970",
            self.ends.iter().map(|(file, end)| {
                let since = end.duration_since(UNIX_EPOCH).unwrap_or_default();
                (vec![("certificate", file.as_str())], since.as_secs_f64())
            }),
        )
    }
}
