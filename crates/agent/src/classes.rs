//! Classes of a node and their cgroups: their discovery, their usage and their shares.
//!
//! A class may have many groups, because containers come and go. Its share is divided evenly among the groups that have
//! processes, and its usage is the sum over all its groups. Every second the agent checks which groups exist and which
//! values their knobs have. A new group then gets its part of the share, and a knob changed by another program is set
//! again. Shares are relative to siblings, so the agent warns about classes with groups under different parents.
//!
//! Disk weights and memory protection follow the same shares if their knobs exist. If another program has set a memory
//! protection in bytes for a group, it is left unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use weirgate_reserves::spent;
use weirgate_reserves::{Cluster, ClusterClass};

use crate::record::Record;
use weirgate_cgroup::{self as cgroup, Cgroups, Counter, MAX_GROUPS, Pattern, Resource};

/// Maximum number of groups named in a line for people, and of lines about problems with the groups of one
/// class.
const MAX_NAMED: usize = 3;

pub(crate) struct Classes {
    cgroups: Box<dyn Cgroups>,
    record: Record,
    classes: Vec<Class>,
    /// Memory of the node, in bytes.
    memory: u64,
}

struct Class {
    name: String,
    /// `None` if the class is not on this node.
    pattern: Option<Pattern>,
    create: bool,
    groups: BTreeMap<String, Group>,
    /// CPU time used by all groups since the agent first saw each of them, in nanoseconds.
    spent: u64,
    /// Share in percent of the node. If it is `None`, no share has been given yet and nothing is set.
    share: Option<f64>,
}

struct Group {
    /// Counter of CPU time. `None` if it cannot be opened.
    counter: Option<Counter>,
    /// Last value of the counter, in nanoseconds.
    shown: u64,
    occupied: bool,
    /// Value of each knob. `None` if the group does not have that knob.
    knobs: Vec<Option<String>>,
}

struct Change {
    class: usize,
    group: String,
    knob: usize,
    file: PathBuf,
    text: String,
    /// Whether the new value is larger than the present one.
    grows: bool,
}

impl Classes {
    /// Finds the classes of node `node` of the policy, and sets nothing yet. Also returns the initial problems.
    ///
    /// # Errors
    /// A pattern is invalid.
    pub(crate) fn new(
        cluster: &Cluster,
        node: usize,
        cgroups: Box<dyn Cgroups>,
        record: Record,
        memory: u64,
    ) -> Result<(Classes, Vec<String>), String> {
        let class = |class: &ClusterClass| {
            let pattern = class.is_on(node).then(|| Pattern::new(&class.cgroup)).transpose();
            let pattern = pattern.map_err(|why| format!("class {}: {why}", class.name))?;
            Ok::<_, String>(Class {
                name: class.name.clone(),
                pattern,
                create: class.create,
                groups: BTreeMap::new(),
                spent: 0,
                share: None,
            })
        };
        let classes = cluster.classes.iter().map(class).collect::<Result<_, _>>()?;
        let mut classes = Classes { cgroups, record, classes, memory };
        let mut problems = classes.look();
        if classes.record.is_used() {
            // An earlier agent has set these shares. They stay in force, also for groups that appear later.
            let shares = classes.in_force();
            let there = classes.classes.iter_mut().zip(shares).filter(|(class, _)| !class.groups.is_empty());
            there.for_each(|(class, share)| class.share = Some(share));
            problems.extend(classes.settle());
        }
        Ok((classes, problems))
    }

    /// Finds the existing groups, creates those that are to be created, and corrects values. Returns the
    /// present problems, at most a few lines for each class.
    pub(crate) fn look(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        // A group belongs to the first class with a pattern that it matches.
        let mut owners: BTreeMap<String, usize> = BTreeMap::new();
        for index in 0..self.classes.len() {
            let mut own = Vec::new();
            let found = self.find(index, &mut own);
            let mut groups = BTreeMap::new();
            for name in found {
                if let Some(owner) = owners.get(&name).and_then(|&owner| self.classes.get(owner)) {
                    let class = &self.classes[index].name;
                    own.push(format!("class {class}: {name} belongs to class {} already", owner.name));
                    continue;
                }
                owners.insert(name.clone(), index);
                let group = self.seen(index, &name, &mut own);
                groups.insert(name, group);
            }
            self.classes[index].groups = groups;
            if own.len() > MAX_NAMED {
                own.truncate(MAX_NAMED);
                own.push(format!("class {}: more problems of this kind", self.classes[index].name));
            }
            problems.extend(own);
        }
        problems.extend(self.parents());
        problems.extend(self.settle());
        problems
    }

    /// Returns the existing groups of a class.
    fn find(&mut self, index: usize, problems: &mut Vec<String>) -> Vec<String> {
        let Class { name, pattern: Some(pattern), create, .. } = &self.classes[index] else { return Vec::new() };
        let found = match cgroup::find(&*self.cgroups, pattern) {
            Ok(found) => found,
            Err(why) => {
                problems.push(format!("class {name}: {why}"));
                return Vec::new();
            }
        };
        if found.len() == MAX_GROUPS {
            problems.push(format!("class {name}: only the first {MAX_GROUPS} groups of {} count", pattern.text()));
        }
        if *create {
            let missing = cgroup::missing(&*self.cgroups, pattern.text());
            missing.iter().for_each(|directory| self.record.makes(directory));
            let made = self
                .record
                .save()
                .and_then(|()| missing.iter().try_for_each(|directory| cgroup::create(&*self.cgroups, directory)));
            return match made {
                Ok(()) => vec![pattern.text().to_owned()],
                Err(why) => {
                    problems.push(format!("class {name}: {why}"));
                    Vec::new()
                }
            };
        }
        if found.is_empty() {
            let tree = self.cgroups.trees().first().map_or(String::new(), |tree| tree.display().to_string());
            problems.push(format!(
                "class {name}: no group {} in {tree} yet; it has no share until one appears (checked every second)",
                pattern.text()
            ));
        }
        found
    }

    /// Returns the present state of a group.
    fn seen(&mut self, class: usize, name: &str, problems: &mut Vec<String>) -> Group {
        let known = self.classes[class].groups.remove(name);
        let knobs: Vec<Option<String>> =
            self.cgroups.knobs().iter().map(|(knob, tree)| cgroup::read(&tree.join(name).join(knob.file))).collect();
        if knobs.first().is_none_or(Option::is_none) {
            problems.push(format!("class {}: {}", self.classes[class].name, self.cgroups.why_no_share(name)));
        }
        // A recreated group has a new counter, and the known value belongs to the old one.
        let (counter, shown) = match known {
            Some(Group { counter: Some(counter), shown, .. }) if counter.read().is_some() => (Some(counter), shown),
            known => {
                let counter = self.cgroups.counter(name);
                if let Err(why) = &counter {
                    problems.push(format!("class {}: its CPU time is not known: {why}", self.classes[class].name));
                }
                let counter = counter.ok();
                let now = counter.as_ref().and_then(Counter::read).unwrap_or(0);
                (counter, known.map_or(now, |known| known.shown))
            }
        };
        Group { counter, shown, occupied: self.cgroups.is_occupied(name), knobs }
    }

    /// Returns a warning about groups that are not siblings.
    fn parents(&self) -> Option<String> {
        let mut parents: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for class in &self.classes {
            for name in class.groups.keys() {
                let parent = name.rsplit_once('/').map_or("the root", |(parent, _)| parent);
                parents.entry(parent).or_default().insert(&class.name);
            }
        }
        let named = |(parent, classes): (&&str, &BTreeSet<&str>)| {
            format!("{parent} ({})", classes.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", "))
        };
        (parents.len() > 1).then(|| {
            let shown: Vec<String> = parents.iter().take(MAX_NAMED).map(named).collect();
            format!(
                "the classes' groups have {} different parents, among them {}: the kernel divides CPU time among \
                 siblings, so these shares do not hold; put all groups under one parent",
                parents.len(),
                shown.join(", ")
            )
        })
    }

    /// Returns the CPU time of each class since the agent started, in nanoseconds.
    pub(crate) fn counters(&mut self) -> Vec<u64> {
        for class in &mut self.classes {
            for group in class.groups.values_mut() {
                // The counter of a removed group cannot be read. The next check removes the group.
                if let Some(shows) = group.counter.as_ref().and_then(Counter::read) {
                    class.spent = class.spent.saturating_add(spent(group.shown, shows));
                    group.shown = shows;
                }
            }
        }
        self.classes.iter().map(|class| class.spent).collect()
    }

    /// Returns the shares in force: the values in the cgroups, in percent of the sum over all classes. A
    /// class without a group has a share of zero.
    pub(crate) fn in_force(&self) -> Vec<f64> {
        let weight = |class: &Class| -> f64 {
            let count = |group: &&Group| group.occupied || class.groups.values().all(|group| !group.occupied);
            let cpu = self.cgroups.knobs().first();
            let percent = |group: &Group| cpu?.0.percent(group.knobs.first()?.as_deref()?);
            class.groups.values().filter(count).filter_map(percent).sum()
        };
        let weights: Vec<f64> = self.classes.iter().map(weight).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| if sum > 0.0 { 100.0 * weight / sum } else { 0.0 }).collect()
    }

    /// Puts shares in force, in percent of the node and one for each class. Returns the problems.
    pub(crate) fn set(&mut self, shares: &[f64]) -> Vec<String> {
        self.classes.iter_mut().zip(shares).for_each(|(class, &share)| class.share = Some(share));
        self.settle()
    }

    /// Whether every group has its intended share of CPU time.
    pub(crate) fn is_as_told(&self) -> bool {
        let mut groups =
            self.classes.iter().filter(|class| class.share.is_some()).flat_map(|class| class.groups.values());
        // The first knob is the one for CPU time.
        groups.all(|group| group.knobs.first().is_some_and(Option::is_some))
            && self.changes().iter().all(|change| change.knob != 0)
    }

    /// Sets every knob that does not have its intended value.
    fn settle(&mut self) -> Vec<String> {
        let changes = self.changes();
        for change in &changes {
            let stood = self.classes[change.class].groups.get(&change.group);
            if let Some(Some(text)) = stood.and_then(|group| group.knobs.get(change.knob)) {
                self.record.remember(&change.file, text);
            }
        }
        if let Err(why) = self.record.save() {
            return vec![why];
        }
        let mut problems = BTreeMap::new();
        for Change { class, group, knob, file, text, .. } in changes {
            match cgroup::write(&file, &text) {
                Ok(there) => {
                    let group = self.classes[class].groups.get_mut(&group);
                    if let Some(stands) = group.and_then(|group| group.knobs.get_mut(knob)) {
                        *stands = there.then_some(text);
                    }
                }
                // One line for each class, because its other groups have the same problem.
                Err(why) => _ = problems.entry(class).or_insert(why),
            }
        }
        problems.into_iter().map(|(class, why)| format!("class {}: {why}", self.classes[class].name)).collect()
    }

    fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (index, class) in self.classes.iter().enumerate() {
            let Some(share) = class.share else { continue };
            let occupied = class.groups.values().filter(|group| group.occupied).count();
            let part = share / if occupied == 0 { class.groups.len() } else { occupied } as f64;
            for (name, group) in &class.groups {
                for (at, ((knob, tree), stands)) in self.cgroups.knobs().iter().zip(&group.knobs).enumerate() {
                    let Some(stands) = stands else { continue };
                    let (file, text) = (tree.join(name).join(knob.file), knob.text(part, self.memory));
                    if *stands != text && !(knob.resource == Resource::Memory && self.is_anothers(&file, stands)) {
                        let grows = knob.percent(&text) > knob.percent(stands);
                        changes.push(Change { class: index, group: name.clone(), knob: at, file, text, grows });
                    }
                }
            }
        }
        // Decreases come first, so that a node never promises more than it has, even if the agent ends halfway.
        changes.sort_by_key(|change| change.grows);
        changes
    }

    /// Whether another program has protected this group's memory. `stands` is the present value of the knob.
    fn is_anothers(&self, file: &Path, stands: &str) -> bool {
        self.record.before(file).unwrap_or(stands) != "0"
    }

    /// Returns the number of classes, including those of other nodes.
    pub(crate) fn len(&self) -> usize {
        self.classes.len()
    }

    /// Returns a line for people about each class and its groups.
    pub(crate) fn summary(&self) -> Vec<String> {
        let line = |class: &Class| {
            let names: Vec<&str> = class.groups.keys().take(MAX_NAMED).map(String::as_str).collect();
            match (&class.pattern, class.groups.len()) {
                (None, _) => format!("class {} is not on this node", class.name),
                (Some(_), 0) => format!("class {}: no group yet", class.name),
                (Some(_), more) if more > names.len() => {
                    format!("class {}: {} and {} more", class.name, names.join(", "), more - names.len())
                }
                _ => format!("class {}: {}", class.name, names.join(", ")),
            }
        };
        self.classes.iter().map(line).collect()
    }

    /// Restores the previous values. Returns a line about each value that could not be restored.
    pub(crate) fn restore(self) -> Vec<String> {
        self.record.restore(&*self.cgroups)
    }
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
