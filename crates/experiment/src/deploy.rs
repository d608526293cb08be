//! The policy of an experiment as a policy file of its own, with which a real gateway is started.
//!
//! An experiment's nodes have invented addresses, and its policy may lack `listen` and the conditions of classes.
//! Here the policy gets the conditions, and the real addresses of nodes, clients and admin listener. Everything
//! else stays as it is written, so that the policy resolves to the same classes, guarantees and discipline, which a
//! test checks. Nodes keep their names and machines. A name taken from an address loses its colon, which no name
//! may have. Collectors query the nodes themselves, which report on their own ports.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use weirgate_engine as engine;
use weirgate_spanned_yaml::errors::{Errors, Position};
use weirgate_spanned_yaml::overrides::Override;
use weirgate_spanned_yaml::tree::{Entry, Node, Value};

use crate::file::DEFAULTS;
use crate::load::{LoadedExperiment, Written, load_with_policies};

/// Real addresses of the parts of a policy.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Address where clients connect.
    pub listen: SocketAddr,
    /// Address of the admin API: `IP:PORT` or `unix:/path`.
    pub admin: String,
    /// Number of threads that serve requests.
    pub threads: usize,
    /// The nodes with their real addresses, in the order of the policy. Their number may differ from that in
    /// the file.
    pub nodes: Vec<(engine::Node, SocketAddr)>,
}

/// The policies of an experiment, as policy files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// The policy that is in force at first.
    pub first: String,
    /// The policies of [`crate::Experiment::reloads`] in their order, with the discipline of the first one.
    pub reloads: Vec<String>,
}

/// Returns the policies of the experiment in the file at `path`, with `overrides` applied, as policy files
/// for `deployment`.
///
/// # Errors
/// Returns the errors of [`crate::load_experiment_file`].
pub fn deployed_policies(path: &Path, overrides: &[Override], deployment: &Deployment) -> Result<Deployed, Errors> {
    let (LoadedExperiment { experiment, .. }, Written { first, others }) = load_with_policies(path, overrides)?;
    let text = |policy: &Node| {
        let policy = deployed(policy, &experiment.site.policy.pools, deployment);
        let (file, name) = (path.display(), &experiment.name);
        let mut text = format!("# The policy of {file} (experiment {name}) at its real addresses.\n");
        text.push_str(&weirgate_spanned_yaml::print::yaml(&policy));
        text
    };
    let reloads = others.iter().map(|policy| text(&with_discipline_of(&first, policy))).collect();
    Ok(Deployed { first: text(&first), reloads })
}

/// Returns a policy's tree with the discipline of another policy.
fn with_discipline_of(first: &Node, policy: &Node) -> Node {
    let Value::Map(entries) = &policy.value else { return Node::new(policy.position, Value::Null) };
    let mut entries: Vec<Entry> = entries.iter().filter(|entry| &*entry.key != "discipline").cloned().collect();
    if let Some(discipline) = first.field("discipline") {
        entries.push(Entry { key: "discipline".into(), key_position: policy.position, node: Rc::clone(discipline) });
    }
    Node::new(policy.position, Value::Map(entries))
}

/// Returns the policy's tree with the real addresses.
fn deployed(policy: &Node, pools: &[engine::Pool], deployment: &Deployment) -> Node {
    let position = policy.position;
    let Value::Map(entries) = &policy.value else { return Node::new(position, Value::Null) };
    let mut entries = entries.clone();
    set(&mut entries, position, "listen", &deployment.listen.to_string());
    set(&mut entries, position, "admin", &deployment.admin);
    set(&mut entries, position, "threads", &deployment.threads.to_string());
    if let Some(classes) = entries.iter_mut().find(|entry| &*entry.key == "classes") {
        classes.node = with_conditions(&classes.node);
    }
    if let Some(upstreams) = entries.iter_mut().find(|entry| &*entry.key == "upstreams")
        && let Value::Map(written) = &upstreams.node.value
    {
        let mut written = written.clone();
        for upstream in &mut written {
            let pool = pools.iter().position(|pool| pool.name == *upstream.key);
            let here = deployment.nodes.iter().filter(|(node, _)| Some(node.pool) == pool);
            let nodes = here.map(|(node, address)| Rc::new(described(node, address, position))).collect();
            let Value::Map(fields) = &upstream.node.value else { continue };
            let mut fields = fields.clone();
            put(&mut fields, position, "nodes", Node::new(position, Value::List(nodes)));
            if let Some(collector) = fields.iter_mut().find(|entry| &*entry.key == "collector")
                && let Value::Map(written) = &collector.node.value
            {
                // Emulated nodes report on their own ports at the usual path.
                let mut written = written.clone();
                written.retain(|entry| &*entry.key != "path");
                set(&mut written, position, "port", "node");
                collector.node = Rc::new(Node::new(position, Value::Map(written)));
            }
            upstream.node = Rc::new(Node::new(position, Value::Map(fields)));
        }
        upstreams.node = Rc::new(Node::new(position, Value::Map(written)));
    }
    Node::new(position, Value::Map(entries))
}

/// Returns the classes with the conditions that an experiment lets them leave out.
fn with_conditions(classes: &Rc<Node>) -> Rc<Node> {
    let Value::List(items) = &classes.value else { return Rc::clone(classes) };
    let mut items = items.clone();
    let but_last = items.len().saturating_sub(1);
    for class in &mut items[..but_last] {
        let (position, [name, condition, per]) = (class.position, ["name", "match", "per"].map(|key| class.field(key)));
        let (Value::Map(fields), Some(name), None, None) = (&class.value, name, condition, per) else { continue };
        let (mut fields, mut condition, mut header) = (fields.clone(), Vec::new(), Vec::new());
        put(&mut header, position, DEFAULTS.class_header, Rc::clone(name));
        put(&mut condition, position, "header", Node::new(position, Value::Map(header)));
        put(&mut fields, position, "match", Node::new(position, Value::Map(condition)));
        *class = Rc::new(Node::new(position, Value::Map(fields)));
    }
    Rc::new(Node::new(classes.position, Value::List(items)))
}

/// Returns a node with its real address.
fn described(node: &engine::Node, address: &SocketAddr, position: Position) -> Node {
    let mut fields = Vec::new();
    set(&mut fields, position, "address", &address.to_string());
    set(&mut fields, position, "name", &name(&node.name));
    set(&mut fields, position, "machine", &name(&node.machine));
    set(&mut fields, position, "weight", &node.weight.to_string());
    if let Some(capacity) = node.capacity {
        set(&mut fields, position, "capacity", &capacity.to_string());
    }
    if let Some(max) = node.max_outstanding {
        set(&mut fields, position, "max_outstanding", &max.to_string());
    }
    Node::new(position, Value::Map(fields))
}

/// Turns a possible address into a name: `n1:80` becomes `n1-80`.
fn name(address: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let text: String = address.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    text.trim_start_matches(['-', '_', '.']).to_owned()
}

/// Sets the field `key` of `entries` to the text `value`.
fn set(entries: &mut Vec<Entry>, position: Position, key: &str, value: &str) {
    put(entries, position, key, Node::new(position, Value::Text(value.into())));
}

/// Sets the field `key` of `entries` to `node`.
fn put(entries: &mut Vec<Entry>, position: Position, key: &str, node: impl Into<Rc<Node>>) {
    let node = node.into();
    match entries.iter_mut().find(|entry| &*entry.key == key) {
        Some(entry) => entry.node = node,
        None => entries.push(Entry { key: key.into(), key_position: position, node }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load_experiment_file, under_discipline};

    fn experiments() -> Vec<std::path::PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let entries = std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("readable").path());
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect()
    }

    /// Every experiment's policy, once deployed, resolves to the same engine policy and rules at the new addresses.
    #[test]
    fn a_deployed_policy_means_the_same() {
        let files = experiments();
        assert!(files.len() > 10);
        for path in files {
            for overrides in [Vec::new(), vec![under_discipline("quorum")]] {
                let experiment = load_experiment_file(&path, &overrides).expect("it is sound").experiment;
                let count = u16::try_from(experiment.site.nodes.len()).expect("few");
                let addresses: Vec<SocketAddr> = (1..=count).map(|n| ([127, 0, 0, 1], 20_000 + n).into()).collect();
                let (listen, admin) = (([127, 0, 0, 1], 8080).into(), "unix:/run/x.sock".to_owned());
                let nodes = experiment.site.policy.nodes.iter().cloned().zip(addresses).collect();
                let deployment = Deployment { listen, admin, threads: 1, nodes };
                let texts = deployed_policies(&path, &overrides, &deployment).expect("it can be deployed");
                let load =
                    |text| weirgate_config::load("deployed", text).unwrap_or_else(|e| panic!("{e}\n{text}")).site;
                let meant = |policy: &engine::Policy| {
                    let mut policy = policy.clone();
                    for node in &mut policy.nodes {
                        (node.name, node.machine) = (name(&node.name), name(&node.machine));
                    }
                    policy
                };
                assert_eq!(texts.reloads.len(), experiment.reloads.len());
                for (text, reload) in texts.reloads.iter().zip(&experiment.reloads) {
                    assert_eq!(load(text).policy, meant(&reload.policy), "{}", path.display());
                }
                let site = load(&texts.first);
                assert_eq!(site.policy, meant(&experiment.site.policy), "{}", path.display());
                assert_eq!(format!("{:?}", site.rules), format!("{:?}", experiment.site.rules), "{}", path.display());
                let written: Vec<String> = site.nodes.iter().map(|node| node.address.clone()).collect();
                let wanted: Vec<String> = deployment.nodes.iter().map(|(_, a)| a.to_string()).collect();
                assert_eq!(written, wanted);
                assert_eq!((&site.listeners[0].name.address, site.threads), (&listen.into(), Some(1)));
            }
        }
    }

    #[test]
    fn collectors_ask_the_nodes_themselves() {
        let text = "policy:\n  upstreams:\n    web:\n      nodes: [n1:80]\n      collector: { path: /x, port: 9000, every: \
                    5s }\n    off: { nodes: [n2:80], collector: off }\n  classes: [{ name: all, upstream: \
                    web }]\ntraffic: [{ class: all, rate: 1/s, demand: 1ms }]\nphases: [{ name: all, until: 60s }]\n";
        let directory = std::env::temp_dir().join(format!("weirgate-deploy-{}", std::process::id()));
        std::fs::write(&directory, text).expect("it can be written");
        let experiment = load_experiment_file(&directory, &[]).expect("it is sound").experiment;
        let address = |n: u16| SocketAddr::from(([127, 0, 0, 1], 20_000 + n));
        let nodes = experiment.site.policy.nodes.iter().cloned().zip([address(1), address(2)]).collect();
        let deployment = Deployment { listen: address(0), admin: "off".to_owned(), threads: 1, nodes };
        let text = deployed_policies(&directory, &[], &deployment).expect("it can be deployed").first;
        std::fs::remove_file(&directory).expect("it is there");
        let pools = weirgate_config::load("deployed", &text).unwrap_or_else(|e| panic!("{e}\n{text}")).site.pools;
        let collector = pools[0].collector.as_ref().expect("it is asked");
        assert_eq!((collector.path.as_str(), collector.port, collector.every.as_secs()), ("/weirgate/report", None, 5));
        assert_eq!(pools[1].collector, None);
    }
}
