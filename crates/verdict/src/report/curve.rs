//! Points of a curve: judged phases that have a position on the experiment's axis.
//!
//! Two of the papers show their results in this form: Le Baron and Elkan's Fig. 1 over a number of clients,
//! Andreolini et al.'s Figs. 1–4 over clients per second.

use super::{ClassRuns, Group, Kept, OutlinedFigure, PhaseRuns, Report, Spread};

/// A report with phases that are points of a curve.
#[derive(Clone, Debug)]
pub struct Curve<'a> {
    /// The report.
    pub(super) report: Report<'a>,
    /// Quantity that the phases vary, with its unit.
    pub(super) axis: &'a str,
    /// Positions on the axis in order, each with the index of its phase. There is at least one.
    pub(super) places: Vec<(f64, usize)>,
    /// Classes that had traffic at any of them.
    pub(super) classes: Vec<CurveClass<'a>>,
}

/// A class of a curve.
#[derive(Clone, Debug)]
pub(super) struct CurveClass<'a> {
    /// Its index among the classes of a phase.
    index: usize,
    /// Name of the class.
    pub(super) name: &'a str,
    /// Statistic of its response time: the guaranteed one, or `avg`.
    pub(super) statistic: &'a str,
    /// Guaranteed limit, in milliseconds.
    pub(super) limit_ms: Option<f64>,
}

/// A class at one position under one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Requests served per second.
    pub(super) served: Spread,
    /// Requests per second that its throughput guarantee covers here.
    pub(super) owed: Option<f64>,
    /// The class's statistic, in milliseconds. `None` where nothing was served.
    pub(super) response: Option<Spread>,
    /// Requests shed, in percent.
    pub(super) shed: Spread,
}

impl<'a> Curve<'a> {
    /// The curve of a report. `None` if the experiment has no axis, or nothing was judged on it.
    #[must_use]
    pub fn of(report: &Report<'a>) -> Option<Curve<'a>> {
        let outline = report.outline;
        let judged = |index: usize| {
            report.groups.iter().any(|group| PhaseRuns::new(&group.verdicts, index).each().any(|phase| phase.judged))
        };
        let place = |(index, x): (usize, f64)| (x.is_finite() && judged(index)).then_some((x, index));
        let places = outline.phases.iter().enumerate().filter_map(|(index, phase)| place((index, phase.x?)));
        let mut places: Vec<(f64, usize)> = places.collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        let first = places.first()?.1;
        let class = |index: usize| {
            let all = report.groups.iter();
            let mut all = all.flat_map(|group| places.iter().map(|(_, phase)| PhaseRuns::new(&group.verdicts, *phase)));
            let runs = all.find_map(|runs| Some(runs.class(index)).filter(ClassRuns::any))?;
            let limit_ms = runs.ceilings().next().map(|ceiling| ceiling.limit_ms);
            Some(CurveClass { index, name: runs.name(), statistic: runs.statistic(), limit_ms })
        };
        let classes = (0..report.class_count(first)).filter_map(class).collect();
        Some(Curve { report: *report, axis: outline.axis.as_deref()?, places, classes })
    }

    /// Whether this phase is one of the points.
    pub(super) fn has(&self, phase: usize) -> bool {
        self.places.iter().any(|(_, point)| *point == phase)
    }

    /// The values of a class under a group at one of the positions. `None` without traffic there.
    pub(super) fn point(&self, group: &Group, class: &CurveClass<'_>, (_, phase): (f64, usize)) -> Option<Point> {
        let runs = PhaseRuns::new(&group.verdicts, phase).class(class.index);
        runs.any().then_some(())?;
        Some(Point {
            served: runs.spread(|class| class.part.served_per_s)?,
            owed: Spread::of(runs.floors().map(|floor| floor.owed_per_s)).map(|owed| owed.median),
            response: runs.response(),
            shed: runs.shed_percent()?,
        })
    }

    /// Published figure of a class at one of the positions.
    pub(super) fn published(
        &self,
        group: &Group,
        class: &CurveClass<'_>,
        (_, phase): (f64, usize),
    ) -> Option<&'a OutlinedFigure> {
        let name = self.report.outline.phases.get(phase)?.name.as_str();
        let ours = |figure: &&OutlinedFigure| {
            figure.phase == name && figure.class == class.name && figure.discipline == group.discipline
        };
        self.report.outline.published.iter().find(ours)
    }

    /// Whether the paper prints no figure for this position, although it has figures of the group at others.
    pub(super) fn is_ours(&self, group: &Group, place: (f64, usize)) -> bool {
        let is_printed =
            |place: &(f64, usize)| self.classes.iter().any(|class| self.published(group, class, *place).is_some());
        !is_printed(&place) && self.places.iter().any(is_printed)
    }

    /// Results of the throughput and response-time guarantees here, where they count. A floor that cannot
    /// be held does not count.
    pub(super) fn kept(&self, group: &Group, class: &CurveClass<'_>, (_, phase): (f64, usize)) -> [Option<Kept>; 2] {
        let runs = PhaseRuns::new(&group.verdicts, phase);
        let of = runs.class(class.index);
        [of.floor().filter(|_| runs.infeasible().missed == 0), of.ceiling()]
    }
}
