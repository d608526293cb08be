//! Formats that are strings with variables, as nginx and Apache have them.
//!
//! A value reaches up to the text that follows its variable in the string. Inside quotes a backslash escapes the next
//! character, as both servers write it.

use std::time::Duration;

use super::fields::{Field, Reading};
use super::{Request, Tells};

/// Maximum number of variables. Formats in use have at most some forty.
const MAX_FIELDS: usize = 200;

/// A format as text and variables in turns.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// Text before the first variable.
    start: String,
    /// Variables, each with the text after it.
    parts: Vec<(Field, String)>,
    /// Whether the time of a line is that of the end of the request (nginx) and not of its begin (Apache).
    ends: bool,
    /// Whether lines may go on after the last variable.
    open: bool,
    tells: Tells,
}

impl Template {
    /// Returns the template of a format string, which may stand in its directive: `log_format main '…' '…';`.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let text = bare(text);
        let nginx = text.contains('$');
        let mut template =
            Template { start: String::new(), parts: Vec::new(), ends: nginx, open: false, tells: Tells::default() };
        let mut rest = text.as_str();
        while let Some(at) = rest.find(if nginx { '$' } else { '%' }) {
            template.text(&rest[..at]);
            let (field, length) = if nginx { nginx_variable(&rest[at..]) } else { apache_directive(&rest[at..]) }?;
            template.parts.push((field, String::new()));
            rest = &rest[at + length..];
            if template.parts.len() > MAX_FIELDS {
                return Err(format!("this format has more than {MAX_FIELDS} variables"));
            }
        }
        template.text(rest);
        template.check()?;
        Ok(template)
    }

    fn text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some((_, after)) => after.push_str(text),
            None => self.start.push_str(text),
        }
    }

    /// Checks that the format has the necessary fields, and finds out which others it has.
    fn check(&mut self) -> Result<(), String> {
        let has = |wanted: &dyn Fn(Field) -> bool| self.parts.iter().any(|(field, _)| wanted(*field));
        let timed = |f| matches!(f, Field::CommonTime | Field::Rfc3339 | Field::Since1970(_));
        if !has(&timed) {
            return Err("this format has no time of the request: it needs `$time_local`, `$time_iso8601` or `$msec` \
                        (nginx), or `%t` (Apache)"
                .into());
        }
        if !has(&|f| matches!(f, Field::RequestLine | Field::Target)) {
            return Err("this format has no request: it needs `$request` or `$request_uri` (nginx), or `%r` or `%U` \
                        (Apache)"
                .into());
        }
        let adjacent = self.parts.windows(2).find(|pair| pair[0].1.is_empty() && pair[0].0 != Field::Other);
        if adjacent.is_some() {
            return Err("two variables of this format have nothing between them, so their values cannot be told \
                        apart"
                .into());
        }
        let units = self.parts.iter().filter_map(|(field, _)| match field {
            Field::Response(1) if !self.ends => Some(Duration::from_secs(1)),
            Field::Response(1 | 1_000) => Some(Duration::from_millis(1)),
            Field::Response(_) => Some(Duration::from_micros(1)),
            _ => None,
        });
        let service = has(&|f| f == Field::Service);
        self.tells = Tells {
            host: has(&|f| matches!(f, Field::Host(_))),
            step: units.min().or(service.then_some(Duration::from_millis(1))),
            service,
        };
        Ok(())
    }

    /// Returns the template that accepts lines which go on after their last quote or word.
    pub(super) fn open(mut self) -> Template {
        self.open = true;
        self
    }

    pub(super) fn tells(&self) -> Tells {
        self.tells
    }

    /// Reads a line. The second result is the text after an open template.
    pub(super) fn read<'l>(&self, line: &'l str) -> Option<(Request<'l>, &'l str)> {
        let mut rest = line.strip_prefix(self.start.as_str())?;
        let mut reading = Reading::default();
        for (at, (field, after)) in self.parts.iter().enumerate() {
            let last = at + 1 == self.parts.len();
            let end = match after.as_str() {
                "" if last && self.open => rest.find(' ').unwrap_or(rest.len()),
                "" if last => rest.len(),
                // Checked: only a variable without a meaning may have nothing after it. It takes nothing.
                "" => 0,
                after if after.starts_with('"') => quoted_end(rest, after)?,
                after => end(rest, after, *field)?,
            };
            reading.take(*field, rest.get(..end)?)?;
            rest = rest.get(end..)?.strip_prefix(after.as_str())?;
        }
        if !rest.is_empty() && !self.open {
            return None;
        }
        let mut request = reading.request;
        let at_ms = reading.at_ms?;
        let lasted = request.response.or(request.service).unwrap_or_default().as_millis();
        let lasted = if self.ends { 0 } else { i64::try_from(lasted).unwrap_or(0) };
        request.ended_ms = at_ms.saturating_add(lasted);
        Some((request, rest))
    }

    /// Reads a whole line.
    pub(super) fn request<'l>(&self, line: &'l str) -> Option<Request<'l>> {
        self.read(line).map(|(request, _)| request)
    }
}

/// Returns the position of `after` in `rest`. A list may contain it.
fn end(rest: &str, after: &str, field: Field) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + rest.get(from..)?.find(after)?;
        let (before, behind) = (rest.get(..at)?, rest.get(at..)?.trim_start());
        let goes_on = before.ends_with([',', ':']) || behind.starts_with(": ");
        if !field.is_list() || !goes_on {
            return Some(at);
        }
        // The text is not empty, and the next character begins after its first.
        from = at + after.chars().next().map_or(1, char::len_utf8);
    }
}

/// Returns the position of `after`, which begins with a quote, in `rest`. Escaped quotes do not count.
fn quoted_end(rest: &str, after: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' if rest.get(at..)?.starts_with(after) => return Some(at),
            _ => {}
        }
    }
    None
}

/// Takes a format string out of its directive, with the quotes around it. Strings in single quotes are joined, as nginx
/// does.
fn bare(text: &str) -> String {
    let text = text.trim();
    let words = |keyword: &str| text.strip_prefix(keyword).filter(|rest| rest.starts_with(char::is_whitespace));
    if let Some(rest) = words("log_format") {
        let rest = rest.trim_start();
        let rest = rest.find(char::is_whitespace).map_or("", |at| &rest[at..]).trim();
        let rest =
            rest.strip_prefix("escape=").map_or(rest, |rest| rest.trim_start_matches(|c: char| !c.is_whitespace()));
        return joined(rest.trim().trim_end_matches(';').trim());
    }
    if let Some(rest) = words("LogFormat").or_else(|| words("CustomLog")) {
        let rest = rest.trim();
        let from = rest.find('"').map_or(0, |at| at + 1);
        let to = rest.rfind('"').filter(|to| *to >= from).unwrap_or(rest.len());
        return rest[from..to].replace("\\\"", "\"");
    }
    // A string of Apache that was copied with its escapes.
    joined(text).replace("\\\"", "\"")
}

/// Joins strings in single quotes, or returns the text as it is.
fn joined(text: &str) -> String {
    if !text.starts_with('\'') {
        return text.to_owned();
    }
    text.split('\'').skip(1).step_by(2).collect()
}

/// Returns the meaning of the variable at the start of `text`, and its length.
fn nginx_variable(text: &str) -> Result<(Field, usize), String> {
    let name = &text[1..];
    let (name, around) = match name.strip_prefix('{') {
        Some(inside) => (inside.split('}').next().unwrap_or_default(), 3),
        None => {
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
            (&name[..end], 1)
        }
    };
    if name.is_empty() || name.len() + around > text.len() {
        return Err("a `$` of this format has no name after it".into());
    }
    Ok((Field::nginx(name), name.len() + around))
}

/// Returns the meaning of the directive at the start of `text`, and its length.
fn apache_directive(text: &str) -> Result<(Field, usize), String> {
    // Between the percent sign and the letter: `<`, `>`, statuses such as `!200,304`, and text in braces.
    let mut at = 1 + text[1..].find(|c: char| !matches!(c, '<' | '>' | '!' | ',' | '0'..='9')).unwrap_or(0);
    let mut inside = None;
    if let Some(rest) = text[at..].strip_prefix('{') {
        let end = rest.find('}').ok_or("a `{` of this format is not closed")?;
        inside = Some(&rest[..end]);
        at += end + 2;
    }
    let letter = text[at..].chars().next().ok_or("a `%` of this format has no letter after it")?;
    // `%^FB` and the like have two letters more.
    let length = if letter == '^' { text[at..].chars().take(3).map(char::len_utf8).sum() } else { letter.len_utf8() };
    Ok((Field::apache(letter, inside), at + length))
}
