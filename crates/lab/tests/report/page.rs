//! The page of a run, and the page of a comparison.

use weirgate_lab::report::{Side, charts, compare, figures, page};
use weirgate_verdict::report::InFlightSeries;
use weirgate_verdict::{ClassUse, Portion, ResourceUse};

use crate::hand_made::run;

/// Elements without an end tag, and those with an end tag that may be omitted before the next of their kind or the
/// end of the row (HTML Living Standard, Secs. 13.1.2 and 13.1.2.4).
const VOID: [&str; 2] = ["meta", "br"];
const OPTIONAL: [&str; 2] = ["td", "th"];

/// Checks that every opened tag is closed. The error names a tag that was closed without being open, or left open.
fn balance(html: &str) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    let mut rest = html.strip_prefix("<!doctype html>").ok_or("no doctype")?;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let (tag, after) = rest.split_once('>').ok_or("a tag without end")?;
        rest = after;
        let (closes, body) = tag.strip_prefix('/').map_or((false, tag), |tag| (true, tag));
        let name = body.split([' ', '/', '\n']).next().unwrap_or_default();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric()) || body.matches('"').count() % 2 == 1 {
            return Err(format!("<{tag}> is no tag"));
        }
        if VOID.contains(&name) || tag.ends_with('/') {
            continue;
        }
        let cell = open.last().is_some_and(|last| OPTIONAL.contains(&last.as_str()));
        if cell && (OPTIONAL.contains(&name) || (closes && name == "tr")) {
            open.pop();
        }
        match closes {
            false => open.push(name.to_owned()),
            true if open.last().is_some_and(|last| last == name) => drop(open.pop()),
            true => return Err(format!("</{name}> within {open:?}")),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("left open: {open:?}")) }
}

#[test]
fn the_check_of_balance_can_fail() {
    assert_eq!(balance("<!doctype html><table><tr><th>a<td>b</tr></table><br><i a=\"b\">c</i><b/>"), Ok(()));
    for broken in ["<p>", "<p></b>", "<p><td></p>", "<b></p></b>", "<p a=\"b></p>", "a < b"] {
        assert!(balance(&format!("<!doctype html>{broken}")).is_err(), "{broken}");
    }
}

#[test]
fn figures_of_several_runs_are_on_one_page() {
    let plain = run();
    assert!(figures(std::slice::from_ref(&plain)).unwrap_err().contains("hand-made use only CPU time"));
    let mut used = plain.clone();
    let portion =
        |used: f64| Portion { used: vec![used; 3], served_per_s: used * 200.0, waiting_ms: 90.0, processing_ms: 10.0 };
    let class = |class: &str, used| ClassUse { class: class.into(), portion: portion(used) };
    for trial in &mut used.trials {
        for phase in &mut trial.verdict.phases {
            phase.resources = Some(ResourceUse {
                names: ["cpu", "disk", "bandwidth"].map(str::to_owned).to_vec(),
                utilisation: vec![0.95; 3],
                all: portion(0.9),
                classes: vec![class("A", 0.6), class("B", 0.3)],
            });
        }
        let line = InFlightSeries { resource: "disk".into(), requests: vec![4.5; 30] };
        trial.series.iter_mut().for_each(|series| series.in_flight.push(line.clone()));
    }
    let html = figures(&[used.clone(), used.clone()]).unwrap();
    assert_eq!(balance(&html), Ok(()));
    assert_eq!(html.matches("<section>").count(), 2);
    let twice = charts(&[used.clone(), used.clone()]).unwrap_err();
    assert!(twice.contains("hand-made, and their charts would have the same names"), "{twice}");
    let names: Vec<String> = charts(std::slice::from_ref(&used)).unwrap().into_iter().map(|chart| chart.name).collect();
    assert!(names.contains(&"hand-made-calm-use".to_owned()), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("hand-made-in-flight-")), "{names:?}");
    for told in [
        "Use of each resource by class", "Throughput, requests/s", "Mean latency, ms", "waiting at the gateway",
        "Requests in flight", "66.7",
    ] {
        assert!(html.contains(told), "{told}");
    }
    assert!(page(&used).contains("<h2>Resources</h2>") && !page(&plain).contains("<h2>Resources</h2>"));
}

#[test]
fn a_page_is_sound_and_has_everything() {
    let run = run();
    let page = page(&run);
    assert_eq!(balance(&page), Ok(()));
    let experiment = &run.experiment;
    let names =
        experiment.phases.iter().map(|p| p.name.as_str()).chain(experiment.classes.iter().map(|c| c.name.as_str()));
    for name in names.chain(["weirgate", "quorum", "proxy:limit=&lt;4&gt;"]) {
        assert!(page.matches(&format!(">{name}<")).count() > 1, "{name}");
    }
    for told in [
        "<strong>Weirgate held all 12 guarantees; missed by quorum 2 of 12",
        "more than weirgate was served in time by proxy:limit=&lt;4&gt; (calm +12.8 %, node-out +12.8 %)",
        "<td class=\"l y\">▲ +12.8 %",
        "<td class=\"l m\">level -1.1 %",
        "<span class=\"word broken\">1 of 5 trials in doubt</span>",
        "✘ 2 phantom, such as 17, 23",
        "href=\"config/proxy:limit=%3C4%3E/a%20b.cfg\"",
        "maxconn &lt;4&gt;",
        "title: hand-made",
        "n&lt;1&gt; out",
        "the proxy has no deadline",
        "one node was slow to start",
        "core 1: the rest",
        "4 s of the experiment in one second",
        "weirgate lab &#39;a&lt;b&#39;",
        "<td>100<td>118.0<td>+18 %",
    ] {
        assert!(page.contains(told), "{told}");
    }
    assert!(!page.contains("NaN") && !page.contains("<4>") && !page.contains("src="), "self-contained");
}

/// The axes are the same in every figure, even though one approach queues far longer.
#[test]
fn figures_of_all_approaches_have_the_same_axes() {
    let mut run = run();
    run.trials[4].series.as_mut().expect("it has one").classes[1].served[7] = 888.0;
    let page = page(&run);
    let grid =
        page.split("<div class=\"grid\">").nth(1).and_then(|rest| rest.split("<details>").next()).expect("figures");
    let axes = grid.split("</svg>").filter(|figure| figure.contains("<svg")).map(|figure| {
        let ticks = figure.split("text-anchor=\"end\">").skip(1).filter_map(|tick| tick.split('<').next());
        ticks.map(str::to_owned).collect::<Vec<String>>()
    });
    let axes: Vec<Vec<String>> = axes.collect();
    assert_eq!(axes.len(), 3);
    assert!(axes.windows(2).all(|pair| pair[0] == pair[1]), "{axes:?}");
    assert!(axes[0].contains(&"1000".to_owned()), "{:?}", axes[0]);
}

#[test]
fn a_curve_comes_first_and_has_every_approach() {
    let mut run = run();
    run.experiment.axis = Some("users & more".into());
    (run.experiment.phases[1].x, run.experiment.phases[2].x) = (Some(10.0), Some(20.0));
    let page = page(&run);
    assert_eq!(balance(&page), Ok(()));
    let curve = page.split("<h2>").nth(1).expect("a part");
    assert!(curve.starts_with("Over users &amp; more"), "{curve}");
    assert_eq!((curve.matches("<svg").count(), curve.matches("<b>10</b>").count()), (3, 1));
    for approach in ["weirgate", "quorum", "proxy:limit=&lt;4&gt;"] {
        assert_eq!(curve.matches(&format!("<td class=\"l\">{approach}")).count(), 2, "{approach}");
    }
}

#[test]
fn a_run_without_figures_or_trials_still_has_a_page() {
    let mut run = run();
    run.trials.iter_mut().for_each(|trial| trial.series = None);
    assert_eq!(balance(&page(&run)), Ok(()));
    run.trials.clear();
    assert_eq!(balance(&page(&run)), Ok(()));
}

#[test]
fn a_comparison_is_a_sound_page_too() {
    let (a, mut other) = (run(), run());
    other.trials.truncate(3);
    other.trials[0].verdict.phases[1].classes[0].part.served_per_s = 200.0;
    let page = compare(&Side::from(&a), &Side::from(&other)).html();
    assert_eq!(balance(&page), Ok(()));
    for told in
        ["1 of 12 not within 3 % of served/s", "<li>A: hand-made: proxy:limit=&lt;4&gt;</li>", "calm", "node-out"]
    {
        assert!(page.contains(told), "{told} is not in {page}");
    }
}
