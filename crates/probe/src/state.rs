//! Results of a probe so far, saved next to its output so that an interrupted probe can be continued.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weirgate_files::{ORDINARY, replace_durably};

use crate::capacity::Peak;
use crate::frontier::Frontier;
use crate::sample::Series;

/// Version of the file format.
const VERSION: u32 = 2;

/// Maximum size of the file, in bytes. Thousands of pages take a megabyte.
const MAX_BYTES: u64 = 64 << 20;

/// Results of a probe so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// The home page and the node.
    probed: String,
    /// Pages still to be visited.
    pub frontier: Frontier,
    /// Whether the crawl is complete.
    pub is_crawled: bool,
    /// Pages that were visited and answered, in that order.
    pub pages: Vec<String>,
    /// Cost measurements of the pages.
    pub profiles: Vec<Profile>,
    /// Maximum uses achieved on the server.
    pub peaks: Vec<Peak>,
    /// Pages without a cost, with the reasons.
    pub left_out: Vec<(String, String)>,
}

/// Cost measurements of a page, in the agent's units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Path and query of the page.
    pub target: String,
    /// Measured use by its requests.
    pub series: Series,
    /// Whether the second look is complete.
    pub is_confirmed: bool,
}

impl State {
    /// Creates the state of a new probe.
    pub fn new(home: &str, node: &str) -> State {
        State { version: VERSION, probed: format!("{home} on {node}"), ..State::default() }
    }

    /// Reads the state from a file.
    ///
    /// # Errors
    /// There is no file, or it belongs to another probe.
    pub fn load(path: &Path, home: &str, node: &str) -> Result<State, String> {
        let shown = path.display();
        let length = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.len();
        if length > MAX_BYTES {
            return Err(format!("{shown} is longer than {} MiB: it is not the state of a probe", MAX_BYTES >> 20));
        }
        let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        let state: State = serde_json::from_str(&text)
            .map_err(|error| format!("{shown} is not the state of a probe ({error}); --force starts again"))?;
        let expected = State::new(home, node);
        if state.version != expected.version || state.probed != expected.probed {
            return Err(format!(
                "{shown} is from a probe of {}, not of {}; --force starts again",
                state.probed, expected.probed
            ));
        }
        Ok(state)
    }

    /// Writes the state to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        replace_durably(path, ORDINARY, text.as_bytes()).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// Returns the path of the state file for the probe with this output.
pub fn state_beside(output: &Path) -> PathBuf {
    output.with_added_extension("state")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Batch;

    #[test]
    fn a_state_is_of_one_probe() {
        let directory = std::env::temp_dir().join(format!("weirgate-probe-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let path = state_beside(&directory.join("pages.yaml"));
        assert!(path.ends_with("pages.yaml.state"));
        let mut state = State::new("http://a.test/", "10.0.0.1:80");
        state.pages.push("/a".to_owned());
        let mut series = Series::default();
        for at_once in [1, 2, 1, 2] {
            series.add(vec![Batch { at_once, requests: 4, used: [0.1, 0.0, 5e3] }]);
        }
        let profile = Profile { target: "/a".to_owned(), series, is_confirmed: true };
        state.profiles.push(profile.clone());
        state.save(&path).expect("it is written");
        let again = State::load(&path, "http://a.test/", "10.0.0.1:80").expect("it is read");
        assert_eq!((again.pages, again.profiles), (vec!["/a".to_owned()], vec![profile]));
        let error = State::load(&path, "http://b.test/", "10.0.0.1:80").expect_err("another");
        assert!(
            error.contains("from a probe of http://a.test/ on 10.0.0.1:80") && error.contains("--force"),
            "{error}"
        );
        fs::write(&path, "{").expect("it is writable");
        assert!(State::load(&path, "http://a.test/", "10.0.0.1:80").expect_err("cut").contains("not the state"));
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1, "nothing else is left");
        fs::remove_dir_all(&directory).expect("it can be removed");
    }
}
