//! Points of a curve: judged phases that have a position on the experiment's axis.
//!
//! Two of the papers show their results in this form: Le Baron and Elkan's Fig. 1 over a number of clients,
//! Andreolini et al.'s Figs. 1–4 over clients per second.

use super::{Cell, ClassRuns, Column, Form, Group, Kept, OutlinedFigure, PhaseRuns, Report, Spread, Table};

/// A report with phases that are points of a curve.
#[derive(Clone, Debug)]
pub struct Curve<'a> {
    pub(super) report: Report<'a>,
    /// Quantity that the phases vary, with its unit.
    pub(super) axis: &'a str,
    /// Positions on the axis in order, each with the index of its phase. There is at least one.
    pub(super) places: Vec<(f64, usize)>,
    /// Classes that had traffic at any of them.
    pub(super) classes: Vec<CurveClass<'a>>,
}

#[derive(Clone, Debug)]
pub(super) struct CurveClass<'a> {
    /// Its index among the classes of a phase.
    index: usize,
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

    /// A row for each position on the axis and each of these groups, with the published figures below it.
    /// Each class has its served requests, response time and percentage shed.
    ///
    /// A terminal has a table per group, and notes at the end of a row instead of a column for the groups.
    pub(super) fn table(&self, groups: &[Group], show: fn(Option<Spread>) -> Cell) -> Table {
        let by = Column::words(self.report.by).only(Form::Page);
        let mut columns = vec![Column::numbers(self.axis).once(), by];
        for class in &self.classes {
            let of_class = [
                Column::numbers("served/s").in_text(format!("{}/s", class.name)),
                Column::marks(""),
                Column::numbers(format!("{}, ms", class.statistic)),
                Column::marks(""),
                Column::numbers("shed, %"),
            ];
            columns.extend(Column::part(class.name, of_class));
        }
        columns.push(Column::words("").only(Form::Text));
        let mut table = Table::new(columns);
        for place in &self.places {
            table.start_group();
            for group in groups {
                let is_ours = self.is_ours(group, *place);
                let by = Cell::from(group.discipline.as_str()).and(Cell::faint(if is_ours { "ours" } else { "" }));
                let mut row = vec![Cell::bold(place.0.to_string()), by];
                row.extend(self.classes.iter().flat_map(|class| self.cells(group, class, *place, show)));
                let infeasible = PhaseRuns::new(&group.verdicts, place.1).infeasible().missed > 0;
                let infeasible = infeasible.then_some("infeasible: floors do not count");
                let ours = is_ours.then_some("ours: no figure in the paper");
                row.push(infeasible.into_iter().chain(ours).collect::<Vec<&str>>().join("; ").into());
                table.row(row);
                let paper: Vec<_> = self.classes.iter().map(|class| self.published(group, class, *place)).collect();
                if paper.iter().any(Option::is_some) {
                    let names = [Cell::from("paper"), Cell::from("published")];
                    table.published(names.into_iter().chain(paper.into_iter().flat_map(published)));
                }
            }
        }
        table
    }

    /// Cells of a class at one of the positions.
    fn cells(
        &self,
        group: &Group,
        class: &CurveClass<'_>,
        place: (f64, usize),
        show: fn(Option<Spread>) -> Cell,
    ) -> [Cell; 5] {
        let point = self.point(group, class, place);
        let [floor, ceiling] = self.kept(group, class, place).map(Cell::kept);
        let [served, shed] = [point.map(|point| point.served), point.map(|point| point.shed)].map(show);
        [served, floor, show(point.and_then(|point| point.response)), ceiling, shed]
    }
}

fn published(figure: Option<&OutlinedFigure>) -> [Cell; 5] {
    let cell = |of: fn(&OutlinedFigure) -> Option<f64>| {
        figure.and_then(of).map_or_else(Cell::default, |figure| format!("{figure:.1}").into())
    };
    let none = Cell::default;
    let shed = cell(|figure| figure.shed.map(|share| share * 100.0));
    [cell(|figure| figure.served_per_s), none(), cell(|figure| figure.response_time_ms), none(), shed]
}
