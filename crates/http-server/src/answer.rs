//! Responses in JSON.

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// Body of every error.
#[derive(Debug, Serialize)]
struct Refusal<'a> {
    error: &'a str,
}

/// Builds a JSON response from `value`.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(mut text) => {
            text.push(b'\n');
            with_type(status, "application/json", text)
        }
        // Serialisation fails only for maps with keys that are not strings, and these types have none.
        Err(error) => with_type(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
    }
}

/// Builds a response with another content type.
pub fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Builds an error response with its reason.
pub fn refuse(status: StatusCode, why: &str) -> Response {
    json(status, &Refusal { error: why })
}
