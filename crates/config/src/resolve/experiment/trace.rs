//! Trace files: the instants of a log.
//!
//! A line is an instant in seconds, or begins with one; blank lines and those that begin with `#` are passed
//! over. Logs are written when requests end, so the instants need not be in order.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use crate::errors::{Complaint, quoted};

/// Longest line. An access log's are far shorter.
const MAX_LINE: u64 = 64 << 10;

/// Reads the instants before `end` of the trace at `path`, played `speed` times as fast, in order; at most `most`.
///
/// # Errors
/// What is wrong with the file, with the line, and how to mend it.
pub(super) fn read(path: &Path, speed: f64, end: Duration, most: usize) -> Result<Vec<Duration>, Complaint> {
    let name = quoted(&path.display().to_string());
    let unreadable = |error: std::io::Error| {
        Complaint::new(
            format!("the trace {name} cannot be read: {error}"),
            "a path counts from the experiment's folder",
        )
    };
    let mut reader = BufReader::new(File::open(path).map_err(unreadable)?);
    let (mut instants, mut earliest) = (Vec::new(), f64::INFINITY);
    let mut line = Vec::new();
    for number in 1usize.. {
        line.clear();
        let bytes = std::io::Read::take(&mut reader, MAX_LINE).read_until(b'\n', &mut line).map_err(unreadable)?;
        if bytes == 0 {
            break;
        }
        if bytes as u64 == MAX_LINE {
            let what = format!("line {number} of the trace {name} has more than 64 KiB");
            return Err(Complaint::new(what, "is it a trace at all?"));
        }
        let text = String::from_utf8_lossy(&line);
        let Some(first) = text.split_whitespace().next().filter(|word| !word.starts_with('#')) else { continue };
        let plain = first.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let seconds = match first.parse::<f64>() {
            Ok(seconds) if plain && seconds.is_finite() => seconds / speed,
            _ => {
                let what =
                    format!("line {number} of the trace {name} begins with {}, which is no instant", quoted(first));
                return Err(Complaint::new(
                    what,
                    "begin each line with seconds from the start of the run, such as `12.345`",
                ));
            }
        };
        earliest = earliest.min(seconds);
        if seconds < end.as_secs_f64() {
            if instants.len() == most {
                let what = format!("the trace {name} has more than {most} requests within the run");
                return Err(Complaint::new(what, "make the run shorter"));
            }
            instants.push(Duration::from_secs_f64(seconds));
        }
    }
    if instants.is_empty() {
        return Err(match earliest.is_finite() {
            true => Complaint::new(
                format!("the trace {name} begins at {earliest:.0} s, after the end of the run"),
                "count its instants from the start of the run",
            ),
            false => Complaint::new(format!("the trace {name} has no line with an instant"), "is it the right file?"),
        });
    }
    instants.sort_unstable();
    Ok(instants)
}
