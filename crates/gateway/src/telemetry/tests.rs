//! Tests of the list of spans, and of answers of collectors.

use super::collector::{Refused, refused};
use super::*;

#[test]
fn spans_beyond_the_limit_are_lost_and_counted() {
    let telemetry = Telemetry::default();
    let span = "x".repeat(MAX_PENDING / 4);
    for _ in 0..6 {
        telemetry.add(span.clone());
    }
    // With their commas four do not fit.
    assert_eq!((telemetry.take().len(), telemetry.lost()), (3, 3));
    telemetry.add(span);
    assert_eq!((telemetry.take().len(), telemetry.lost()), (1, 3));
}

#[test]
fn without_an_exporter_the_end_waits_for_nothing() {
    let telemetry = Telemetry::default();
    telemetry.close();
    telemetry.add("x".into());
    assert_eq!(telemetry.lost(), 1);
}

#[test]
fn partial_successes_are_read_in_every_form() {
    let count = |body: &str| refused(body.as_bytes()).count;
    assert_eq!(count(r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"x"}}"#), 3);
    assert_eq!(count(r#"{"partialSuccess":{"rejectedSpans":3}}"#), 3);
    for nothing in ["", "{}", r#"{"partialSuccess":{}}"#, r#"{"partialSuccess":null}"#, "<html>", "[]", "\u{7f}"] {
        assert_eq!(refused(nothing.as_bytes()), Refused::default(), "{nothing}");
    }
    assert_eq!(refused(br#"{"partialSuccess":{"errorMessage":"slow"}}"#).why, "slow");
}
