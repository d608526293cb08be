//! Detection of unreachable classes, with an earlier class that takes every request they match.
//!
//! The comparison is sound but not complete: a class reported as unreachable is unreachable, but cases that need
//! reasoning over several conditions may be missed. An error message must not be wrong, so this is the safe side.

use crate::body::BodyCondition;
use crate::site::{HostPattern, Match, PathPattern, ValuePattern};

/// Whether every request that satisfies `narrow` also satisfies `wide`.
pub(super) fn implies(narrow: &Match, wide: &Match) -> bool {
    match (narrow, wide) {
        (_, Match::Any) => true,
        (narrow, Match::All(parts)) => parts.iter().all(|part| implies(narrow, part)),
        (Match::Either(parts), wide) => parts.iter().all(|part| implies(part, wide)),
        (narrow, Match::Either(parts)) if parts.iter().any(|part| implies(narrow, part)) => true,
        (Match::All(parts), wide) => parts.iter().any(|part| implies(part, wide)),
        (Match::Not(narrow), Match::Not(wide)) => implies(wide, narrow),
        (narrow, wide) => leaf_implies(narrow, wide),
    }
}

fn leaf_implies(narrow: &Match, wide: &Match) -> bool {
    match (narrow, wide) {
        (Match::Host(n), Match::Host(w)) | (Match::Sni(n), Match::Sni(w)) => match (n, w) {
            (HostPattern::Exact(n), HostPattern::Exact(w)) => n == w,
            (HostPattern::Exact(n) | HostPattern::Below(n), HostPattern::Below(w)) => n.ends_with(w.as_str()),
            (HostPattern::Below(_), HostPattern::Exact(_)) => false,
        },
        (Match::Path(n), Match::Path(w)) => match (n, w) {
            (PathPattern::Exact(n), PathPattern::Exact(w)) => n == w,
            (PathPattern::Exact(n) | PathPattern::Prefix(n), PathPattern::Prefix(w)) => below(n, w),
            (PathPattern::Exact(n), PathPattern::Pattern(w)) => w.regex.is_match(n),
            (PathPattern::Pattern(n), PathPattern::Pattern(w)) => n.text == w.text,
            _ => false,
        },
        (Match::Method(n), Match::Method(w)) => n == w,
        (Match::Port(n), Match::Port(w)) => n == w,
        (Match::Source(n), Match::Source(w)) => w.contains(n),
        (Match::Visitor(n), Match::Visitor(w)) => n >= w,
        (Match::Listed(n), Match::Listed(w)) => n == w,
        (Match::Encrypted(n), Match::Encrypted(w)) => n == w,
        (Match::Sni(_) | Match::ClientCertificate(..), Match::Encrypted(w)) => *w,
        (Match::ClientCertificate(n, narrow), Match::ClientCertificate(w, wide)) => {
            n == w && value_implies(narrow, wide)
        }
        (Match::Header(n, narrow), Match::Header(w, wide)) => n == w && value_implies(narrow, wide),
        (Match::Cookie(n, narrow), Match::Cookie(w, wide)) | (Match::Query(n, narrow), Match::Query(w, wide)) => {
            n == w && value_implies(narrow, wide)
        }
        (Match::Body(narrow), Match::Body(wide)) => body_implies(narrow, wide),
        _ => false,
    }
}

fn body_implies(narrow: &BodyCondition, wide: &BodyCondition) -> bool {
    match (narrow, wide) {
        (BodyCondition::Contains(n), BodyCondition::Contains(w)) => n.text.contains(w.text.as_str()),
        (BodyCondition::Like(n), BodyCondition::Like(w)) => n.text == w.text,
        (BodyCondition::Form(n, narrow), BodyCondition::Form(w, wide)) => n == w && value_implies(narrow, wide),
        (BodyCondition::Json(n, narrow), BodyCondition::Json(w, wide)) => n == w && value_implies(narrow, wide),
        _ => false,
    }
}

/// Whether `path` is `prefix` itself or below it.
fn below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn value_implies(narrow: &ValuePattern, wide: &ValuePattern) -> bool {
    match (narrow, wide) {
        (_, ValuePattern::Present) => true,
        (ValuePattern::Exact(n), ValuePattern::Exact(w)) => n == w,
        (ValuePattern::Exact(n) | ValuePattern::Prefix(n), ValuePattern::Prefix(w)) => n.starts_with(w.as_str()),
        (ValuePattern::Exact(n), ValuePattern::Pattern(w)) => w.regex.is_match(n),
        (ValuePattern::Pattern(n), ValuePattern::Pattern(w)) => n.text == w.text,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Match {
        Match::Host(match name.strip_prefix('*') {
            Some(suffix) => HostPattern::Below(suffix.into()),
            None => HostPattern::Exact(name.into()),
        })
    }

    fn prefix(path: &str) -> Match {
        Match::Path(PathPattern::Prefix(path.into()))
    }

    #[test]
    fn leaves() {
        assert!(implies(&host("a.b.test"), &host("*.b.test")));
        assert!(implies(&host("*.a.b.test"), &host("*.b.test")));
        assert!(!implies(&host("b.test"), &host("*.b.test")));
        assert!(!implies(&host("*.b.test"), &host("a.b.test")));
        assert!(implies(&prefix("/a/b"), &prefix("/a")) && !implies(&prefix("/ab"), &prefix("/a")));
        assert!(implies(&Match::Path(PathPattern::Exact("/a".into())), &prefix("/a")));
        let net = |n: &str| Match::Source(n.parse().unwrap());
        assert!(implies(&net("10.1.0.0/16"), &net("10.0.0.0/8")) && !implies(&net("10.0.0.0/8"), &net("10.1.0.0/16")));
    }

    #[test]
    fn compounds() {
        let both = Match::All(vec![host("a.test"), prefix("/x")]);
        let either = Match::Either(vec![host("a.test"), host("b.test")]);
        assert!(implies(&both, &host("a.test")) && !implies(&host("a.test"), &both));
        assert!(implies(&host("b.test"), &either) && !implies(&either, &host("b.test")));
        assert!(implies(&both, &either) && implies(&either, &either) && implies(&both, &both));
        assert!(implies(&either, &Match::Any) && !implies(&Match::Any, &either));
        let not = |m: Match| Match::Not(Box::new(m));
        assert!(implies(&not(either.clone()), &not(host("a.test"))) && !implies(&not(host("a.test")), &not(either)));
    }
}
