//! Names that an experiment may use: classes, templates and machines of its policy.

use weirgate_config::Site;
use weirgate_config::embed::{ClassName, NodeName};
use weirgate_spanned_yaml::decode::{At, Context, Mark, OneOrMany};
use weirgate_spanned_yaml::errors::{listed, nearest, quoted, unknown};
use weirgate_spanned_yaml::unit::Text;

use crate::file::ExperimentFile;

/// The names defined by a policy.
pub(super) struct Names {
    /// Names of classes, in the order of the policy.
    pub(super) classes: Vec<String>,
    /// Names of templates, in the order of the policy.
    pub(super) templates: Vec<String>,
    /// Machines, in the order of first mention.
    pub(super) machines: Vec<MachineName>,
    /// Whether all names of classes and templates could be read, so that an unknown one really is unknown.
    pub(super) all_classes: bool,
    /// Whether all names of machines could be read.
    all_machines: bool,
}

pub(super) struct MachineName {
    pub(super) name: String,
    /// Names and addresses of its nodes. Addresses are listed with and without port.
    others: Vec<String>,
}

impl Names {
    /// Collects the names from the file as far as it could be read. `site` is the resolved policy, if it is valid.
    pub(super) fn of(file: &ExperimentFile, site: Option<&Site>) -> Names {
        let mut names = Names {
            classes: Vec::new(),
            templates: Vec::new(),
            machines: Vec::new(),
            all_classes: false,
            all_machines: false,
        };
        let Some(policy) = file.policy.get() else { return names };
        let policy = &policy.0;
        names.all_classes = policy.knows_all_classes();
        names.all_machines = policy.knows_all_nodes();
        for ClassName { name, template } in policy.classes() {
            let into = if template { &mut names.templates } else { &mut names.classes };
            into.push(name);
        }
        // The policy also has the classes of fallbacks, each before its own, and the class that is added if no other
        // class matches everything.
        if let Some(site) = site {
            names.classes = site.policy.classes.iter().map(|class| class.name.clone()).collect();
        }
        for NodeName { address, machine, name } in policy.nodes() {
            names.add(&machine, &address, name.as_deref());
        }
        names
    }

    fn add(&mut self, machine: &str, address: &str, name: Option<&str>) {
        let index = self.machine(machine).unwrap_or_else(|| {
            self.machines.push(MachineName { name: machine.to_owned(), others: Vec::new() });
            self.machines.len() - 1
        });
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        self.machines[index].others.extend([address, host].into_iter().chain(name).map(str::to_owned));
    }

    /// Returns the machine with exactly this name.
    pub(super) fn machine(&self, name: &str) -> Option<usize> {
        self.machines.iter().position(|machine| machine.name == name)
    }

    /// Returns the machines named by `words`, in order and without repetition. Unknown names are reported.
    pub(super) fn machines(&self, words: &OneOrMany<Text>, cx: &mut Context) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        for At { value: Text(word), mark, .. } in &words.0 {
            let fitting = self.fitting(word, *mark, cx);
            for machine in fitting {
                if !found.contains(&machine) {
                    found.push(machine);
                }
            }
        }
        found
    }

    /// Returns the machines that one word names.
    fn fitting(&self, word: &str, mark: Mark, cx: &mut Context) -> Vec<usize> {
        let of = |fits: &dyn Fn(&MachineName) -> bool| -> Vec<usize> {
            (0..self.machines.len()).filter(|&index| fits(&self.machines[index])).collect()
        };
        if word == "all" {
            return of(&|_| true);
        }
        if let Some(index) = self.machine(word) {
            return vec![index];
        }
        let several = word.strip_suffix('*');
        let found = match several {
            Some(start) => of(&|m| m.name.starts_with(start) || m.others.iter().any(|o| o.starts_with(start))),
            None => of(&|m| m.others.iter().any(|other| other == word)),
        };
        if found.is_empty() && self.all_machines {
            let known = || self.machines.iter().map(|machine| machine.name.as_str());
            let hint = match nearest(word, known()) {
                Some(near) => format!("did you mean {}?", quoted(near)),
                None => format!("the nodes of the policy run on {}", listed(known())),
            };
            cx.fail(mark, format!("machine {} is unknown", quoted(word)), hint);
        }
        if found.len() > 1 && several.is_none() {
            let names = listed(found.iter().map(|&index| self.machines[index].name.as_str()));
            let what = format!("{} may be one of {names}", quoted(word));
            cx.fail(mark, what, "write the machine's own name");
        }
        found
    }
}

/// Returns the index of `name` in `known`. An unknown name is reported if `known` is `complete`.
pub(super) fn index_of(
    what: &str,
    name: &str,
    known: &[String],
    complete: bool,
    mark: Mark,
    cx: &mut Context,
) -> Option<usize> {
    let found = known.iter().position(|other| other == name);
    if found.is_none() && complete {
        cx.report(mark, unknown(what, name, known.iter().map(String::as_str)));
    }
    found
}
