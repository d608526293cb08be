//! Nodes and the tokens of their agents.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use weirgate_config::Reserves;
use weirgate_wire::Token;

/// Tokens of the nodes, read once.
#[derive(Debug)]
pub(crate) struct Agents {
    nodes: BTreeMap<String, usize>,
    tokens: Vec<Option<Arc<Token>>>,
}

impl Agents {
    /// Reads all tokens.
    ///
    /// # Errors
    /// A token cannot be read or is too weak, or a node has no token and the listener is open to other
    /// machines.
    pub(crate) fn of(reserves: &Reserves) -> io::Result<Agents> {
        let mut read: BTreeMap<&Path, Arc<Token>> = BTreeMap::new();
        let mut tokens = Vec::with_capacity(reserves.cluster.nodes.len());
        for (index, node) in reserves.cluster.nodes.iter().enumerate() {
            let Some(path) = reserves.cluster.token_of(index) else {
                if !reserves.listen.ip().to_canonical().is_loopback() {
                    let (address, name) = (reserves.listen, &node.name);
                    let why = format!(
                        "anyone who reaches {address} could speak for node {name}, which has no token: give it \
                         `token_file`"
                    );
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                tokens.push(None);
                continue;
            };
            if !read.contains_key(path)
                && let Some(token) = Token::find("reserves", Some(path), None)?
            {
                read.insert(path, Arc::new(token));
            }
            tokens.push(read.get(path).map(Arc::clone));
        }
        let nodes = reserves.cluster.nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect();
        Ok(Agents { nodes, tokens })
    }

    pub(crate) fn node(&self, name: &str) -> Option<usize> {
        self.nodes.get(name).copied()
    }

    /// Returns the token that the agent of `node` must have.
    pub(crate) fn token(&self, node: usize) -> Option<&Token> {
        self.tokens.get(node).and_then(Option::as_deref)
    }

    /// Returns the number of nodes with agents that need no token.
    pub(crate) fn without_token(&self) -> usize {
        self.tokens.iter().filter(|token| token.is_none()).count()
    }
}
