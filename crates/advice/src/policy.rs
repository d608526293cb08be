//! A policy as text with a comment on each figure.
//!
//! Comments are wrapped at [`WIDTH`] columns. Values are written so that `weirgate check` reads them: rates with `/s`,
//! times with a unit, and every text from elsewhere as a JSON string, which is YAML, too.

use std::fmt::Write as _;

/// Width of comments, as in the policies of the repository.
const WIDTH: usize = 120;

/// The comment on `mode`. A first policy refuses nothing, so that its figures can be compared with real traffic first.
const OBSERVE: &str = "Every request is served, and those that would be refused are counted: `weirgate top` shows them. When \
                       the counts look right, write `mode: { enforce: 10% }`, and at last remove this line.";

/// Room for a space and a unit with a full stop.
const UNIT: usize = 5;

/// A value with the comments above it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Noted {
    /// The value as YAML.
    pub(crate) value: String,
    /// Paragraphs.
    pub(crate) why: Vec<String>,
}

impl Noted {
    pub(crate) fn new(value: impl Into<String>, why: Vec<String>) -> Noted {
        Noted { value: value.into(), why }
    }
}

/// An upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    /// Comments above it.
    pub(crate) why: Vec<String>,
    /// Its nodes, each as YAML: an address, or a map.
    pub(crate) nodes: Vec<String>,
    /// Further fields, each as `name: value`.
    pub(crate) fields: Vec<String>,
}

/// A class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Class {
    pub(crate) name: String,
    /// Comments above it.
    pub(crate) about: Vec<String>,
    /// The condition as YAML. `None` matches everything.
    pub(crate) matches: Option<String>,
    /// The key of a template as YAML.
    pub(crate) per: Option<String>,
    /// Name of the upstream, if there are several.
    pub(crate) upstream: Option<String>,
    pub(crate) throughput: Option<Noted>,
    pub(crate) response_time: Option<Noted>,
    pub(crate) service_time: Option<Noted>,
    /// Comments below it.
    pub(crate) more: Vec<String>,
}

/// A policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Policy {
    /// Comments at the top.
    pub(crate) about: Vec<String>,
    /// Addresses of listeners.
    pub(crate) listen: Vec<String>,
    /// Comments above the listeners.
    pub(crate) listen_why: Vec<String>,
    /// Whether nothing is refused yet.
    pub(crate) observe: bool,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) classes: Vec<Class>,
    /// Comments at the end.
    pub(crate) end: Vec<String>,
}

impl Policy {
    /// Returns the policy as YAML.
    pub(crate) fn yaml(&self) -> String {
        let mut text = String::new();
        comments(&mut text, 0, &self.about);
        text.push('\n');
        comments(&mut text, 0, &self.listen_why);
        match self.listen.as_slice() {
            [one] => line(&mut text, 0, &format!("listen: {}", scalar(one))),
            all => {
                let all: Vec<String> = all.iter().map(|address| scalar(address)).collect();
                line(&mut text, 0, &format!("listen: [{}]", all.join(", ")));
            }
        }
        if self.observe {
            comments(&mut text, 0, &[OBSERVE.to_owned()]);
            line(&mut text, 0, "mode: observe");
        }
        line(&mut text, 0, "upstreams:");
        for upstream in &self.upstreams {
            comments(&mut text, 2, &upstream.why);
            line(&mut text, 2, &format!("{}:", scalar(&upstream.name)));
            line(&mut text, 4, "nodes:");
            upstream.nodes.iter().for_each(|node| line(&mut text, 6, &format!("- {node}")));
            upstream.fields.iter().for_each(|field| line(&mut text, 4, field));
        }
        line(&mut text, 0, "classes:");
        self.classes.iter().for_each(|class| class.yaml(&mut text));
        if !self.end.is_empty() {
            text.push('\n');
            comments(&mut text, 0, &self.end);
        }
        text
    }
}

impl Class {
    fn yaml(&self, text: &mut String) {
        comments(text, 2, &self.about);
        line(text, 2, &format!("- name: {}", scalar(&self.name)));
        for (field, value) in [("match", &self.matches), ("per", &self.per)] {
            if let Some(value) = value {
                line(text, 4, &format!("{field}: {value}"));
            }
        }
        if let Some(upstream) = &self.upstream {
            line(text, 4, &format!("upstream: {}", scalar(upstream)));
        }
        let mut noted = |indent: usize, field: &str, noted: &Noted| {
            comments(text, indent, &noted.why);
            line(text, indent, &format!("{field}: {}", noted.value));
        };
        if self.throughput.is_some() || self.response_time.is_some() {
            noted(4, "guarantee", &Noted::default());
        }
        self.throughput.iter().for_each(|value| noted(6, "throughput", value));
        self.response_time.iter().for_each(|value| noted(6, "response_time", value));
        self.service_time.iter().for_each(|value| noted(4, "service_time", value));
        comments(text, 4, &self.more);
    }
}

/// Appends a line without spaces at its end.
fn line(text: &mut String, indent: usize, content: &str) {
    let _ = writeln!(text, "{:indent$}{}", "", content.trim_end());
}

/// Appends paragraphs as comments, wrapped.
fn comments(text: &mut String, indent: usize, paragraphs: &[String]) {
    for paragraph in paragraphs {
        // Control characters could end the comment.
        let clean: String = paragraph.chars().map(|c| if c.is_control() || is_break(c) { ' ' } else { c }).collect();
        let mut current = String::new();
        let mut width = indent + 1;
        for word in clean.split(' ').filter(|word| !word.is_empty()) {
            let long = word.chars().count() + 1;
            // A unit stays with its number.
            let unit = word.trim_end_matches(['.', ',', ':', ';', ')']);
            if matches!(unit, "ms" | "s" | "min" | "%" | "\u{b5}s" | "UTC") && !current.is_empty() {
                current.push(' ');
                current.push_str(word);
                width += long;
                continue;
            }
            // Room is kept for a unit.
            if width + long > WIDTH - UNIT && !current.is_empty() {
                line(text, indent, &format!("#{current}"));
                current.clear();
                width = indent + 1;
            }
            current.push(' ');
            current.push_str(word);
            width += long;
        }
        line(text, indent, &format!("#{current}"));
    }
}

/// Returns whether some readers end a line here.
fn is_break(c: char) -> bool {
    matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Returns a text as a scalar of YAML.
pub(crate) fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./%-".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    let address = text.parse::<std::net::SocketAddrV4>().is_ok();
    if address || starts && text != "null" && text.chars().all(plain) {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}
