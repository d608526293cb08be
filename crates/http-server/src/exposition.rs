//! Pages for Prometheus, in the format that the reader asks for.
//!
//! Sources: OpenMetrics 1.0, the text format 0.0.4 of Prometheus, RFC 9110 section 12.5.1 (`Accept`). As in the client
//! libraries of Prometheus, a reader that names neither format gets the older one, which every reader knows.

use axum::response::Response;
use http::header::{ACCEPT, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::answer::with_type;

/// Media types of the two formats.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Versions of OpenMetrics that a reader may ask for. Readers of both understand text of version 1.0.0.
const VERSIONS: [&str; 2] = ["1.0.0", "0.0.1"];

/// Answers with `page`, which is OpenMetrics text, to a request with `headers`.
pub fn metrics(headers: &HeaderMap, page: String) -> Response {
    let mut answer = match wants_open_metrics(headers) {
        true => with_type(StatusCode::OK, OPEN_METRICS, page),
        false => with_type(StatusCode::OK, TEXT, text_format(&page)),
    };
    answer.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    answer
}

/// Returns whether a reader prefers OpenMetrics. Of equal weights it does, because only newer readers name it.
fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut open, mut text) = (0.0, 0.0);
    for range in lists.flat_map(|list| list.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let (mut weight, mut known) = (1.0, true);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match (name.trim(), value.trim().trim_matches('"')) {
                ("q", value) => weight = value.parse().unwrap_or(0.0),
                ("version", value) => known = VERSIONS.contains(&value),
                _ => {}
            }
        }
        match media.to_ascii_lowercase().as_str() {
            "application/openmetrics-text" if known => open = f64::max(open, weight),
            "text/plain" => text = f64::max(text, weight),
            _ => {}
        }
    }
    open > 0.0 && open >= text
}

/// Converts OpenMetrics text without time stamps. There, the description of a counter leaves out `_total`, lines name
/// units and the end of the page, and a sample may have an exemplar.
fn text_format(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    // `# HELP` comes before the line that tells the type.
    let mut help = "";
    for line in page.lines() {
        if line.starts_with("# HELP ") {
            help = line;
        } else if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap_or((described, ""));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some(sentence) = help.strip_prefix("# HELP ").and_then(|rest| rest.strip_prefix(name)) {
                text += &format!("# HELP {name}{suffix}{sentence}\n");
            }
            text += &format!("# TYPE {name}{suffix} {kind}\n");
            help = "";
        } else if !line.starts_with('#') {
            text += sample_and_exemplar(line).0;
            text.push('\n');
        }
    }
    text
}

/// Divides a line of OpenMetrics text into its sample, and its exemplar after ` # `, if it has one.
pub fn sample_and_exemplar(line: &str) -> (&str, Option<&str>) {
    let (mut quoted, mut escaped) = (false, false);
    let hash = line.bytes().position(|byte| {
        let (is_escaped, before) = (std::mem::take(&mut escaped), quoted);
        match byte {
            _ if is_escaped => {}
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ => {}
        }
        byte == b'#' && !before
    });
    match hash.and_then(|hash| line.split_at_checked(hash)) {
        Some((sample, exemplar)) => (sample.trim_end(), exemplar.strip_prefix("# ")),
        None => (line, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefers_open_metrics(accept: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, HeaderValue::from_static(value));
        }
        wants_open_metrics(&headers)
    }

    #[test]
    fn only_a_reader_that_names_open_metrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newer =
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5";
        for yes in [&[prometheus][..], &[newer], &["text/plain;q=0.1", "Application/OpenMetrics-Text"]] {
            assert!(prefers_open_metrics(yes), "{yes:?}");
        }
        for no in [
            &[][..],
            &["*/*"],
            &["text/plain"],
            &["application/openmetrics-text;q=0"],
            &["application/openmetrics-text;q=0.3, text/plain;q=0.4"],
            &["application/openmetrics-text;version=2.0.0, text/plain;q=0.1"],
            &["application/openmetrics-text;q=x"],
            &[";;,=,q=1"],
        ] {
            assert!(!prefers_open_metrics(no), "{no:?}");
        }
    }

    #[test]
    fn the_text_format_describes_counters_by_their_whole_name() {
        let page = "# HELP a_seconds Time of a.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                    a_seconds_total{x=\"# HELP\"} 1.5\n# HELP b B.\n# TYPE b gauge\nb 2\n# TYPE c unknown\n\
                    c{x=\"\\\\\\\" # {\"} 3 # {trace_id=\"7\"} 0.5 1.25\n# EOF\n";
        let text = "# HELP a_seconds_total Time of a.\n# TYPE a_seconds_total counter\n\
                    a_seconds_total{x=\"# HELP\"} 1.5\n# HELP b B.\n# TYPE b gauge\nb 2\n# TYPE c untyped\n\
                    c{x=\"\\\\\\\" # {\"} 3\n";
        assert_eq!(text_format(page), text);
    }
}
