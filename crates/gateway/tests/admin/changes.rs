//! Permitted changes, and effects that a change must not have: rows C1, C2.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Start, exchange, node};

#[test]
fn c1_a_policy_that_is_not_sound_changes_nothing() {
    let running = Start::default().before(node());
    let sound = std::fs::read_to_string(&running.file).expect("the policy");
    let before = running.get("/policy");
    for broken in [
        "",
        "][",
        "classes: 3",
        &sound.replace("classes:", "clases:"),
        &sound.replace("gold.test", "gold.test\\r\\nX: y"),
        &sound.replace("host: gold.test", "header: { \"X\\r\\nY\": z }"),
        &sound.replace("host: gold.test", "path_pattern: \"(a{1000}){1000}\""),
        &sound.replace("listen: 127.0.0.1:0", "listen: nowhere"),
        &"{".repeat(100_000),
    ] {
        std::fs::write(&running.file, broken).expect("a writable file");
        let answer = running.post("/reload", &[]);
        assert_eq!(answer.status, 422, "{broken:.60}: {answer:?}");
        assert!(answer.json()["error"].as_str().is_some_and(|e| !e.is_empty()));
        assert_eq!(running.get("/policy").body, before.body);
    }
    std::fs::remove_file(&running.file).expect("it is there");
    assert!(running.post("/reload", &[]).status >= 400);
    std::fs::write(&running.file, sound.replace("gold", "silver")).expect("a writable file");
    let answer = running.post("/reload", &[]);
    assert_eq!((answer.status, &answer.json()["version"]), (200, &2.into()), "{answer:?}");
    let policy = running.get("/policy");
    assert_eq!(policy.json()["classes"][0]["name"], "silver");
    assert_eq!(policy.header("etag"), answer.header("etag"));
    assert_ne!(policy.header("etag"), before.header("etag"));
}

#[test]
fn c1_two_hundred_mutilated_policies_under_load_break_no_request() {
    let running = Start::default().before(node());
    let sound = std::fs::read_to_string(&running.file).expect("the policy");
    let address = running.address();
    let (ended, served) = (AtomicBool::new(false), std::sync::atomic::AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let answer = exchange(address, b"GET / HTTP/1.1\r\nHost: gold.test\r\nConnection: close\r\n\r\n");
                assert_eq!((answer.status, answer.body.as_str()), (200, "ok"), "{answer:?}");
                served.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut random = 1u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        let mut accepted = 0;
        for _ in 0..200 {
            // Only the text after `classes:` is corrupted, so that the node stays.
            let start = sound.find("classes:").expect("classes");
            let mut bytes = sound.clone().into_bytes();
            for _ in 0..=next(4) {
                let at = start + next(bytes.len() - start);
                bytes[at] = b" :{}[],-'\"\n\t#&*!|>%@`a0~"[next(24)];
            }
            std::fs::write(&running.file, &bytes).expect("a writable file");
            let (before, answer) = (running.version(), running.post("/reload", &[]));
            match answer.status {
                200 => accepted += 1,
                status => assert_eq!((status, running.version()), (422, before), "{answer:?}"),
            }
        }
        assert_eq!(running.version(), 1 + accepted);
        while served.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn c2_of_two_writers_that_saw_the_same_version_one_is_told() {
    let running = Start::default().before(node());
    for _ in 0..10 {
        let tag = running.get("/policy").header("etag").expect("a tag").to_owned();
        let condition = format!("If-Match: {tag}");
        let mut statuses = std::thread::scope(|scope| {
            let writers = [(); 2].map(|()| scope.spawn(|| running.post("/reload", &[&condition]).status));
            writers.map(|writer| writer.join().expect("it ends"))
        });
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412]);
    }
    assert_eq!(running.version(), 11);
    let stale = running.post("/reload", &["If-Match: \"1-0000000000000000\""]);
    assert_eq!((stale.status, stale.header("etag")), (412, running.get("/policy").header("etag")));
    assert_eq!(running.post("/reload", &["If-Match: \"x\", *"]).status, 200);
}

#[test]
fn a_drained_node_gets_nothing_until_it_is_back() {
    let node = node();
    let running = Start::default().before(node);
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(running.address(), request).status, 200);
    let answer = running.post(&format!("/nodes/web/{node}/drain"), &[]);
    assert_eq!((answer.status, &answer.json()["draining"]), (200, &true.into()), "{answer:?}");
    assert_eq!(running.get("/nodes").json()["nodes"][0]["state"], "draining");
    assert_eq!(exchange(running.address(), request).status, 503);
    assert_eq!(running.post(&format!("/nodes/web/{node}/undrain"), &[]).status, 200);
    assert_eq!(exchange(running.address(), request).status, 200);
    for missing in ["/nodes/web/nobody/drain", "/nodes/nowhere/x/drain", "/nodes/web/%ff/drain"] {
        assert!(matches!(running.post(missing, &[]).status, 400 | 404), "{missing}");
    }
}

#[test]
fn a_drain_ends_the_gateway_and_is_told_by_ready() {
    let running = Start::default().before(node());
    assert_eq!(running.post("/drain", &[]).status, 202);
    let ready = running.get("/ready");
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &false.into()));
    assert_eq!(running.get("/live").status, 200);
    assert_eq!(running.post("/reload", &[]).status, 409);
    running.gateway.join();
    assert_eq!(running.get("/ready").json()["phase"], "stopped");
}
