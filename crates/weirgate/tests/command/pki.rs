//! `weirgate pki`: from an empty folder to certificates, their renewal and their end.

use crate::{Ended, Scratch, run, text_of};

fn pki(folder: &str, words: &[&str]) -> Ended {
    run(&[&["pki", "--folder", folder], words].concat())
}

#[test]
fn an_authority_issues_shows_renews_and_revokes() {
    let scratch = Scratch::new();
    let folder = text_of(&scratch.path("pki"));
    let ended = pki(&folder, &["init", "--site", "prod"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("authority of site prod in `") && ended.err.contains("keep ca.key"), "{ended:?}");
    for words in [
        &["issue", "gateway", "gw1", "--host", "gw1.internal", "--host", "10.0.0.1"][..],
        &["issue", "agent", "n1", "--days", "30"],
        &["issue", "operator", "alice"],
    ] {
        let ended = pki(&folder, words);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.err.contains("copy this folder to its machine"), "{ended:?}");
    }
    let shown = pki(&folder, &["show"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let lines: Vec<&str> = shown.out.lines().collect();
    assert!(
        lines[0].starts_with("site prod, authority until 20") && lines[0].ends_with("days), 0 revoked"),
        "{shown:?}"
    );
    assert!(
        lines[1].starts_with("gateway gw1     20") && lines[1].ends_with(" days)  gw1.internal 10.0.0.1"),
        "{shown:?}"
    );
    assert!(lines[2].starts_with("agent n1        20") && lines[2].ends_with("(29 days)"), "{shown:?}");
    let own = run(&["pki", "show", &format!("{folder}/issued/agent-n1")]);
    assert!(own.out.starts_with("agent n1 of site prod, until 20"), "{own:?}");
    assert!(own.out.ends_with("names: spiffe://prod/agent/n1\n"), "{own:?}");

    let none = pki(&folder, &["renew"]);
    assert!(none.code == Some(0) && none.err.contains("nothing is due"), "{none:?}");
    let renewed = pki(&folder, &["renew", "agent", "n1"]);
    assert!(renewed.code == Some(0) && renewed.err.contains("agent n1: `"), "{renewed:?}");
    let revoked = pki(&folder, &["revoke", "agent", "n1"]);
    assert!(revoked.code == Some(0) && revoked.err.contains("agent n1: 2 certificates revoked"), "{revoked:?}");
    assert!(revoked.err.contains("ca.crl` into the trust folder on every machine"), "{revoked:?}");
    let shown = pki(&folder, &["show"]);
    assert!(shown.out.contains("2 revoked") && !shown.out.contains("agent"), "{shown:?}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let scratch = Scratch::new();
    let folder = text_of(&scratch.path("pki"));
    for (words, code, said) in [
        (&["issue", "agent", "n1"][..], 1, "make one with `weirgate pki init`"),
        (&["show"], 1, "has no authority"),
        (&["init", "--site", "Prod"], 1, "\"Prod\" is not a valid name"),
        (&["init"], 0, "authority of site weirgate"),
        (&["init"], 1, "an authority is never replaced"),
        (&["issue", "root", "n1"], 2, "possible values: gateway, agent, coordinator, operator, monitor"),
        (&["issue", "agent"], 2, "<NAME>"),
        (&["issue", "agent", "a/b"], 1, "is not a valid name"),
        (&["issue", "agent", "n1", "--host", "http://a"], 1, "neither a host name nor an IP address"),
        (&["issue", "agent", "n1", "--days", "4000"], 2, "--days"),
        (&["renew", "agent"], 2, "NAME"),
        (&["renew", "agent", "n1"], 1, "agent n1 has no certificate"),
        (&["revoke", "agent", "n1"], 1, "agent n1 has no certificate"),
        (&["show", "/nowhere"], 1, "`/nowhere` is no folder; make one with `weirgate pki issue`"),
    ] {
        let ended = pki(&folder, words);
        assert!(ended.code == Some(code) && ended.err.contains(said), "{words:?}: {ended:?}");
    }
}
