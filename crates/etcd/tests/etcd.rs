//! Calls and elections on a real etcd, if it is installed, and servers that are none.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use weirgate_clock::Clock;
use weirgate_etcd::{Client, Election, Error, Guard, MAX_VALUE, Turn};
use weirgate_http_client::Address;

/// A deadline that a busy machine keeps.
const DEADLINE: Duration = Duration::from_secs(20);

/// Members of one etcd with empty folders, which end with the test.
struct Etcd {
    processes: Vec<Child>,
    addresses: Vec<String>,
    _data: TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("loopback").port()
}

impl Etcd {
    /// Starts so many members, or says that the test is skipped.
    fn start(members: usize) -> Option<Etcd> {
        let data = tempfile::tempdir().expect("a folder");
        let address = |_| format!("127.0.0.1:{}", free_port());
        let addresses: Vec<String> = (0..members).map(address).collect();
        let peers: Vec<String> = (0..members).map(|index| format!("http://{}", address(index))).collect();
        let all: Vec<String> = peers.iter().enumerate().map(|(index, peer)| format!("m{index}={peer}")).collect();
        let mut etcd = Etcd { processes: Vec::new(), addresses, _data: data };
        for (index, (address, peer)) in etcd.addresses.iter().zip(&peers).enumerate() {
            let (name, client) = (format!("m{index}"), format!("http://{address}"));
            let started = Command::new("etcd")
                .args(["--name", &name, "--initial-cluster", &all.join(","), "--data-dir"])
                .arg(etcd._data.path().join(&name))
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            match started {
                Ok(process) => etcd.processes.push(process),
                Err(error) => {
                    let _ = writeln!(std::io::stderr(), "SKIPPED: etcd cannot be started: {error}");
                    return None;
                }
            }
        }
        Some(etcd)
    }

    fn client(&self) -> Client {
        Client::new(self.addresses.iter().cloned().map(Address::Tcp).collect(), DEADLINE)
    }

    /// Sends a signal to a member.
    fn signal(&self, member: usize, signal: &str) {
        let id = self.processes[member].id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().is_ok_and(|status| status.success()));
    }

    /// Changes users and roles.
    fn control(&self, command: &str) {
        let done = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.addresses.join(",")])
            .args(command.split(' '))
            .stdout(Stdio::null())
            .status();
        assert!(done.is_ok_and(|status| status.success()), "etcdctl {command}");
    }

    /// Makes a user with the password `word` and a role of these permissions. All must log in from then on.
    fn admit(&self, user: &str, permissions: &[&str]) {
        self.control(&format!("role add {user}"));
        for permission in permissions {
            self.control(&format!("role grant-permission {user} {permission}"));
        }
        self.control(&format!("user add {user}:word"));
        self.control(&format!("user grant-role {user} {user}"));
        for command in ["role add root", "user add root:secret", "user grant-role root root", "auth enable"] {
            self.control(command);
        }
    }

    /// Waits until it answers.
    async fn is_ready(&self) {
        let clock = Clock::start();
        let mut client = self.client();
        while let Err(error) = client.get("ready").await {
            assert!(clock.now() < Duration::from_secs(60), "{error}");
            weirgate_clock::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn entries_are_written_read_and_listed() {
    let Some(etcd) = Etcd::start(1) else { return };
    etcd.is_ready().await;
    let mut client = etcd.client();
    assert_eq!(client.get("site/a").await.unwrap(), None);
    let first = client.write(&[Guard::Unchanged("site/a", 0)], "site/a", b"one", None).await.unwrap().unwrap();
    assert_eq!(client.write(&[Guard::Unchanged("site/a", 0)], "site/a", b"two", None).await.unwrap(), None);
    let second = client.write(&[Guard::Created("site/a", first)], "site/a", b"\0\xff", None).await.unwrap().unwrap();
    let entry = client.get("site/a").await.unwrap().unwrap();
    assert_eq!((&entry.value[..], entry.create_revision, entry.mod_revision), (&b"\0\xff"[..], first, second));
    client.write(&[Guard::Unchanged("site/b", 0)], "site/b", b"", None).await.unwrap().unwrap();
    client.write(&[Guard::Unchanged("sitf", 0)], "sitf", b"beyond", None).await.unwrap().unwrap();
    let keys: Vec<Vec<u8>> = client.list("site/", 2).await.unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, [b"site/a".to_vec(), b"site/b".to_vec()]);
    assert!(matches!(client.list("site/", 1).await, Err(Error::TooLarge)));
    let large = vec![0; MAX_VALUE + 1];
    assert!(matches!(client.write(&[Guard::Unchanged("l", 0)], "l", &large, None).await, Err(Error::TooLarge)));
    assert!(matches!(client.keep_alive(7).await, Ok(false)));
    assert!(matches!(client.revoke(7).await, Err(Error::Refused(_))));
}

#[tokio::test]
async fn one_is_elected_and_a_deposed_one_writes_nothing() {
    let Some(etcd) = Etcd::start(1) else { return };
    etcd.is_ready().await;
    let (mut at_a, mut at_b) = (etcd.client(), etcd.client());
    let election = |key, value: &[u8], seconds| Election::new(key, value, Duration::from_secs(seconds));
    // Leases that no busy machine outlasts.
    let (mut a, mut b) = (election("site/coordinator", b"a:1", 600), election("site/coordinator", b"b:1", 600));
    let Turn::Elected { revision } = a.turn(&mut at_a).await.unwrap() else { panic!("nobody else stands") };
    assert_eq!(b.turn(&mut at_b).await.unwrap(), Turn::Follow { revision, value: b"a:1".to_vec() });
    assert_eq!(a.turn(&mut at_a).await.unwrap(), Turn::Elected { revision });
    let record = "site/records/a";
    let kept = a.write(&mut at_a, record, 0, b"granted").await.unwrap().unwrap();
    assert_eq!(b.write(&mut at_b, record, kept, b"stolen").await.unwrap(), None);
    a.resign(&mut at_a).await.unwrap();
    assert!(matches!(b.turn(&mut at_b).await.unwrap(), Turn::Elected { revision: later } if later > revision));

    // One that says nothing until its lease has ended.
    let (mut a, mut b) = (election("other", b"a:1", 1), election("other", b"b:1", 600));
    let Turn::Elected { revision } = a.turn(&mut at_a).await.unwrap() else { panic!("nobody else stands") };
    let later = loop {
        match b.turn(&mut at_b).await.unwrap() {
            Turn::Elected { revision } => break revision,
            Turn::Follow { .. } | Turn::Nobody => weirgate_clock::sleep(Duration::from_millis(100)).await,
        }
    };
    assert!(later > revision);
    assert_eq!(a.write(&mut at_a, record, kept, b"late").await.unwrap(), None);
    assert_eq!(a.write(&mut at_a, record, 0, b"granted").await.unwrap(), None, "not even what is there");
    assert_eq!(at_a.get(record).await.unwrap().unwrap().value, b"granted");
    assert_eq!(a.turn(&mut at_a).await.unwrap(), Turn::Follow { revision: later, value: b"b:1".to_vec() });
}

#[tokio::test]
async fn a_copy_of_a_write_that_comes_late_changes_nothing() {
    let Some(etcd) = Etcd::start(1) else { return };
    etcd.is_ready().await;
    let mut client = etcd.client();
    let mut election = Election::new("site/coordinator", b"a:1", Duration::from_secs(600));
    assert!(matches!(election.turn(&mut client).await.unwrap(), Turn::Elected { .. }));
    let key = "site/records/a";
    let first = election.write(&mut client, key, 0, b"nothing").await.unwrap().unwrap();
    // No answer came, so it is repeated.
    assert_eq!(election.write(&mut client, key, 0, b"nothing").await.unwrap(), Some(first));
    let second = election.write(&mut client, key, first, b"granted").await.unwrap().unwrap();
    // A member that hung carries the earlier write out when it goes on.
    assert_eq!(client.write(&[Guard::Unchanged(key, 0)], key, b"nothing", None).await.unwrap(), None);
    assert_eq!(election.write(&mut client, key, 0, b"nothing").await.unwrap(), None);
    let entry = client.get(key).await.unwrap().unwrap();
    assert_eq!((&entry.value[..], entry.mod_revision), (&b"granted"[..], second));
}

#[tokio::test]
async fn a_key_that_no_election_has_written_is_an_error() {
    let Some(etcd) = Etcd::start(1) else { return };
    etcd.is_ready().await;
    let mut client = etcd.client();
    client.replace(None, "site/coordinator", 0, b"a:1").await.unwrap().unwrap();
    let mut election = Election::new("site/coordinator", b"b:1", Duration::from_secs(600));
    assert!(matches!(election.turn(&mut client).await, Err(Error::NoLease(key)) if key == "site/coordinator"));
}

#[tokio::test]
async fn one_of_three_members_may_stop_and_two_are_an_error_in_time() {
    let Some(etcd) = Etcd::start(3) else { return };
    etcd.is_ready().await;
    let mut client = etcd.client();
    let mut election = Election::new("site/coordinator", b"a:1", Duration::from_secs(600));
    let Turn::Elected { revision } = election.turn(&mut client).await.unwrap() else { panic!("nobody else stands") };
    etcd.signal(0, "-STOP");
    // Another member may have to become the leader first.
    let clock = Clock::start();
    loop {
        match election.turn(&mut client).await {
            Ok(turn) => break assert_eq!(turn, Turn::Elected { revision }),
            Err(error) => assert!(clock.now() < Duration::from_secs(60), "{error}"),
        }
    }
    etcd.signal(1, "-STOP");
    let mut impatient =
        Client::new(etcd.addresses.iter().cloned().map(Address::Tcp).collect(), Duration::from_millis(600));
    assert!(election.turn(&mut impatient).await.is_err());
    etcd.signal(0, "-CONT");
    etcd.signal(1, "-CONT");
    etcd.is_ready().await;
    assert_eq!(election.turn(&mut client).await.unwrap(), Turn::Elected { revision });
}

/// Accepts connections and answers each with `answer`, or never if there is none.
fn server(answer: Option<String>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            if let Some(answer) = &answer {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            }
            open.push(stream);
        }
    });
    Address::Tcp(address)
}

fn with_body(status: &str, body: &str) -> Option<String> {
    Some(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

#[tokio::test]
async fn hostile_answers_are_errors() {
    let large = format!(r#"{{"kvs":[{{"key":"YQ==","value":"{}"}}]}}"#, "AAAA".repeat(MAX_VALUE));
    let two = r#"{"kvs":[{"key":"YQ=="},{"key":"Yg=="}]}"#;
    let refused = with_body("401 Unauthorized", "{\"error\":\"etcdserver: user name is empty\\u001b[31m\",\"code\":3}");
    let long = with_body("200 OK", &" ".repeat((1 << 20) + 1));
    for (answer, expected) in [
        (with_body("200 OK", "<html>"), "is another server"),
        (with_body("200 OK", r#"{"kvs":[{"key":"%"}]}"#), "is another server"),
        (with_body("200 OK", &large), "more than was written"),
        (with_body("200 OK", two), "more than was written"),
        (long, "more than was written"),
        (refused, "etcd refuses: status 401 etcdserver: user name is empty[31m"),
        (Some("garbage\r\n\r\n".into()), "does not answer"),
    ] {
        let error = Client::new(vec![server(answer)], DEADLINE).get("a").await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_member_that_hangs_costs_its_part_of_the_deadline() {
    let sound = with_body("200 OK", "{}");
    let mut client = Client::new(vec![server(None), server(sound)], Duration::from_secs(2));
    assert_eq!(client.get("a").await.unwrap(), None);
    let mut client = Client::new(vec![server(None)], Duration::from_millis(100));
    assert!(matches!(client.get("a").await, Err(Error::Unreachable(_))));
    assert!(matches!(Client::new(Vec::new(), DEADLINE).get("a").await, Err(Error::Unreachable(_))));
}

/// The commands are those of `docs/guide/site.md`, for a gateway that may not be elected.
#[tokio::test]
async fn a_gateway_may_write_what_is_its_own_and_nothing_else() {
    let Some(etcd) = Etcd::start(1) else { return };
    etcd.is_ready().await;
    etcd.admit(
        "weirgate-gw2",
        &["--prefix=true read weirgate/", "readwrite weirgate/members/gw2", "readwrite weirgate/policy/answers/gw2"],
    );
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("password");
    std::fs::write(&password, "word").expect("the folder is writable");
    let mut client = etcd.client().with_user(Some(("weirgate-gw2".to_owned(), password)));
    let election = |value: &[u8]| Election::new("weirgate/coordinator", value, Duration::from_secs(600));
    assert_eq!(election(b"gw2").look(&mut client).await.unwrap(), Turn::Nobody);
    for own in ["weirgate/members/gw2", "weirgate/policy/answers/gw2"] {
        let first = client.replace(None, own, 0, b"one").await.unwrap().unwrap();
        assert!(client.replace(None, own, first, b"two").await.unwrap() > Some(first));
    }
    assert!(matches!(election(b"gw2").turn(&mut client).await, Err(Error::Refused(_))));
    for other in ["coordinator", "records/gw2", "members/gw1", "policy/answers/gw1", "policy/step", "policy/proposed"] {
        let refused = client.replace(None, &format!("weirgate/{other}"), 0, b"gw2").await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{other}: {refused:?}");
    }
}

/// The commands are those of `docs/guide/site.md`.
#[tokio::test]
async fn a_user_may_use_its_prefix_and_nothing_else() {
    let Some(etcd) = Etcd::start(1) else { return };
    etcd.is_ready().await;
    etcd.admit("weirgate", &["--prefix=true readwrite weirgate/"]);
    let folder = tempfile::tempdir().expect("a folder");
    let password = |text: &str| {
        let file = folder.path().join(text.trim());
        std::fs::write(&file, text).expect("the folder is writable");
        Some(("weirgate".to_owned(), file))
    };
    let mut client = etcd.client().with_user(password("word\n"));
    let mut election = Election::new("weirgate/coordinator", b"a:1", Duration::from_secs(600));
    let Turn::Elected { revision } = election.turn(&mut client).await.unwrap() else { panic!("nobody else stands") };
    assert_eq!(election.turn(&mut client).await.unwrap(), Turn::Elected { revision });
    assert!(election.write(&mut client, "weirgate/records/a", 0, b"granted").await.unwrap() > Some(revision));
    assert_eq!(client.list("weirgate/records/", 2).await.unwrap().len(), 1);
    assert!(matches!(client.replace(None, "weirgatf", 0, b"").await, Err(Error::Refused(_))));
    election.resign(&mut client).await.unwrap();
    assert_eq!(client.get("weirgate/coordinator").await.unwrap(), None);
    for mut stranger in [etcd.client(), etcd.client().with_user(password("wrong"))] {
        let refused = stranger.get("weirgate/coordinator").await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
    let mut nobody = etcd.client().with_user(Some(("weirgate".to_owned(), folder.path().join("none"))));
    assert!(matches!(nobody.get("weirgate/coordinator").await, Err(Error::NoPassword(..))));
}
