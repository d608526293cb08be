//! The signed cookie of returning visitors, over sockets.

use std::fs;

use tempfile::TempDir;

use crate::stage::{Answer, Client, Node, Stage};

/// Returns the cookie that `answer` sets, as the client sends it.
fn cookie(answer: &Answer) -> Option<String> {
    let set = answer.header("set-cookie")?;
    assert!(set.ends_with("; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax"), "{set}");
    set.split(';').next().map(str::to_owned)
}

fn get(client: &mut Client, path: &str, cookie: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nCookie: theme=dark; {cookie}\r\n\r\n"));
}

#[test]
fn a_client_that_comes_back_is_known_and_nodes_do_not_see_how() {
    let (site, challenge) = (Node::scripted(), Node::scripted());
    let folder = TempDir::new().expect("a folder");
    let keys = folder.path().join("keys");
    fs::write(&keys, "f1c9b0a4e6d2873550a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f607\n").expect("it can be written");
    let stage = Stage::open(&format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 1\n\
         upstreams: {{ site: {{ nodes: [\"{}\"] }}, challenge: {{ nodes: [\"{}\"] }} }}\n\
         visitors: {{ keys_file: \"{}\", returning_after: 1us }}\n\
         classes:\n\
         - {{ name: people, upstream: site, match: {{ visitor: returning }}, source: visitor }}\n\
         - {{ name: refused, upstream: site, match: {{ path: /over }}, limit: 1/h, fallback: {{ upstream: challenge }} }}\n\
         - {{ name: anonymous, upstream: site }}\n\
         discipline: none\n",
        site.address,
        challenge.address,
        keys.display()
    ));
    let mut client = stage.client();
    client.get("/1");
    site.call().ok("one");
    let first = cookie(&client.answer()).expect("a cookie");
    assert_eq!(stage.record().class, "anonymous");

    // It comes back and is answered, and the next request is that of a known visitor.
    get(&mut client, "/2", &first);
    let call = site.call();
    assert_eq!(call.header("cookie").as_deref(), Some("theme=dark"));
    call.ok("two");
    let second = cookie(&client.answer()).expect("another cookie");
    assert_ne!(first, second);
    assert_eq!(stage.record().class, "anonymous");
    get(&mut client, "/3", &second);
    site.call().ok("three");
    assert_eq!(cookie(&client.answer()), None, "it has all that it needs");
    assert_eq!(stage.record().class, "people");

    // A false cookie counts for nothing, and still stays from the node.
    client.send("GET /4 HTTP/1.1\r\nHost: a\r\nCookie: weirgate_visitor=false\r\n\r\n");
    let call = site.call();
    assert_eq!(call.header("cookie"), None);
    call.reply("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(cookie(&client.answer()), None, "an error earns nothing");
    assert_eq!(stage.record().class, "anonymous");
}
