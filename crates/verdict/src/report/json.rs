//! Verdicts for programs.

use crate::judge::Verdict;

/// The JSON of the verdicts: one is an object, several are a list. Ends with a line break.
pub fn text(verdicts: &[&Verdict]) -> String {
    let json = match verdicts {
        [one] => serde_json::to_string_pretty(one),
        all => serde_json::to_string_pretty(all),
    };
    // Numbers, texts and lists always have a JSON form. Values that are not numbers become null.
    json.unwrap_or_else(|error| format!("{{\"error\": {:?}}}", error.to_string())) + "\n"
}
