//! The behaviour of each kind of hostile client.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weirgate_clock::sleep;
use weirgate_emulator::random::Random;

use super::{Kind, Wire, between, status_of};

/// Pause between two bytes of a slow client. At ten bytes a second a body stays below every minimum rate.
const DRIP: Duration = Duration::from_millis(100);

/// Time after which a slow client gives up. It exceeds all time-outs of the gateway for heads and bodies.
const STUBBORN: u32 = 600;

/// Number of requests that a pipeliner sends in one write.
const PIPELINED: usize = 50;

/// Bytes of a head that exceeds `limits.head_bytes` (64 KiB by default).
const OVERSIZED: usize = 100_000;

/// Bytes of the response that a slow reader asks for.
const LARGE: usize = 8 << 20;

/// CPU time on a node that most hostile requests ask for.
const DEMAND: &str = "demand=2ms";

/// Plays a client of `kind` for ever.
pub(super) async fn play(kind: Kind, wire: Wire, mut random: Random) {
    loop {
        // A connection that the gateway ends is an outcome like any other.
        let _ = act(kind, &wire, &mut random).await;
        let pause = match kind {
            // Floods come again at once, as far as a single client can.
            Kind::Churn | Kind::Pipeliner | Kind::Refused | Kind::FullQueue => Duration::from_millis(1),
            _ => Duration::from_millis(between(&mut random, 20, 200)),
        };
        sleep(pause).await;
    }
}

async fn act(kind: Kind, wire: &Wire, random: &mut Random) -> io::Result<()> {
    let mut stream = wire.connect().await?;
    match kind {
        Kind::Silent => until_closed(&mut stream).await,
        Kind::ByteHead => {
            let head = get("rest", DEMAND);
            drip(&mut stream, &[head.as_bytes(), &b"X-More: y\r\n".repeat(100)].concat(), 1).await
        }
        Kind::SlowBody => slow_body(wire, &mut stream, random).await,
        Kind::SlowReader => {
            Wire::send(&mut stream, get("rest", &format!("{DEMAND}&bytes={LARGE}")).as_bytes()).await?;
            Wire::send(&mut stream, b"\r\n").await?;
            let mut some = [0; 512];
            while stream.read(&mut some).await? > 0 {
                sleep(DRIP).await;
            }
            Ok(())
        }
        Kind::DiesInHead => {
            let head = get("rest", DEMAND);
            let cut = between(random, 1, head.len() as u64) as usize;
            Wire::send(&mut stream, &head.as_bytes()[..cut]).await?;
            die(stream, random).await
        }
        Kind::DiesInBody => {
            let framing = ["Content-Length: 100000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n400\r\n"];
            Wire::send(&mut stream, (post() + framing[between(random, 0, 1) as usize]).as_bytes()).await?;
            Wire::send(&mut stream, &[b'x'; 1000][..between(random, 0, 1000) as usize]).await?;
            die(stream, random).await
        }
        Kind::DiesInResponse => {
            let bytes = between(random, 10, LARGE as u64);
            Wire::send(&mut stream, (get("rest", &format!("{DEMAND}&bytes={bytes}")) + "\r\n").as_bytes()).await?;
            let mut some = vec![0; between(random, 1, 100_000) as usize];
            let read = stream.read(&mut some).await?;
            if let Some(status) = status_of(&some[..read]) {
                wire.count(status);
            }
            die(stream, random).await
        }
        Kind::Churn => {
            if between(random, 0, 3) == 0 {
                return Ok(());
            }
            ask(wire, &mut stream, "rest", DEMAND).await.map(drop)
        }
        Kind::Pipeliner => {
            let request = get("rest", DEMAND) + "\r\n";
            Wire::send(&mut stream, request.repeat(PIPELINED).as_bytes()).await?;
            let mut bytes = Vec::new();
            for _ in 0..PIPELINED {
                wire.response(&mut stream, &mut bytes).await?;
            }
            Ok(())
        }
        Kind::Refused => loop {
            ask(wire, &mut stream, "limited", DEMAND).await?;
        },
        Kind::FullQueue => loop {
            ask(wire, &mut stream, "full", DEMAND).await?;
        },
        Kind::Crowd => loop {
            ask(wire, &mut stream, "rest", "demand=20ms").await?;
        },
        Kind::Idle => {
            ask(wire, &mut stream, "rest", DEMAND).await?;
            until_closed(&mut stream).await
        }
        Kind::HalfClose => {
            Wire::send(&mut stream, (get("rest", DEMAND) + "\r\n").as_bytes()).await?;
            stream.shutdown().await?;
            until_closed(&mut stream).await
        }
        Kind::OversizedHead => {
            let head = get("rest", DEMAND) + "X-Long: " + &"y".repeat(OVERSIZED) + "\r\n\r\n";
            Wire::send(&mut stream, head.as_bytes()).await?;
            wire.response(&mut stream, &mut Vec::new()).await.map(drop)
        }
        Kind::Garbage => {
            let length = between(random, 1, 2000);
            let bytes: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
            Wire::send(&mut stream, &bytes).await?;
            until_closed(&mut stream).await
        }
        Kind::DyingNode => loop {
            ask(wire, &mut stream, "dying", "demand=5ms").await?;
        },
        Kind::EndlessInterim => ask(wire, &mut stream, "interim", "").await.map(drop),
    }
}

/// Sends a body a byte at a time under one of the framings, or waits for the permission to send it.
async fn slow_body(wire: &Wire, stream: &mut TcpStream, random: &mut Random) -> io::Result<()> {
    let chunk: &[u8] = b"1\r\nx\r\n";
    let (fields, part) = match between(random, 0, 4) {
        0 => ("Content-Length: 60000\r\n", &b"x"[..]),
        1 => ("Content-Length: 100000000\r\n", &b"x"[..]),
        2 => ("Transfer-Encoding: chunked\r\n", chunk),
        3 => ("Expect: 100-continue\r\nContent-Length: 100000000\r\n", &b"x"[..]),
        _ => ("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", chunk),
    };
    Wire::send(stream, (post() + fields + "\r\n").as_bytes()).await?;
    let (mut reader, mut writer) = stream.split();
    let mut some = [0; 1024];
    let sends = async {
        for _ in 0..STUBBORN {
            writer.write_all(part).await?;
            sleep(DRIP).await;
        }
        Ok::<(), io::Error>(())
    };
    let hears = async {
        loop {
            match reader.read(&mut some).await? {
                0 => return Ok::<(), io::Error>(()),
                read => match status_of(&some[..read]) {
                    Some(100) | None => {}
                    Some(status) => wire.count(status),
                },
            }
        }
    };
    tokio::select! {
        sent = sends => sent,
        heard = hears => heard,
    }
}

/// Sends `bytes` in steps of `step`, and then waits until the gateway closes.
async fn drip(stream: &mut TcpStream, bytes: &[u8], step: usize) -> io::Result<()> {
    for part in bytes.chunks(step) {
        stream.write_all(part).await?;
        sleep(DRIP).await;
    }
    until_closed(stream).await
}

/// Reads until the gateway closes the connection.
async fn until_closed(stream: &mut TcpStream) -> io::Result<()> {
    let mut some = [0; 4096];
    while stream.read(&mut some).await? > 0 {}
    Ok(())
}

/// Ends the connection at once: with a reset, or with a close after a short while.
async fn die(stream: TcpStream, random: &mut Random) -> io::Result<()> {
    if between(random, 0, 1) == 0 {
        stream.set_zero_linger()?;
    } else {
        sleep(DRIP).await;
    }
    Ok(())
}

/// Sends a request to `class` and reads its response.
async fn ask(wire: &Wire, stream: &mut TcpStream, class: &str, query: &str) -> io::Result<u16> {
    Wire::send(stream, (get(class, query) + "\r\n").as_bytes()).await?;
    wire.response(stream, &mut Vec::new()).await
}

/// Returns the head of a request without its last line.
fn get(class: &str, query: &str) -> String {
    format!("GET /hostile?{query} HTTP/1.1\r\nHost: door.test\r\nX-Class: {class}\r\n")
}

fn post() -> String {
    format!("POST /hostile?{DEMAND} HTTP/1.1\r\nHost: door.test\r\nX-Class: rest\r\n")
}
