//! The page with the report for gateways: `GET /weirgate/report`. Nothing can be changed here, and an answer has counts
//! and no names.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use weirgate_http_server::answer::{refuse, with_type};
use weirgate_wire::Report;

use crate::source::Source;
use crate::usage::Meter;

/// Path of the report.
pub const REPORT_PATH: &str = "/weirgate/report";

/// Returns the page with the counts of `source` and the readings of `meter`. `say` is called when the source stops
/// answering, with the reason, and when it answers again.
pub fn routes(source: Source, meter: Meter, say: impl Fn(&str) + Send + Sync + 'static) -> Router {
    let state = SharedState { source, meter, problem: Mutex::default(), say: Box::new(say) };
    Router::new()
        .route(REPORT_PATH, get(report))
        .fallback(async || refuse(StatusCode::NOT_FOUND, "the report is at /weirgate/report"))
        .method_not_allowed_fallback(async || refuse(StatusCode::METHOD_NOT_ALLOWED, "the report is read with GET"))
        .with_state(Arc::new(state))
}

/// State shared by all requests.
struct SharedState {
    source: Source,
    meter: Meter,
    /// Reason why the source does not answer, if it does not.
    problem: Mutex<Option<String>>,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

async fn report(State(state): State<Arc<SharedState>>) -> Response {
    let active = state.source.active().await;
    state.mind(active.as_ref().err());
    match active {
        Ok(active) => {
            let report = Report { active, usage: Some(state.meter.read()) };
            with_type(StatusCode::OK, "application/json", report.to_json())
        }
        Err(why) => refuse(StatusCode::BAD_GATEWAY, &why),
    }
}

impl SharedState {
    /// Announces a change of the problem.
    fn mind(&self, problem: Option<&String>) {
        let mut before = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        match (before.as_ref(), problem) {
            (_, Some(problem)) if before.as_ref() != Some(problem) => (self.say)(&format!("no counts: {problem}")),
            (Some(_), None) => (self.say)("the server reports its counts again"),
            _ => {}
        }
        *before = problem.cloned();
    }
}
