//! YAML text as a tree in which every node knows its place.
//!
//! Source: YAML 1.2.2 (<https://yaml.org/spec/1.2.2/>), events by `granit-parser`. There are some departures,
//! because a file is reviewed by people and may come from an untrusted program:
//!
//! - a scalar is its text, and the field decides its meaning, so that `off`, `1e3`, `012` or a version
//!   number are never converted to something else
//! - a key may occur only once in a map, and only words are keys
//! - there is one document, without tags and directives
//! - anchors, aliases and merge keys (`<<`) work, but an alias is shared, not copied, and merged fields are
//!   counted
//! - text, depth and merges are limited

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span};

use crate::errors::{Position, Problem, Problems, SourceId, key_name, quoted};

/// Maximum size of a file in bytes: room for 100,000 classes of 160 bytes each.
pub const MAX_BYTES: usize = 16 << 20;

/// Maximum levels of nesting. The deepest sensible policy has twelve. Decoding recurses to this depth.
const MAX_DEPTH: usize = 64;

/// Maximum number of fields that merge keys may add, a million: more than any sensible file has, and harmless.
const MAX_MERGED: usize = 1 << 20;

/// A part of the file.
#[derive(Debug)]
pub struct Node {
    /// Its position.
    pub position: Position,
    /// Number of levels from this node down, itself included.
    height: usize,
    /// Its content.
    pub value: Value,
}

/// The value of a node.
#[derive(Clone, Debug)]
pub enum Value {
    /// Empty, `~` or `null`.
    Null,
    /// A value that was already reported as invalid.
    Wrong,
    /// Any other scalar.
    Text(Rc<str>),
    /// A sequence.
    List(Vec<Rc<Node>>),
    /// A mapping, in the order of the file. No key occurs twice.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Rc<str>,
    /// The position of the key.
    pub key_position: Position,
    /// The value.
    pub node: Rc<Node>,
}

impl Node {
    /// Creates a node from its parts.
    pub fn new(position: Position, value: Value) -> Node {
        let below = match &value {
            Value::List(items) => items.iter().map(|item| item.height).max(),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.height).max(),
            Value::Null | Value::Wrong | Value::Text(_) => None,
        };
        Node { position, height: 1 + below.unwrap_or(0), value }
    }

    /// Returns the value of the field `key`, if this is a map that has it.
    pub fn field(&self, key: &str) -> Option<&Rc<Node>> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| &*entry.key == key).map(|entry| &entry.node)
    }

    /// Whether it is nested deeper than a file may be.
    pub fn too_deep(&self) -> bool {
        self.height > MAX_DEPTH
    }

    /// Creates a node that is not in the file: a default, written in JSON (a text, a number or `{}`).
    pub fn assumed(json: &str, position: Position) -> Node {
        let value = match json.strip_prefix('"').and_then(|j| j.strip_suffix('"')) {
            None if json == "{}" => Value::Map(Vec::new()),
            None => Value::Text(json.into()),
            Some(text) => Value::Text(text.replace("\\n", "\n").into()),
        };
        Node { position, height: 1, value }
    }
}

/// A file as a tree.
#[derive(Debug)]
pub struct Tree {
    /// Root node.
    pub root: Rc<Node>,
    /// Number of nodes in the file, aliases not counted.
    pub nodes: usize,
}

/// The kind of a text, for messages about it as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name, with the article.
    pub name: &'static str,
    /// The hint about its minimum content, for an empty file.
    pub min: &'static str,
    /// The hint for a file that is too long.
    pub too_long: &'static str,
    /// The hint for a file that is nested too deep.
    pub too_deep: &'static str,
}

/// Parses `text`, which is of `kind` and known as `source`. Parts that can be skipped are reported and
/// skipped. Returns `None` if nothing is left to decode.
pub fn parse(text: &str, kind: Kind, source: SourceId, problems: &mut Problems) -> Option<Tree> {
    let start = Position { source, line: 1, column: 1 };
    if text.len() > MAX_BYTES {
        problems.add(at(Some(start), "the file is longer than 16 MiB", kind.too_long));
        return None;
    }
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut builder = Builder::new(kind, source, problems);
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => builder.event(event, &span)?,
            Err(error) => {
                let position = builder.position(error.marker().line(), error.marker().col());
                let (what, hint) = explain(&error, kind);
                builder.problems.add(at(Some(position), &what, hint));
                return None;
            }
        }
    }
    let (root, nodes) = (builder.root.take(), builder.nodes);
    if root.is_none() || root.as_ref().is_some_and(|r| matches!(r.value, Value::Null)) {
        problems.add(at(Some(start), "the file is empty", kind.min));
        return None;
    }
    root.map(|root| Tree { root, nodes })
}

/// A collection that is not complete.
enum Open {
    List(Vec<Rc<Node>>),
    Map { entries: Vec<Entry>, positions: BTreeMap<Rc<str>, Position>, key: Option<Key>, merged: Vec<Rc<Node>> },
}

/// A key that waits for its value.
struct Key {
    text: Rc<str>,
    position: Position,
    role: Role,
}

/// Use of a key's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Field,
    Merge,
    /// The key is invalid and reported, and its value is dropped.
    Dropped,
}

struct Frame {
    position: Position,
    anchor: usize,
    height: usize,
    open: Open,
}

struct Builder<'p> {
    kind: Kind,
    source: SourceId,
    problems: &'p mut Problems,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Rc<Node>>,
    merged: usize,
    root: Option<Rc<Node>>,
    documents: usize,
    nodes: usize,
}

impl<'p> Builder<'p> {
    fn new(kind: Kind, source: SourceId, problems: &'p mut Problems) -> Builder<'p> {
        let anchors = HashMap::new();
        Builder { kind, source, problems, frames: Vec::new(), anchors, merged: 0, root: None, documents: 0, nodes: 0 }
    }

    fn position_of(&self, span: &Span) -> Position {
        self.position(span.start.line(), span.start.col())
    }

    /// Converts a position. `granit-parser` counts lines from 1 and columns from 0.
    fn position(&self, line: usize, column: usize) -> Position {
        let clip = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
        Position { source: self.source, line: clip(line), column: clip(column + 1) }
    }

    /// Processes one event. `None` ends the reading after a report.
    fn event(&mut self, event: Event<'_>, span: &Span) -> Option<()> {
        self.nodes += usize::from(event.is_node());
        let position = self.position_of(span);
        if event.tag().is_some() {
            let tag = span.tag_start().map_or(position, |mark| self.position(mark.line(), mark.col()));
            self.report(tag, "a tag (`!…`) has no meaning here", "remove it; a text that starts with `!` needs quotes");
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let what = format!("{} is one document", self.kind.name);
                    self.report(position, &what, "remove the `---` and what belongs to another file");
                    return None;
                }
            }
            Event::Scalar(text, style, anchor, _) => {
                let null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                if self.takes_key() {
                    let merge = style == ScalarStyle::Plain && text == "<<";
                    return self.key(Rc::from(&*text), position, null, merge);
                }
                let value = if null { Value::Null } else { Value::Text(Rc::from(&*text)) };
                self.node(Rc::new(Node { position, height: 1, value }), anchor);
            }
            Event::SequenceStart(_, anchor, _) => return self.open(position, anchor, Open::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let open = Open::Map { entries: Vec::new(), positions: BTreeMap::new(), key: None, merged: Vec::new() };
                return self.open(position, anchor, open);
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).cloned();
                let Some(node) = known else {
                    self.report(position, "this alias lies inside what it names", "name something that ends before it");
                    self.stand_in(position);
                    return Some(());
                };
                if self.frames.len() + node.height > MAX_DEPTH {
                    return self.too_deep(position);
                }
                match (self.takes_key(), &node.value) {
                    (true, Value::Text(text)) => return self.key(Rc::clone(text), position, false, false),
                    _ => self.node(node, 0),
                }
            }
            Event::UnresolvedAlias(name) => {
                let what = format!("nothing above is named `&{name}`");
                self.report(position, &what, "define it before, or quote a text that starts with `*`");
                self.stand_in(position);
            }
            _ => {}
        }
        Some(())
    }

    fn report(&mut self, position: Position, what: &str, hint: &str) {
        let path = self.path();
        self.problems.add(Problem { path, ..at(Some(position), what, hint) });
    }

    /// Returns the path of the part being read.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match &frame.open {
                Open::List(items) => path.push_str(&format!("[{}]", items.len())),
                Open::Map { key: Some(key), .. } if key.role == Role::Field || !key.text.is_empty() => {
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(&key_name(&key.text));
                }
                Open::Map { .. } => {}
            }
        }
        path
    }

    fn too_deep(&mut self, position: Position) -> Option<()> {
        self.report(position, "this is nested deeper than 64 levels", self.kind.too_deep);
        None
    }

    /// Inserts an empty value in place of an alias without an anchor, without a second report about it.
    fn stand_in(&mut self, position: Position) {
        if self.takes_key() {
            let _ = self.key(Rc::from(""), position, false, false);
            if let Some(Open::Map { key: Some(key), .. }) = self.frames.last_mut().map(|f| &mut f.open) {
                key.role = Role::Dropped;
            }
        } else {
            self.node(Rc::new(Node { position, height: 1, value: Value::Wrong }), 0);
        }
    }

    /// Whether the next node is a key.
    fn takes_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame { open: Open::Map { key: None, .. }, .. }))
    }

    fn open(&mut self, position: Position, anchor: usize, open: Open) -> Option<()> {
        if self.frames.len() >= MAX_DEPTH {
            return self.too_deep(position);
        }
        if self.takes_key() {
            self.bad_key(position);
        }
        self.frames.push(Frame { position, anchor, height: 0, open });
        Some(())
    }

    /// Reads and drops a list or map in place of a key, and its value.
    fn bad_key(&mut self, position: Position) {
        self.report(
            position,
            "a key must be a word",
            "write `word: value`; a `{` or `[` that opens a text needs quotes",
        );
    }

    fn key(&mut self, text: Rc<str>, position: Position, null: bool, merge: bool) -> Option<()> {
        let mut role = if merge { Role::Merge } else { Role::Field };
        let Some(Frame { open: Open::Map { positions, key, .. }, .. }) = self.frames.last_mut() else {
            return Some(());
        };
        let mut complaint = None;
        if null {
            complaint = Some(("a key is missing".to_owned(), "write `word: value`".to_owned()));
        } else if let Some(first) = positions.get(&text) {
            let what =
                format!("{} is given twice, first in line {} column {}", quoted(&text), first.line, first.column);
            complaint = Some((what, "keep one of them".to_owned()));
        } else {
            positions.insert(Rc::clone(&text), position);
        }
        if complaint.is_some() {
            role = Role::Dropped;
        }
        *key = Some(Key { text, position, role });
        if let Some((what, hint)) = complaint {
            self.report(position, &what, &hint);
        }
        Some(())
    }

    fn close(&mut self) {
        let Some(frame) = self.frames.pop() else { return };
        let value = match frame.open {
            Open::List(items) => Value::List(items),
            Open::Map { mut entries, mut positions, merged, .. } => {
                for source in merged {
                    self.merge(&source, &mut entries, &mut positions);
                }
                Value::Map(entries)
            }
        };
        let height = frame.height + 1;
        self.node(Rc::new(Node { position: frame.position, height, value }), frame.anchor);
    }

    /// Adds the fields of `source`, a map or a list of maps, that do not exist yet.
    fn merge(&mut self, source: &Rc<Node>, entries: &mut Vec<Entry>, positions: &mut BTreeMap<Rc<str>, Position>) {
        match &source.value {
            Value::Map(fields) => {
                for field in fields {
                    self.merged += 1;
                    if self.merged > MAX_MERGED {
                        self.report(source.position, "merge keys add more than a million fields", "merge fewer");
                        return;
                    }
                    if !positions.contains_key(&field.key) {
                        positions.insert(Rc::clone(&field.key), field.key_position);
                        entries.push(field.clone());
                    }
                }
            }
            // A list in a list is refused below, so this recurses only once.
            Value::List(sources) if !sources.iter().any(|s| matches!(s.value, Value::List(_))) => {
                for one in sources {
                    self.merge(one, entries, positions);
                }
            }
            _ => self.report(source.position, "`<<` merges a map or a list of maps", "write `<<: *name`"),
        }
    }

    /// Adds a complete node to the open list or map.
    fn node(&mut self, node: Rc<Node>, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return;
        };
        frame.height = frame.height.max(node.height);
        match &mut frame.open {
            Open::List(items) => items.push(node),
            Open::Map { entries, key, merged, .. } => match key.take() {
                Some(Key { text, position, role: Role::Field }) => {
                    entries.push(Entry { key: text, key_position: position, node });
                }
                Some(Key { role: Role::Merge, .. }) => merged.push(node),
                Some(Key { role: Role::Dropped, .. }) => {}
                None => *key = Some(Key { text: Rc::from(""), position: node.position, role: Role::Dropped }),
            },
        }
    }
}

fn at(position: Option<Position>, what: &str, hint: &str) -> Problem {
    Problem { source: None, position, path: String::new(), what: what.to_owned(), hint: hint.to_owned() }
}

/// Describes a syntax error, with a hint.
fn explain(error: &ScanError, kind: Kind) -> (String, &'static str) {
    match error.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar => ("there is a tab where YAML wants spaces".to_owned(), "indent with spaces"),
        ErrorKind::UnclosedFlowCollection { open } => (format!("this `{open}` is never closed"), "close it"),
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            (format!("`{open}` is closed by `{close}`"), "use the bracket that belongs to it")
        }
        ErrorKind::UnclosedQuotedScalar
        | ErrorKind::InvalidQuotedScalarIndent
        | ErrorKind::DocumentIndicatorInQuotedScalar => {
            ("a text in quotation marks goes on here".to_owned(), "close the quotation mark above")
        }
        ErrorKind::MappingValueNotAllowed => {
            let hint = "this line may be indented too far, the one above may lack its `:`, or a text with `: ` in it its quotes";
            ("a `:` is not expected here".to_owned(), hint)
        }
        ErrorKind::InvalidIndentation | ErrorKind::ExpectedBlockMappingKey | ErrorKind::ExpectedBlockSequenceEntry => (
            "this line is not indented like its neighbours".to_owned(),
            "line it up with the fields it belongs to; every list item starts with `- `",
        ),
        ErrorKind::SimpleKeyExpected => ("this word needs a `:` and a value".to_owned(), "write `word: value`"),
        ErrorKind::ExpectedFlowMappingSeparator => {
            ("a `,` or `}` is missing before this".to_owned(), "separate fields with `,` and close the map with `}`")
        }
        ErrorKind::ExpectedFlowSequenceSeparator => {
            ("a `,` or `]` is missing before this".to_owned(), "separate items with `,` and close the list with `]`")
        }
        ErrorKind::RecursionLimitExceeded => ("this is nested deeper than 64 levels".to_owned(), kind.too_deep),
        ErrorKind::DirectiveDisallowed => ("a `%` directive has no meaning here".to_owned(), "remove the line"),
        kind => (format!("this is not YAML: {kind}"), "see <https://yaml.org/spec/1.2.2/> for its rules"),
    }
}

#[cfg(test)]
#[path = "tests/tree.rs"]
pub(crate) mod tests;
