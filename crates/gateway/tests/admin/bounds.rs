//! Limits on the cost of requests: rows A4, A5.

use std::io::{Read, Write};

use weirgate_gateway::metrics::MAX_SHOWN;

use crate::{Start, connect, exchange, node, read_answer, silent_node};

#[test]
fn a4_the_admin_api_answers_while_the_data_plane_is_full() {
    let policy = "
discipline: { custom: { admit: none, load_control: { fixed: 4 }, precedence: fifo } }
classes: [{ name: all, queue: { max_waiting: 100 } }]
";
    let running = Start { policy, ..Start::default() }.before(silent_node());
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let clients: Vec<_> = (0..150)
        .map(|_| {
            let mut stream = connect(running.address());
            stream.write_all(request).expect("it reads");
            stream
        })
        .collect();
    // 4 are in flight, 100 wait and 46 are shed. The counts show when all of them have arrived.
    let counts = || {
        let page = running.get("/snapshot").json();
        let class = &page["classes"][0];
        (page["engine"]["outstanding"].clone(), class["waiting"].clone(), class["shed"]["queue_full"].clone())
    };
    while counts().2 != 46 {
        std::thread::yield_now();
    }
    assert_eq!(counts(), (4.into(), 100.into(), 46.into()));
    for path in ["/live", "/ready", "/metrics", "/policy", "/nodes"] {
        assert_eq!(running.get(path).status, 200, "{path}");
    }
    assert!(running.get("/metrics").body.contains("weirgate_class_waiting{class=\"all\"} 100"));
    drop(clients);
}

#[test]
fn a_page_of_metrics_is_bounded_and_sums_stay_right() {
    let class =
        |at: usize| format!("  - {{ name: t{at}, match: {{ host: t{at}.test }}, guarantee: {{ throughput: 1/s }} }}\n");
    let classes: String = (0..10_000).map(class).collect();
    let running =
        Start { policy: &format!("classes:\n{classes}  - {{ name: other }}\n"), ..Start::default() }.before(node());
    let ask = |host: String| {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(exchange(running.address(), request.as_bytes()).status, 200);
    };
    (0..300).for_each(|at| ask(format!("t{}.test", 33 * at)));
    let served = |page: &str, class: &str| -> Vec<u64> {
        let start = format!("weirgate_requests_total{{class=\"{class}");
        let lines = page.lines().filter(|line| line.starts_with(&start) && line.contains("\"2xx\""));
        lines.map(|line| line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number")).collect()
    };
    // A record is made when a request has ended, which may be shortly after its response was read.
    let page_after = |requests: u64| {
        while served(&running.get("/metrics?classes=all").body, "").iter().sum::<u64>() < requests {
            std::thread::yield_now();
        }
        running.get("/metrics").body
    };
    let page = page_after(300);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert_eq!(served(&page, "").iter().sum::<u64>(), 300);
    assert_eq!(page.matches("weirgate_left_total{").count(), MAX_SHOWN + 2, "200 classes, (other) and -");
    assert!(
        page.contains("# HELP weirgate_requests_total Completed requests, by class")
            && page.contains("Of more than 200")
    );
    for line in ["class_live{class=\"(other)\"} 9801", "guarantee_throughput{class=\"(other)\"} 9800.0"] {
        assert!(page.contains(&format!("weirgate_{line}\n")), "{line} is not in\n{page}");
    }
    let hidden = (0..300).map(|at| format!("t{}", 33 * at)).find(|name| served(&page, &format!("{name}\"")).is_empty());
    let hidden = hidden.expect("100 classes with a request each are not shown");
    let others = served(&page, "(other)")[0];
    (0..3).for_each(|_| ask(format!("{hidden}.test")));
    ask("u.test".to_owned());
    let page = page_after(304);
    // With four requests where the others have one it is shown from now on, and they stay in the sum.
    assert_eq!((served(&page, &format!("{hidden}\"")), served(&page, "(other)")), (vec![0], vec![others + 4]));
    ask(format!("{hidden}.test"));
    let page = page_after(305);
    assert_eq!((served(&page, &format!("{hidden}\"")), served(&page, "(other)")), (vec![1], vec![others + 4]));

    let all = running.get("/metrics?classes=all").body;
    assert_eq!(served(&all, "t9999\""), [0]);
    assert_eq!((served(&all, &format!("{hidden}\"")), served(&all, "(other)")), (vec![5], vec![]));
    assert_eq!(running.get("/metrics?classes=some").status, 400);
    assert_eq!(running.get("/metrics?class=all").status, 400);
}

#[test]
fn a5_a_body_is_bounded() {
    let running = Start::default().before(node());
    let head = |length: &str| {
        format!(
            "POST /reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
        )
    };
    let spaces = " ".repeat(64 * 1024 - 2);
    let fits = exchange(running.admin, format!("{}{spaces}{{}}", head("Content-Length: 65536")).as_bytes());
    assert_eq!(fits.status, 200, "{fits:?}");
    let long = exchange(running.admin, format!("{}{spaces} {{}}", head("Content-Length: 65537")).as_bytes());
    assert_eq!(long.status, 413);
    let chunk = format!("10000\r\n{}\r\n1\r\n \r\n0\r\n\r\n", " ".repeat(64 * 1024));
    let chunked = exchange(running.admin, format!("{}{chunk}", head("Transfer-Encoding: chunked")).as_bytes());
    assert_eq!(chunked.status, 413);
    assert_eq!(running.post("/reload", &[]).status, 200);
    let words = format!("{}[1, 2]", head("Content-Length: 6"));
    assert_eq!(exchange(running.admin, words.as_bytes()).status, 400, "a body that means something is refused");
    assert_eq!(running.version(), 3);
}

#[test]
fn a5_a_head_is_bounded() {
    let running = Start::default().before(node());
    let long = format!("GET /live HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "x".repeat(70_000));
    let many: String = (0..101).map(|i| format!("X-{i}: y\r\n")).collect();
    let many = format!("GET /live HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    for request in [long, many] {
        let answer = exchange(running.admin, request.as_bytes());
        assert!(matches!(answer.status, 400 | 431), "{answer:?}");
    }
}

#[test]
fn a5_slow_clients_are_cut_and_of_many_connections_some_wait() {
    let running = Start::default().before(node());
    // 64 connections send a head that never ends. The next one has to wait until they are closed.
    let slow: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = connect(running.admin);
            stream.write_all(b"GET /live HTTP/1.1\r\nHost: local").expect("it reads");
            stream
        })
        .collect();
    let mut next = connect(running.admin);
    next.write_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it is queued");
    next.set_nonblocking(true).expect("a socket");
    let waits = next.read(&mut [0; 1]).expect_err("nothing is there yet");
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
    next.set_nonblocking(false).expect("a socket");
    assert_eq!(read_answer(&mut next).status, 200);
    for mut stream in slow {
        assert!(matches!(read_answer(&mut stream).status, 0 | 408));
    }
    // An idle connection is closed as well, after its response.
    let mut idle = connect(running.admin);
    idle.write_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    assert_eq!(read_answer(&mut idle).status, 200);
}
