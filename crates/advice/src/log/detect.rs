//! Finds out the format of a log from its first lines.
//!
//! Each known format tries the lines, and the one that reads most of them is taken. If two read as many, the more exact
//! one is. Sites append numbers to the combined format. One with three decimals is in seconds, because nginx writes
//! seconds like this. A whole number may be Apache's `%D` (microseconds) or `%T` (seconds), so it is not guessed.

use super::template::Template;
use super::{Format, Kind, NAMED};

/// Number of lines that are looked at. More would not tell more, and a screenful of garbage does not mislead.
pub(super) const LINES: usize = 200;

/// Finds the format of a file with these first lines.
///
/// # Errors
/// No format reads a half of the lines. The message has a hint.
pub(super) fn detect(lines: &[&str]) -> Result<Format, String> {
    let lines: Vec<&str> = lines.iter().copied().filter(|line| !line.trim().is_empty()).collect();
    let named = |name: &str, kind| Format { name: name.to_owned(), kind, note: None };
    let mut best: Option<(usize, Format)> = None;
    let mut candidates = vec![named("weirgate", Kind::Ours), named("haproxy", Kind::Haproxy)];
    for (name, string) in NAMED.iter().rev().filter(|(_, string)| !string.is_empty()) {
        let template = Template::parse(string)?;
        candidates.push(named(name, Kind::Template(template.clone())));
        candidates.push(named(name, Kind::Template(template.open())));
    }
    for format in candidates {
        let read = lines.iter().filter(|line| format.request(line).is_some()).count();
        if best.as_ref().is_none_or(|(most, _)| read > *most) {
            best = Some((read, format));
        }
    }
    match best {
        Some((read, format)) if read * 2 >= lines.len().max(1) => Ok(more(format, &lines)),
        _ => Err(unknown(lines.first().copied().unwrap_or_default())),
    }
}

/// Finds out the meaning of the fields after the known part of the lines.
fn more(format: Format, lines: &[&str]) -> Format {
    let Kind::Template(template) = &format.kind else { return format };
    let tails: Vec<&str> = lines.iter().filter_map(|line| Some(template.read(line)?.1.trim())).collect();
    let Some(first) = tails.iter().find(|tail| !tail.is_empty()) else { return format };
    let numbers: Vec<Vec<f64>> = tails.iter().filter_map(|tail| tail.split(' ').map(nginx_seconds).collect()).collect();
    let count = numbers.first().map_or(0, Vec::len);
    let alike = numbers.len() == tails.len() && numbers.iter().all(|all| all.len() == count);
    // The response cannot be complete before the servers have answered.
    let ordered = |earlier: usize, later: usize| numbers.iter().all(|all| all.get(earlier) >= all.get(later));
    let variables = match count {
        1 if alike => Some("$request_time"),
        2 if alike && ordered(0, 1) => Some("$request_time $upstream_response_time"),
        2 if alike && ordered(1, 0) => Some("$upstream_response_time $request_time"),
        _ => None,
    };
    let name = format.name.as_str();
    let Some(variables) = variables else {
        let note = format!(
            "the lines go on after the format `{name}`, with {first:?} in the first one, and nothing is known of that. If \
             there are times among it, name the fields: --format '{name} %D' (Apache), or the string after `log_format \
             NAME` in nginx's configuration"
        );
        return Format { note: Some(note), ..format };
    };
    // The known part is a string of Apache. These are the same fields in nginx's words.
    let known = match name {
        "common" => r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent"#,
        "combined" => {
            r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#
        }
        _ => return format,
    };
    match Template::parse(&format!("{known} {variables}")) {
        Ok(template) => {
            let name = format!("{name} {variables}");
            let note = format!(
                "the numbers at the end of the lines are taken for {variables}; if they are not, give --format"
            );
            Format { name, kind: Kind::Template(template), note: Some(note) }
        }
        Err(_) => format,
    }
}

/// Reads a number with three decimals, or `-`, as nginx writes seconds.
fn nginx_seconds(text: &str) -> Option<f64> {
    if text == "-" {
        return Some(0.0);
    }
    let (whole, decimals) = text.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits(whole) && digits(decimals) && decimals.len() == 3 { text.parse().ok() } else { None }
}

/// Returns the message about lines of no known format.
fn unknown(line: &str) -> String {
    let shown: String = line.chars().take(120).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let hint = if line.trim_start().starts_with('{') {
        "JSON is read only as Weirgate writes it"
    } else if line.contains("haproxy[") {
        "of HAProxy's logs, those of `option httplog` are read, and `mode tcp` has no requests"
    } else {
        "give --format with the string after `log_format NAME` in nginx's configuration, or that of `LogFormat` in \
         Apache's"
    };
    format!("the lines are of no known format; {hint}. The first one is: {shown}")
}
