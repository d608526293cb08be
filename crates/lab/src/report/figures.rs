//! Several runs on one page, as the figures of mQoS's paper: use of each resource by class, throughput,
//! latency and its composition. All approaches appear side by side, and the paper's figures next to ours.
//!
//! Source: Feng and Lin, *Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway*
//! (2005), Figs. 9–14, each of which is a separate experiment here.

use std::fmt::Write as _;

use weirgate_verdict::report::html::{self, escape, figure_text};
use weirgate_verdict::report::{Drawing, Report, drawings};

use super::run_file::RunFile;

/// Returns the page.
///
/// # Errors
/// The requests of a run use nothing but CPU time. The error names the run.
pub fn figures(runs: &[RunFile]) -> Result<String, String> {
    let sections: Vec<String> = runs.iter().map(section).collect::<Result<_, String>>()?;
    let names: Vec<&str> = runs.iter().map(|run| run.experiment.name.as_str()).collect();
    Ok(html::document(&names.join(", "), &sections.concat()))
}

/// Returns the charts of the page. Each has a name that begins with the name of its experiment.
///
/// # Errors
/// Two runs are of one experiment, so their charts have the same names.
pub fn charts(runs: &[RunFile]) -> Result<Vec<Drawing>, String> {
    let names: Vec<&str> = runs.iter().map(|run| run.experiment.name.as_str()).collect();
    if let Some((_, twice)) = names.iter().enumerate().find(|(at, name)| names.iter().take(*at).any(|one| one == *name))
    {
        return Err(format!(
            "two of the runs are of {twice}, and their charts would have the same names; draw them one at a time"
        ));
    }
    let of = |run: &RunFile| {
        let (groups, outline) = (run.groups(), &run.experiment);
        let all = drawings(&Report { outline, groups: &groups, by: "approach" });
        let named = |drawing: Drawing| Drawing { name: format!("{}-{}", outline.name, drawing.name), ..drawing };
        all.into_iter().map(named).collect::<Vec<Drawing>>()
    };
    Ok(runs.iter().flat_map(of).collect())
}

fn section(run: &RunFile) -> Result<String, String> {
    let groups = run.groups();
    let outline = &run.experiment;
    let report = Report { outline, groups: &groups, by: "approach" };
    let resources = html::resources(&report);
    if resources.is_empty() {
        return Err(format!(
            "requests of {} use only CPU time, so there is nothing to draw; give runs of experiments whose demands \
             have `disk:` or `link:`",
            outline.name
        ));
    }
    let mut body = format!("<section><h1>{}</h1>", escape(&outline.name));
    let _ = write!(body, "<p class=\"lead\">{}</p>", escape(&outline.title));
    let doubted = run.trials.iter().filter(|trial| !trial.evidence.doubts().is_empty()).count();
    if doubted > 0 {
        let all = run.trials.len();
        let _ = write!(body, "<p><span class=\"word broken\">{doubted} of {all} trials in doubt</span></p>");
    }
    let _ = write!(
        body,
        "{resources}{}<p class=\"note\">Measured {} on {}, {}, {} s of the experiment in one \
         second.</p><pre>{}</pre></section>",
        html::learned(&report),
        escape(&run.date),
        escape(&run.machine.cpu),
        escape(&run.machine.kernel),
        figure_text(run.time_compression),
        escape(&run.command)
    );
    Ok(body)
}
