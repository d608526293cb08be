//! `weirgate probe` as a process, with a server of exactly known costs, and with a real Apache with PHP.

// Other tests use more of it.
#[allow(dead_code)]
#[path = "../processes/mod.rs"]
mod processes;

mod house;
mod real;
mod scripted;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use processes::Directory;
use scripted::{Page, Scripted};
use weirgate_config::{PageTable, load_file};

/// A site with all the cases of a crawl.
const PAGES: &[(&str, Page)] = &[
    (
        "/",
        Page(
            200,
            "<a href=/math.php?n=1><a href=/math.php?n=2><a href=/math.php?n=3><a href='/item.php?id=1'><a href=/item.php?id=2>
             <a href=/album/1/><a href=/album/2/><a href=/old><a href=/private/x><a href=/logout><a href=/broken>
             <a href=http://example.org/><a href=#top><img src=/i.png><form action=/buy><a href=/free><a href=/once>",
            [0.001, 0.0, 1000.0],
        ),
    ),
    ("/robots.txt", Page(200, "User-agent: *\nDisallow: /private\n", [0.0; 3])),
    ("/math.php?n=1", Page(200, "1", [0.02, 0.0, 300.0])),
    ("/math.php?n=2", Page(200, "2", [0.021, 0.0, 300.0])),
    ("/math.php?n=3", Page(200, "3", [0.08, 0.0, 300.0])),
    ("/item.php?id=1", Page(200, "1", [0.002, 4e6, 300.0])),
    ("/item.php?id=2", Page(200, "2", [0.002, 4e6, 300.0])),
    ("/album/1/", Page(200, "<p>", [0.001, 0.0, 400_000.0])),
    ("/album/2/", Page(200, "<p>", [0.001, 0.0, 420_000.0])),
    ("/i.png", Page(200, "png", [0.0, 0.0, 5000.0])),
    ("/old", Page(302, "/new", [0.001, 0.0, 300.0])),
    ("/new", Page(200, "new", [0.004, 0.0, 300.0])),
    ("/broken", Page(500, "", [0.5, 0.0, 300.0])),
    ("/free", Page(200, "", [0.0; 3])),
    ("/once", Page(200, "once", [0.5, 0.0, 0.0])),
    ("/private/x", Page(200, "", [0.0; 3])),
    ("/logout", Page(200, "", [0.0; 3])),
];

/// Writes a policy of that server. The server is its own agent.
fn policy(directory: &Directory, server: &Scripted, more: &str) -> std::path::PathBuf {
    let name = if more.is_empty() { "policy.yaml" } else { "with-table.yaml" };
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: off\n{more}upstreams:\n  web: {{ nodes: [{}], collector: {{ port: node }} }}\nclasses:\n  - {{ \
         name: shop, match: {{ host: shop.test }} }}\n  - {{ name: other }}\n",
        server.address
    );
    directory.write(name, &text)
}

fn probe(server: &Scripted, directory: &Directory, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.arg("probe").arg(format!("http://{}/", server.address)).arg("--policy");
    command.arg(directory.path().join("policy.yaml")).arg("--output").arg(directory.path().join("pages.yaml"));
    // A page takes the minimum time, because its cost is exact.
    command.args(["--requests", "8", "--page-time", "1", "--saturate", "4"]).args(args);
    command.stdin(Stdio::null());
    command
}

fn ended(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    (status.code(), String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned())
}

fn table(policy: &Path) -> PageTable {
    let loaded = load_file(policy).unwrap_or_else(|errors| panic!("{errors}"));
    loaded.site.page_table.expect("it has one")
}

#[test]
fn a_site_is_probed_into_a_table_that_a_policy_loads() {
    let (directory, server) = (Directory::new(), Scripted::start(PAGES));
    policy(&directory, &server, "");
    let (code, _, said) = ended(probe(&server, &directory, &[]));
    assert_eq!(code, Some(0), "{said}");
    let text = std::fs::read_to_string(directory.path().join("pages.yaml")).expect("it is written");
    let table = table(&policy(&directory, &server, "page_table: pages.yaml\n"));
    let routes: Vec<String> = table.routes.iter().map(|route| route.pattern.to_string()).collect();
    let expected = ["/", "/album/*/", "/i.png", "/item.php?id=*", "/math.php?n=*", "/math.php?n=3", "/new", "/old"];
    assert_eq!(routes, expected, "{text}");
    for (route, cost, tendency) in [
        ("/math.php?n=3", 0.08, 0),
        ("/item.php?id=*", 4e6, 1),
        ("/album/*/", 410_000.0, 2),
        ("/math.php?n=*", 0.0205, 0),
    ] {
        let found = table.routes.iter().find(|known| known.pattern.to_string() == route).expect("it is there");
        let capacity = table.capacity[tendency].expect("it was saturated, or told");
        let off = found.demand.share(tendency) * capacity / cost;
        assert!((0.96..1.04).contains(&off), "{route}: {off} of {cost}\n{text}");
        assert_eq!(found.demand.tendency(), tendency, "{route}\n{text}");
        assert!(found.confidence.is_some_and(|sure| sure >= 0.98) && found.samples.is_some_and(|n| n >= 16), "{text}");
    }
    for (path, why) in [("/broken", "answered 500"), ("/free", "costs too little"), ("/once", "its use of cpu (")] {
        assert!(text.contains(&format!("#   {path}: {why}")), "{text}");
    }
    for path in ["/private/x", "/logout", "/buy"] {
        assert_eq!(server.requests(path), 0, "{path}");
    }
    assert_eq!((server.requests("/broken"), server.requests("/robots.txt")), (1, 1));
    assert_eq!(
        server.zipped("/math.php?n=1"),
        server.requests("/math.php?n=1") - 1,
        "as browsers ask, but in the crawl"
    );
    assert!(
        said.contains("1 link that robots.txt disallows") && said.contains("skipped: 1 link to other servers"),
        "{said}"
    );
    assert!(!directory.path().join("pages.yaml.state").exists(), "it was used up");
    let (code, _, said) = ended(probe(&server, &directory, &[]));
    assert!(code == Some(1) && said.contains("exists already; overwrite it with --force"), "{said}");
}

#[test]
fn a_dry_run_asks_for_each_page_once_and_writes_nothing() {
    let (directory, server) = (Directory::new(), Scripted::start(PAGES));
    policy(&directory, &server, "");
    let (code, listed, said) = ended(probe(&server, &directory, &["--dry-run", "--max-depth", "1"]));
    assert_eq!(code, Some(0), "{said}");
    assert!(listed.starts_with("/\n") && listed.contains("/album/2/\n") && !listed.contains("broken"), "{listed}");
    assert!(said.contains("left out: /broken: answered 500") && said.contains("13 pages"), "{said}");
    // 8 for each of 1, 2, 4 and 8 at once, and the first of each look.
    assert!(said.contains("at most 34 times in about 6 s"), "{said}");
    assert_eq!((server.requests("/"), server.requests("/math.php?n=3")), (1, 1));
    assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 1, "the policy");
}

#[test]
fn a_probe_that_is_stopped_goes_on() {
    let (directory, server) = (Directory::new(), Scripted::start(PAGES));
    policy(&directory, &server, "");
    // In the middle of profiling: the crawl takes 14 requests, a first look at a page 17.
    let reached = server.after(150);
    let stopped = probe(&server, &directory, &[]).stderr(Stdio::piped()).spawn().expect("it starts");
    reached.recv().expect("the server is there");
    let id = stopped.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().expect("every system has kill").success());
    let output = stopped.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("probe: stopped; --resume continues with"), "{said}");
    let state = directory.path().join("pages.yaml.state");
    assert!(state.exists() && !directory.path().join("pages.yaml").exists());

    let (code, _, said) = ended(probe(&server, &directory, &[]));
    assert!(code == Some(1) && said.contains("--resume continues it, --force starts again"), "{said}");
    let mut elsewhere = probe(&server, &directory, &["--resume"]);
    elsewhere.args(["--node", &server.address.to_string()]);
    let before = (server.requests("/"), server.requests("/robots.txt"));
    let (code, _, said) = ended(elsewhere);
    assert_eq!(code, Some(0), "{said}");
    // The second look, 17 requests, was still to come.
    let after = (server.requests("/") - 17, server.requests("/robots.txt"));
    assert_eq!(after, before, "what is known is not asked again");
    assert_eq!(table(&policy(&directory, &server, "page_table: pages.yaml\n")).routes.len(), 8);
    assert!(!state.exists());
    let (code, _, said) = ended(probe(&server, &directory, &["--resume"]));
    assert!(code == Some(1) && said.contains("to resume from; leave out --resume"), "{said}");
}

#[test]
fn a_server_that_dies_costs_no_page_and_no_table() {
    let (directory, server) = (Directory::new(), Scripted::start(PAGES));
    policy(&directory, &server, "");
    let (output, state) = (directory.path().join("pages.yaml"), directory.path().join("pages.yaml.state"));
    directory.write("pages.yaml", "# by hand\n");
    // During the crawl, during the first look, and while the server is saturated. The first look at ten
    // pages takes 170 requests.
    for (after, args) in [(9, vec!["--force"]), (60, vec!["--resume", "--force"]), (400, vec!["--resume", "--force"])] {
        server.dies_after(Some(after));
        let (code, _, said) = ended(probe(&server, &directory, &args));
        assert!(code == Some(1) && said.contains("its home page fails as well") && said.contains("--resume"), "{said}");
        assert_eq!(std::fs::read_to_string(&output).expect("it is there"), "# by hand\n");
        assert!(state.exists());
    }
    server.dies_after(None);
    let (code, _, said) = ended(probe(&server, &directory, &["--resume"]));
    assert!(code == Some(1) && said.contains("exists already; --resume --force continues"), "{said}");
    let (code, _, said) = ended(probe(&server, &directory, &["--resume", "--force"]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(std::fs::read_to_string(directory.path().join("pages.yaml.old")).expect("it is kept"), "# by hand\n");
    let text = std::fs::read_to_string(&output).expect("it is written");
    assert_eq!(table(&policy(&directory, &server, "page_table: pages.yaml\n")).routes.len(), 8, "{text}");
    let left: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#   ")?.split(':').next()).collect();
    assert_eq!(left, ["/broken", "/free", "/once"], "{text}");
}

#[test]
fn a_table_that_appears_meanwhile_is_not_overwritten() {
    let (directory, server) = (Directory::new(), Scripted::start(PAGES));
    policy(&directory, &server, "");
    let reached = server.after(30);
    let running = probe(&server, &directory, &[]).stderr(Stdio::piped()).spawn().expect("it starts");
    reached.recv().expect("the server is there");
    directory.write("pages.yaml", "# by hand\n");
    let output = running.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("was created during the probe; --resume --force"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(directory.path().join("pages.yaml")).expect("it is there"), "# by hand\n");
}

#[test]
fn a_server_that_cannot_say_what_is_open_is_left_alone() {
    const TROUBLED: &[(&str, Page)] =
        &[("/robots.txt", Page(503, "", [0.0; 3])), ("/", Page(200, "<p>", [0.1, 0.0, 0.0]))];
    let (directory, server) = (Directory::new(), Scripted::start(TROUBLED));
    policy(&directory, &server, "");
    let (code, _, said) = ended(probe(&server, &directory, &[]));
    assert!(code == Some(1) && said.contains("/robots.txt is answered with 503"), "{said}");
    assert_eq!(server.requests("/"), 0);
    assert!(!directory.path().join("pages.yaml.state").exists(), "there is nothing to go on with");
}

#[test]
fn a_robots_txt_that_is_elsewhere_closes_everything() {
    const MOVED: &[(&str, Page)] = &[
        ("/robots.txt", Page(302, "https://shop.test/robots.txt", [0.0; 3])),
        ("/", Page(200, "<p>", [0.1, 0.0, 0.0])),
    ];
    let (directory, server) = (Directory::new(), Scripted::start(MOVED));
    policy(&directory, &server, "");
    let (code, _, said) = ended(probe(&server, &directory, &[]));
    assert!(
        code == Some(1) && said.contains("redirects to https://shop.test/robots.txt, which is not requested"),
        "{said}"
    );
    assert_eq!(server.requests("/"), 0);
}

#[test]
fn a_home_page_that_is_not_visited_is_told_why() {
    let (directory, server) = (Directory::new(), Scripted::start(PAGES));
    let policy = policy(&directory, &server, "");
    for (home, why) in [
        ("/private/x", "the home page is disallowed by robots.txt"),
        ("/logout", "the home page is skipped, because its address has a word"),
        ("/a//b", "the home page is at an address that is too long, or that no route could name"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
        command.arg("probe").arg(format!("http://{}{home}", server.address)).arg("--policy").arg(&policy);
        command.arg("--dry-run").stdin(Stdio::null());
        let (code, _, said) = ended(command);
        assert!(code == Some(1) && said.contains(why), "{said}");
        assert_eq!(server.requests(home), 0);
    }
}

#[test]
fn a_table_without_a_capacity_that_it_needs_is_not_written() {
    const PAGES: &[(&str, Page)] = &[
        ("/", Page(200, "<a href=/tired>", [0.001, 0.0, 0.0])),
        (scripted::TIRED.0, Page(200, "x", [0.0005, 0.0, 50_000.0])),
    ];
    let (directory, server) = (Directory::new(), Scripted::start(PAGES));
    policy(&directory, &server, "");
    server.tells_no_capacity();
    let (code, _, said) = ended(probe(&server, &directory, &[]));
    let why = "the capacity of bandwidth is unknown, and /tired uses it: /tired: ";
    assert!(code == Some(1) && said.contains(why) && said.contains("answered 503; --resume"), "{said}");
    assert!(directory.path().join("pages.yaml.state").exists() && !directory.path().join("pages.yaml").exists());
}

#[test]
fn what_cannot_be_probed_is_refused_before_anything_is_asked() {
    let (directory, server) = (Directory::new(), Scripted::start(PAGES));
    let file = policy(&directory, &server, "");
    let bare = directory.write(
        "bare.yaml",
        &format!(
            "listen: 127.0.0.1:0\nadmin: off\nupstreams: {{ web: {{ nodes: [{}] }} }}\nclasses: [{{ name: a }}]\n",
            server.address
        ),
    );
    let at = format!("http://{}/", server.address);
    for (url, policy, words) in [
        (
            "http://example.org/",
            &file,
            "no upstream has the node example.org:80, and only the policy's own nodes are \
                                        probed",
        ),
        ("https://example.org/", &file, "plain http"),
        (at.as_str(), &bare, "has no `collector`"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
        let output = directory.path().join("none.yaml");
        command.args(["probe", url, "--policy"]).arg(policy).arg("--output").arg(output).stdin(Stdio::null());
        let (code, _, said) = ended(command);
        assert!(code == Some(1) && said.contains(words), "{url}: {said}");
    }
    assert_eq!(server.requests("/robots.txt") + server.requests("/"), 0);
}
