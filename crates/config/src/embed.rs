//! A policy inside another file, such as an experiment.
//!
//! The other file decodes a [`Policy`] in the field that holds one, gets the names from it that its own fields may
//! mention, and resolves it with the rest. The errors of both are in one list, in the order of the file.

use std::net::SocketAddr;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use weirgate_spanned_yaml::decode::{Context, Decode, Mark};
use weirgate_spanned_yaml::tree::Node;

use crate::file::{self, NodeForm, PolicyFile, nodes};
pub use crate::file::{Token, elsewhere};
pub use crate::include::with_page_table;
pub use crate::load::{POLICY, warn_if_infeasible};
pub use crate::resolve::Resolved;

/// A policy as written, decoded but not resolved.
#[derive(Clone, Debug)]
pub struct Policy(Box<PolicyFile>);

/// Values for parts of a policy that the other file lets it leave out.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Address where clients connect, without `listen`.
    pub listen: SocketAddr,
    /// Header, in lower case, that selects a class without `match` and `per` by its name. The last class has no such
    /// condition.
    pub class_header: &'static str,
}

/// A class or template that a policy declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName {
    /// Its name. Empty if the name could not be read, which was reported.
    pub name: String,
    /// Whether it is a template: a class for each key value.
    pub template: bool,
}

/// A node that a policy declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// Its address, `HOST:PORT`.
    pub address: String,
    /// The machine that it runs on, or its address if the policy names no machine.
    pub machine: String,
    /// Its name, if it has one.
    pub name: Option<String>,
}

impl Policy {
    /// Returns the classes and templates in the order of the file.
    pub fn classes(&self) -> Vec<ClassName> {
        let class = |class: &file::Class| ClassName {
            name: class.name.get().map_or_else(String::new, |name| name.0.clone()),
            template: class.per.given,
        };
        self.0.classes.get().map_or(&[][..], Vec::as_slice).iter().map(|at| class(&at.value)).collect()
    }

    /// Whether every class could be read. Any other class name is then certainly unknown.
    pub fn knows_all_classes(&self) -> bool {
        !self.0.classes.bad && self.0.classes.given
    }

    /// Returns the nodes of all upstreams in the order of the file.
    pub fn nodes(&self) -> Vec<NodeName> {
        let upstreams = self.0.upstreams.get().map_or(&[][..], |upstreams| &upstreams.items);
        let named = upstreams.iter().filter_map(|upstream| upstream.value.get()).flat_map(nodes);
        let node = |form: &NodeForm| match form {
            NodeForm::Text(address) => {
                Some(NodeName { address: address.0.clone(), machine: address.0.clone(), name: None })
            }
            NodeForm::Map(node) => {
                let address = &node.address.get()?.0;
                let machine = node.machine.get().map_or(address, |name| &name.0);
                let name = node.name.get().map(|name| name.0.clone());
                Some(NodeName { address: address.clone(), machine: machine.clone(), name })
            }
        };
        named.filter_map(|at| node(&at.value)).collect()
    }

    /// Whether every node could be read. Any other node name is then certainly unknown.
    pub fn knows_all_nodes(&self) -> bool {
        !self.0.upstreams.bad && self.0.upstreams.given
    }

    /// Binds all names and checks the policy, completed with `defaults`. Returns `None` after an error, which is
    /// reported in `cx`.
    pub fn resolve(&self, defaults: &Defaults, cx: &mut Context) -> Option<Resolved> {
        crate::resolve::resolve(&self.0, Path::new(""), Some(defaults), cx)
    }
}

impl Decode for Policy {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        PolicyFile::decode(node, cx).map(|file| Policy(Box::new(file)))
    }
}

impl JsonSchema for Policy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        PolicyFile::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PolicyFile::json_schema(generator)
    }
}

/// The value of `discipline`, as written.
#[derive(Clone, Debug)]
pub struct Discipline(file::Discipline);

impl Discipline {
    /// Reports its errors.
    pub fn check(&self, mark: Mark, cx: &mut Context) {
        crate::resolve::check_discipline(&self.0, mark, cx);
    }
}

impl Decode for Discipline {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        file::Discipline::decode(node, cx).map(Discipline)
    }
}

impl JsonSchema for Discipline {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        file::Discipline::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        file::Discipline::json_schema(generator)
    }
}
