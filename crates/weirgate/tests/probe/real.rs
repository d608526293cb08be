//! A real Apache with PHP and three kinds of pages, as in Feng and Lin, Sec. 4.2. They are probed without
//! help, and measured independently with the kernel's own counters.
//!
//! - `math.php` and `proof.php` compute.
//! - `album.php` reads photographs from a file that is four times as large as the server's memory.
//! - `formula.php` sends large replies.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::fs::{Advice, fadvise};
use weirgate_pki::Authority;
use weirgate_tls::Role;

use crate::house::{CPUS, DISK, House, INTERFACE, SERVER, WIRE};
use crate::processes::{Directory, Process, becomes_true, program, say};

/// Size of the album in bytes.
const ALBUM: u64 = 256 << 20;

/// Maximum relative difference between a table and the independent measurement.
const BAND: f64 = 0.15;

/// The independent measurements: an address, its route, the resource that it uses most, and the number of
/// requests before and after. About five seconds each.
const PAGES: [(&str, &str, usize, u32); 4] = [
    ("/math.php?n=1", "/math.php?n=*", 0, 200),
    ("/album.php?id=1", "/album.php?id=*", 1, 200),
    ("/formula.php?of=water&as=3d", "/formula.php?as=3d&of=*", 2, 120),
    ("/proof.php?of=long", "/proof.php?of=long", 0, 120),
];

const HOME: &str = "<!DOCTYPE html><title>Three kinds of pages</title>
<a href='math.php?n=1'>1</a> <a href='math.php?n=2'>2</a> <a href='math.php?n=3'>3</a>
<a href='proof.php?of=short'>short</a> <a href='proof.php?of=long'>long</a>
<a href='album.php?id=1'>sea</a> <a href='album.php?id=2'>land</a>
<a href='formula.php?of=benzene&amp;as=3d'>benzene</a> <a href='formula.php?of=water&amp;as=3d'>water</a>
<a href='private/'>no</a> <a href='logout.php'>no</a> <a href='missing.html'>no</a> <a href='http://192.0.2.9/'>no</a>";

/// Computes until a request has used a given CPU time, instead of a given number of steps. The time of a step changes
/// by a fifth here with the load of the other half of the core, and the test could not tell whether the probe or the
/// measurement was right.
const COMPUTE: &str = "<?php function used() { $u = getrusage(); return 1e3 * ($u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec'])
    + 1e-3 * ($u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec']); }
    function compute($ms, $x = 0) { global $start; while (used() < $start + $ms) for ($i = 0; $i < 1000; $i++) $x = sqrt($x + $i); echo $x; }
    $start = used();";
const MATH: &str = "<?php require 'compute.inc'; compute(7);";
const PROOF: &str = "<?php require 'compute.inc'; compute($_GET['of'] == 'long' ? 16 : 3);";
/// Reading takes the kernel 1.5 ms, and half as much again beside other programs. The rest of the 4 ms evens that out.
const PHOTO: &str = "<?php require 'compute.inc'; $at = mt_rand(0, 511) * 524288;
    compute(4, crc32(file_get_contents('%DIRECTORY%/album', false, null, $at, 524288)));";
const FORMULA: &str =
    "<?php header('Content-Type: chemical/x-mdl'); echo str_repeat('C1=CC=CC=C1 0.0000 1.3970 0.0000', 6400);";

#[test]
fn a_real_servers_pages_cost_what_was_measured_beside_it() {
    let Some(mut apache) = program("apache2") else { return };
    let fpm = std::fs::read_dir("/usr/sbin").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let fpm = fpm.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with("php-fpm")).max();
    let Some(mut pages) = program(fpm.as_deref().unwrap_or("php-fpm")) else { return };
    if [program("ip"), program("tc"), program("nsenter")].iter().any(Option::is_none) {
        return;
    }
    let directory = Directory::new();
    let Some(house) = House::build(directory.path()) else { return };
    let text = |text: &str| {
        let address = format!("{SERVER}:80");
        text.replace("%DIRECTORY%", directory.path().to_str().expect("UTF-8")).replace("%ADDRESS%", &address)
    };
    std::fs::create_dir(directory.path().join("pages")).expect("the directory is ours");
    for (name, content) in [
        ("apache.conf", include_str!("apache.conf")),
        ("fpm.conf", include_str!("fpm.conf")),
        ("pages/index.html", HOME),
        ("pages/compute.inc", COMPUTE),
        ("pages/math.php", MATH),
        ("pages/proof.php", PROOF),
        ("pages/album.php", PHOTO),
        ("pages/formula.php", FORMULA),
        ("pages/logout.php", "<?php"),
        ("pages/robots.txt", "User-agent: *\nDisallow: /private\n"),
    ] {
        directory.write(name, &text(content));
    }
    album(&directory);

    let at = |port: u16| SocketAddr::new(SERVER.parse().expect("an address"), port);
    let socket = directory.path().join("php.sock");
    pages.args(["-n", "-y"]).arg(directory.path().join("fpm.conf"));
    let _pages = Process::start_until(house.at_server(true, &pages), &directory, "fpm", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    apache.args(["-D", "FOREGROUND", "-f"]).arg(directory.path().join("apache.conf"));
    let _apache = Process::start(house.at_server(true, &apache), &directory, at(80));
    let pki = directory.path().join("pki");
    let mut authority = Authority::create(&pki, "test", 365, weirgate_clock::calendar()).expect("an authority");
    let mut issue = |role, name: &str| authority.issue(role, name, &[], 30).expect("a certificate");
    let trust = [(Role::Agent, SERVER), (Role::Gateway, "gw"), (Role::Operator, "prober")];
    let [of_agent, of_gateway, of_prober] = trust.map(|(role, name)| issue(role, name));
    let mut agent = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    agent.args(["agent", "--port", "80", "--usage-of", house.name(), "--interface", INTERFACE, "--listen"]);
    agent.arg(at(9902).to_string()).arg("--trust").arg(&of_agent);
    let _agent = Process::start(house.at_server(false, &agent), &directory, at(9902));

    let policy = |table: &str| {
        directory.write(
            "policy.yaml",
            &format!(
                "listen: 127.0.0.1:0\nadmin: off\ntrust: {}\n{table}upstreams:\n  web: {{ nodes: [\"{SERVER}:80\"], collector: \
                 {{ port: 9902 }} }}\nclasses: [{{ name: all }}]\n",
                of_gateway.display()
            ),
        )
    };
    // Measure before and after the probe, because the effect of the machine's other work changes by the
    // minute.
    let before = PAGES.map(|(path, _, _, requests)| measure(&house, at(80), path, requests));
    let mut probe = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    probe
        .args(["probe", &format!("http://{SERVER}/"), "--policy"])
        .arg(policy(""))
        .arg("--trust")
        .arg(&of_prober)
        .arg("--output");
    probe.arg(directory.path().join("pages.yaml")).args(["--page-time", "1"]).stdin(Stdio::null());
    let output = probe.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let written = std::fs::read_to_string(directory.path().join("pages.yaml")).unwrap_or_default();
    say(&format!("{said}\n{written}"));
    assert!(output.status.success(), "{said}");

    let log = std::fs::read_to_string(directory.path().join("access.log")).expect("Apache writes it");
    assert!(log.contains("GET /robots.txt ") && !log.contains("private") && !log.contains("logout"), "left alone");
    assert!(written.contains("#   /missing.html: answered 404"), "{written}");

    let table = crate::table(&policy("page_table: pages.yaml\n"));
    let mut routes: Vec<String> = table.routes.iter().map(|route| route.pattern.to_string()).collect();
    // A request for the start page takes 0.2 ms. On a busy machine that may be less than the noise, and the table says
    // so.
    let is_measured = routes.first().is_some_and(|route| route == "/");
    assert!(is_measured || written.contains("#   /: its use of cpu"), "{written}");
    routes.retain(|route| route != "/");
    let dear = ["/proof.php?of=long", "/proof.php?of=short"];
    assert_eq!(routes, ["/album.php?id=*", "/formula.php?as=3d&of=*", "/math.php?n=*", dear[0], dear[1]], "{written}");

    let has = [CPUS, DISK as f64, WIRE as f64];
    let mut wrong = Vec::new();
    for (resource, (found, has)) in table.capacity.iter().zip(has).enumerate() {
        let found = found.unwrap_or(has);
        say(&format!("resource {resource}: capacity {found}, limited to {has}"));
        if found > has * (1.0 + BAND) {
            wrong.push(format!("resource {resource}: the server cannot give {found} a second, its limit is {has}"));
        }
    }
    for ((path, route, tendency, requests), before) in PAGES.into_iter().zip(before) {
        let after = measure(&house, at(80), path, requests);
        let all = [before.clone(), after.clone()].concat();
        let used = [0, 1, 2].map(|at| undisturbed(&all, at));
        let known = table.routes.iter().find(|known| known.pattern.to_string() == route).expect("it is there");
        // Shares of the capacity that the probe found. Other programs may keep the server from its whole quota.
        let has = [0, 1, 2].map(|at| table.capacity[at].unwrap_or(has[at]));
        let direct: Vec<f64> = used.iter().zip(has).map(|(used, has)| used / has).collect();
        let largest = direct.iter().copied().fold(0.0, f64::max);
        for (resource, direct) in direct.iter().enumerate() {
            if *direct <= 0.0 {
                continue;
            }
            let probed = known.demand.share(resource);
            let off = probed / direct - 1.0;
            // A share below a tenth of the largest one neither limits a page nor takes enough of other
            // pages' resources.
            let matters = *direct >= 0.1 * largest;
            let [before, after] = [&before, &after].map(|parts| 100.0 * undisturbed(parts, resource) / has[resource]);
            say(&format!(
                "{route} resource {resource}: probed {:.3} %, measured {before:.3} % before and {after:.3} % after, off {:+.1} %",
                probed * 100.0,
                off * 100.0
            ));
            if matters && off.abs() > BAND {
                wrong.push(format!("{route}: resource {resource} is off by {:.0} %", off * 100.0));
            }
        }
        if known.demand.tendency() != tendency {
            wrong.push(format!("{route}: its tendency is {}, not {tendency}", known.demand.tendency()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}\n{written}");
}

/// Writes the album, and leaves nothing of it in memory.
fn album(directory: &Directory) {
    let path = directory.path().join("album");
    let mut file = File::create(&path).expect("the directory is ours");
    let block: Vec<u8> = (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for _ in 0..ALBUM >> 20 {
        file.write_all(&block).expect("there is room");
    }
    file.sync_all().expect("it is written");
    fadvise(file.as_fd(), 0, None, Advice::DontNeed).expect("the kernel is told");
}

/// Number of parts of a measurement, each of about a second.
const PARTS: u32 = 5;

/// Returns the use of a request for `path` by the kernel's counters: means of many requests, by four
/// clients, as requests arrive concurrently behind a gateway.
fn measure(house: &House, server: SocketAddr, path: &str, requests: u32) -> Vec<[f64; 3]> {
    const CLIENTS: u32 = 4;
    let each = requests / CLIENTS / PARTS;
    let part = |_| {
        let before = house.used();
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| ask(server, path, each));
            }
        });
        // The last packet may still be on its way.
        let mut after = house.used();
        let still = becomes_true(|| {
            let before = std::mem::replace(&mut after, house.used());
            before[2] == after[2]
        });
        assert!(still, "nobody asks any more");
        [0, 1, 2].map(|at| (after[at] - before[at]) / f64::from(each * CLIENTS))
    };
    (0..PARTS).map(part).collect()
}

/// Returns the mean of the smaller half of some measurements of a resource. Other work on the machine only adds to
/// what a request takes (it empties the caches and occupies the other half of a core), at times threefold for seconds.
/// So the small measurements are the ones beside which it rested.
fn undisturbed(parts: &[[f64; 3]], resource: usize) -> f64 {
    let mut parts: Vec<f64> = parts.iter().map(|part| part[resource]).collect();
    parts.sort_by(f64::total_cmp);
    let smaller = &parts[..parts.len().div_ceil(2)];
    smaller.iter().sum::<f64>() / smaller.len() as f64
}

/// Requests `path` many times on one connection.
fn ask(server: SocketAddr, path: &str, times: u32) {
    let mut stream = TcpStream::connect(server).expect("it accepts");
    let mut reader = BufReader::new(stream.try_clone().expect("a socket can be copied"));
    // In one packet, as any client sends it.
    let request = format!("GET {path} HTTP/1.1\r\nHost: probed.test\r\n\r\n");
    for _ in 0..times {
        stream.write_all(request.as_bytes()).expect("it takes the request");
        skip_answer(&mut reader);
    }
}

/// Reads an answer of status 200 to its end.
fn skip_answer(reader: &mut impl BufRead) {
    let (mut length, mut chunked, mut line) = (0u64, false, String::new());
    reader.read_line(&mut line).expect("a line");
    assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a line");
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().expect("a number"),
            "transfer-encoding" => chunked = true,
            "" => break,
            _ => {}
        }
    }
    loop {
        if chunked {
            line.clear();
            reader.read_line(&mut line).expect("a line");
            length = u64::from_str_radix(line.trim(), 16).expect("a length");
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).expect("a body");
        let is_last = !chunked || length == 0;
        if chunked {
            line.clear();
            reader.read_line(&mut line).expect("the end of a chunk");
        }
        if is_last {
            return;
        }
    }
}
