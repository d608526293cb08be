//! A policy file, from its bytes to the site.

use std::path::Path;

use weirgate_spanned_yaml::decode::{Context, Decode};
use weirgate_spanned_yaml::errors::{Errors, Problem, Problems, SourceId, warning_lines};
use weirgate_spanned_yaml::read::{read_bounded, sound_text, unreadable};
use weirgate_spanned_yaml::tree::{self, Kind, Tree};

use crate::feasibility::feasibility;
use crate::file::{PolicyFile, elsewhere};
use crate::include::with_page_table;
use crate::resolve::{Resolved, resolve};
use crate::site::Site;
use crate::workers::{ShortOfWorkers, short_of_workers};

/// A policy file.
pub const POLICY: Kind = Kind {
    name: "a policy",
    min: "write at least `listen:`, `upstreams:` and `classes:`",
    too_long: "split the policy over several gateways",
    too_deep: "a policy needs twelve at most",
};

/// A valid policy.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The site that the gateway runs.
    pub site: Site,
    /// Warnings for the operator, in the order of the file.
    pub warnings: Vec<Problem>,
}

impl Loaded {
    /// Formats the warnings as lines: `file:line:column: warning: …`.
    pub fn warning_lines(&self, file: &str) -> Vec<String> {
        warning_lines(&self.warnings, file)
    }
}

/// Reads the policy in `text`. `name` is the file's name in errors, and its folder is the one that paths in the
/// policy start from.
///
/// # Errors
/// Returns all errors in it. After a YAML syntax error nothing can be read, so that error is reported alone.
pub fn load(name: &str, text: &str) -> Result<Loaded, Errors> {
    let mut problems = Problems::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = tree::parse(text, POLICY, SourceId::FILE, &mut problems);
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let tree = tree.map(|Tree { root, mut nodes }| {
        let root = with_page_table(&root, folder, &mut nodes, &mut problems).unwrap_or(root);
        Tree { root, nodes }
    });
    let mut cx = Context::new(problems, tree.as_ref().map_or(0, |tree| tree.nodes), elsewhere);
    let resolved = tree.and_then(|tree| {
        let file = PolicyFile::decode(&tree.root, &mut cx).filter(|_| !cx.exhausted())?;
        // The tree of a large policy takes as much memory as everything else.
        drop(tree);
        resolve(&file, folder, None, &mut cx)
    });
    match resolved {
        Some(resolved) if cx.problems.reports() == 0 => {
            warn_if_infeasible(&resolved, &mut cx);
            Ok(Loaded { site: resolved.site, warnings: cx.warnings.into_sorted() })
        }
        _ => Err(cx.problems.into_errors(name).unwrap_or_else(|| {
            unreadable(name, "the policy cannot be used".to_owned(), "report this file: its error was lost")
        })),
    }
}

/// Reads the policy in `bytes`, which must be UTF-8.
///
/// # Errors
/// Returns the errors of [`load`], and the place of the first byte that is not UTF-8.
pub fn load_bytes(name: &str, bytes: &[u8]) -> Result<Loaded, Errors> {
    load(name, sound_text(name, bytes)?)
}

/// Reads the policy file at `path`, at most 16 MiB of it.
///
/// # Errors
/// Returns the errors of [`load_bytes`], and the system's error if the file cannot be read.
pub fn load_file(path: &Path) -> Result<Loaded, Errors> {
    let name = path.display().to_string();
    match read_bounded(path) {
        Ok(bytes) => load_bytes(&name, &bytes),
        Err(error) => Err(unreadable(&name, format!("cannot be read: {error}"), "")),
    }
}

/// Warns about every class that does not fit its pool, or that may find no worker in time.
pub fn warn_if_infeasible(resolved: &Resolved, cx: &mut Context) {
    let report = feasibility(&resolved.site);
    for pool in &report.pools {
        for demand in &pool.classes {
            let Some(what) = pool.overflow(demand) else { continue };
            let hint = "lower its throughput, add nodes, or expect every guarantee of the pool to shrink alike";
            let mark = resolved.class_marks.get(demand.class).copied().flatten();
            cx.warn(mark.unwrap_or(cx.here()), what, hint);
        }
    }
    for ShortOfWorkers { class, what } in short_of_workers(&resolved.site.policy) {
        let hint = "give the long requests an upstream of their own, or the pool more workers";
        let mark = resolved.class_marks.get(class).copied().flatten();
        cx.warn(mark.unwrap_or(cx.here()), what, hint);
    }
}
