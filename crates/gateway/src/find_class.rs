//! Stage *classify*: finds the class of a request by the rules of the policy in force.

use weirgate_config::Site;
use weirgate_engine::ClassId;

use crate::active_config::ActiveConfig;
use crate::classify::{ClassRef, NeedsBody, Payload, View};
use crate::client::Origin;
use crate::exchange::Exchange;
use crate::request::Request;
use crate::request_stream::RequestStream;
use crate::stream_state::StreamState;
use crate::visitor::Visitor;

/// Returns what rules see of a request.
pub(crate) fn view<'a>(
    site: &Site,
    request: &'a Request,
    conn: &'a StreamState,
    (origin, visitor): (Origin, Option<&'a Visitor>),
) -> View<'a> {
    let tls = conn.tls.get().map(|tls| &**tls);
    View { visitor, ..View::new(site, request, origin, conn.port, tls) }
}

/// Finds the class of a request by the rules of a policy.
///
/// # Errors
/// It depends on the body, which has not been received.
pub(crate) fn find_class<'a>(
    config: &ActiveConfig,
    view: &View<'a>,
    payload: Payload<'_>,
) -> Result<ClassRef<'a>, NeedsBody> {
    let found = config.classifier.classify_readings(&config.site.policy, view, payload)?;
    Ok(found.map_or_else(|| last_class(config), |found| found.class))
}

/// The last rule always matches. Without it, the engine's default class is used, which is the last one.
pub(crate) fn last_class(config: &ActiveConfig) -> ClassRef<'static> {
    ClassRef::Class(ClassId(u32::try_from(config.site.policy.classes.len()).unwrap_or(u32::MAX).saturating_sub(1)))
}

/// Returns what rules see of the body of a request.
pub(crate) fn payload<'b>(exchange: &Exchange, stream: &'b mut impl RequestStream) -> Payload<'b> {
    let config = &exchange.active_config;
    if !config.classifier.reads_bodies() {
        return Payload::NONE;
    }
    let body = stream.body();
    Payload::of(&exchange.request, body.unsent(), body.is_complete(), config.site.limits.body_prefix)
}
