//! Routes of the coordinator's admin listener. All of them only read.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, StatusCode};
use weirgate_http_server::answer::{json, refuse};
use weirgate_http_server::exposition::metrics;
use weirgate_http_server::page::{self, Page};

use crate::shared_state::SharedState;

/// The page at `/`.
const PAGE: Page = Page {
    title: "Weirgate reserves",
    process: "coordinator",
    sections: include_str!("page/sections.html"),
    api: include_str!("page/api.html"),
    figures: "reserves",
    script: include_str!("page/page.js"),
};

/// Returns the routes: the page at `/`, JSON at `/reserves`, metrics at `/metrics`, and health probes for
/// orchestrators at `/live` and `/ready`. Access control is up to the listener.
pub fn routes(shared: Arc<SharedState>) -> Router {
    Router::new()
        .merge(page::routes(&PAGE))
        .route("/reserves", get(async |State(shared): State<Arc<SharedState>>| json(StatusCode::OK, &shared.view())))
        .route(
            "/metrics",
            get(async |State(shared): State<Arc<SharedState>>, headers: HeaderMap| {
                metrics(&headers, crate::metrics::render(shared.view()))
            }),
        )
        .route("/live", get(async || json(StatusCode::OK, &serde_json::json!({ "live": true }))))
        .route("/ready", get(ready))
        .fallback(async || refuse(StatusCode::NOT_FOUND, "there is no such page; GET / lists all"))
        .method_not_allowed_fallback(async || refuse(StatusCode::METHOD_NOT_ALLOWED, "all pages are read with GET"))
        .with_state(shared)
}

/// Answers whether the coordinator is ready: a node is up. Without one it fulfils no promise.
async fn ready(State(shared): State<Arc<SharedState>>) -> Response {
    let up = shared.view().nodes.iter().filter(|node| node.state == "up").count();
    let status = if up > 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &serde_json::json!({ "ready": up > 0, "nodes_up": up }))
}
