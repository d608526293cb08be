//! The page at `/`: the state of the nodes, the usage and share of each class on each node, and the last
//! runs.
//!
//! It is one self-contained file without scripts, because the admin listener's headers forbid them. It is
//! generated for each request.

use std::fmt::Write;

use weirgate_wire::reserves_admin::{ClassOnNode, Node, Reserves, Run};

/// Maximum number of nodes on the page. `/reserves` has all of them.
const MAX_NODES: usize = 100;

/// Maximum number of runs on the page.
const MAX_RUNS: usize = 20;

/// Interval after which a browser reloads the page, in seconds: a few windows of 250 ms.
const REFRESH: u32 = 2;

pub(crate) fn render(view: &Reserves) -> String {
    let mut html =
        format!("{HEAD}<meta http-equiv=\"refresh\" content=\"{REFRESH}\">\n{STYLE}<h1>Cluster Reserves</h1>\n");
    summary(&mut html, view);
    promises(&mut html, view);
    nodes(&mut html, view);
    runs(&mut html, view);
    html += LINKS;
    html
}

const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Weirgate reserves</title>\n";

const STYLE: &str = "<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; } .wide { overflow-x: auto; }
td, th { padding: .2rem 1rem .2rem 0; text-align: right; vertical-align: top; font-variant-numeric: tabular-nums; }
td.l, th.l { text-align: left; } th { font-weight: 600; } .off { color: #a00; } .sink { font-weight: 600; }
.note { color: #555; }
</style>
";

const LINKS: &str = "<p>Reading never changes anything: <a href=\"reserves\"><code>GET /reserves</code></a> (JSON), \
<a href=\"metrics\"><code>GET /metrics</code></a> (for Prometheus), <a href=\"live\"><code>GET /live</code></a>, \
<a href=\"ready\"><code>GET /ready</code></a>.</p>\n</html>\n";

fn summary(html: &mut String, view: &Reserves) {
    let up = view.nodes.iter().filter(|node| node.state == "up").count();
    let when = match (view.every_seconds, view.on_demand) {
        (Some(every), true) => format!("every {every} s and on demand"),
        (Some(every), false) => format!("every {every} s"),
        (None, _) => "on demand".to_owned(),
    };
    let done: u64 = view.runs.done.values().sum();
    let _ = writeln!(
        html,
        "<p>{up} of {} nodes are up. New shares are computed {when}, in {done} runs so far.",
        view.nodes.len()
    );
    if let Some(failure) = &view.failure {
        let _ = writeln!(
            html,
            "<p class=\"off\">The last run failed: {}. The earlier shares stay in force.",
            escape(failure)
        );
    }
}

/// Writes the promised share, the usage and the share in force of each class, over the nodes that are up.
fn promises(html: &mut String, view: &Reserves) {
    *html += "<h2>Classes</h2>\n<table><tr><th class=\"l\">class<th>promised<th>used<th>in force</tr>\n";
    let up: Vec<&Node> = view.nodes.iter().filter(|node| node.state == "up").collect();
    for class in &view.classes {
        let over = |figure: fn(&ClassOnNode) -> Option<f64>| {
            let here = up.iter().flat_map(|node| &node.classes).filter(|here| here.name == class.name);
            let sum: f64 = here.filter_map(figure).sum();
            (!up.is_empty()).then(|| sum / up.len() as f64)
        };
        let (used, has) = (over(|here| here.usage_percent), over(|here| here.share_percent));
        let (name, promised) = (escape(&class.name), class.share_percent);
        let _ = writeln!(
            html,
            "<tr><td class=\"l\">{name}<td>{promised:.1} %<td>{}<td>{}</tr>",
            percent(used),
            percent(has)
        );
    }
    *html += "</table>\n<p class=\"note\">Of the CPUs of all nodes that are up.</p>\n";
}

fn nodes(html: &mut String, view: &Reserves) {
    *html += "<h2>Nodes</h2>\n<div class=\"wide\"><table><tr><th class=\"l\">node<th class=\"l\">state<th>run<th>CPU";
    for class in &view.classes {
        let _ = write!(html, "<th>{}", escape(&class.name));
    }
    *html += "</tr>\n";
    for node in view.nodes.iter().take(MAX_NODES) {
        let off = if node.state == "up" { "" } else { " off" };
        let run = node.run.map_or(String::new(), |run| run.to_string());
        let cpu = percent(node.run.map(|_| node.figures.cpu));
        let _ = write!(
            html,
            "<tr><td class=\"l\">{}<td class=\"l{off}\">{}<td>{run}<td>{cpu}",
            escape(&node.name),
            escape(&node.state)
        );
        for class in &view.classes {
            let here = node.classes.iter().find(|here| here.name == class.name);
            *html += &here.map_or("<td>–".to_owned(), cell);
        }
        *html += "</tr>\n";
    }
    *html += "</table></div>\n<p class=\"note\">Per class: used / share in force → share that the last run gave, in \
              percent of the node. Bold: it used all of its share.";
    if view.nodes.len() > MAX_NODES {
        let _ = write!(html, " The first {MAX_NODES} of {} nodes.", view.nodes.len());
    }
    *html += "</p>\n";
}

fn cell(class: &ClassOnNode) -> String {
    let (Some(used), Some(share)) = (class.usage_percent, class.share_percent) else { return "<td>".to_owned() };
    let sink = if class.sink == Some(true) { " class=\"sink\"" } else { "" };
    let given = class.allocation_percent.map_or(String::new(), |given| format!(" → {given:.1}"));
    format!("<td{sink}>{used:.1} / {share:.1}{given}")
}

fn runs(html: &mut String, view: &Reserves) {
    *html += "<h2>Runs</h2>\n<table><tr><th>run<th>ago<th class=\"l\">why<th>nodes up<th>cannot be used<th>moved<th>took</tr>\n";
    for run in view.last_runs.iter().take(MAX_RUNS) {
        let _ = writeln!(
            html,
            "<tr><td>{}<td>{:.1} s<td class=\"l\">{}<td>{}<td>{:.1} %<td>{:.1} %<td>{:.1} ms</tr>",
            run.number,
            run.seconds_ago,
            escape(&why(run)),
            run.nodes,
            run.deviation_percent,
            run.moved_percent,
            run.solve_seconds * 1e3
        );
    }
    *html += "</table>\n<p class=\"note\">Cannot be used: part of the promised shares that the classes cannot use. \
              Moved: sum of the increases of shares. Both in percent of a node.</p>\n";
}

fn why(run: &Run) -> String {
    let (node, class) = (run.node.as_deref().unwrap_or_default(), run.class.as_deref().unwrap_or_default());
    match run.cause.as_str() {
        "sink_began" => format!("{node}: {class} began to use all of its share"),
        "sink_ended" => format!("{node}: {class} no longer uses all of its share"),
        "fell" => format!("{node}: {class} uses less"),
        "joined" => format!("{node} came up"),
        "left" => format!("{node} went down"),
        _ => "timer".to_owned(),
    }
}

fn percent(figure: Option<f64>) -> String {
    figure.map_or(String::new(), |figure| format!("{figure:.1} %"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
