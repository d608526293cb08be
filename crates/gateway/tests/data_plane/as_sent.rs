//! Requests and responses of real clients and servers, through the gateway and directly: both sides get the same bytes.
//!
//! The corpus is written after the documentation and the observed behaviour of the named programs. Of each message the
//! fields that concern one connection are compared apart, and the gateway's own fields come after all others.

use crate::stage::{Client, Node, PLAIN, Stage, ok, policy};

/// Requests without the line end of `Host` and the end of the head, and bodies.
const REQUESTS: &[(&str, &str, &str)] = &[
    (
        "npm, scoped package",
        "GET /@babel%2fcore HTTP/1.1\r\nuser-agent: npm/10.8.2 node/v20.17.0 linux x64 workspaces/false\r\naccept: application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*\r\naccept-encoding: gzip,deflate",
        "",
    ),
    (
        "npm, publish",
        "PUT /@scope%2Fname HTTP/1.1\r\ncontent-type: application/json\r\nnpm-command: publish\r\nauthorization: Bearer npm_0000\r\nContent-Length: 14",
        "{\"_id\":\"name\"}",
    ),
    (
        "pip",
        "GET /simple/zope.interface/ HTTP/1.1\r\nUser-Agent: pip/24.2 {\"ci\":null,\"cpu\":\"x86_64\",\"distro\":{\"name\":\"Debian GNU/Linux\"}}\r\nAccept-Encoding: gzip, deflate, br\r\nAccept: application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01\r\nCache-Control: max-age=0",
        "",
    ),
    (
        "apt",
        "GET /debian/pool/main/g/g++/g%2b%2b_12.2.0-3_amd64.deb HTTP/1.1\r\nUser-Agent: Debian APT-HTTP/1.3 (2.6.1)\r\nRange: bytes=1024-\r\nIf-Range: Sat, 10 Jun 2023 09:58:00 GMT",
        "",
    ),
    (
        "cargo, sparse index",
        "GET /se/rd/serde HTTP/1.1\r\naccept-encoding: gzip\r\ncargo-protocol: version=1\r\nif-none-match: W/\"0123456789abcdef\"",
        "",
    ),
    (
        "go, module with upper case",
        "GET /github.com/!burnt!sushi/toml/@v/v1.3.2.info HTTP/1.1\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip",
        "",
    ),
    (
        "maven",
        "HEAD /maven2/org/apache/commons/commons-lang3/3.17.0/commons-lang3-3.17.0.jar HTTP/1.1\r\nCache-control: no-cache\r\nPragma: no-cache\r\nUser-Agent: Apache-Maven/3.9.9 (Java 21.0.4; Linux 6.1.0)",
        "",
    ),
    (
        "docker, manifest",
        "GET /v2/library/debian/manifests/sha256:0123456789abcdef HTTP/1.1\r\nUser-Agent: docker/27.3.1 go/go1.22.7\r\nAccept: application/vnd.oci.image.index.v1+json\r\nAccept: application/vnd.docker.distribution.manifest.v2+json\r\nAuthorization: Bearer x",
        "",
    ),
    (
        "docker, chunked layer",
        "PATCH /v2/app/blobs/uploads/8d0a?_state=QUJD%3D%3D HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Type: application/octet-stream",
        "5\r\nlayer\r\n0\r\n\r\n",
    ),
    (
        "git",
        "POST /group/project.git/git-upload-pack HTTP/1.1\r\nUser-Agent: git/2.39.5\r\nContent-Type: application/x-git-upload-pack-request\r\nAccept: application/x-git-upload-pack-result\r\nGit-Protocol: version=2\r\nContent-Length: 4",
        "0000",
    ),
    (
        "GitLab, project by path",
        "GET /api/v4/projects/group%2Fsub%2Fproject/repository/files/src%2Fmain.rs?ref=feature%2Fx HTTP/1.1\r\nPRIVATE-TOKEN: glpat-0000",
        "",
    ),
    (
        "S3, key with slashes and spaces",
        "GET /bucket/photos//2024/a%2Bb%20c%25.jpg?x-id=GetObject HTTP/1.1\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\nX-Amz-Date: 20261123T120000Z\r\nAuthorization: AWS4-HMAC-SHA256 Credential=AKIA/20261123/eu-central-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=00ff",
        "",
    ),
    (
        "S3, presigned",
        "GET /b/k%2F%2Fk?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA%2F20261123%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Signature=0a HTTP/1.1\r\nRange: bytes=0-0",
        "",
    ),
    (
        "S3, chunk-signed upload",
        "PUT /b/k HTTP/1.1\r\nContent-Encoding: aws-chunked\r\nx-amz-decoded-content-length: 3\r\nContent-Length: 8",
        "3;s\r\nabc",
    ),
    (
        "browser, characters that no URI has",
        "GET /search?q=\"a+b\"<c>`{d}|e^f\\g[h] HTTP/1.1\r\nSec-Fetch-Mode: navigate\r\nsec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\nCookie: a=1; b=\"x y\"; c=caf\u{e9}\r\nDNT: 1",
        "",
    ),
    (
        "browser, path of WHATWG",
        "GET /a|b^c`d{e}/~user/%7Euser/%e4%F6 HTTP/1.1\r\nUpgrade-Insecure-Requests: 1\r\nAccept-Language: de-DE,de;q=0.9",
        "",
    ),
    ("archive of another URL", "GET /web/20200101000000*/https://example.test//path//?q=1#x HTTP/1.1", ""),
    ("archive, URL in the path", "GET /web/2020/https://example.test//path/ HTTP/1.1\r\nReferer: http://web.test/", ""),
    (
        "curl, form",
        "POST /form HTTP/1.1\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\nContent-Length: 5\r\nContent-Type: application/x-www-form-urlencoded",
        "a=%41",
    ),
    ("curl, raw backslash", "GET /dir\\file HTTP/1.1\r\nUser-Agent: curl/7.88.1", ""),
    (
        "wget through a proxy",
        "GET http://a.test:80/x//y%2Fz?q HTTP/1.1\r\nUser-Agent: Wget/1.21.3\r\nProxy-Connection: Keep-Alive",
        "",
    ),
    (
        "WebDAV",
        "PROPFIND /dav/My%20Files/%5Bx%5D/ HTTP/1.1\r\nDepth: 1\r\nContent-Type: application/xml\r\nContent-Length: 11",
        "<propfind/>",
    ),
    (
        "signed webhook",
        "POST /hooks/%7Bid%7D HTTP/1.1\r\nX-Hub-Signature-256: sha256=00\r\nX-GitHub-Delivery: 72d3162e\r\nContent-Length: 2",
        "{}",
    ),
    (
        "field without value, unusual case",
        "GET /;v=1,2/a=b/(c)*!$&'+@: HTTP/1.1\r\nX-Empty:\r\nx-TABS:\ta\tb \r\nACCEPT:*/*",
        "",
    ),
    ("dots", "GET /a/../b/./c//d/... HTTP/1.1", ""),
];

/// Whole responses.
const RESPONSES: &[(&str, &str)] = &[
    (
        "nginx",
        "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 23 Nov 2026 12:00:00 GMT\r\nContent-Type: text/html\r\nContent-Length: 3\r\nETag: \"0-1\"\r\nAccept-Ranges: bytes\r\n\r\nabc",
    ),
    ("odd reason", "HTTP/1.1 200 It's all right \u{e9}\r\nDate: x\r\nContent-Length: 0\r\n\r\n"),
    ("unknown status", "HTTP/1.1 299 Mostly\r\nDate: x\r\nContent-Length: 0\r\n\r\n"),
    (
        "cookies in order",
        "HTTP/1.1 302 Found\r\nDate: x\r\nSet-Cookie: a=1; Path=/\r\nLocation: /x?a=%2F\r\nset-cookie: b=2\r\nContent-Length: 0\r\n\r\n",
    ),
    (
        "chunked with an extension and trailer",
        "HTTP/1.1 200 OK\r\nDate: x\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n",
    ),
    (
        "compressed, vary",
        "HTTP/1.1 206 Partial Content\r\nDate: x\r\nContent-Range: bytes 0-2/9\r\nVary: Accept-Encoding, Origin\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\n\u{1}\u{2}\u{3}",
    ),
    ("empty values and blanks", "HTTP/1.1 200 OK\r\nDate: x\r\nX-A:\r\nX-B:   b  \r\nContent-Length: 0\r\n\r\n"),
    (
        "not modified",
        "HTTP/1.1 304 Not Modified\r\nDate: x\r\nETag: W/\"1\"\r\nCache-Control: public, max-age=60\r\n\r\n",
    ),
    ("no content", "HTTP/1.1 204 No Content\r\nDate: x\r\nAllow: GET, PROPFIND\r\n\r\n"),
    (
        "already through a proxy",
        "HTTP/1.1 200 OK\r\nDate: x\r\nVia: 1.1 varnish\r\nAge: 7\r\nX-Cache: HIT\r\nContent-Length: 0\r\n\r\n",
    ),
];

/// Fields that concern one connection, or that the gateway writes anew behind the others.
const NOT_COMPARED: [&str; 3] = ["proxy-connection:", "transfer-encoding:", "connection:"];

/// Returns the lines of a head that are compared.
fn lines(head: &str) -> Vec<&str> {
    let own = |line: &&str| !NOT_COMPARED.iter().any(|name| line.to_ascii_lowercase().starts_with(name));
    head.trim_end_matches("\r\n").split("\r\n").filter(own).collect()
}

/// Checks that `through` is `direct` and after it only fields of `added`.
fn compare(name: &str, direct: &str, through: &str, added: &[&str]) {
    let (direct, through) = (lines(direct), lines(through));
    assert_eq!(through.get(..direct.len()), Some(&direct[..]), "{name}");
    for line in &through[direct.len()..] {
        assert!(added.iter().any(|name| line.starts_with(name)), "{name}: {line} is added");
    }
}

#[test]
fn nodes_get_what_clients_send() {
    let node = Node::replying(|_, _| ok("x"));
    let stage = Stage::open(&policy(&[&node], PLAIN));
    let added = ["x-forwarded-for:", "x-forwarded-proto:", "x-forwarded-host:", "forwarded:", "via:", "traceparent:"];
    for (name, head, body) in REQUESTS {
        let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
        let end = if fields.is_empty() { "" } else { "\r\n" };
        let request = format!("{line}\r\nHost: a.test\r\n{fields}{end}\r\n{body}");
        let ask = |mut client: Client| {
            client.send(&request);
            let answer = if head.starts_with("HEAD") { client.head_answer() } else { client.answer() };
            (answer.status, node.calls().pop())
        };
        if line.contains('#') {
            // Readers disagree on the meaning of a fragment.
            assert_eq!(ask(stage.client()).0, 400, "{name}");
            continue;
        }
        let (direct, through) = (ask(Client::connect(node.address)), ask(stage.client()));
        assert_eq!((direct.0, through.0), (200, 200), "{name}");
        let (direct, through) = (direct.1.expect("a call"), through.1.expect("a call"));
        // An absolute target becomes a path, and its authority the host (RFC 9112 Sec. 3.2.2).
        let expected = direct.head.replace("GET http://a.test:80/", "GET /");
        if expected == direct.head {
            compare(name, &direct.head, &through.head, &added);
        } else {
            assert_eq!(through.line(), expected.lines().next().unwrap_or_default(), "{name}");
            assert_eq!(through.header("host").as_deref(), Some("a.test:80"), "{name}");
        }
        assert_eq!(direct.body, through.body, "{name}");
    }
}

#[test]
fn clients_get_what_nodes_send() {
    for (name, response) in RESPONSES {
        // Text of the corpus beyond ASCII stands for single bytes.
        let bytes: Vec<u8> = response.chars().map(|c| c as u8).collect();
        let (node, stage) = Stage::of(Node::answering(bytes), PLAIN);
        let ask = |mut client: Client| client.ask("/");
        let (direct, through) = (ask(Client::connect(node.address)), ask(stage.client()));
        compare(name, &direct.head, &through.head, &["via:"]);
        assert_eq!(direct.body, through.body, "{name}");
    }
}
