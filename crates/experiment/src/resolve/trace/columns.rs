//! Columns: costs of requests given in the lines of a log.
//!
//! A column has a name from the log's head (its first line, or `#Fields:` as in W3C's Extended Log File
//! Format), or a number that counts from 1. The separator of fields is the first of tab, comma and semicolon
//! that occurs in the head (or in the first line with a timestamp, if there is no head), else spaces. Text in
//! quotation marks is one field, and so is text in brackets if spaces are the separator: the columns of an
//! access log thus have the numbers that its manual gives them.
//!
//! Departures: `-` counts as zero, because logs write it for a reply without a body. A quotation mark in a
//! quoted field is written `\"`.

use std::time::Duration;

use weirgate_spanned_yaml::errors::{Complaint, listed, quoted};

use crate::experiment::PARTS;
use crate::file::Traced;

/// Longest time that one request may take of one part, unless the experiment gives `max`: an hour, as for
/// emulated nodes. A longer time is a wrong unit.
const LONGEST: Duration = Duration::from_secs(3600);

/// Cost of a request per part, in nanoseconds.
pub(super) type Cost = [u64; PARTS];

/// The columns that an experiment reads from a log.
pub(super) struct Columns<'a> {
    wanted: &'a [Traced],
    head: Option<Head>,
    form: Option<Form>,
}

struct Head {
    names: Vec<String>,
    /// `None` if the head does not show it.
    separator: Option<char>,
}

/// The separator and the positions of the columns.
struct Form {
    separator: char,
    /// For each wanted part, the positions of its columns, from 0.
    places: Vec<Vec<usize>>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(wanted: &'a [Traced]) -> Columns<'a> {
        Columns { wanted, head: None, form: None }
    }

    /// Whether no column is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Notes a line without a timestamp and request, which may be the head.
    pub(super) fn passed_over(&mut self, line: &str) {
        let line = line.trim_end_matches(['\r', '\n']);
        if let Some(names) = line.strip_prefix("#Fields:") {
            self.head = Some(Head { names: names.split_whitespace().map(str::to_owned).collect(), separator: None });
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            let separator = separator(line);
            self.head =
                Some(Head { names: fields(line, separator).map(str::to_owned).collect(), separator: Some(separator) });
        }
    }

    /// Returns the cost of the request in `line`. `spaced` means that spaces separate its fields, whatever
    /// other separators it contains.
    ///
    /// # Errors
    /// Returns the error in this line, or in all lines, and a hint.
    pub(super) fn cost(&mut self, line: &str, spaced: bool) -> Result<Cost, Complaint> {
        let line = line.trim_end_matches(['\r', '\n']);
        if self.form.is_none() {
            self.form = Some(self.find(line, spaced)?);
        }
        let Some(Form { separator, places }) = &self.form else { return Ok([0; PARTS]) };
        let fields: Vec<&str> = fields(line, *separator).collect();
        let mut cost = [0; PARTS];
        for (wanted, places) in self.wanted.iter().zip(places) {
            let mut nanos = 0.0;
            for ((column, each), place) in wanted.columns.iter().zip(places) {
                let Some(field) = fields.get(*place) else {
                    let what = format!("has no column {}", quoted(column));
                    return Err(Complaint::new(what, "write a number, or `-` for nothing"));
                };
                let number = if *field == "-" { Some(0.0) } else { field.parse::<f64>().ok() };
                let Some(number) = number.filter(|number| number.is_finite() && *number >= 0.0) else {
                    let what = format!("has {} in the column {}", quoted(field), quoted(column));
                    return Err(Complaint::new(what, "write a number of zero or more, or `-` for nothing"));
                };
                nanos += number * each.as_nanos() as f64;
            }
            if wanted.max.is_none() && nanos > LONGEST.as_nanos() as f64 {
                let what = format!("takes {:.0} s by its columns, longer than an hour", nanos / 1e9);
                return Err(Complaint::new(what, "make each unit shorter, or say the longest: `max: 60s`"));
            }
            let max = wanted.max.unwrap_or(LONGEST).as_nanos() as f64;
            cost[wanted.part] = nanos.min(max).round() as u64;
        }
        Ok(cost)
    }

    /// Finds the columns, by the head or by the first line with a request.
    fn find(&self, line: &str, spaced: bool) -> Result<Form, Complaint> {
        let shown = self.head.as_ref().and_then(|head| head.separator);
        let separator = if spaced { ' ' } else { shown.unwrap_or_else(|| separator(line)) };
        let names = self.head.as_ref().map_or(&[][..], |head| &head.names);
        let place = |(column, _): &(String, Duration)| {
            let named = names.iter().position(|name| name == column);
            let numbered = || column.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            named.or_else(numbered).ok_or_else(|| {
                let hint = match names {
                    [] => "name it by its number, counted from 1".to_owned(),
                    names => format!("there is {}", listed(names.iter().map(String::as_str))),
                };
                Complaint::new(format!("shows no column {}", quoted(column)), hint)
            })
        };
        let places = |wanted: &Traced| wanted.columns.iter().map(place).collect();
        Ok(Form { separator, places: self.wanted.iter().map(places).collect::<Result<_, _>>()? })
    }
}

/// Returns the separator of the fields in `line`.
fn separator(line: &str) -> char {
    ['\t', ',', ';'].into_iter().find(|separator| line.contains(*separator)).unwrap_or(' ')
}

/// Returns the fields of `line`. A run of spaces counts as one separator.
fn fields(line: &str, separator: char) -> impl Iterator<Item = &str> {
    let spaced = separator == ' ';
    let ends = move |c: char| if spaced { c.is_whitespace() } else { c == separator };
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let text = rest?.trim_start_matches(if spaced { char::is_whitespace } else { |c| c == ' ' });
        if spaced && text.is_empty() {
            return None;
        }
        let close = match text.chars().next() {
            Some('"') => {
                let mut marks = text.match_indices('"').skip(1).map(|(at, _)| at);
                marks.find(|at| !text[..*at].ends_with('\\'))
            }
            Some('[') if spaced => text.find(']'),
            _ => None,
        };
        // An unclosed quotation mark or bracket is part of an ordinary field.
        let after = close.map_or(0, |close| close + 1);
        let end = text[after..].find(ends).map(|end| after + end);
        rest = end.and_then(|end| text.get(end + text[end..].chars().next().map_or(1, char::len_utf8)..));
        let field = &text[..end.unwrap_or(text.len())];
        Some(match close {
            Some(close) => &text[1..close],
            None => field.trim(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(part: usize, columns: &[(&str, u64)], max: Option<Duration>) -> Traced {
        let column = |&(name, micros): &(&str, u64)| (name.to_owned(), Duration::from_micros(micros));
        Traced { part, columns: columns.iter().map(column).collect(), max }
    }

    #[test]
    fn fields_are_those_of_the_manual() {
        let of = |line, separator| fields(line, separator).collect::<Vec<_>>();
        assert_eq!(
            of("h - kim [01/Aug/1995:00:00:01 -0400]  \"GET /a\\\"b c HTTP/1.0\" 200 6245", ' '),
            ["h", "-", "kim", "01/Aug/1995:00:00:01 -0400", "GET /a\\\"b c HTTP/1.0", "200", "6245"]
        );
        assert_eq!(of("a,, \"b,c\",d ,", ','), ["a", "", "b,c", "d", ""]);
        assert_eq!(of("x\t\t5", '\t'), ["x", "", "5"]);
        assert_eq!(of("\"never closed, 7", ','), ["\"never closed", "7"]);
        assert!(of("   ", ' ').is_empty());
    }

    #[test]
    fn several_columns_add_up_to_the_longest() {
        let wanted =
            [traced(0, &[("in", 100), ("out", 2_000)], None), traced(3, &[("3", 1)], Some(Duration::from_millis(5)))];
        let mut columns = Columns::new(&wanted);
        columns.passed_over("# a comment\n");
        columns.passed_over("time;in;out\r\n");
        let micros = |cost: Cost| cost.map(|nanos| nanos / 1000);
        assert_eq!(micros(columns.cost("1.5;10;3\n", false).unwrap()), [7_000, 0, 0, 3, 0]);
        assert_eq!(micros(columns.cost("1.5;-;9000\n", false).unwrap()), [18_000_000, 0, 0, 5_000, 0]);
    }

    #[test]
    fn a_column_that_is_none_is_named() {
        let said = |wanted: Traced, head: &str, line: &str| {
            let wanted = [wanted];
            let mut columns = Columns::new(&wanted);
            columns.passed_over(head);
            let Complaint { what, hint } = columns.cost(line, false).expect_err("it is wrong");
            format!("{what}; {hint}")
        };
        let one = |name| traced(1, &[(name, 1_000_000)], None);
        for (wanted, head, line, expected) in [
            (one("out"), "time,in", "1,2", "shows no column `out`; there is `time` and `in`"),
            (one("out"), "", "1,2", "shows no column `out`; name it by its number, counted from 1"),
            (one("0"), "", "1,2", "shows no column `0`; name it by its number, counted from 1"),
            (one("3"), "", "1,2", "has no column `3`; write a number, or `-` for nothing"),
            (
                one("in"),
                "#Fields: time in",
                "1 -2",
                "has `-2` in the column `in`; write a number of zero or more, or `-` for nothing",
            ),
            (
                one("2"),
                "",
                "1 4000",
                "takes 4000 s by its columns, longer than an hour; make each unit shorter, or say the longest: `max: 60s`",
            ),
        ] {
            assert_eq!(said(wanted, head, line), expected);
        }
    }
}
