//! Cases for the optimiser of Cluster Reserves: the JSON that `weirgate reserves solve` reads.
//!
//! A case has the symbols of the paper (Sec. 3), in percent: `D` per class, `u` and, if `sink` is missing, `r`
//! per node and class, `up` per node (all nodes, by default) and a `name`. `N` and `S` are checked if they are
//! present, and other fields are skipped. A file is one case, a list of cases, or an object with a list `cases`.
//!
//! An invalid case is reported with its name and the place in it, and the others are still read. Python writes
//! `NaN` and `Infinity`, which are not valid JSON. They are read, so that the error can be reported with its place.

use serde_json::{Map, Value};

/// Longest file that is read. A thousand nodes with fifty classes take two megabytes.
pub const MAX_CASE_BYTES: usize = 64 * 1024 * 1024;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservesCase {
    /// For each class its guaranteed share, in percent of the cluster.
    pub desired: Vec<f64>,
    /// For each node whether it is up.
    pub up: Vec<bool>,
    /// For each node and class the share in force, in percent of the node, if given.
    pub allocation: Option<Vec<Vec<f64>>>,
    /// For each node and class the use, in percent of the node.
    pub usage: Vec<Vec<f64>>,
    /// For each node and class whether it could use more, if given.
    pub sink: Option<Vec<Vec<bool>>>,
}

/// The name of a case, and the case or its error.
pub type NamedReservesCase = (String, Result<ReservesCase, String>);

/// Reads a file of cases.
///
/// # Errors
/// Returns an error if it is not JSON or has no cases. The message begins with line and column.
pub fn parse_reserves_cases(bytes: &[u8]) -> Result<Vec<NamedReservesCase>, String> {
    if bytes.len() > MAX_CASE_BYTES {
        return Err(format!("1:1: the file has {} bytes; at most {MAX_CASE_BYTES} are read", bytes.len()));
    }
    let text = str::from_utf8(bytes).map_err(|error| format!("1:1: this is not UTF-8: {error}"))?;
    let whole: Value = serde_json::from_str(&with_quoted_figures(text))
        .map_err(|error| format!("{}:{}: this is not JSON: {error}", error.line(), error.column()))?;
    let cases = match whole {
        Value::Array(cases) => cases,
        Value::Object(mut object) => match object.remove("cases") {
            Some(Value::Array(cases)) => cases,
            Some(_) => return Err("1:1: `cases` is not a list; write a list of cases".to_owned()),
            None => vec![Value::Object(object)],
        },
        _ => return Err("1:1: write one case, a list of cases, or an object with a list `cases`".to_owned()),
    };
    Ok(cases.into_iter().enumerate().map(|(index, case)| named(index, &case)).collect())
}

/// Quotes numbers that are not valid JSON, except within texts.
fn with_quoted_figures(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, part) in text.split('"').enumerate() {
        if index > 0 {
            out.push('"');
        }
        // Every second part is a text. An escaped quote in a text shifts the parts, which only affects files
        // with such numbers.
        if index % 2 == 0 {
            out += &part.replace("-Infinity", "\"-inf\"").replace("Infinity", "\"inf\"").replace("NaN", "\"NaN\"");
        } else {
            out += part;
        }
    }
    out
}

fn named(index: usize, case: &Value) -> NamedReservesCase {
    let name = case.get("name").and_then(Value::as_str).map_or_else(|| format!("case {}", index + 1), str::to_owned);
    let Value::Object(case) = case else {
        return (name, Err("this is not an object; write `D`, `u` and `r` or `sink`".to_owned()));
    };
    (name, parse_case(case))
}

fn parse_case(case: &Map<String, Value>) -> Result<ReservesCase, String> {
    let given = |key: &str| case.get(key).filter(|value| !value.is_null());
    let needed = |key: &str, what: &str| given(key).ok_or_else(|| format!("`{key}` is missing: {what}"));
    let desired = list("D", needed("D", "what each class is promised, in percent of the cluster")?, figure)?;
    let usage = matrix("u", needed("u", "what each class used on each node, in percent")?, figure)?;
    let (nodes, classes) = (usage.len(), desired.len());
    let allocation = given("r").map(|value| matrix("r", value, figure)).transpose()?;
    let sink = given("sink").map(|value| matrix("sink", value, flag)).transpose()?;
    if allocation.is_none() && sink.is_none() {
        return Err("`r` and `sink` are missing: give the shares in force, or say who could use more".to_owned());
    }
    let up = given("up").map(|value| list("up", value, flag)).transpose()?.unwrap_or_else(|| vec![true; nodes]);
    for (key, wanted) in [("N", up.iter().filter(|up| **up).count()), ("S", classes)] {
        // `N` counts either all nodes or only those that are up.
        let counts = |found: f64| found == wanted as f64 || key == "N" && found == nodes as f64;
        if let Some(value) = given(key)
            && !value.as_f64().is_some_and(counts)
        {
            return Err(format!("`{key}` is {value}, and there are {wanted}"));
        }
    }
    let rows =
        [("r", allocation.as_deref().map(shape)), ("u", Some(shape(&usage))), ("sink", sink.as_deref().map(shape))];
    for (key, shape) in rows.into_iter().filter_map(|(key, shape)| Some((key, shape?))) {
        if shape.len() != nodes {
            return Err(format!("`{key}` has {} rows and `u` {nodes}; give one for each node", shape.len()));
        }
        if let Some((node, found)) = shape.into_iter().enumerate().find(|(_, found)| *found != classes) {
            return Err(format!("{key}[{node}] has {found} figures; give one for each of the {classes} classes"));
        }
    }
    if up.len() != nodes {
        return Err(format!("`up` has {} entries; give one for each of the {nodes} nodes", up.len()));
    }
    Ok(ReservesCase { desired, up, allocation, usage, sink })
}

fn shape<T>(matrix: &[Vec<T>]) -> Vec<usize> {
    matrix.iter().map(Vec::len).collect()
}

fn matrix<T>(key: &str, value: &Value, entry: Entry<T>) -> Result<Vec<Vec<T>>, String> {
    let rows = value.as_array().ok_or_else(|| format!("`{key}` is not a list; write a row for each node"))?;
    rows.iter().enumerate().map(|(node, row)| list(&format!("{key}[{node}]"), row, entry)).collect()
}

fn list<T>(place: &str, value: &Value, entry: Entry<T>) -> Result<Vec<T>, String> {
    let entries = value.as_array().ok_or_else(|| format!("`{place}` is {value}; write a list"))?;
    entries
        .iter()
        .enumerate()
        .map(|(index, value)| entry(value).map_err(|why| format!("{place}[{index}] {why}")))
        .collect()
}

/// Reads an entry, or returns its error.
type Entry<T> = fn(&Value) -> Result<T, String>;

fn figure(value: &Value) -> Result<f64, String> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number| number.is_finite());
    match number {
        Some(number) if number >= 0.0 => Ok(number),
        _ => {
            Err(format!("is {}; write a percentage from 0 on", value.as_str().map_or(value.to_string(), str::to_owned)))
        }
    }
}

fn flag(value: &Value) -> Result<bool, String> {
    match (value.as_bool(), value.as_f64()) {
        (Some(flag), _) => Ok(flag),
        (None, Some(number)) if number == 0.0 || number == 1.0 => Ok(number == 1.0),
        _ => Err(format!("is {value}; write true or false, or 1 or 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_alone_in_a_list_and_in_an_object_is_the_same() {
        let case =
            r#"{"name": "a", "D": [60, 40], "u": [[1, 2], [3, 4]], "r": [[50, 50], [50, 50]], "up": [1, false]}"#;
        let want = ReservesCase {
            desired: vec![60.0, 40.0],
            up: vec![true, false],
            allocation: Some(vec![vec![50.0; 2]; 2]),
            usage: vec![vec![1.0, 2.0], vec![3.0, 4.0]],
            sink: None,
        };
        for text in [case.to_owned(), format!("[{case}]"), format!("{{\"cases\": [{case}], \"more\": 1}}")] {
            assert_eq!(parse_reserves_cases(text.as_bytes()).unwrap(), [("a".to_owned(), Ok(want.clone()))], "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (case, want) in [
            (r#"{"u": [[1]], "r": [[1]]}"#, "`D` is missing"),
            (r#"{"D": [1], "r": [[1]]}"#, "`u` is missing"),
            (r#"{"D": [1], "u": [[1]]}"#, "`r` and `sink` are missing"),
            (r#"{"D": [1], "u": [[NaN]], "r": [[1]]}"#, "u[0][0] is NaN; write a percentage"),
            (r#"{"D": [-1], "u": [[1]], "r": [[1]]}"#, "D[0] is -1"),
            (r#"{"D": [Infinity], "u": [[1]], "r": [[1]]}"#, "D[0] is inf"),
            (
                r#"{"D": [1], "u": [[1], [1, 2]], "r": [[1], [2]]}"#,
                "u[1] has 2 figures; give one for each of the 1 classes",
            ),
            (r#"{"D": [1], "u": [[1], [1]], "r": [[1]]}"#, "`r` has 1 rows and `u` 2"),
            (r#"{"D": [1], "u": [[1]], "sink": [[2]]}"#, "sink[0][0] is 2; write true or false"),
            (r#"{"D": [1], "u": 7, "sink": [[1]]}"#, "`u` is not a list"),
            (r#"{"D": [1], "u": [[1]], "sink": [[1]], "up": [1, 1]}"#, "`up` has 2 entries"),
            (r#"{"D": [1], "u": [[1]], "sink": [[1]], "S": 2}"#, "`S` is 2, and there are 1"),
            ("7", "this is not an object"),
        ] {
            let cases = parse_reserves_cases(format!("[{case}]").as_bytes()).unwrap();
            let (name, result) = &cases[0];
            let why = result.as_ref().unwrap_err();
            assert!(name == "case 1" && why.contains(want), "{case}: {why}");
        }
        assert!(parse_reserves_cases(b"[\n  {]").unwrap_err().starts_with("2:4: this is not JSON"));
        assert!(parse_reserves_cases(b"7").unwrap_err().contains("a list of cases"));
    }
}
