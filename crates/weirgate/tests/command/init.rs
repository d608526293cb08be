//! Tests of `weirgate init`.

use crate::{Scratch, run, run_with, text_of};

/// Checks that a policy is sound.
fn sound(yaml: &str) {
    let checked = run_with(&["check", "-"], yaml);
    assert!(checked.code == Some(0) && checked.err.ends_with("sound\n"), "{checked:?}\n{yaml}");
}

#[test]
fn questions_are_answered_from_a_pipe_or_by_defaults() {
    let made = run_with(&["init"], "0.0.0.0:8080\n10.0.0.1:80,10.0.0.2:80\nshop.test\n50/s\n300ms\n");
    assert_eq!(made.code, Some(0), "{made:?}");
    sound(&made.out);
    for part in
        ["listen: 0.0.0.0:8080", "mode: observe", "match: { host: shop.test }", "throughput: 50/s", "{ p95: 300ms }"]
    {
        assert!(made.out.contains(part), "{part:?} is missing:\n{}", made.out);
    }
    assert!(made.err.contains("Where do your servers listen?") && made.err.contains("[1s]"), "{}", made.err);
    let (few, none, yes) = (run_with(&["init"], "\n"), run(&["init"]), run(&["init", "--yes"]));
    assert!(few.out == yes.out && none.out == yes.out, "what is not answered is the default");
    assert!(!yes.err.contains("Where"), "{}", yes.err);
    sound(&yes.out);
    let wrong = run_with(&["init"], "8080\n");
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(1), ""));
    assert!(wrong.err.contains("write `127.0.0.1:8080`"), "{}", wrong.err);
}

#[test]
fn configurations_are_imported_with_the_files_that_they_include() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("sites")).expect("a folder");
    scratch.write("sites/b.conf", "server { server_name b.test; location / { proxy_pass http://10.0.0.2; } }");
    scratch.write(
        "sites/a.conf",
        "server { server_name a.test; location /x { proxy_pass http://10.0.0.1; } return 404; }",
    );
    scratch.write("sites/.hidden.conf", "broken {");
    scratch.write("sites/other.txt", "broken {");
    let nginx = scratch.write("nginx.conf", "http { include sites/*.conf; include gone.conf; }");
    let made = run(&["init", "--from", &nginx]);
    assert_eq!(made.code, Some(0), "{made:?}");
    sound(&made.out);
    for part in ["host: a.test, path_prefix: /x", "host: b.test", "sites/a.conf:1: return 404", "include gone.conf"] {
        assert!(made.out.contains(part), "{part:?} is missing:\n{}", made.out);
    }
    let haproxy = scratch
        .write("haproxy.cfg", "frontend f\n  bind :8080\n  default_backend b\nbackend b\n  server s 10.0.0.1:80\n");
    let output = text_of(&scratch.path("policy.yaml"));
    let made = run(&["init", "--from", &haproxy, "--output", &output]);
    assert!(made.code == Some(0) && made.err.contains("Carried over from HAProxy: 1 upstreams"), "{made:?}");
    sound(&std::fs::read_to_string(&output).expect("the policy"));
    for (args, hint) in [
        (vec!["init", "--yes", "--output", &output], "is not overwritten"),
        (vec!["init", "--from", "/nowhere/nginx.conf"], "/nowhere/nginx.conf: No such file"),
        (vec!["init", "--from", &output], "has no `;`"),
    ] {
        let ended = run(&args);
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{args:?}: {ended:?}");
        assert!(ended.err.contains(hint), "{args:?}: {}", ended.err);
    }
}
