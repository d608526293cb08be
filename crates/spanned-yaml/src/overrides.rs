//! `--set path=value`: a value inserted into the tree of a file before it is decoded.
//!
//! The value therefore has the same meaning as in the file, and is checked in the same way.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use crate::errors::{Complaint, Position, Problem, Problems, Source, listed, nearest, quoted};
use crate::tree::{self, Entry, Kind, Node, Value};

/// The value of `--set`.
const VALUE: Kind = Kind {
    name: "a value",
    min: "write `path=value`",
    too_long: "write it into the file",
    too_deep: "write it into the file",
};

/// A part of a file and the value that replaces it, such as `traffic.A.rate=800/s`.
///
/// A step of the path is a key, a number (items of a list count from 0), `*` for every item of a list, or the
/// `name`, `class`, `machine` or `address` of an item. A step that contains a dot or a bracket is written in
/// quotation marks: `nodes."10.0.0.1:80".capacity`. The value is YAML on one line, and `null` removes the part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    path: String,
    steps: Vec<String>,
    value: String,
}

/// The reason why a text is not a valid [`Override`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOverride(Complaint);

impl fmt::Display for InvalidOverride {
    /// Formats as `what; hint`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.0.what, self.0.hint)
    }
}

impl std::error::Error for InvalidOverride {}

impl From<InvalidOverride> for Complaint {
    fn from(InvalidOverride(complaint): InvalidOverride) -> Complaint {
        complaint
    }
}

impl FromStr for Override {
    type Err = InvalidOverride;

    fn from_str(text: &str) -> Result<Self, InvalidOverride> {
        let fail = |what: String, hint: &str| Err(InvalidOverride(Complaint::new(what, hint)));
        let hint = "write `path=value`, such as `traffic.A.rate=800/s`";
        let Some((path, value)) = split_at_sign(text) else {
            return fail(format!("{} has no `=`", quoted(text)), hint);
        };
        let (path, value) = (path.trim(), value.trim());
        if value.is_empty() {
            return fail(format!("{} is given no value", quoted(path)), "write one behind the `=`, or `null`");
        }
        match steps(path) {
            Some(steps) => Ok(Override { path: path.to_owned(), steps, value: value.to_owned() }),
            None => fail(format!("{} is not a path", quoted(path)), hint),
        }
    }
}

impl Override {
    /// Returns the override of the value at `path`, whose steps are separated by dots.
    pub fn new(path: &str, value: &str) -> Override {
        let steps = path.split('.').map(str::to_owned).collect();
        Override { path: path.to_owned(), steps, value: value.to_owned() }
    }

    /// Returns the path as it was written.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the value as it was written.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether it replaces the whole top-level field `key`.
    pub fn replaces(&self, key: &str) -> bool {
        matches!(self.steps.as_slice(), [only] if only == key)
    }

    /// Inserts the value into the tree below `root`. Errors are reported as `--set path`, and the result is
    /// then `None`. `nodes` grows by the nodes of the value.
    pub fn apply(&self, root: &Rc<Node>, nodes: &mut usize, problems: &mut Problems) -> Option<Rc<Node>> {
        let source = problems.add_source(Source::Override(format!("--set {}", self.path)));
        let position = Position { source, line: 1, column: 1 };
        let value = match self.value.as_str() {
            "null" | "~" => None,
            text => {
                let tree = tree::parse(text, VALUE, source, problems)?;
                *nodes += tree.nodes + self.steps.len();
                Some(tree.root)
            }
        };
        let applied = set(root, &self.steps, value.as_ref(), position).and_then(|root| match root.too_deep() {
            true => Err(Complaint::new("this is nested deeper than 64 levels", "write it into the experiment")),
            false => Ok(root),
        });
        match applied {
            Ok(root) => Some(root),
            Err(Complaint { what, hint }) => {
                problems.add(Problem { source: None, position: Some(position), path: String::new(), what, hint });
                None
            }
        }
    }
}

/// Splits at the first `=` outside quotation marks.
fn split_at_sign(text: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    let at = text.find(|c: char| {
        quoted ^= c == '"';
        c == '=' && !quoted
    })?;
    Some((&text[..at], &text[at + 1..]))
}

/// Returns the steps of `classes[0].name`, `classes.0.name` or `nodes."a.b:80".weight`, or `None` if it is
/// not a path.
fn steps(path: &str) -> Option<Vec<String>> {
    let mut steps = vec![String::new()];
    let (mut quoted, mut bracket) = (false, false);
    let mut chars = path.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted && !bracket => steps.push(String::new()),
            '[' if !quoted && !bracket => {
                bracket = true;
                steps.push(String::new());
            }
            ']' if !quoted && bracket => {
                bracket = false;
                match chars.peek() {
                    None | Some('[') => {}
                    Some('.') => {
                        chars.next();
                        steps.push(String::new());
                    }
                    Some(_) => return None,
                }
            }
            '.' | '[' | ']' if !quoted => return None,
            c => steps.last_mut()?.push(c),
        }
    }
    (!quoted && !bracket && steps.iter().all(|step| !step.is_empty())).then_some(steps)
}

/// Fields that identify an item of a list.
const NAMING: &[&str] = &["name", "class", "machine", "address"];

/// Returns `node` with `value` at `steps` below it. Without a value, the part there is removed.
fn set(node: &Rc<Node>, steps: &[String], value: Option<&Rc<Node>>, position: Position) -> Result<Rc<Node>, Complaint> {
    let Some((step, rest)) = steps.split_first() else {
        return Ok(value.map_or_else(|| Rc::new(Node::new(position, Value::Null)), Rc::clone));
    };
    let removes = rest.is_empty() && value.is_none();
    let changed = match &node.value {
        Value::Map(entries) => {
            let mut entries = entries.clone();
            match entries.iter().position(|entry| *entry.key == **step) {
                Some(at) if removes => {
                    entries.remove(at);
                }
                Some(at) => entries[at].node = set(&entries[at].node, rest, value, position)?,
                None if value.is_none() => {
                    let known = listed(entries.iter().map(|entry| &*entry.key));
                    return Err(Complaint::new(
                        format!("there is no {} to remove", quoted(step)),
                        format!("there is {known}"),
                    ));
                }
                None => entries.push(Entry {
                    key: step.as_str().into(),
                    key_position: position,
                    node: created(rest, value, position)?,
                }),
            }
            Value::Map(entries)
        }
        Value::List(items) => {
            let mut items = items.clone();
            let chosen = chosen(&items, step)?;
            for &at in chosen.iter().rev() {
                match removes {
                    true => drop(items.remove(at)),
                    false => items[at] = set(&items[at], rest, value, position)?,
                }
            }
            Value::List(items)
        }
        Value::Null => return created(steps, value, position),
        Value::Wrong => return Ok(Rc::clone(node)),
        Value::Text(text) => {
            let what = format!("{} is a single value here: it has no {}", quoted(text), quoted(step));
            let hint = format!("replace the whole by a map: `={{ {}: … }}`", steps.join(": { "));
            return Err(Complaint::new(what, hint));
        }
    };
    Ok(Rc::new(Node::new(node.position, changed)))
}

/// Returns nested maps down to `value`.
fn created(steps: &[String], value: Option<&Rc<Node>>, position: Position) -> Result<Rc<Node>, Complaint> {
    let Some(value) = value else {
        return Err(Complaint::new("there is nothing to remove", "check the path"));
    };
    Ok(steps.iter().rev().fold(Rc::clone(value), |node, step| {
        let entry = Entry { key: step.as_str().into(), key_position: position, node };
        Rc::new(Node::new(position, Value::Map(vec![entry])))
    }))
}

/// Returns the indices of the list items that `step` names.
fn chosen(items: &[Rc<Node>], step: &str) -> Result<Vec<usize>, Complaint> {
    if step == "*" {
        return Ok((0..items.len()).collect());
    }
    let count = items.len();
    if let Ok(index) = step.parse::<usize>() {
        return match index < count {
            true => Ok(vec![index]),
            false => Err(Complaint::new(
                format!("the list has {count} items, and none with the number {step}"),
                "they count from 0",
            )),
        };
    }
    let names: Vec<Option<&str>> = items.iter().map(|item| name_of(item)).collect();
    let found: Vec<usize> = (0..count).filter(|&at| names[at] == Some(step)).collect();
    match found.as_slice() {
        [] => {
            let known = || names.iter().copied().flatten();
            let hint = match nearest(step, known()) {
                Some(near) => format!("did you mean {}?", quoted(near)),
                None if known().next().is_none() => format!("number its {count} items from 0"),
                None => format!("there is {}", listed(known())),
            };
            Err(Complaint::new(format!("no item of the list is {}", quoted(step)), hint))
        }
        [_] => Ok(found),
        several => {
            let numbers: Vec<String> = several.iter().map(ToString::to_string).collect();
            let what = format!("{} items of the list are {}", several.len(), quoted(step));
            Err(Complaint::new(what, format!("name one by its number: {}", numbers.join(", "))))
        }
    }
}

fn name_of(item: &Node) -> Option<&str> {
    match &item.value {
        Value::Map(entries) => NAMING.iter().find_map(|&field| {
            let entry = entries.iter().find(|entry| *entry.key == *field)?;
            match &entry.node.value {
                Value::Text(text) => Some(&**text),
                _ => None,
            }
        }),
        Value::Text(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
#[path = "tests/overrides.rs"]
mod tests;
