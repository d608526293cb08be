//! Canonical form of a request, for tools that classify a request without sending it.

use http::{HeaderMap, Method, Uri, Version};

use crate::normalized_target::NormalizedTarget;

/// Host, path and query in the canonical form that is classified and forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canonical {
    /// Host, in lower case and without port.
    pub host: String,
    /// Canonical path, or `*`.
    pub path: String,
    /// Text after the `?`.
    pub query: Option<String>,
}

impl Canonical {
    /// Returns the canonical form of a request, as the gateway computes it.
    ///
    /// # Errors
    /// The status and the reason with which the gateway would refuse it.
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Canonical, (u16, String)> {
        let normalized = NormalizedTarget::of(method, uri, Version::HTTP_11, headers)
            .map_err(|refusal| (refusal.status.as_u16(), refusal.what.to_owned()))?;
        Ok(Canonical {
            host: normalized.host().to_owned(),
            path: normalized.target.path().to_owned(),
            query: normalized.target.query().map(str::to_owned),
        })
    }
}
