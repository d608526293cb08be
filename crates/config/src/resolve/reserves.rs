//! Cluster Reserves: nodes, classes, and whether the guaranteed shares are feasible.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weirgate_listening::FileAccess;
use weirgate_reserves::{Cluster, ClusterClass};
use weirgate_spanned_yaml::decode::{Context, Mark, Optional, Switch};
use weirgate_spanned_yaml::errors::{quoted, unknown};
use weirgate_spanned_yaml::unit::{Name, Text, number_text};

use super::gateway::{guarded, hosts};
use crate::file::{ListenAddress, PolicyFile, ReserveClassForm, Reserves as Form, socket_path};
use crate::site::{Admin, Listener, Reserves};

/// Maximum number of nodes. One coordinator solves for this many within seconds (design: 1000 × 50), and the
/// paper has up to 32.
const MAX_NODES: usize = 1_000;

/// Maximum number of classes. Each has at least 1 % of each of its nodes, so more would not fit on one node.
const MAX_CLASSES: usize = 100;

/// Shortest and longest time between two periodic runs. Use is measured over a quarter of a second, so there
/// is nothing new earlier, and a period of more than an hour is of no use.
const EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(3_600));

/// Tolerance for a sum of percentages above 100, which covers the rounding error of ten shares of 10 %.
const ROUNDING: f64 = 1e-9;

pub(super) fn reserves(
    file: &PolicyFile,
    listeners: &[Listener],
    admin: Option<&Admin>,
    trusted: bool,
    cx: &mut Context,
) -> Option<Reserves> {
    let form = file.reserves.get()?;
    let nodes = nodes(form, cx);
    let classes = classes(form, &nodes, cx);
    let listen = form.listen.get().0;
    let place = if form.listen.given { form.listen.mark } else { file.reserves.mark };
    let taken = listeners.iter().any(|l| l.name.address.tcp() == Some(listen));
    if listen.port() != 0 && (taken || admin.is_some_and(|admin| admin.address.tcp() == Some(listen))) {
        let what = format!("the gateway of this policy listens on `{listen}` already");
        cx.fail(place, what, "give the coordinator an address of its own");
    }
    guarded(listen, "speak for nodes", trusted, place, cx);
    let coordinator = match form.coordinator.get() {
        Some(address) => {
            if socket_path(&address.0).is_some() {
                let hint = "write `HOST:PORT`";
                cx.fail(form.coordinator.mark, "agents do not connect over a Unix socket", hint);
            }
            address.0.clone()
        }
        None => {
            if listen.ip().is_unspecified() && !form.coordinator.bad {
                let what = format!("agents cannot find a coordinator at `{listen}`, which is every address");
                cx.fail(place, what, format!("add `coordinator: HOST:{}`", listen.port()));
            }
            listen.to_string()
        }
    };
    let every = form.every.get().on().map(|span| span.0);
    if every.is_some_and(|every| !(EVERY.0..=EVERY.1).contains(&every)) {
        cx.fail(form.every.mark, "this is out of range", "write a time from 250 ms to 1 h");
    }
    let on_demand = form.on_demand.get().0;
    if every.is_none() && !on_demand {
        let what = "shares would never be found anew";
        cx.fail(form.every.mark, what, "give `every:` a time, or leave out `on_demand: false`");
    }
    let admin = page(form, listen, trusted, cx);
    Some(Reserves { listen, admin, every, on_demand, cluster: Cluster { coordinator, nodes, classes } })
}

fn nodes(form: &Form, cx: &mut Context) -> Vec<String> {
    let list = form.nodes.get().map_or(&[][..], Vec::as_slice);
    let mut names: BTreeMap<&str, Mark> = BTreeMap::new();
    for item in list {
        let Name(name) = &item.value;
        if let Some(first) = names.insert(name, item.mark) {
            let what = format!("the name {} is taken by the node in line {}", quoted(name), cx.position(first).line);
            cx.fail(item.mark, what, "give each node its own name");
        }
    }
    if list.len() > MAX_NODES {
        let what = format!("{} nodes are too many for one coordinator", list.len());
        cx.fail(form.nodes.mark, what, format!("list at most {MAX_NODES}, and divide the cluster"));
    }
    list.iter().map(|item| item.value.0.clone()).collect()
}

fn classes(form: &Form, nodes: &[String], cx: &mut Context) -> Vec<ClusterClass> {
    let list = form.classes.get().map_or(&[][..], Vec::as_slice);
    let mut classes: Vec<ClusterClass> = Vec::with_capacity(list.len());
    let mut marks: Vec<Mark> = Vec::with_capacity(list.len());
    for item in list {
        let class = &item.value;
        let (Some(name), Some(share), Some(cgroup)) = (class.name.get(), class.share.get(), class.cgroup.get()) else {
            continue;
        };
        let class = ClusterClass {
            name: name.0.clone(),
            share: share.0 * 100.0,
            cgroup: cgroup.0.clone(),
            create: class.create.get().0,
            nodes: placed(class, form.nodes.bad, nodes, cx),
        };
        let form = &item.value;
        if let Some(first) = classes.iter().position(|earlier| earlier.name == class.name) {
            let line = cx.position(marks[first]).line;
            let what = format!("the name {} is taken by the class in line {line}", quoted(&class.name));
            cx.fail(form.name.mark, what, "give each class its own name");
        }
        if class.create && class.cgroup.contains('*') {
            let what = format!("a cgroup cannot be made by the name {}", quoted(&class.cgroup));
            cx.fail(form.cgroup.mark, what, "write its path without `*`, or leave out `create`");
        }
        if let Some(other) = classes.iter().find(|other| together(other, &class) && within(other, &class)) {
            let what =
                format!("{} and the cgroup of class {} lie in each other", quoted(&class.cgroup), quoted(&other.name));
            cx.fail(form.cgroup.mark, what, "shares are of one node: give each class a cgroup beside the others");
        }
        let max = class.nodes.as_ref().map_or(100.0, |on| 100.0 * on.len() as f64 / nodes.len().max(1) as f64);
        if class.share > max + ROUNDING && !form.nodes.bad {
            let (has, promised) = (number_text(max), number_text(class.share));
            let what = format!("{promised} % of the cluster are promised on nodes that are {has} % of it");
            cx.fail(form.share.mark, what, "promise less, or let it have more nodes");
        }
        classes.push(class);
        marks.push(item.mark);
    }
    if list.len() > MAX_CLASSES {
        let what = format!("{} classes do not fit a node: each has at least 1 % of it", list.len());
        cx.fail(form.classes.mark, what, format!("list at most {MAX_CLASSES}"));
    }
    let sum: f64 = classes.iter().map(|class| class.share).sum();
    if sum > 100.0 + ROUNDING {
        let what = format!("the shares sum to {} %, and the cluster has 100 %", number_text(sum));
        let hint = format!("take {} points away", number_text(sum - 100.0));
        cx.fail(form.classes.mark, what, hint);
    }
    classes
}

/// Returns the nodes that a class names. `None` means all of them.
fn placed(class: &ReserveClassForm, unsure: bool, nodes: &[String], cx: &mut Context) -> Option<Vec<usize>> {
    let named = class.nodes.get()?;
    let mut on = Vec::with_capacity(named.0.len());
    for item in &named.0 {
        let Name(name) = &item.value;
        match nodes.iter().position(|node| node == name) {
            Some(index) if on.contains(&index) => {
                let what = format!("node {} is listed twice", quoted(name));
                cx.fail(item.mark, what, "keep one of them");
            }
            Some(index) => on.push(index),
            None if unsure => {}
            None => cx.report(item.mark, unknown("node ", name, nodes.iter().map(String::as_str))),
        }
    }
    on.sort_unstable();
    Some(on)
}

/// Whether some node has both classes.
fn together(a: &ClusterClass, b: &ClusterClass) -> bool {
    match (&a.nodes, &b.nodes) {
        (Some(a), Some(b)) => a.iter().any(|node| b.contains(node)),
        _ => true,
    }
}

/// Whether one cgroup is the other or inside it, as far as paths without `*` tell.
fn within(a: &ClusterClass, b: &ClusterClass) -> bool {
    a.cgroup.split('/').zip(b.cgroup.split('/')).all(|(a, b)| a == b)
}

fn page(form: &Form, listen: std::net::SocketAddr, trusted: bool, cx: &mut Context) -> Option<Admin> {
    let token_file = token_file(&form.admin_token_file, cx);
    let Switch::On(ListenAddress(address)) = form.admin.get() else { return None };
    if let Some(address) = address.tcp() {
        guarded(address, "reach the coordinator's page", trusted, form.admin.mark, cx);
        if address.port() != 0 && address == listen {
            let what = format!("agents connect to `{address}` already");
            cx.fail(form.admin.mark, what, "give the page an address of its own");
        }
    }
    let hosts = hosts(&form.admin_hosts, cx);
    Some(Admin { address: address.clone(), file: FileAccess::OWNER, token_file, hosts })
}

/// Returns the path of a token's file.
fn token_file(field: &Optional<Text>, cx: &mut Context) -> Option<PathBuf> {
    let path = Path::new(&field.get()?.0);
    if path.as_os_str().is_empty() {
        cx.fail(field.mark, "this is no file", "write the path of the token's file");
    }
    Some(path.to_owned())
}
