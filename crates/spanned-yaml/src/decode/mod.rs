//! Decoding of the tree into typed records, with all errors at once.
//!
//! A derived deserialiser stops at the first error and does not know positions. Here every part is decoded on its own.
//! An invalid part is reported, left out and flagged [`At::bad`], and decoding goes on with its neighbours. Semantic
//! checks can then run on the valid parts and ignore the others.
//!
//! The macros [`crate::record!`], [`crate::words!`] and [`crate::choice!`] are the only description of the file format:
//! one declaration is the type, its decoder and its JSON Schema with documentation and default.

mod choice;
mod record;
mod shape;
mod words;

use std::rc::Rc;

use crate::errors::{Complaint, Position, Problem, Problems, Source, key_name};
use crate::tree::{Node, Value};

pub use choice::{ChoiceSchema, OneOf, defaults};
pub use record::{At, Defaulted, Fields, Optional, RecordSchema, Required, field_name};
pub use shape::{Named, OneOrMany, Switch, TextOrMap};
pub use words::unknown_word;

/// Maximum number of parts that aliases may add to the file's own, a million. It allows 100,000 classes to
/// share ten parts each, and limits the memory that a hostile file can claim to hundreds of megabytes.
const MAX_ALIASED: usize = 1 << 20;

/// A type that a node of the file can hold.
pub trait Decode: Sized {
    /// Decodes `node`. Returns `None` if nothing usable is left, after reporting at least one problem.
    /// Invalid parts are reported too, and left out of the result.
    fn decode(node: &Node, cx: &mut Context) -> Option<Self>;
}

/// A type that is written as one word, number or text.
pub trait FromText: Sized {
    /// The expected form, as in "expected `EXPECTED`".
    const EXPECTED: &'static str;

    /// Parses `text`.
    ///
    /// # Errors
    /// Returns the error, and a hint.
    fn from_text(text: &str) -> Result<Self, Complaint>;
}

impl<T: FromText> Decode for T {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let Value::Text(text) = &node.value else {
            cx.mismatch(T::EXPECTED, node);
            return None;
        };
        T::from_text(text).map_err(|complaint| cx.complain(complaint)).ok()
    }
}

/// Identifies a decoded part, with its place and its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

#[derive(Debug)]
struct Step {
    parent: Mark,
    name: StepName,
    position: Position,
}

/// A step of the path to a part of the file.
#[derive(Clone, Debug)]
pub enum StepName {
    /// The whole file.
    Root,
    /// A field of a record.
    Field(&'static str),
    /// A key of the operator's choice.
    Key(Rc<str>),
    /// An item of a list, counted from 0.
    Index(usize),
}

/// The position of the decoder, and the problems found so far.
#[derive(Debug)]
pub struct Context {
    steps: Vec<Step>,
    current: Mark,
    max_steps: usize,
    hints: Hints,
    /// Errors found so far.
    pub problems: Problems,
    /// Warnings so far: valid, but worth knowing.
    pub warnings: Problems,
}

/// Finds the hint for a field or word that is not among those of the first argument, if there is a better one than
/// the nearest spelling.
pub type Hints = fn(&[&str], &str) -> Option<&'static str>;

impl Context {
    /// Creates the context for a tree of `nodes` nodes.
    pub fn new(problems: Problems, nodes: usize, hints: Hints) -> Context {
        let root = Step { parent: Mark(0), name: StepName::Root, position: Position::new(1, 1) };
        // A part may take two steps, one for its key and one for its value.
        let max_steps = 2 * nodes + MAX_ALIASED;
        Context {
            steps: vec![root],
            current: Mark(0),
            max_steps,
            hints,
            warnings: problems.of_same_sources(),
            problems,
        }
    }

    /// Whether there is too much to decode, which was reported.
    pub fn exhausted(&self) -> bool {
        self.steps.len() >= self.max_steps
    }

    /// Returns the hint for the unknown `field` of a map with the fields `known`, or for an unknown word.
    fn hint(&self, known: &[&str], field: &str) -> Option<&'static str> {
        (self.hints)(known, field)
    }

    /// Runs `f` one step deeper. Returns `None` if there are too many nodes, which is reported once.
    pub fn within<T>(
        &mut self,
        name: StepName,
        position: Position,
        f: impl FnOnce(&mut Self) -> Option<T>,
    ) -> (Option<T>, Mark) {
        if self.exhausted() {
            let what = "aliases multiply the file by more than a million parts".to_owned();
            let hint = "use fewer aliases, or a template instead of many classes".to_owned();
            self.problems.add(Problem { source: None, position: None, path: String::new(), what, hint });
            return (None, self.current);
        }
        // A file of 16 MiB has fewer nodes than bytes, so their number fits 32 bits.
        let mark = Mark(self.steps.len() as u32);
        let parent = std::mem::replace(&mut self.current, mark);
        self.steps.push(Step { parent, name, position });
        let value = f(self);
        self.current = parent;
        (value, mark)
    }

    /// Returns the position of the decoder.
    pub fn here(&self) -> Mark {
        self.current
    }

    /// Reports a problem at the position of the decoder.
    pub fn complain(&mut self, complaint: Complaint) {
        self.report(self.current, complaint);
    }

    /// Reports a word that is not in `known`. The hint names the new word for one that was renamed.
    pub fn unknown_word(&mut self, word: &str, known: &[&str]) {
        let hint = self.hint(known, word);
        let nearest = unknown_word(word, known);
        self.complain(Complaint { hint: hint.map_or(nearest.hint, str::to_owned), ..nearest });
    }

    /// Reports that `node` is not of the expected form.
    pub fn mismatch(&mut self, expected: &str, node: &Node) {
        let complaint = match node.value {
            Value::Null => {
                Complaint::new("this has no value", format!("give it {expected}, or remove the line for its default"))
            }
            Value::Wrong => return self.problems.known(),
            Value::Text(ref text) => Complaint::about(text, "is a single value", format!("write {expected}")),
            Value::List(_) => Complaint::new("this is a list", format!("write {expected}")),
            Value::Map(_) => Complaint::new("this is a map", format!("write {expected}")),
        };
        self.complain(complaint);
    }

    /// Reports a complaint about the part at `mark`.
    pub fn report(&mut self, mark: Mark, complaint: Complaint) {
        let problem = self.problem(mark, None, complaint);
        self.problems.add(problem);
    }

    /// Reports a problem at `mark`, with a hint.
    pub fn fail(&mut self, mark: Mark, what: impl Into<String>, hint: impl Into<String>) {
        self.report(mark, Complaint::new(what, hint));
    }

    /// Reports a problem of the field `name` in the map at `mark`. The file need not have that field.
    pub fn fail_in(&mut self, mark: Mark, name: &str, what: impl Into<String>, hint: impl Into<String>) {
        let problem = self.problem(mark, Some(name), Complaint::new(what, hint));
        self.problems.add(problem);
    }

    /// Warns about the part at `mark`, with a hint.
    pub fn warn(&mut self, mark: Mark, what: impl Into<String>, hint: impl Into<String>) {
        let problem = self.problem(mark, None, Complaint::new(what, hint));
        self.warnings.add(problem);
    }

    /// Returns the place of the part at `mark`.
    pub fn position(&self, mark: Mark) -> Position {
        self.steps[mark.0 as usize].position
    }

    fn problem(&self, mark: Mark, field: Option<&str>, complaint: Complaint) -> Problem {
        let mut names: Vec<String> = Vec::new();
        names.extend(field.map(str::to_owned));
        let mut at = mark;
        loop {
            let step = &self.steps[at.0 as usize];
            let outside = self.steps[step.parent.0 as usize].position.source != step.position.source;
            if outside && matches!(self.problems.source(step.position.source), Some(Source::File(_))) {
                // The root of another file.
                break;
            }
            match &step.name {
                StepName::Root => break,
                StepName::Field(name) => names.push((*name).to_owned()),
                StepName::Key(key) => names.push(key_name(key)),
                StepName::Index(index) => names.push(format!("[{index}]")),
            }
            at = step.parent;
        }
        let mut path = String::new();
        for name in names.iter().rev() {
            if !path.is_empty() && !name.starts_with('[') {
                path.push('.');
            }
            path.push_str(name);
        }
        Problem { source: None, position: Some(self.position(mark)), path, what: complaint.what, hint: complaint.hint }
    }
}
