//! Trace files: the timestamps of a log, and the costs of requests given in its lines.
//!
//! A log is text, or gzip (RFC 1952), with a request in each line. [`Instant`] describes the formats of timestamps.
//! Blank lines and lines that begin with `#` are skipped, and so is a first line without a timestamp, which holds
//! the names of the columns. Logs are written when requests end, so the timestamps need not be in order.
//!
//! The position of the first timestamp holds for all lines: a date in brackets, as in access logs, or a
//! column. A number elsewhere is never read as a timestamp.

mod columns;
mod instant;

use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use columns::{Columns, Cost};
use flate2::bufread::MultiGzDecoder;
use instant::{Instant, Origin, is_separator};
use weirgate_spanned_yaml::errors::{Complaint, quoted};

use crate::file::Traced;

/// Longest line. Lines of access logs are far shorter.
const MAX_LINE: u64 = 64 << 10;

/// First bytes of a gzip file: RFC 1952, sec. 2.3.1.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// From this value on (the year 2286), a number since 1970 is in milliseconds, because no log is from the future.
const MAX_SECONDS: u64 = 10_000_000_000;

const SAY_WHEN: &str = "write seconds, such as `12.345`, or a date, such as `2023-11-16T18:17:03Z`";

/// Reads the timestamps before `end` of the trace at `path`, played `speed` times as fast, in order, at most
/// `max` of them. Also returns, for each timestamp, the costs that the lines give for the parts in `wanted`,
/// or no costs if `wanted` is empty.
///
/// Dates and seconds since 1970 count from the earliest in the file, other seconds from the start of the run.
/// If the whole log has whole seconds, requests with equal timestamps are spread evenly over their second,
/// because they did not arrive at once and the log only lacks the precision. The order of lines does not
/// matter, except among lines with the same timestamp.
///
/// # Errors
/// Returns the error in the file, with the line and a hint.
pub(super) fn read(
    path: &Path,
    speed: f64,
    end: Duration,
    max: usize,
    wanted: &[Traced],
) -> Result<(Vec<Duration>, Vec<Cost>), Complaint> {
    let name = quoted(&path.display().to_string());
    let unreadable = |hint: &'static str| {
        let name = name.clone();
        move |error: std::io::Error| Complaint::new(format!("the trace {name} cannot be read: {error}"), hint)
    };
    let file = File::open(path).map_err(unreadable("a path counts from the experiment's folder"))?;
    let broken = unreadable("is it a whole file, as text or gzip?");
    let mut reader = unpacked(BufReader::new(file)).map_err(&broken)?;
    let played = |since: Duration| Duration::from_nanos((since.as_nanos() as f64 / speed).round() as u64);

    let (mut log, mut columns) = (Log::default(), Columns::new(wanted));
    // Timestamps before the end, as far as is known. The earliest may be in the last line.
    let (mut instants, mut earliest, mut whole) = (BinaryHeap::new(), None::<Duration>, true);
    let mut line = Vec::new();
    for number in 1usize.. {
        line.clear();
        let bytes = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(&broken)?;
        if bytes == 0 {
            break;
        }
        if bytes as u64 == MAX_LINE {
            let what = format!("line {number} of the trace {name} has more than 64 KiB");
            return Err(Complaint::new(what, "is it a trace at all?"));
        }
        let text = String::from_utf8_lossy(&line);
        let since = match log.instant(&text) {
            Ok(Some(since)) => since,
            Ok(None) => {
                if !columns.is_empty() {
                    columns.passed_over(&text);
                }
                continue;
            }
            Err((what, hint)) => return Err(Complaint::new(format!("line {number} of the trace {name} {what}"), hint)),
        };
        let cost = match columns.is_empty() {
            true => None,
            false => Some(columns.cost(&text, log.is_spaced()).map_err(|Complaint { what, hint }| {
                Complaint::new(format!("line {number} of the trace {name} {what}"), hint)
            })?),
        };
        whole &= since.subsec_nanos() == 0;
        earliest = Some(earliest.map_or(since, |earliest| earliest.min(since)));
        let start = log.start(earliest);
        if played(since - start) < end {
            instants.push((since, number, cost.map(Box::new)));
        }
        while instants.peek().is_some_and(|(last, ..)| played(*last - start) >= end) {
            instants.pop();
        }
        if instants.len() > max {
            let what = format!("the trace {name} has more than {max} requests within the run");
            return Err(Complaint::new(what, "make the run shorter"));
        }
    }
    let Some(first) = earliest else {
        return Err(Complaint::new(format!("the trace {name} has no line with an instant"), "is it the right file?"));
    };
    if instants.is_empty() {
        let begin = played(first).as_secs_f64();
        return Err(Complaint::new(
            format!("the trace {name} begins at {begin:.0} s, after the end of the run"),
            "count its instants from the start of the run",
        ));
    }
    let start = log.start(earliest);
    let (mut instants, costs): (Vec<Duration>, Vec<_>) =
        instants.into_sorted_vec().into_iter().map(|(since, _, cost)| (since, cost)).unzip();
    if whole {
        spread(&mut instants);
    }
    let instants: Vec<Duration> =
        instants.into_iter().map(|since| played(since - start)).take_while(|&at| at < end).collect();
    let costs = costs.into_iter().take(instants.len()).flatten().map(|cost| *cost).collect();
    Ok((instants, costs))
}

/// Returns the text of `reader`, decompressed if it is gzip.
fn unpacked(mut reader: BufReader<File>) -> std::io::Result<Box<dyn BufRead>> {
    Ok(match reader.fill_buf()?.starts_with(GZIP) {
        true => Box::new(BufReader::new(MultiGzDecoder::new(reader))),
        false => Box::new(reader),
    })
}

/// Spreads equal timestamps, which are sorted, evenly over the second that they begin.
fn spread(instants: &mut [Duration]) {
    for equal in instants.chunk_by_mut(|a, b| a == b) {
        let count = equal.len() as u64;
        for (index, instant) in (0..).zip(equal) {
            *instant += Duration::from_nanos(1_000_000_000 * index / count);
        }
    }
}

/// The format of a log, as known after some of its lines.
#[derive(Default)]
struct Log {
    /// Position of timestamps, and the origin that they count from.
    form: Option<(Place, Origin)>,
    /// Whether a line without a timestamp was skipped.
    header: bool,
}

/// Position of the timestamp in a line.
#[derive(Clone, Copy)]
enum Place {
    /// In brackets, as a date. A number in brackets is a process id.
    Brackets,
    /// After this number of these separators. A run of spaces counts as one.
    Column(char, usize),
}

impl Log {
    /// Returns the timestamp at which the run starts, if `earliest` is the first of the log.
    fn start(&self, earliest: Option<Duration>) -> Duration {
        match self.form {
            Some((_, Origin::Epoch)) => earliest.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// Whether spaces separate the fields of its lines, whatever other separators the lines contain.
    fn is_spaced(&self) -> bool {
        matches!(self.form, Some((Place::Brackets, _)))
    }

    /// Returns the timestamp of the next line, or `None` if the line is skipped.
    ///
    /// # Errors
    /// Returns the error in the line, and a hint.
    fn instant(&mut self, line: &str) -> Result<Option<Duration>, (String, &'static str)> {
        let line = line.trim_start_matches('\u{feff}');
        if matches!(line.trim_start().chars().next(), None | Some('#')) {
            return Ok(None);
        }
        let found = match self.form {
            None => Place::find(line),
            Some((place, _)) => place.read(line).map(|instant| (place, instant)),
        };
        let Some((place, Instant { since, origin })) = found else {
            return match self.form {
                None if !self.header => {
                    self.header = true;
                    Ok(None)
                }
                None => Err(("has no instant, and neither has the one before".into(), SAY_WHEN)),
                Some((place, _)) => Err(place.missing(line)),
            };
        };
        if since.as_secs() >= MAX_SECONDS {
            let what = format!("has an instant {} s after 1970, beyond the year 2286", since.as_secs());
            return Err((what, "write seconds, not milliseconds: `1700158623.979`"));
        }
        let (_, expected) = *self.form.get_or_insert((place, origin));
        if origin != expected {
            let (this, others) = match origin {
                Origin::Epoch => ("a date", "seconds from the start of the run"),
                Origin::Run => ("seconds from the start of the run", "dates"),
            };
            return Err((format!("has {this}, and those before it have {others}"), "write all in the same way"));
        }
        Ok(Some(since))
    }
}

impl Place {
    /// Returns the first timestamp of `line`, and its position.
    fn find(line: &str) -> Option<(Place, Instant)> {
        if let Some(instant) = Place::Brackets.read(line) {
            return Some((Place::Brackets, instant));
        }
        let behind = line.char_indices().filter(|&(_, c)| is_separator(c)).map(|(at, c)| at + c.len_utf8());
        let (at, instant) =
            std::iter::once(0).chain(behind).find_map(|at| Some((at, Instant::leading(&line[at..])?)))?;
        let before = &line[..at];
        let place = match before.trim_end_matches(' ').chars().next_back() {
            Some(separator @ ('\t' | ',' | ';' | '"')) => Place::Column(separator, before.matches(separator).count()),
            _ => Place::Column(' ', before.split_whitespace().count()),
        };
        Some((place, instant))
    }

    /// Returns the timestamp of `line`, if it is at this position.
    fn read(self, line: &str) -> Option<Instant> {
        match self {
            Place::Brackets => line.split('[').skip(1).find_map(Instant::leading_date),
            Place::Column(separator, number) => Instant::leading(column(line, separator, number)?),
        }
    }

    /// Returns the error and the hint for `line`, which has no timestamp at this position.
    fn missing(self, line: &str) -> (String, &'static str) {
        let Place::Column(separator, number) = self else {
            return ("has no date in brackets".into(), "write one, such as `[01/Aug/1995:00:00:01 -0400]`");
        };
        let word = column(line, separator, number).and_then(|rest| rest.split(is_separator).next());
        let word = word.filter(|word| !word.is_empty()).map_or_else(|| "nothing".into(), quoted);
        (format!("has {word} where the lines before it have their instant"), SAY_WHEN)
    }
}

/// Returns the text after `number` separators.
fn column(line: &str, separator: char, number: usize) -> Option<&str> {
    match separator {
        ' ' => (0..number).try_fold(line.trim_start(), |rest, _| {
            rest.split_once(char::is_whitespace).map(|(_, behind)| behind.trim_start())
        }),
        _ => line.splitn(number + 1, separator).nth(number).map(|rest| rest.trim_start_matches(' ')),
    }
}

#[cfg(test)]
mod tests;
