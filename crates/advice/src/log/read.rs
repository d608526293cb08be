//! Reads a whole log, plain or compressed with gzip, through buffers of constant size.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::{Format, Request, detect};

/// Longest line that is read. Servers limit a request's head to less, and a longer line is no line of a log.
pub const MAX_LINE: usize = 64 << 10;

/// Size of the buffers, so that reading makes few calls.
const BUFFER: usize = 256 << 10;

/// Lines between two reports of progress: some thousandths of a second.
const REPORT_EVERY: u64 = 4096;

/// A line that is not of the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its number, from 1.
    pub number: u64,
    /// Its first characters, without control characters.
    pub text: String,
}

/// The end of a log.
#[derive(Debug)]
pub struct Ended {
    /// The format that it was read with.
    pub format: Format,
    /// Number of lines, without empty ones.
    pub lines: u64,
    /// Number of lines that are not of the format.
    pub malformed: u64,
    /// The first of them.
    pub first_malformed: Option<Malformed>,
    /// Fault that ended the reading early, such as the end of a compressed file in its middle.
    pub broken: Option<io::Error>,
}

/// Numbers of bytes and lines that have been read so far.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes of the file, compressed if it is.
    pub bytes: u64,
    /// Lines.
    pub lines: u64,
}

/// Reads a log and calls `each` with every request. Without a `format` it is found out from the first lines.
/// `progress` is called every few thousand lines.
///
/// # Errors
/// Nothing could be read, there is no line, or the format is unknown. The message has no name of the file.
pub fn read(
    from: impl Read,
    format: Option<&Format>,
    mut each: impl FnMut(&Request<'_>),
    mut progress: impl FnMut(Progress),
) -> Result<Ended, String> {
    let counted = Counted { from, bytes: 0 };
    let mut raw = BufReader::with_capacity(BUFFER, counted);
    let begin = raw.fill_buf().map_err(|error| error.to_string())?;
    // RFC 1952, Sec. 2.3.1.
    if begin.starts_with(&[0x1f, 0x8b]) {
        let mut inside = BufReader::with_capacity(BUFFER, MultiGzDecoder::new(raw));
        lines(&mut inside, |reader| reader.get_ref().get_ref().get_ref().bytes, format, &mut each, &mut progress)
    } else {
        lines(&mut raw, |reader| reader.get_ref().bytes, format, &mut each, &mut progress)
    }
}

/// A source that counts its bytes.
struct Counted<R> {
    from: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

fn lines<R: BufRead>(
    reader: &mut R,
    bytes: impl Fn(&R) -> u64,
    format: Option<&Format>,
    each: &mut impl FnMut(&Request<'_>),
    progress: &mut impl FnMut(Progress),
) -> Result<Ended, String> {
    let mut broken = None;
    let mut number = 0;
    let mut first = Vec::new();
    // The first lines are kept until the format is known.
    while format.is_none() && first.len() < detect::LINES && broken.is_none() {
        let mut line = Vec::new();
        match next(reader, &mut line) {
            Ok(true) => first.push(line),
            Ok(false) => break,
            Err(error) => broken = Some(error),
        }
    }
    let format = match format {
        Some(format) => format.clone(),
        None => {
            let texts: Vec<_> = first.iter().map(|line| String::from_utf8_lossy(line)).collect();
            let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
            if texts.iter().all(|text| text.trim().is_empty()) {
                return Err(broken.map_or("there is no line in it".to_owned(), |error| error.to_string()));
            }
            detect::detect(&texts)?
        }
    };
    let mut ended = Ended { format, lines: 0, malformed: 0, first_malformed: None, broken: None };
    for line in &first {
        number += 1;
        one(line, number, &mut ended, each);
    }
    let mut line = Vec::new();
    while broken.is_none() {
        line.clear();
        match next(reader, &mut line) {
            Ok(true) => {
                number += 1;
                one(&line, number, &mut ended, each);
                if number.is_multiple_of(REPORT_EVERY) {
                    progress(Progress { bytes: bytes(reader), lines: number });
                }
            }
            Ok(false) => break,
            Err(error) => broken = Some(error),
        }
    }
    if ended.lines == 0 {
        return Err(broken.map_or("there is no line in it".to_owned(), |error| error.to_string()));
    }
    ended.broken = broken;
    Ok(ended)
}

/// Reads a line without its end. Of a line that is too long, keeps one byte more than allowed.
fn next(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let mut any = false;
    loop {
        let part = match reader.fill_buf() {
            Ok(part) => part,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if part.is_empty() {
            break;
        }
        any = true;
        let end = part.iter().position(|byte| *byte == b'\n');
        let text = &part[..end.unwrap_or(part.len())];
        line.extend_from_slice(&text[..text.len().min((MAX_LINE + 1).saturating_sub(line.len()))]);
        let used = end.map_or(part.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            break;
        }
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(any)
}

/// Reads one line.
fn one(line: &[u8], number: u64, ended: &mut Ended, each: &mut impl FnMut(&Request<'_>)) {
    let text = String::from_utf8_lossy(line);
    if text.trim().is_empty() {
        return;
    }
    ended.lines += 1;
    match ended.format.request(&text).filter(|_| line.len() <= MAX_LINE) {
        Some(request) => each(&request),
        None => {
            ended.malformed += 1;
            ended.first_malformed.get_or_insert_with(|| {
                let shown = text.chars().take(120).map(|c| if c.is_control() { '\u{fffd}' } else { c });
                Malformed { number, text: shown.collect() }
            });
        }
    }
}
