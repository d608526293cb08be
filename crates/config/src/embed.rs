//! A policy inside another file, such as an experiment.
//!
//! The other file decodes a [`Policy`] where it holds one, asks it for the names that its own fields may mention, and
//! resolves it with the rest. All errors of both arrive in one list, in the order of the file.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use weirgate_spanned_yaml::decode::{Context, Decode, Mark};
use weirgate_spanned_yaml::tree::Node;

use crate::file::{self, NodeForm, PolicyFile, nodes};
pub use crate::file::{Token, elsewhere};
pub use crate::include::with_page_table;
pub use crate::load::{POLICY, warn_if_infeasible};
pub use crate::resolve::Resolved;

/// A policy as it is written.
#[derive(Clone, Debug)]
pub struct Policy(Box<PolicyFile>);

/// A class or template that a policy declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName {
    /// Its name; empty if it could not be read, which is reported.
    pub name: String,
    /// Whether it is a template, of which every key makes a class.
    pub template: bool,
}

/// A node that a policy declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// Its address, `HOST:PORT`.
    pub address: String,
    /// The machine it runs on; its address where the policy names none.
    pub machine: String,
    /// Its name, if the policy gives it one.
    pub name: Option<String>,
}

impl Policy {
    /// The classes and templates in the order of the file.
    #[must_use]
    pub fn classes(&self) -> Vec<ClassName> {
        let class = |class: &file::Class| ClassName {
            name: class.name.get().map_or_else(String::new, |name| name.0.clone()),
            template: class.per.given,
        };
        self.0.classes.get().map_or(&[][..], Vec::as_slice).iter().map(|at| class(&at.value)).collect()
    }

    /// Whether every class could be read, so that another name is certainly unknown.
    #[must_use]
    pub fn knows_all_classes(&self) -> bool {
        !self.0.classes.bad && self.0.classes.given
    }

    /// The nodes of all upstreams in the order of the file.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeName> {
        let upstreams = self.0.upstreams.get().map_or(&[][..], |upstreams| &upstreams.items);
        let named = upstreams.iter().filter_map(|upstream| upstream.value.get()).flat_map(nodes);
        let node = |form: &NodeForm| match form {
            NodeForm::Address(address) => {
                Some(NodeName { address: address.0.clone(), machine: address.0.clone(), name: None })
            }
            NodeForm::Full(node) => {
                let address = &node.address.get()?.0;
                let machine = node.machine.get().map_or(address, |name| &name.0);
                let name = node.name.get().map(|name| name.0.clone());
                Some(NodeName { address: address.clone(), machine: machine.clone(), name })
            }
        };
        named.filter_map(|at| node(&at.value)).collect()
    }

    /// Whether every node could be read.
    #[must_use]
    pub fn knows_all_nodes(&self) -> bool {
        !self.0.upstreams.bad && self.0.upstreams.given
    }

    /// Binds and checks everything. `None` if anything is wrong, which is reported in `cx`.
    pub fn resolve(&self, cx: &mut Context) -> Option<Resolved> {
        crate::resolve::resolve(&self.0, true, cx)
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

/// The value of `discipline`, as it is written.
#[derive(Clone, Debug)]
pub struct Discipline(file::Discipline);

impl Discipline {
    /// Reports what is wrong with it.
    pub fn check(&self, mark: Mark, cx: &mut Context) {
        crate::resolve::discipline(&self.0, mark, cx);
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
