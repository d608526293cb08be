//! The first bytes of a request's body, as conditions see them.
//!
//! Source: mQoS (Sec. 3.2) classifies by headers and payloads. Departure: only the first
//! `limits.body_prefix` bytes are seen, and they are received only if a rule that can still match asks for them. A body
//! with a content coding, the messages of a call of gRPC, and the bytes of another protocol meet no condition.

use regex_automata::Input;
use weirgate_config::{BodyCondition, ValuePattern};

use super::condition::fits;
use super::json;
use super::view::{Fields, MAX_PAIRS, Parameter, parameter};
use crate::grpc;
use crate::request::Request;

/// A request's body, as far as conditions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'b> {
    /// Its first bytes have not been received.
    Awaited,
    /// It cannot be read, for this reason.
    Opaque(&'static str),
    /// Its first bytes.
    Read {
        /// The bytes.
        bytes: &'b [u8],
        /// Whether they are the whole body.
        whole: bool,
    },
}

impl<'b> Payload<'b> {
    /// The body of a request without one.
    pub const NONE: Payload<'static> = Payload::Read { bytes: b"", whole: true };

    /// Returns the part of a body that conditions see: at most the first `limit` of the received `bytes`. `whole` tells
    /// whether all of the body has been received.
    pub fn of(request: &Request, bytes: &'b [u8], whole: bool, limit: usize) -> Payload<'b> {
        if grpc::is_call(request) {
            return Payload::Opaque("the messages of a call of gRPC are not waited for");
        }
        if request.upgrade().is_some() {
            return Payload::Opaque("the request asks for another protocol");
        }
        let coded = |value: &[u8]| !value.eq_ignore_ascii_case(b"identity");
        if request.values("content-encoding").any(coded) {
            return Payload::Opaque("it has a content coding, such as gzip");
        }
        match bytes.split_at_checked(limit) {
            Some((first, rest)) => Payload::Read { bytes: first, whole: whole && rest.is_empty() },
            None if whole => Payload::Read { bytes, whole },
            None => Payload::Awaited,
        }
    }
}

/// Whether `condition` holds. `None` if the body has not been received.
pub(super) fn holds(condition: &BodyCondition, fields: &Fields<'_, '_>) -> Option<bool> {
    let (bytes, whole) = match fields.payload {
        Payload::Awaited => return None,
        Payload::Opaque(_) => return Some(false),
        Payload::Read { bytes, whole } => (bytes, whole),
    };
    Some(match condition {
        BodyCondition::Contains(pattern) | BodyCondition::Like(pattern) => pattern.regex.is_match(Input::new(bytes)),
        BodyCondition::Form(name, value) => {
            is_form(fields.view.request)
                && fields.form().iter().any(|(n, v)| n.as_ref() == name.as_bytes() && fits(value, v))
        }
        BodyCondition::Json(pointer, value) => {
            let fits = |found: Option<&[u8]>| match found {
                Some(text) => fits(value, text),
                // An array or an object, which equals no text.
                None => matches!(value, ValuePattern::Present),
            };
            is_json(fields.view.request) && json::finds(bytes, whole, pointer.steps(), &fits)
        }
    })
}

/// Returns the fields of a form. The last one may be cut off, and does not count then.
pub(super) fn form(payload: Payload<'_>) -> Vec<Parameter<'_>> {
    let Payload::Read { bytes, whole } = payload else { return Vec::new() };
    let bytes = match (whole, bytes.iter().rposition(|&b| b == b'&')) {
        (true, _) => bytes,
        (false, end) => bytes.get(..end.unwrap_or(0)).unwrap_or_default(),
    };
    bytes.split(|&b| b == b'&').filter(|part| !part.is_empty()).map(parameter).take(MAX_PAIRS).collect()
}

/// Returns the media type of a body, without its parameters.
fn media_type(request: &Request) -> &[u8] {
    let value = request.values("content-type").next().unwrap_or_default();
    value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii()
}

pub(super) fn is_form(request: &Request) -> bool {
    media_type(request).eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

pub(super) fn is_json(request: &Request) -> bool {
    let kind = media_type(request).to_ascii_lowercase();
    kind == b"application/json" || kind.ends_with(b"+json")
}
