//! A request as it would be classified, for those who ask without sending it.

use http::{HeaderMap, Method, Uri, Version};

use crate::subject::Subject;

/// Host, path and query in the one form that is classified and forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canonical {
    /// Lower case, without port.
    pub host: String,
    /// Canonical path, or `*`.
    pub path: String,
    /// What follows the `?`.
    pub query: Option<String>,
}

impl Canonical {
    /// Brings a request into that form, as the gateway does.
    ///
    /// # Errors
    /// The status and the reason with which the gateway would refuse it.
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Canonical, (u16, String)> {
        let subject = Subject::of(method, uri, Version::HTTP_11, headers)
            .map_err(|refusal| (refusal.status.as_u16(), refusal.what.to_owned()))?;
        Ok(Canonical {
            host: subject.host().to_owned(),
            path: subject.target.path().to_owned(),
            query: subject.target.query().map(str::to_owned),
        })
    }
}
