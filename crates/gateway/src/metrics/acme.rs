//! The part of the page about certificates that an authority issues.

use std::fmt;

use weirgate_http_server::families::{Families, Labels};
use weirgate_wire::admin::AcmeCertificate;

/// Writes the metrics of all certificates, by their first name.
pub(super) fn write(page: &mut Families<'_>, certificates: &[AcmeCertificate]) -> fmt::Result {
    if certificates.is_empty() {
        return Ok(());
    }
    fn all<T>(
        certificates: &[AcmeCertificate],
        of: fn(&AcmeCertificate) -> T,
    ) -> impl Iterator<Item = (Labels<'_>, T)> {
        certificates
            .iter()
            .map(move |one| (vec![("certificate", one.names.first().map_or("", String::as_str))], of(one)))
    }
    let issued = all(certificates, |one| one.issued);
    page.counters("acme_issued", "Certificates that the authority has issued to this process", issued)?;
    let failures = all(certificates, |one| one.failures);
    page.counters("acme_failures", "Attempts to get a certificate that failed", failures)?;
    let failing = all(certificates, |one| u64::from(one.error.is_some()));
    page.gauges("acme_failing", "Whether the last attempt failed", failing)?;
    let next = all(certificates, |one| one.next_order_in_seconds);
    page.gauges("acme_next_order_seconds", "Time until the next order", next)
}
