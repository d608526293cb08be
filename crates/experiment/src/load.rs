//! An experiment file, from its text to the experiment.
//!
//! The policy may be in the file or in one of its own, and then that file's tree is inserted. Overrides
//! change the tree before anything is decoded.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use weirgate_config::embed::{POLICY, elsewhere, warn_if_infeasible, with_page_table};
use weirgate_spanned_yaml::decode::{Context, Decode};
use weirgate_spanned_yaml::errors::{Errors, Problem, Problems, SourceId, warning_lines};
use weirgate_spanned_yaml::overrides::Override;
use weirgate_spanned_yaml::read::{included, read_bounded, sound_text, unreadable};
use weirgate_spanned_yaml::tree::{self, Kind, Node, Tree, Value};

use crate::experiment::Experiment;
use crate::file::{DEFAULTS, ExperimentFile};
use crate::resolve::resolve_experiment;

/// An experiment file.
const EXPERIMENT: Kind = Kind {
    name: "an experiment",
    min: "write at least `policy:`, `traffic:` and `phases:`",
    too_long: "put long traffic into a `trace:`",
    too_deep: "a policy needs twelve at most",
};

/// The same experiment under another discipline: `policy.discipline=D`.
pub fn under_discipline(discipline: &str) -> Override {
    Override::new("policy.discipline", discipline)
}

/// A valid experiment.
#[derive(Clone, Debug)]
pub struct LoadedExperiment {
    /// The experiment.
    pub experiment: Experiment,
    /// Warnings, in the order of the file.
    pub warnings: Vec<Problem>,
}

impl LoadedExperiment {
    /// Formats the warnings as lines: `file:line:column: warning: …`.
    pub fn warning_lines(&self, file: &str) -> Vec<String> {
        warning_lines(&self.warnings, file)
    }
}

/// The trees of an experiment's policies, with `overrides` applied.
pub(crate) struct Written {
    /// The policy under test.
    pub(crate) first: Rc<Node>,
    /// The policies of [`Experiment::reloads`], in their order.
    pub(crate) others: Vec<Rc<Node>>,
}

/// Reads the experiment file at `path`, at most 16 MiB of it, with `overrides` applied.
///
/// # Errors
/// Returns the errors of [`load_experiment`], the system's error if the file cannot be read, and the place of
/// the first byte that is not UTF-8.
pub fn load_experiment_file(path: &Path, overrides: &[Override]) -> Result<LoadedExperiment, Errors> {
    load_with_policies(path, overrides).map(|(loaded, _)| loaded)
}

/// Returns the experiment in the file at `path`, and its policies as they are written.
pub(crate) fn load_with_policies(path: &Path, overrides: &[Override]) -> Result<(LoadedExperiment, Written), Errors> {
    let name = path.display().to_string();
    let bytes = read_bounded(path).map_err(|error| unreadable(&name, format!("cannot be read: {error}"), ""))?;
    let text = sound_text(&name, &bytes)?;
    load(&name, text, path.parent().unwrap_or(Path::new("")), overrides)
}

/// Fields at the top of an experiment that no policy has.
const FIELDS: [&str; 3] = ["machines", "traffic", "phases"];

/// Whether `text` is meant as an experiment: its top level has a field that only experiments have. Beyond its
/// YAML it need not be valid.
pub fn is_experiment(text: &str) -> bool {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = tree::parse(text, EXPERIMENT, SourceId::FILE, &mut Problems::default());
    let Some(Value::Map(entries)) = tree.as_ref().map(|tree| &tree.root.value) else { return false };
    entries.iter().any(|entry| FIELDS.contains(&&*entry.key))
}

/// Reads the experiment in `text`. `name` is the file's name in errors, and without folder and extension it
/// is the experiment's name. Paths in the experiment start from `base_dir`. `overrides` are applied one after
/// the other, those of the whole policy first.
///
/// # Errors
/// Returns all errors in it, in its policy file and in `overrides`. After a YAML syntax error nothing can be
/// read, so that error is reported alone.
pub fn load_experiment(
    name: &str,
    text: &str,
    base_dir: &Path,
    overrides: &[Override],
) -> Result<LoadedExperiment, Errors> {
    load(name, text, base_dir, overrides).map(|(loaded, _)| loaded)
}

fn load(
    name: &str,
    text: &str,
    base_dir: &Path,
    overrides: &[Override],
) -> Result<(LoadedExperiment, Written), Errors> {
    let mut problems = Problems::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = tree::parse(text, EXPERIMENT, SourceId::FILE, &mut problems);
    let tree = tree.map(|tree| assemble(tree, base_dir, overrides, &mut problems));
    let (tree, variant) = tree.map_or((None, None), |(tree, variant)| (Some(tree), variant));
    let mut cx = Context::new(problems, tree.as_ref().map_or(0, |tree| tree.nodes), elsewhere);
    let experiment = tree.and_then(|tree| {
        let file = ExperimentFile::decode(&tree.root, &mut cx).filter(|_| !cx.exhausted())?;
        let written = written(&tree.root, &file);
        drop(tree);
        let policy = file.policy.get().and_then(|policy| policy.0.resolve(&DEFAULTS, &mut cx));
        if let Some(policy) = &policy {
            warn_if_infeasible(policy, &mut cx);
        }
        let stem = Path::new(name).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let mut experiment = resolve_experiment(&file, policy, &stem, base_dir, &mut cx)?;
        if let Some(variant) = variant {
            experiment.site.policy.discipline.name = variant.as_ref().into();
            for reload in &mut experiment.reloads {
                reload.policy.discipline.name = variant.as_ref().into();
            }
        }
        Some((experiment, written?))
    });
    match experiment {
        Some((experiment, written)) if cx.problems.reports() == 0 => {
            Ok((LoadedExperiment { experiment, warnings: cx.warnings.into_sorted() }, written))
        }
        _ => Err(cx.problems.into_errors(name).unwrap_or_else(|| {
            unreadable(name, "the experiment cannot be used".to_owned(), "report this file: its error was lost")
        })),
    }
}

/// Returns the policies of an experiment as they are written.
fn written(root: &Node, file: &ExperimentFile) -> Option<Written> {
    let list = root.field("faults").map(|faults| &faults.value);
    let nodes: &[Rc<Node>] = if let Some(Value::List(items)) = list { items } else { &[] };
    let forms = file.faults.get().map_or(&[][..], Vec::as_slice);
    let others = nodes
        .iter()
        .zip(forms)
        .filter_map(|(node, form)| Some((form.value.at.get()?.0, node.field("policy").map(Rc::clone)?)));
    let mut others: Vec<(Duration, Rc<Node>)> = others.collect();
    others.sort_by_key(|(at, _)| *at);
    let first = root.field("policy").map(Rc::clone)?;
    Some(Written { first, others: others.into_iter().map(|(_, policy)| policy).collect() })
}

/// Returns the tree with its policy file inserted and overrides applied. Also returns the name of its discipline, if
/// that is one of the experiment's own `disciplines`.
fn assemble(tree: Tree, folder: &Path, overrides: &[Override], problems: &mut Problems) -> (Tree, Option<Rc<str>>) {
    let Tree { mut root, mut nodes } = tree;
    let (whole, parts): (Vec<_>, Vec<_>) = overrides.iter().partition(|o| o.replaces("policy"));
    for change in whole {
        root = change.apply(&root, &mut nodes, problems).unwrap_or(root);
    }
    root = with_policies(&root, |policy| match &policy.value {
        Value::Text(path) => Some(included(path, policy.position, folder, (POLICY, "policy"), &mut nodes, problems)),
        _ => None,
    });
    for change in parts {
        root = change.apply(&root, &mut nodes, problems).unwrap_or(root);
    }
    let variant = variant(&root);
    if let Some((_, meant)) = &variant {
        root = with_policy(&root, |policy| with_field(policy, "discipline", meant));
    }
    root = with_policies(&root, |policy| with_page_table(policy, folder, &mut nodes, problems));
    (Tree { root, nodes }, variant.map(|(name, _)| name))
}

/// Returns the name of the policy's discipline and its definition, if `disciplines` has it.
fn variant(root: &Node) -> Option<(Rc<str>, Rc<Node>)> {
    let Value::Text(name) = &root.field("policy")?.field("discipline")?.value else { return None };
    Some((Rc::clone(name), Rc::clone(root.field("disciplines")?.field(name)?)))
}

/// Returns a map with another value of an existing field.
fn with_field(map: &Node, key: &str, value: &Rc<Node>) -> Option<Rc<Node>> {
    let Value::Map(entries) = &map.value else { return None };
    let mut entries = entries.clone();
    entries.iter_mut().find(|entry| &*entry.key == key)?.node = Rc::clone(value);
    Some(Rc::new(Node::new(map.position, Value::Map(entries))))
}

/// Returns the tree with all its policies changed, including those that faults load.
fn with_policies(root: &Rc<Node>, mut change: impl FnMut(&Node) -> Option<Rc<Node>>) -> Rc<Node> {
    let root = with_policy(root, &mut change);
    let Some(faults) = root.field("faults") else { return root };
    let Value::List(items) = &faults.value else { return root };
    if items.iter().all(|fault| fault.field("policy").is_none()) {
        return root;
    }
    let items = items.iter().map(|fault| with_policy(fault, &mut change)).collect();
    let faults = Rc::new(Node::new(faults.position, Value::List(items)));
    with_field(&root, "faults", &faults).unwrap_or(root)
}

/// Returns the tree with another policy, if `change` makes one.
fn with_policy(root: &Rc<Node>, change: impl FnOnce(&Node) -> Option<Rc<Node>>) -> Rc<Node> {
    let Value::Map(entries) = &root.value else { return Rc::clone(root) };
    let Some(at) = entries.iter().position(|entry| &*entry.key == "policy") else { return Rc::clone(root) };
    let Some(policy) = change(&entries[at].node) else { return Rc::clone(root) };
    let mut entries = entries.clone();
    entries[at].node = policy;
    Rc::new(Node::new(root.position, Value::Map(entries)))
}

/// An experiment with known figures, for tests.
#[cfg(test)]
pub(crate) fn hand_made() -> Experiment {
    let text = include_str!("../tests/hand-made.yaml");
    let loaded = load_experiment("hand-made.yaml", text, Path::new(""), &[]);
    loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment
}
