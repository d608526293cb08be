//! The table of bands as text, Markdown and JSON: the paper's figure, ours, the band, and whether ours lies
//! in it.

use std::fmt;

use serde::Serialize;

use super::{Figure, Found, Source};

/// The figures and their results, in the same order.
pub struct Table {
    pub(super) figures: Vec<Figure>,
    pub(super) found: Vec<Found>,
    /// The folders of the stored runs that each figure is read from. `None` if they were played in the simulator.
    pub(super) raw: Option<Vec<Vec<String>>>,
}

/// One row for programs.
#[derive(Debug, Serialize)]
struct Row<'a> {
    paper: &'a str,
    figure: &'a str,
    discipline: &'a str,
    what: &'a str,
    /// `printed`, `said`, `ours` or `target`.
    source: &'static str,
    /// The number that the paper prints, or its statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<serde_json::Value>,
    /// The figure for each seed, from seed 1 on.
    ours: Vec<Option<f64>>,
    band: [f64; 2],
    /// Absent if the figure was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<&'a str>,
    /// Whether the paper's own figure lies outside the band.
    departs: bool,
    why: &'a str,
    /// The folders of the stored runs. Absent for simulated figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_data: Option<&'a [String]>,
}

/// One row for people.
struct Cells(Vec<String>);

/// The columns. The last one is there for stored runs only.
const HEADINGS: [&str; 8] = ["figure", "discipline", "what", "paper", "ours", "band", "holds", "raw data"];

impl Table {
    /// Returns the number of figures within their bands, outside their bands, and skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for (figure, found) in self.rows() {
            match found.holds(&figure.band) {
                Some(true) => counts.0 += 1,
                Some(false) => counts.1 += 1,
                None => counts.2 += 1,
            }
        }
        counts
    }

    /// Returns the figures with their results.
    pub fn rows(&self) -> impl Iterator<Item = (&Figure, &Found)> {
        self.figures.iter().zip(&self.found)
    }

    /// Returns a line for every figure outside its band, with the reason for the band, and for every
    /// skipped figure.
    pub fn outside(&self) -> Vec<String> {
        let told = self.rows().filter_map(|(figure, found)| {
            let Figure { paper, figure: name, discipline, what, .. } = figure;
            let place = format!("{paper}, {name}, {discipline}: {what}");
            match (found, found.holds(&figure.band)) {
                (Found::Skipped(why), _) => Some(format!("skipped: {place}: {why}")),
                (_, Some(false)) => Some(format!("{place}: {}, band {} ({})", ours(found), band(figure), figure.why)),
                _ => None,
            }
        });
        told.collect()
    }

    /// Returns the table for JSON, one object per figure.
    pub fn json(&self) -> impl Serialize {
        let rows = self.rows().enumerate().map(|(index, (figure, found))| row(figure, found, self.raw(index)));
        rows.collect::<Vec<Row<'_>>>()
    }

    /// Returns the table as Markdown, one table per paper.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (paper, cells) in self.papers() {
            let headings = self.headings();
            text += &format!("### {paper}\n\n| {} |\n|{}\n", headings.join(" | "), "---|".repeat(headings.len()));
            for Cells(cells) in cells {
                text += &format!("| {} |\n", cells.join(" | "));
            }
            text.push('\n');
        }
        text + &self.summary()
    }

    /// Returns the folders that a figure was read from, or `None` if it was simulated.
    fn raw(&self, index: usize) -> Option<&[String]> {
        self.raw.as_ref().map(|raw| raw[index].as_slice())
    }

    fn headings(&self) -> &'static [&'static str] {
        if self.raw.is_some() { &HEADINGS } else { &HEADINGS[..7] }
    }

    fn papers(&self) -> Vec<(&'static str, Vec<Cells>)> {
        let mut papers: Vec<(&'static str, Vec<Cells>)> = Vec::new();
        for (index, (figure, found)) in self.rows().enumerate() {
            let cells = cells(figure, found, self.raw(index));
            match papers.last_mut() {
                Some((paper, lines)) if *paper == figure.paper => lines.push(cells),
                _ => papers.push((figure.paper, vec![cells])),
            }
        }
        papers
    }

    /// Returns the numbers of figures within their bands, outside, and skipped, as text.
    fn summary(&self) -> String {
        let (within, outside, skipped) = self.counts();
        let mut text = format!("{within} figures within their bands, {outside} outside");
        if skipped > 0 {
            text += &format!(", {skipped} SKIPPED");
        }
        text + "\n"
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let papers = self.papers();
        let headings = self.headings();
        let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
        for Cells(cells) in papers.iter().flat_map(|(_, lines)| lines) {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |f: &mut fmt::Formatter<'_>, cells: &[String]| {
            let padded: Vec<String> =
                cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width)).collect();
            writeln!(f, "  {}", padded.join("  ").trim_end())
        };
        for (paper, lines) in &papers {
            writeln!(f, "{paper}")?;
            line(f, &headings.iter().map(|heading| (*heading).to_owned()).collect::<Vec<String>>())?;
            for Cells(cells) in lines {
                line(f, cells)?;
            }
            writeln!(f)?;
        }
        for told in self.outside() {
            writeln!(f, "{told}")?;
        }
        f.write_str(&self.summary())
    }
}

fn cells(figure: &Figure, found: &Found, raw: Option<&[String]>) -> Cells {
    let departs = if figure.departs() { " ≠" } else { "" };
    let paper = match figure.source {
        Source::Printed(printed) => format!("{}{departs}", number(printed)),
        Source::Said(words) => words.to_owned(),
        Source::Ours => "(ours)".to_owned(),
        Source::Target => "(target)".to_owned(),
    };
    let holds = match found.holds(&figure.band) {
        Some(true) => "✔",
        Some(false) => "✘",
        None => "skipped",
    };
    let words = [figure.figure, figure.discipline, &figure.what, &paper, &ours(found), &band(figure), holds];
    Cells(words.map(str::to_owned).into_iter().chain(raw.map(|folders| folders.join(", "))).collect())
}

/// Returns the median of our figures. For several figures, adds the smallest and the largest.
fn ours(found: &Found) -> String {
    let Found::Figures(figures) = found else { return "–".to_owned() };
    let mut there: Vec<f64> = figures.iter().copied().flatten().collect();
    there.sort_unstable_by(f64::total_cmp);
    let Some((min, max)) = there.first().zip(there.last()) else { return "none".to_owned() };
    let median = f64::midpoint(there[(there.len() - 1) / 2], there[there.len() / 2]);
    let missing = if there.len() < figures.len() { ", none with a seed" } else { "" };
    match there.len() {
        1 => format!("{}{missing}", number(median)),
        _ => format!("{} ({}–{}){missing}", number(median), number(*min), number(*max)),
    }
}

fn band(figure: &Figure) -> String {
    format!("{}–{}", number(*figure.band.start()), number(*figure.band.end()))
}

/// Formats a number with at most four significant digits and no zeros at the end of the fraction.
fn number(figure: f64) -> String {
    let digits = match figure.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{figure:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn row<'a>(figure: &'a Figure, found: &'a Found, raw_data: Option<&'a [String]>) -> Row<'a> {
    let (source, published) = match figure.source {
        Source::Printed(printed) => ("printed", Some(printed.into())),
        Source::Said(words) => ("said", Some(words.into())),
        Source::Ours => ("ours", None),
        Source::Target => ("target", None),
    };
    let (ours, skipped) = match found {
        Found::Figures(figures) => (figures.clone(), None),
        Found::Skipped(why) => (Vec::new(), Some(why.as_str())),
    };
    Row {
        paper: figure.paper,
        figure: figure.figure,
        discipline: figure.discipline,
        what: &figure.what,
        source,
        published,
        ours,
        band: [*figure.band.start(), *figure.band.end()],
        holds: found.holds(&figure.band),
        skipped,
        departs: figure.departs(),
        why: figure.why,
        raw_data,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Play;
    use super::*;

    fn figure(source: Source) -> Figure {
        let play = [Play::of("quorum-fig9", "quorum")];
        let plain = Figure::new(("Quorum", "Fig. 9"), "A: served, 1/s", &play, |_| None);
        Figure { source, ..plain.within(90.0..=110.0, "a band for a test, and no other") }
    }

    fn table(found: &[Found]) -> Table {
        let figures = [Source::Printed(120.0), Source::Said("much"), Source::Ours, Source::Target];
        Table { figures: figures[..found.len()].iter().map(|s| figure(*s)).collect(), found: found.to_vec(), raw: None }
    }

    #[test]
    fn every_outcome_is_told() {
        let found = [
            Found::Figures(vec![Some(100.04), Some(109.0), Some(91.0)]),
            Found::Figures(vec![Some(111.0)]),
            Found::Skipped("no log".to_owned()),
            Found::Figures(vec![None]),
        ];
        let table = table(&found);
        assert_eq!(table.counts(), (1, 2, 1));
        let text = table.to_string();
        let words = text.split_whitespace().collect::<Vec<&str>>().join(" ");
        for expected in
            ["120 ≠ 100 (91–109) 90–110 ✔", "much 111 90–110 ✘", "(ours) – 90–110 skipped", "(target) none 90–110 ✘"]
        {
            assert!(words.contains(expected), "{expected}: {text}");
        }
        assert!(text.contains("skipped: Quorum, Fig. 9, quorum: A: served, 1/s: no log"), "{text}");
        assert!(text.ends_with("1 figures within their bands, 2 outside, 1 SKIPPED\n"), "{text}");
        let json = serde_json::to_value(table.json()).unwrap();
        assert_eq!((&json[0]["holds"], &json[0]["departs"]), (&true.into(), &true.into()));
        assert_eq!((&json[2]["skipped"], json[2].get("holds")), (&"no log".into(), None));
        assert!(table.markdown().contains("| Fig. 9 | quorum | A: served, 1/s | much | 111 | 90–110 | ✘ |"));
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.9974, 1.5, 23.456, 185.04, 1059.4, 20.0].map(number);
        assert_eq!(texts, ["0", "0.997", "1.5", "23.46", "185", "1059", "20"]);
    }
}
