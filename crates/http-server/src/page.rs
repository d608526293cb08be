//! Pages for people: the parts that the pages of gateway and coordinator share, and their routes.
//!
//! A page is one HTML file and one script of its own. The style and the script with the common parts are here, so that
//! both pages look and work the same. Everything is in the program, and nothing is loaded from elsewhere.

use axum::Router;
use axum::routing::get;
use http::StatusCode;

use crate::answer::with_type;

/// Paths of a page. They hold no figures and are open to all, so that the page can ask its reader for a token.
pub const PATHS: [&str; 4] = ["/", "/page.css", "/parts.js", "/page.js"];

const CSS: &str = include_str!("page/page.css");
const PARTS: &str = include_str!("page/parts.js");

/// Returns the routes of a page with its own HTML and script: [`PATHS`].
pub fn routes<S: Clone + Send + Sync + 'static>(html: &'static str, script: &'static str) -> Router<S> {
    let [page, style, parts, own] = PATHS;
    Router::new()
        .route(page, get(async move || with_type(StatusCode::OK, "text/html; charset=utf-8", html)))
        .route(style, get(async || with_type(StatusCode::OK, "text/css; charset=utf-8", CSS)))
        .route(parts, get(async || with_type(StatusCode::OK, "text/javascript; charset=utf-8", PARTS)))
        .route(own, get(async move || with_type(StatusCode::OK, "text/javascript; charset=utf-8", script)))
}
