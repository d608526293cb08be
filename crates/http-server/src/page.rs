//! Pages for people: the parts that the pages of gateway and coordinator share, and their routes.
//!
//! A page has sections and a script of its own. The frame, the style and the script with the common parts are here, so
//! that both pages look and work the same. Everything is in the program, and nothing is loaded from elsewhere.

use axum::Router;
use axum::routing::get;
use http::StatusCode;

use crate::answer::with_type;

/// Paths of a page. They hold no figures.
const PATHS: [&str; 4] = ["/", "/page.css", "/parts.js", "/page.js"];

/// Public paths of a process with a page. Orchestrators' health probes have neither certificate nor token, and the page
/// asks its reader for a token.
pub const OPEN: [&str; 6] = {
    let [html, style, parts, script] = PATHS;
    ["/live", "/ready", html, style, parts, script]
};

/// The frame of a page, with the names of [`Page`]'s fields in braces.
const FRAME: &str = include_str!("page/page.html");
const CSS: &str = include_str!("page/page.css");
const PARTS: &str = include_str!("page/parts.js");

/// The parts of a page that are its own.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Its title, in HTML as all the others.
    pub title: &'static str,
    /// Kind of the process.
    pub process: &'static str,
    /// Its sections.
    pub sections: &'static str,
    /// The table of the process's admin API.
    pub api: &'static str,
    /// The path of its figures as JSON, without the slash.
    pub figures: &'static str,
    /// Its script.
    pub script: &'static str,
}

/// Returns the routes of a page.
pub fn routes<S: Clone + Send + Sync + 'static>(page: &Page) -> Router<S> {
    let Page { title, process, sections, api, figures, script } = *page;
    let parts = [("title", title), ("process", process), ("sections", sections), ("api", api), ("figures", figures)];
    let fill = |html: String, (name, part): (&str, &str)| html.replace(&format!("{{{name}}}"), part);
    let html = parts.into_iter().fold(FRAME.to_owned(), fill);
    let [path, style, common, own] = PATHS;
    Router::new()
        .route(path, get(async move || with_type(StatusCode::OK, "text/html; charset=utf-8", html)))
        .route(style, get(async || with_type(StatusCode::OK, "text/css; charset=utf-8", CSS)))
        .route(common, get(async || with_type(StatusCode::OK, "text/javascript; charset=utf-8", PARTS)))
        .route(own, get(async move || with_type(StatusCode::OK, "text/javascript; charset=utf-8", script)))
}
