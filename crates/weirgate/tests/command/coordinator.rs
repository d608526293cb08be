//! Tests of `weirgate coordinator`: its start, its guarded page, its end, and other commands' messages about
//! its policy.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use weirgate_http_client::Request;

use crate::run::{ask, get, process};
use crate::{Scratch, run};

const TOKEN: &str = "9f86d081884c7d659a2feaa0c55ad015";

const POLICY: &str = "\
reserves:
  listen: 127.0.0.1:0
  admin: 127.0.0.1:0
  nodes: [n1, n2]
  classes:
    - { name: gold, share: 50%, cgroup: gold.slice }
    - { name: rest, share: 12.5%, cgroup: rest.slice }
";

#[test]
fn it_says_what_it_does_shows_its_page_and_ends_on_sigterm() {
    let scratch = Scratch::new();
    let token = scratch.write("token", TOKEN);
    let file = scratch.write("policy.yaml", &format!("{POLICY}  admin_token_file: {token}\n"));
    let mut process = process(&["coordinator", &file]);
    assert!(process.next("version").ends_with("2 classes on 2 nodes, 62.5 % of the cluster promised"));
    let agents = process.next("agents connect to");
    assert!(agents.ends_with(", for this machine only, without a token"), "{agents}");
    let page = process.next_address("page on");
    process.next("ready");

    assert_eq!(get(page, "/live").status, 200);
    assert_eq!(get(page, "/reserves").status, 401);
    assert_eq!(ask(page, Request::get("evil.test", "/")).status, 403);
    let bearer = format!("Bearer {TOKEN}");
    let show = |path: &str| ask(page, Request::get("localhost", path).authorization(&bearer)).text();
    assert!(show("/reserves").contains("\"state\":\"down\""));
    assert_eq!(get(page, "/").status, 200, "the page asks for the token itself");
    assert!(show("/metrics").contains("weirgate_reserves_nodes_live 0"));

    // A stranger is reported and changes nothing.
    let address: SocketAddr =
        agents.split(' ').find_map(|word| word.trim_end_matches(',').parse().ok()).expect("an address");
    let mut stranger = TcpStream::connect(address).expect("it accepts");
    let greeting = r#"{"version":2,"node":"n9"}"#;
    let length = greeting.len();
    let head =
        "POST /reserves/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json";
    write!(stranger, "{head}\r\nContent-Length: {length}\r\n\r\n{greeting}").expect("it reads");
    let mut answer = String::new();
    stranger.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("has no node \\\"n9\\\""), "{answer}");
    process.next("refused 127.0.0.1:");

    process.tell("TERM");
    let (code, rest) = process.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.ends_with("weirgate: coordinator: stopped; the shares in force stay\n"), "{rest}");
}

#[test]
fn every_command_says_what_a_policy_is_good_for() {
    let scratch = Scratch::new();
    let reserves = scratch.write("reserves.yaml", POLICY);
    let checked = run(&["check", &reserves]);
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), format!("{reserves}: sound\n").as_str()));
    let ended = run(&["run", &reserves]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("configures no gateway") && ended.err.contains("weirgate coordinator"), "{ended:?}");
    assert_eq!(run(&["explain", &reserves, "GET", "http://a.test/"]).code, Some(1));

    let gateway = scratch.write("gateway.yaml", crate::POLICY);
    let ended = run(&["coordinator", &gateway]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("has no `reserves:`"), "{ended:?}");
    let broken = scratch.write("broken.yaml", &POLICY.replace("50%", "90%"));
    let ended = run(&["coordinator", &broken]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("the shares sum to 102 %") && ended.err.contains("not started"), "{ended:?}");
}
