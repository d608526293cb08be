//! Parsing of heads, line by line in one pass.

use crate::bytes::{self, TARGET, TOKEN};
use crate::head::{Field, Head, MAX_HEAD, Span};
use crate::repeated::Repeated;
use crate::{Fault, Length, Limits, Name, Version, host};

/// Maximum length of a method. The registered ones have at most 17 letters.
const MAX_METHOD: usize = 24;

/// Field names that an application behind a CGI-like interface cannot distinguish from the real ones, because
/// `-` and `_` become the same character there.
const CONFUSABLE: [&[u8]; 7] = [
    b"content_length", b"transfer_encoding", b"x_forwarded_for", b"x_forwarded_host", b"x_forwarded_proto",
    b"x_real_ip", b"x_forwarded_port",
];

/// The two kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From a client. Anything that two readers could read differently is a fault.
    Request,
    /// From a node. Slips that leave no doubt are accepted.
    Response,
}

/// Parser state for one head.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Start of the first incomplete line.
    line: usize,
    /// End of the bytes after `line` that were searched for its end in vain.
    searched: usize,
    /// Whether the first line has been parsed.
    started: bool,
    /// Whether an empty line before the head has been discarded.
    skipped: bool,
}

/// Result of a parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More input is needed.
    More,
    /// An empty line of this many bytes before the head.
    EmptyLine(usize),
    /// The complete head, of this many bytes.
    Complete(usize),
}

/// One line.
enum Line {
    /// Its end has not been received.
    Incomplete,
    /// Its end: the position after it.
    Until(usize),
    /// An empty line, which ends the head, and the position after it.
    Empty(usize),
}

impl Lines {
    /// Parses the lines of `input` that it has not yet parsed. `input` starts with the first byte of the head. Lines
    /// that are `repeated` are not parsed again.
    pub(crate) fn parse(
        &mut self,
        kind: Kind,
        input: &[u8],
        limits: Limits,
        repeated: &Repeated,
        head: &mut Head,
    ) -> Result<Parsed, Fault> {
        let max = limits.head_bytes.min(MAX_HEAD);
        if !self.started
            && let Some(&first) = input.first()
            && !kind.may_start_with(first)
        {
            return Err(Fault::NotHttp);
        }
        loop {
            // A line that was incomplete is parsed again when its end has arrived, and not before.
            if self.searched > self.line {
                match bytes::find(input.get(self.searched..).unwrap_or_default(), b'\n') {
                    Some(_) => self.searched = self.line,
                    None => return self.incomplete(input, max),
                }
            }
            let line = match self.line(kind, input, limits, repeated, head) {
                Ok(line) => line,
                Err(fault) => return self.fault(kind, input, max, fault),
            };
            let end = match line {
                Line::Incomplete => return self.incomplete(input, max),
                Line::Until(end) | Line::Empty(end) => end,
            };
            if end > max {
                return Err(self.too_large());
            }
            if let Line::Empty(_) = line {
                if self.started {
                    head.end = u32::try_from(self.line).unwrap_or(u32::MAX);
                    return Ok(Parsed::Complete(end));
                }
                if std::mem::replace(&mut self.skipped, true) {
                    return Err(Fault::EmptyLines);
                }
                return Ok(Parsed::EmptyLine(end));
            }
            self.started = true;
            (self.line, self.searched) = (end, end);
        }
    }

    /// Parses a request with the same fields as the request before, of which `head` is the index and `before` has the
    /// bytes. Returns the size of its head, or `None` if it is to be parsed line by line, from its beginning on.
    pub(crate) fn repeat(input: &[u8], before: &[u8], limits: Limits, head: &mut Head) -> Option<usize> {
        let feed = bytes::find(input, b'\n')?;
        let bytes = head.repeat(input, feed + 1, before)?;
        match request_line(input, head) {
            Ok(Line::Until(end)) if end == feed + 1 && bytes <= limits.head_bytes.min(MAX_HEAD) => Some(bytes),
            _ => None,
        }
    }

    fn too_large(&self) -> Fault {
        if self.started { Fault::HeadTooLarge } else { Fault::LineTooLong }
    }

    fn incomplete(&mut self, input: &[u8], max: usize) -> Result<Parsed, Fault> {
        self.searched = input.len();
        if input.len() > max { Err(self.too_large()) } else { Ok(Parsed::More) }
    }

    /// Reports a fault in a line when its end has arrived, so that the result does not depend on how the input is
    /// split.
    fn fault(&mut self, kind: Kind, input: &[u8], max: usize, fault: Fault) -> Result<Parsed, Fault> {
        let line = input.get(self.line..).unwrap_or_default();
        let Some(feed) = bytes::find(line, b'\n') else { return self.incomplete(input, max) };
        if self.line + feed >= max {
            return Err(self.too_large());
        }
        let bare = !line.get(..feed).unwrap_or_default().ends_with(b"\r");
        Err(if bare && kind == Kind::Request { Fault::BareLineFeed } else { fault })
    }

    fn line(
        &mut self,
        kind: Kind,
        input: &[u8],
        limits: Limits,
        repeated: &Repeated,
        head: &mut Head,
    ) -> Result<Line, Fault> {
        match (input.get(self.line), input.get(self.line + 1)) {
            (None, _) | (Some(b'\r'), None) => return Ok(Line::Incomplete),
            (Some(b'\r'), Some(b'\n')) => return Ok(Line::Empty(self.line + 2)),
            (Some(b'\n'), _) if kind == Kind::Response => return Ok(Line::Empty(self.line + 1)),
            _ => {}
        }
        if self.started {
            return match repeated.begins(input.get(self.line..).unwrap_or_default(), head.fields.len()) {
                Some((field, bytes)) => again(kind, input, (self.line, bytes), limits, field, head),
                None => field(kind, input, self.line, limits, head),
            };
        }
        match kind {
            Kind::Request => request_line(input, head),
            Kind::Response => status_line(input, head),
        }
    }
}

impl Kind {
    fn may_start_with(self, first: u8) -> bool {
        match self {
            Kind::Request => bytes::is(first, TOKEN) || first == b'\r',
            Kind::Response => matches!(first, b'H' | b'\r' | b'\n'),
        }
    }
}

fn request_line(input: &[u8], head: &mut Head) -> Result<Line, Fault> {
    let method = bytes::span(input, 0, TOKEN);
    if method == 0 || method > MAX_METHOD {
        return Err(Fault::Method);
    }
    match input.get(method) {
        None => return Ok(Line::Incomplete),
        Some(b' ') => {}
        Some(_) => return Err(Fault::Method),
    }
    let target = bytes::span(input, method + 1, TARGET);
    match input.get(target) {
        None => return Ok(Line::Incomplete),
        Some(b' ') if target > method + 1 => {}
        Some(_) => return Err(Fault::Target),
    }
    let rest = input.get(target + 1..).unwrap_or_default();
    let Some(version) = rest.first_chunk::<10>() else {
        // A shorter line cannot be valid, but its end may be missing. The caller finds out.
        return if rest.contains(&b'\n') { Err(Fault::Version) } else { Ok(Line::Incomplete) };
    };
    head.version = match version {
        b"HTTP/1.1\r\n" => Version::Http11,
        b"HTTP/1.0\r\n" => Version::Http10,
        _ => return Err(Fault::Version),
    };
    head.method = Span::new(0, method);
    head.target = Span::new(method + 1, target);
    Ok(Line::Until(target + 11))
}

/// Departures from RFC 9112 Sec. 4: the reason and the space before it may be missing.
fn status_line(input: &[u8], head: &mut Head) -> Result<Line, Fault> {
    // Decide on the same bytes, whether the next line has arrived or not.
    let first = input.first_chunk::<12>().filter(|first| !first.contains(&b'\n'));
    let Some(first) = first else {
        let short = input.iter().take(12).any(|&b| b == b'\n');
        return if short { Err(Fault::Version) } else { Ok(Line::Incomplete) };
    };
    head.version = match &first[..9] {
        b"HTTP/1.1 " => Version::Http11,
        b"HTTP/1.0 " => Version::Http10,
        _ => return Err(Fault::Version),
    };
    let digits = &first[9..];
    if !digits.iter().all(u8::is_ascii_digit) || digits[0] == b'0' {
        return Err(Fault::Status);
    }
    head.status = digits.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0'));
    let end = bytes::value_end(input, 12);
    let Some((next, _)) = line_end(Kind::Response, input, end, Fault::Status)? else { return Ok(Line::Incomplete) };
    match input.get(12) {
        Some(b' ') => head.reason = Span::new(13, end),
        Some(_) if end > 12 => return Err(Fault::Status),
        _ => {}
    }
    Ok(Line::Until(next))
}

/// Returns the position after a line with text up to `end`, and whether the line ends as it should. `None` if more
/// input is needed.
fn line_end(kind: Kind, input: &[u8], end: usize, fault: Fault) -> Result<Option<(usize, bool)>, Fault> {
    match (input.get(end), input.get(end + 1)) {
        (Some(b'\r'), Some(b'\n')) => Ok(Some((end + 2, true))),
        (None, _) | (Some(b'\r'), None) => Ok(None),
        (Some(b'\n'), _) if kind == Kind::Response => Ok(Some((end + 1, false))),
        _ => Err(fault),
    }
}

fn field(kind: Kind, input: &[u8], start: usize, limits: Limits, head: &mut Head) -> Result<Line, Fault> {
    let name_end = bytes::span(input, start, TOKEN);
    let mut colon = name_end;
    if kind == Kind::Response && name_end > start {
        // RFC 9112 Sec. 5.1: a proxy removes white space between name and colon from a response.
        colon = spaces(input, name_end);
    }
    match input.get(colon) {
        None => return Ok(Line::Incomplete),
        Some(b':') if name_end == start => return Err(Fault::NoName),
        Some(b':') => {}
        Some(b' ' | b'\t') if name_end == start => return Err(Fault::Folded),
        Some(b' ' | b'\t') => return Err(Fault::SpaceBeforeColon),
        Some(_) => return Err(Fault::FieldName),
    }
    let value = spaces(input, colon + 1);
    let end = bytes::value_end(input, value);
    let Some((next, plain)) = line_end(kind, input, end, Fault::FieldValue)? else { return Ok(Line::Incomplete) };
    if head.fields.len() >= limits.fields {
        return Err(Fault::TooManyFields);
    }
    let text = input.get(start..name_end).unwrap_or_default();
    let name = Name::of(text);
    let trimmed = input.get(value..end).unwrap_or_default().trim_ascii_end();
    match name {
        Name::Other => {
            if kind == Kind::Request
                && matches!(text.len(), 9..=17)
                && text.first().is_some_and(|first| matches!(first | 0x20, b'c' | b't' | b'x'))
                && text.contains(&b'_')
                && CONFUSABLE.iter().any(|n| text.eq_ignore_ascii_case(n))
            {
                return Err(Fault::ConfusableName);
            }
        }
        name => {
            meaning(kind, name, value, trimmed, head)?;
            head.names.insert(name);
        }
    }
    let Ok(name_length) = u16::try_from(name_end - start) else { return Err(Fault::HeadTooLarge) };
    let regular = plain && colon == name_end;
    head.fields.push(Field::new(name, regular, name_length, start, Span::new(value, value + trimmed.len())));
    Ok(Line::Until(next))
}

/// Adds a field whose line, at this position and of this size, has the same bytes as that of the earlier `field`.
fn again(
    kind: Kind,
    input: &[u8],
    (start, bytes): (usize, usize),
    limits: Limits,
    field: Field,
    head: &mut Head,
) -> Result<Line, Fault> {
    if head.fields.len() >= limits.fields {
        return Err(Fault::TooManyFields);
    }
    let field = field.moved_to(start);
    if field.name() != Name::Other {
        meaning(kind, field.name(), field.value_start(), field.value(input), head)?;
        head.names.insert(field.name());
    }
    head.fields.push(field);
    Ok(Line::Until(start + bytes))
}

/// Returns the position of the first byte at or after `from` that is neither space nor tab.
fn spaces(input: &[u8], from: usize) -> usize {
    let rest = input.get(from..).unwrap_or_default();
    from + rest.iter().position(|b| !matches!(b, b' ' | b'\t')).unwrap_or(rest.len())
}

/// Checks the fields that frame a message or route it. `head` does not have the field yet.
fn meaning(kind: Kind, name: Name, at: usize, value: &[u8], head: &mut Head) -> Result<(), Fault> {
    match name {
        Name::Host if kind == Kind::Request => {
            if head.names.contains(Name::Host) {
                return Err(Fault::TwoHosts);
            }
            let authority = host::split(value).ok_or(Fault::Host)?;
            head.host = (Span::new(at, at + authority.host.len()), authority.port);
        }
        Name::ContentLength => {
            let length = match kind {
                Kind::Request => decimal(value),
                Kind::Response => one_length(value)?,
            };
            let length = length.ok_or(Fault::ContentLength)?;
            let before = head.content_length.replace(length);
            if before.is_some_and(|before| kind == Kind::Request || before != length) {
                return Err(Fault::TwoContentLengths);
            }
        }
        Name::Connection => head.options.add(value),
        Name::TransferEncoding => {
            if head.names.contains(Name::TransferEncoding) {
                return Err(Fault::TwoTransferEncodings);
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Fault::TransferEncoding);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns the length in a list of equal lengths (RFC 9110 Sec. 8.6).
fn one_length(value: &[u8]) -> Result<Option<u64>, Fault> {
    let mut one = None;
    for element in value.split(|&b| b == b',') {
        let length = decimal(element.trim_ascii()).ok_or(Fault::ContentLength)?;
        if one.replace(length).is_some_and(|before| before != length) {
            return Err(Fault::TwoContentLengths);
        }
    }
    Ok(one)
}

/// Parses a decimal number of digits only, if it fits.
fn decimal(text: &[u8]) -> Option<u64> {
    // 18 digits always fit, and no body is an exabyte long.
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')))
}

/// Returns the length that the fields of a complete head declare (RFC 9112 Sec. 6.3), or `None` if none does.
pub(crate) fn declared(head: &Head) -> Result<Option<Length>, Fault> {
    match (head.content_length, head.names.contains(Name::TransferEncoding)) {
        (Some(_), true) => Err(Fault::TwoLengths),
        (None, true) if head.version == Version::Http10 => Err(Fault::TransferEncodingIn10),
        (None, true) => Ok(Some(Length::Chunked)),
        (length, false) => Ok(length.map(Length::Known)),
    }
}
