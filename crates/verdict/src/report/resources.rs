//! Resource usage by class, for experiments with requests that need several resources: tables, charts, and
//! the figures of mQoS's paper next to ours.
//!
//! Several seeds are reduced to medians, each value separately.

use super::svg::{Bar, BarGroup, Bars, figure_text};
use super::{Cell, Column, Group, PhaseRuns, Report, Spread, Table};
use crate::judge::{Portion, ResourceUse};

/// Resource usage of a phase under one discipline, in every run.
fn each(group: &Group, phase: usize) -> impl Iterator<Item = &ResourceUse> {
    PhaseRuns::new(&group.verdicts, phase).each().filter_map(|phase| phase.resources.as_ref())
}

/// The first usage of any phase. Names and classes are the same in all of them.
fn first<'a>(report: &Report<'a>) -> Option<&'a ResourceUse> {
    let verdicts = report.groups.iter().flat_map(|group| &group.verdicts);
    verdicts.flat_map(|verdict| &verdict.phases).find_map(|phase| phase.resources.as_ref())
}

/// Whether requests use anything but CPUs.
pub(super) fn any(report: &Report<'_>) -> bool {
    first(report).is_some()
}

/// The table of these phases: a row per class and group, then one for all classes per group. A terminal has
/// a table per phase.
pub(super) fn table(report: &Report<'_>, phases: impl IntoIterator<Item = usize>) -> Table {
    let Some(first) = first(report) else { return Table::default() };
    let used = first.names.iter().flat_map(|name| [format!("{name}, %"), "of it, %".to_owned()]);
    let heads = used.chain(["served/s", "latency, ms", "waiting, ms", "processing, ms"].map(str::to_owned));
    let mut table = Table::new(report.columns_of_phases("used by").chain(heads.map(Column::numbers)));
    let classes = || first.classes.iter().enumerate().map(|(index, class)| (Some(index), class.class.as_str()));
    for phase in phases {
        table.start_group();
        for (index, name) in classes().chain([(None, "all")]) {
            for group in report.groups {
                if let Some(cells) = cells(group, phase, index, first.names.len()) {
                    table.row(report.names(phase, name, group).into_iter().chain(cells));
                }
            }
        }
    }
    table
}

/// The portion of a class, or of all.
fn portion(used: &ResourceUse, class: Option<usize>) -> Option<&Portion> {
    class.map_or(Some(&used.all), |class| used.classes.get(class).map(|class| &class.portion))
}

/// Cells of a row. `None` if nothing was served.
fn cells(group: &Group, phase: usize, class: Option<usize>, resources: usize) -> Option<Vec<Cell>> {
    let of = |figure: fn(&Portion) -> f64| {
        Spread::of(each(group, phase).filter_map(|used| portion(used, class)).map(figure))
    };
    let served = of(|portion| portion.served_per_s)?;
    if served.max <= 0.0 {
        return None;
    }
    let mut cells = Vec::new();
    for resource in 0..resources {
        let percent = |used: &ResourceUse| -> Option<f64> {
            let share = match class {
                None => used.utilisation.get(resource),
                Some(class) => used.classes.get(class).and_then(|class| class.portion.used.get(resource)),
            };
            share.map(|share| share * 100.0)
        };
        let split = |used: &ResourceUse| used.split(resource).nth(class?).map(|part| part * 100.0);
        cells.push(Cell::spread(Spread::of(each(group, phase).filter_map(percent)), 1));
        cells.push(Cell::spread(Spread::of(each(group, phase).filter_map(split)), 1));
    }
    let latencies = [Portion::latency_ms, |p: &Portion| p.waiting_ms, |p: &Portion| p.processing_ms];
    cells.push(Cell::spread(Some(served), 1));
    cells.extend(latencies.map(|latency| Cell::spread(of(latency), 0)));
    Some(cells)
}

/// Median of a value over the runs.
fn median(group: &Group, phase: usize, figure: impl Fn(&ResourceUse) -> Option<f64>) -> Option<f64> {
    Spread::of(each(group, phase).filter_map(figure)).map(|spread| spread.median)
}

/// Charts of a phase: use of each resource by class, throughput, latency, and the composition of latency.
pub(super) fn charts(report: &Report<'_>, phase: usize) -> Vec<Bars> {
    let Some(first) = first(report) else { return Vec::new() };
    let names: Vec<String> = first.classes.iter().map(|class| class.class.clone()).collect();
    let places: Vec<Option<usize>> = (0..names.len()).map(Some).chain([None]).collect();
    let name_of = |class: &Option<usize>| class.map_or("all", |class| names[class].as_str()).to_owned();
    let groups = |bars: &dyn Fn(&Group) -> Vec<Bar>| -> Vec<BarGroup> {
        let of = |group: &Group| BarGroup { name: group.discipline.clone(), bars: bars(group) };
        report.groups.iter().filter(|group| each(group, phase).next().is_some()).map(of).collect()
    };
    let used = |group: &Group| {
        let bar = |(resource, name): (usize, &String)| Bar {
            name: name.clone(),
            parts: (0..names.len())
                .map(|class| {
                    let own = |used: &ResourceUse| used.classes.get(class)?.portion.used.get(resource).copied();
                    median(group, phase, own).unwrap_or(0.0) * 100.0
                })
                .collect(),
            paper: None,
        };
        first.names.iter().enumerate().map(bar).collect()
    };
    // A colour per class, and one for all together.
    let single = |group: &Group, figure: fn(&Portion) -> f64| -> Vec<Bar> {
        let bar = |(place, class): (usize, &Option<usize>)| {
            let own = median(group, phase, |used| portion(used, *class).map(figure)).unwrap_or(0.0);
            let parts = (0..places.len()).map(|at| if at == place { own } else { 0.0 }).collect();
            Bar { name: name_of(class), parts, paper: None }
        };
        places.iter().enumerate().map(bar).collect()
    };
    let throughput = |group: &Group| {
        let mut bars = single(group, |portion| portion.served_per_s);
        let paper = published(report, group, phase);
        if let (Some(all), Some(sum)) = (bars.last_mut(), total(&paper)) {
            all.paper = Some(sum);
        }
        bars
    };
    let made_of = |group: &Group| {
        let bar = |class: &Option<usize>| {
            let parts: [fn(&Portion) -> f64; 2] = [|portion| portion.processing_ms, |portion| portion.waiting_ms];
            let parts = parts.map(|part| median(group, phase, |used| portion(used, *class).map(part)).unwrap_or(0.0));
            Bar { name: name_of(class), parts: parts.to_vec(), paper: None }
        };
        places.iter().map(bar).collect()
    };
    let with_all: Vec<String> = places.iter().map(name_of).collect();
    let two = ["processing at the server", "waiting at the gateway"].map(str::to_owned).to_vec();
    let chart = |title: &str, parts: &[String], groups| Bars { title: title.to_owned(), parts: parts.to_vec(), groups };
    vec![
        chart("Use of each resource by class, % of capacity", &names, groups(&used)),
        chart("Throughput, requests/s", &with_all, groups(&throughput)),
        chart("Mean latency, ms", &with_all, groups(&|group| single(group, Portion::latency_ms))),
        chart("Parts of mean latency, ms", &two, groups(&made_of)),
    ]
}

/// Throughput and latency of all classes together over the axis, with a bar for each discipline at each position.
pub(super) fn charts_over_axis(report: &Report<'_>) -> Vec<Bars> {
    if first(report).is_none() {
        return Vec::new();
    }
    let mut places: Vec<(f64, usize)> =
        report.outline.phases.iter().enumerate().filter_map(|(index, phase)| Some((phase.x?, index))).collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    let parts: Vec<String> = report.groups.iter().map(|group| group.discipline.clone()).collect();
    let chart = |title: &str, figure: fn(&Portion) -> f64, with_paper: bool| {
        let group = |(x, phase): &(f64, usize)| {
            let bar = |(index, group): (usize, &Group)| {
                let own = median(group, *phase, |used| Some(figure(&used.all))).unwrap_or(0.0);
                let paper = if with_paper { total(&published(report, group, *phase)) } else { None };
                let parts = (0..report.groups.len()).map(|at| if at == index { own } else { 0.0 }).collect();
                Bar { name: String::new(), parts, paper }
            };
            BarGroup { name: figure_text(*x), bars: report.groups.iter().enumerate().map(bar).collect() }
        };
        let axis = report.outline.axis.as_deref().unwrap_or_default();
        Bars {
            title: format!("{title}, over {axis}"),
            parts: parts.clone(),
            groups: places.iter().map(group).collect(),
        }
    };
    let all = [
        chart("Throughput of all classes, requests/s", |portion| portion.served_per_s, true),
        chart("Mean latency of all classes, ms", Portion::latency_ms, false),
    ];
    if places.is_empty() { Vec::new() } else { all.to_vec() }
}

/// Published requests per second of each class that was served.
fn published(report: &Report<'_>, group: &Group, phase: usize) -> Vec<Option<f64>> {
    let Some(name) = report.phase_name(phase) else { return Vec::new() };
    let Some(used) = each(group, phase).next() else { return Vec::new() };
    let figures = report.published(name);
    let served = used.classes.iter().filter(|class| class.portion.served_per_s > 0.0);
    let of = |class: &str| {
        let own = figures.iter().find(|figure| figure.discipline == group.discipline && figure.class == class);
        own.and_then(|figure| figure.served_per_s)
    };
    served.map(|class| of(&class.class)).collect()
}

/// Sum over all classes, if every class has a value.
fn total(published: &[Option<f64>]) -> Option<f64> {
    if published.is_empty() { None } else { published.iter().copied().sum() }
}

/// All published values of the phases, with ours: throughput of all classes, the gain of one discipline
/// over another, and the ratio of the classes on each resource. A page shows them.
pub(super) fn pairs(report: &Report<'_>) -> Table {
    let mut pairs = Table::new(["of all classes together", "paper", "ours"].map(Column::words));
    for (index, phase) in report.outline.phases.iter().enumerate() {
        // Discipline, value of the paper, our value.
        let mut totals: Vec<(&str, f64, f64)> = Vec::new();
        for group in report.groups {
            let paper = published(report, group, index);
            let ours = median(group, index, |used| Some(used.all.served_per_s));
            let (Some(paper_total), Some(ours)) = (total(&paper), ours) else { continue };
            let who = format!("{}, {}", phase.name, group.discipline);
            pairs.row([format!("{who}: requests/s"), figure_text(paper_total), format!("{ours:.0}")]);
            totals.push((&group.discipline, paper_total, ours));
            ratios(group, index, &who, &paper).into_iter().for_each(|ratio| pairs.row(ratio));
        }
        for (min, paper, ours) in totals.iter().filter(|(name, ..)| name.starts_with("sqos")) {
            for (name, other_paper, other_ours) in totals.iter().filter(|(name, ..)| name.starts_with("mqos")) {
                let more = |a: f64, b: f64| format!("{:+.1} %", (a / b - 1.0) * 100.0);
                let gains = [more(*other_paper, *paper), more(*other_ours, *ours)];
                pairs.row([format!("{}: {name} over {min}", phase.name)].into_iter().chain(gains));
            }
        }
    }
    pairs
}

/// Ratio in which a resource is split. In the paper, it is the ratio of the throughputs.
fn ratios(group: &Group, phase: usize, who: &str, paper: &[Option<f64>]) -> Vec<[String; 3]> {
    let ratio = |parts: &[f64]| -> Option<String> {
        let min = parts.iter().copied().fold(f64::INFINITY, f64::min);
        let told = |part: &f64| figure_text(part / min);
        (min > 0.0 && parts.len() > 1).then(|| parts.iter().map(told).collect::<Vec<String>>().join(" : "))
    };
    let paper: Option<Vec<f64>> = paper.iter().copied().collect();
    let Some(paper) = paper.and_then(|paper| ratio(&paper)) else { return Vec::new() };
    let Some(first) = each(group, phase).next() else { return Vec::new() };
    let of = |(resource, name): (usize, &String)| {
        let part = |class: usize| median(group, phase, |used| used.split(resource).nth(class));
        let parts: Vec<f64> = (0..first.classes.len()).filter_map(part).filter(|part| *part > 0.0).collect();
        Some([format!("{who}: split of {name}"), paper.clone(), ratio(&parts)?])
    };
    first.names.iter().enumerate().filter_map(of).collect()
}
