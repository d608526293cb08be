//! The exact cases of `vectors/cluster_reserves.json`: Table 1 of the paper call by call, the starts of its
//! experiments, and corner cases, each with the deviation, the shares after step 2 and the shares to set.

use serde_json::Value;
use weirgate_reserves::{Problem, Solution, solve};

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn matrix(value: &Value) -> Vec<Vec<f64>> {
    let row = |row: &Value| list(row).iter().map(|figure| figure.as_f64().expect("a number")).collect();
    list(value).iter().filter(|row| !row.is_null()).map(row).collect()
}

/// Returns the rows of the nodes that are up.
fn live<T>(rows: Vec<T>, up: &Value) -> Vec<T> {
    let Some(up) = up.as_array() else { return rows };
    rows.into_iter().zip(up).filter(|(_, up)| **up == true).map(|(row, _)| row).collect()
}

fn worst(found: &[Vec<f64>], wanted: &[Vec<f64>]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    found
        .iter()
        .flatten()
        .zip(wanted.iter().flatten())
        .map(|(found, wanted)| (found - wanted).abs())
        .fold(0.0, f64::max)
}

#[test]
fn every_case_is_solved() {
    let file: Value = serde_json::from_str(include_str!("vectors/cluster_reserves.json")).unwrap();
    let (of_v, of_r) = (file["tolerance"]["V"].as_f64().unwrap(), file["tolerance"]["R"].as_f64().unwrap());
    let cases = file["cases"].as_array().unwrap();
    assert!(cases.len() >= 40, "{}", cases.len());
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let sink = matrix(&case["sink"]).iter().map(|row| row.iter().map(|is| *is == 1.0).collect()).collect();
        let problem = Problem {
            desired: matrix(&Value::Array(vec![case["D"].clone()])).remove(0),
            usage: live(matrix(&case["u"]), &case["up"]),
            sink: live(sink, &case["up"]),
        };
        let Solution { deviation, closest, allocation } = solve(&problem).unwrap();
        assert!((deviation - case["V"].as_f64().unwrap()).abs() <= of_v, "{name}: V {deviation}");
        for (what, found, wanted) in [("after step 2", closest, "R_step2"), ("to set", allocation.clone(), "R")] {
            let off = worst(&found, &matrix(&case[wanted]));
            assert!(off <= of_r, "{name}: shares {what} are off by {off}: {found:?}");
        }
        // The paper prints whole numbers.
        if let Value::Array(_) = case["paper_R"] {
            let off = worst(&allocation, &matrix(&case["paper_R"]));
            assert!(off <= 0.5 + 1e-9, "{name}: off the paper's by {off}");
        }
    }
}
