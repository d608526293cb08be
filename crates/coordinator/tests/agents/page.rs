//! Content of the page, the JSON and the metrics for a cluster.

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use weirgate_coordinator::routes;
use weirgate_wire::reserves_admin::Reserves;

use super::stage::Stage;
use super::{NODES, first_shares};

fn get(stage: &Stage, path: &str) -> (StatusCode, String) {
    let service = TowerToHyperService::new(routes(stage.shared.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = service.call(request).await.expect("an answer");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        (head.status, String::from_utf8(body.to_vec()).expect("text"))
    })
}

#[test]
fn all_three_tell_the_same() {
    let stage = Stage::two(NODES, None);
    assert_eq!(get(&stage, "/ready").0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((get(&stage, "/live").0, get(&stage, "/x").0), (StatusCode::OK, StatusCode::NOT_FOUND));
    let (_, empty) = get(&stage, "/reserves");
    let empty: Reserves = serde_json::from_str(&empty).expect("the documented form");
    assert!(empty.nodes.iter().all(|node| node.state == "down") && empty.last_runs.is_empty(), "{empty:?}");
    assert_eq!(empty.classes[0].share_percent, 50.0);

    let _agents = first_shares(&stage, [None, None]);
    assert_eq!(get(&stage, "/ready").0, StatusCode::OK);
    let (_, json) = get(&stage, "/reserves");
    let view: Reserves = serde_json::from_str(&json).expect("the documented form");
    assert_eq!((view.nodes.len(), view.nodes[0].state.as_str(), view.nodes[1].run), (2, "up", Some(0)));
    let class = &view.nodes[0].classes[1];
    assert_eq!((class.name.as_str(), class.share_percent, class.usage_percent), ("b", Some(50.0), Some(50.0)));
    assert_eq!((class.sink, class.allocation_percent.map(f64::round)), (Some(true), Some(50.0)));
    assert_eq!((view.last_runs[0].number, view.last_runs[0].cause.as_str()), (1, "joined"));

    let (_, page) = get(&stage, "/");
    for file in ["page.css", "parts.js", "page.js"] {
        assert!(page.contains(&format!("\"{file}\"")), "{file} is not in {page}");
        assert_eq!(get(&stage, &format!("/{file}")).0, StatusCode::OK);
    }
    assert!(!page.contains("//"), "the page must load nothing from other machines: {page}");
    let (_, metrics) = get(&stage, "/metrics");
    for line in [
        "weirgate_reserves_promise{class=\"a\"} 0.5",
        "weirgate_reserves_share{node=\"n1\",class=\"a\"} 0.5",
        "weirgate_reserves_usage{node=\"n2\",class=\"b\"} 0.5",
        "weirgate_reserves_nodes_live 2",
        "weirgate_reserves_runs_total{trigger=\"joined\"} 1",
        "weirgate_reserves_deviation 0",
        "weirgate_reserves_run 1",
    ] {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line} is not in {metrics}");
    }
    assert!(
        metrics.contains("# TYPE weirgate_reserves_solve_seconds_total counter\n") && !metrics.contains("# EOF"),
        "{metrics}"
    );
    assert!(metrics.contains("weirgate_reserves_allocation{node=\"n2\",class=\"a\"} "), "{metrics}");
}
