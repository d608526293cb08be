//! The address lists that conditions name. Each file is read once for a policy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use weirgate_spanned_yaml::decode::{Context, Mark};
use weirgate_spanned_yaml::errors::{Complaint, Position, Problem, Source, quoted};

use crate::address_list::{AddressList, MAX_NETWORKS, read_list};
use crate::site::Match;

/// The lists that were read.
pub(super) struct Lists {
    /// Where paths start from. `None` in a policy that describes a gateway elsewhere.
    folder: Option<PathBuf>,
    /// Lists by path. Errors in them have been reported.
    read: BTreeMap<String, Option<Arc<AddressList>>>,
    networks: usize,
}

impl Lists {
    pub(super) fn new(folder: Option<PathBuf>) -> Lists {
        Lists { folder, read: BTreeMap::new(), networks: 0 }
    }

    /// Returns the condition that a client is in the list at `path`, which the field at `mark` names. Errors are
    /// reported.
    pub(super) fn listed(&mut self, path: &str, mark: Mark, cx: &mut Context) -> Match {
        let list = match self.read.get(path) {
            Some(list) => list.clone(),
            None => {
                let list = self.read(path, mark, cx);
                self.networks += list.as_ref().map_or(0, |list| list.networks);
                self.read.insert(path.to_owned(), list.clone());
                list
            }
        };
        list.map_or(Match::Any, Match::Listed)
    }

    fn read(&self, path: &str, mark: Mark, cx: &mut Context) -> Option<Arc<AddressList>> {
        let Some(folder) = &self.folder else {
            let hint = "write the networks, such as `source: [10.0.0.0/8]`";
            cx.fail(mark, "an experiment's policy reads no address lists", hint);
            return None;
        };
        let file = folder.join(path);
        let bytes = match read_list(&file) {
            Ok(bytes) => bytes,
            Err(why) => {
                let what = format!("the address list {} cannot be read: {why}", quoted(&file.display().to_string()));
                cx.fail(mark, what, "its path counts from the folder of the policy");
                return None;
            }
        };
        match AddressList::parse(path, &bytes, MAX_NETWORKS.saturating_sub(self.networks)) {
            Ok(list) => Some(Arc::new(list)),
            Err(wrong) => {
                let source = cx.problems.add_source(Source::File(file.display().to_string()));
                for line in wrong {
                    let position = Some(Position { source, line: line.line, column: line.column });
                    let Complaint { what, hint } = line.complaint;
                    cx.problems.add(Problem { source: None, position, path: String::new(), what, hint });
                }
                None
            }
        }
    }
}
