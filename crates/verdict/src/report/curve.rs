//! The points of a curve: judged phases that have a place on the experiment's axis.
//!
//! Two of the papers show their results so: Le Baron and Elkan's Fig. 1 over a number of clients, Andreolini et al.'s
//! Figs. 1–4 over clients per second.

use super::{ClassRuns, Group, Kept, OutlinedFigure, PhaseRuns, Report, Spread};

/// A report whose phases are points of a curve.
#[derive(Clone, Debug)]
pub struct Curve<'a> {
    /// The report.
    pub(super) report: Report<'a>,
    /// What the phases vary, with its unit.
    pub(super) axis: &'a str,
    /// Places on the axis in their order, each with the index of its phase; at least one.
    pub(super) places: Vec<(f64, usize)>,
    /// The classes that had traffic at any of them.
    pub(super) classes: Vec<CurveClass<'a>>,
}

/// A class of a curve.
#[derive(Clone, Debug)]
pub(super) struct CurveClass<'a> {
    /// Its place among the classes of a phase.
    index: usize,
    /// Its name.
    pub(super) name: &'a str,
    /// Which statistic its response time is: the guaranteed one, or `avg`.
    pub(super) statistic: &'a str,
    /// The guaranteed limit, in milliseconds.
    pub(super) limit_ms: Option<f64>,
}

/// A class at one place under one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Requests per second.
    pub(super) served: Spread,
    /// What the throughput guarantee comes to here, in requests per second.
    pub(super) owed: Option<f64>,
    /// The class's statistic, in milliseconds; `None` where nothing was served.
    pub(super) response: Option<Spread>,
    /// Requests turned away, in percent.
    pub(super) shed: Spread,
}

impl<'a> Curve<'a> {
    /// `None` if the experiment has no axis, or nothing was judged on it.
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

    /// Is this phase one of the points?
    pub(super) fn has(&self, phase: usize) -> bool {
        self.places.iter().any(|(_, point)| *point == phase)
    }

    /// A class under a group at one of the places; `None` without traffic there.
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

    /// The published figure of a class at one of the places.
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

    /// Is this place ours alone? The paper has figures of the group, and prints none of them for this place.
    pub(super) fn is_ours(&self, group: &Group, place: (f64, usize)) -> bool {
        let is_printed =
            |place: &(f64, usize)| self.classes.iter().any(|class| self.published(group, class, *place).is_some());
        !is_printed(&place) && self.places.iter().any(is_printed)
    }

    /// Was its throughput guaranteed here and held, and its response time? A floor that cannot be held does not count.
    pub(super) fn kept(&self, group: &Group, class: &CurveClass<'_>, (_, phase): (f64, usize)) -> [Option<Kept>; 2] {
        let runs = PhaseRuns::new(&group.verdicts, phase);
        let of = runs.class(class.index);
        [of.floor().filter(|_| runs.infeasible().missed == 0), of.ceiling()]
    }
}
