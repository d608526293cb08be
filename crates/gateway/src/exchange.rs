//! One request, from its head to its access record: the stages in order.
//!
//! The stages are *classify*, then *admit*, *queue*, *release* and *dispatch* (this module asks the engine
//! and waits for its decision), *forward* (`forward.rs`), and *observe* (the record is written after the last
//! byte is sent).

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{EXPECT, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use weirgate_config::{LocalityKeyOf, NodeTimeouts};
use weirgate_engine::{ClassId, Shed, Time};

use crate::active_config::{ActiveConfig, ConfigHandle, Endpoint};
use crate::body_pace::BodyPace;
use crate::classify::{ClassRef, View};
use crate::client_conn::ClientConn;
use crate::forward::{self, Forward};
use crate::memory::Pressure;
use crate::normalized_target::NormalizedTarget;
use crate::pump::ReplyBody;
use crate::record::{AccessRecord, ClassIndex, Ending};
use crate::refusal::Refusal;
use crate::reply::{self, NodeError};
use crate::trace::TraceId;
use crate::upstream::{RequestBody, TOO_LARGE, TOO_SLOW, Upload, account};
use crate::worker::Admission;
use crate::{client, hops};

/// Maximum size of a body that is received before the request is admitted, in bytes. A slow sender then holds
/// no slot, and an idempotent request can be retried.
const SMALL_BODY: u64 = 64 * 1024;

/// State of a request. Dropping it writes the access record.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) conn: Rc<ClientConn>,
    pub(crate) active_config: Rc<ConfigHandle>,
    pub(crate) ending: Ending,
    pub(crate) status: u16,
    pub(crate) endpoint: Option<Arc<Endpoint>>,
    pub(crate) retries: u8,
    pub(crate) bytes_out: u64,
    class: Option<ClassIndex>,
    method: Option<Method>,
    normalized: Option<NormalizedTarget>,
    trace: Option<TraceId>,
    client: IpAddr,
    /// Whether the client asked for another protocol.
    upgrade: bool,
    arrived: Time,
    decided: Option<Time>,
    released: bool,
    node_ended: Option<Time>,
    ended: Option<Time>,
}

/// Serves one request of a connection.
pub(crate) async fn serve(conn: Rc<ClientConn>, request: Request<Incoming>) -> Result<Response<ReplyBody>, Infallible> {
    let refusal = conn.begin();
    let mut exchange = Box::new(Exchange::new(&conn));
    let response = match refusal {
        Some(refusal) => exchange.refuse(refusal),
        None if conn.worker.shared.memory.pressure() == Pressure::Admit => exchange.exhausted(),
        None => {
            let (head, body) = request.into_parts();
            #[cfg(test)]
            assert!(!head.headers.contains_key("x-panic"), "a test asks for a panic");
            match exchange.classify(head) {
                Ok(ready) => ready.admit(body, exchange).await,
                Err(refusal) => exchange.refuse(refusal),
            }
        }
    };
    conn.answered.set(true);
    Ok(response)
}

/// A request that is ready for the rules and then for admission.
struct Classified {
    head: Parts,
    normalized: NormalizedTarget,
    upgrade: Option<HeaderValue>,
    trusted: bool,
}

impl Exchange {
    fn new(conn: &Rc<ClientConn>) -> Exchange {
        Exchange {
            conn: Rc::clone(conn),
            active_config: conn.worker.active_config(),
            ending: Ending::Left,
            status: 0,
            endpoint: None,
            retries: 0,
            bytes_out: 0,
            class: None,
            method: None,
            normalized: None,
            trace: None,
            client: conn.peer.ip(),
            upgrade: false,
            arrived: conn.now(),
            decided: None,
            released: false,
            node_ended: None,
            ended: None,
        }
    }

    /// Stage *classify* up to the rules: determines the target, the authority and the client of the request.
    fn classify(&mut self, mut head: Parts) -> Result<Classified, Refusal> {
        self.method = Some(head.method.clone());
        let asked = head.headers.get(UPGRADE).filter(|_| head.version == Version::HTTP_11).cloned();
        self.upgrade = asked.is_some() || head.method == Method::CONNECT;
        let normalized = NormalizedTarget::of(&head.method, &head.uri, head.version, &head.headers)?;
        self.normalized = Some(normalized.clone());
        let names_upgrade = hops::drop_named(&mut head.headers);
        let trusted = self.active_config.trusts(self.conn.peer.ip().to_canonical());
        self.client = client::client(self.conn.peer.ip(), &self.active_config, &head.headers);
        self.trace = Some(self.conn.worker.traces.of(&mut head.headers));
        if head.headers.get(EXPECT).is_some_and(|e| !e.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
            return Err(Refusal::with(
                StatusCode::EXPECTATION_FAILED,
                "100-continue is the only supported expectation",
            ));
        }
        let upgrade = asked.filter(|p| names_upgrade && !p.as_bytes().eq_ignore_ascii_case(b"h2c"));
        Ok(Classified { head, normalized, upgrade, trusted })
    }

    /// Finds the class by the rules of the policy in force.
    fn find_class<'a>(active_config: &ActiveConfig, view: &View<'a>) -> ClassRef<'a> {
        let found = active_config.classifier.classify(view).map(|c| c.class);
        // The last rule always matches. Without it, use the engine's default class, which is the last one.
        let last = u32::try_from(active_config.site.policy.classes.len()).unwrap_or(u32::MAX).saturating_sub(1);
        found.unwrap_or(ClassRef::Class(ClassId(last)))
    }

    fn timeouts(&self) -> NodeTimeouts {
        // Every class of a policy has an entry, so this is never used.
        const UNKNOWN: NodeTimeouts = NodeTimeouts {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(30),
            body_progress: Duration::from_secs(30),
            total: Duration::from_secs(60),
        };
        self.class.and_then(|c| self.active_config.class_site(c)).map_or(UNKNOWN, |c| c.timeouts)
    }

    /// Answers a request that breaks a rule.
    pub(crate) fn refuse(mut self: Box<Self>, refusal: Refusal) -> Response<ReplyBody> {
        self.ending = Ending::Refused(refusal.what);
        self.reply(reply::refused(refusal))
    }

    /// Notes that a node has answered.
    pub(crate) fn answered(&self) {
        if self.status < 400
            && let Some(normalized) = &self.normalized
        {
            self.conn.worker.answered(normalized.target.path(), normalized.target.query());
        }
    }

    /// Answers a request that the engine has shed.
    fn shed(mut self: Box<Self>, at: Time, shed: Shed) -> Response<ReplyBody> {
        self.ending = Ending::Shed(shed.reason);
        self.decided = Some(at);
        let response = reply::shed(shed, self.class.and_then(|c| self.active_config.shed_reply(c)));
        self.reply(response)
    }

    /// Answers a request that the nodes failed to serve.
    pub(crate) fn fail(mut self: Box<Self>, error: NodeError) -> Response<ReplyBody> {
        self.ending = Ending::Failed(error.as_str());
        self.reply(reply::failed(error))
    }

    /// Answers a request for which this gateway has reached its own limits.
    pub(crate) fn exhausted(mut self: Box<Self>) -> Response<ReplyBody> {
        self.ending = Ending::Failed("connection_limit_reached");
        self.reply(reply::exhausted())
    }

    fn reply(mut self: Box<Self>, response: Response<Bytes>) -> Response<ReplyBody> {
        self.status = response.status().as_u16();
        let (head, body) = response.into_parts();
        self.bytes_out = 0;
        Response::from_parts(head, ReplyBody::whole(body, self))
    }

    /// Whether the client asked for another protocol.
    pub(crate) fn may_upgrade(&self) -> bool {
        self.upgrade
    }

    /// Notes that the node has finished: the time, or the error if it finished too early.
    pub(crate) fn node_ended(&mut self, ended: Result<Time, NodeError>) {
        match ended {
            Ok(at) => self.node_ended = Some(at),
            Err(error) => self.ending = Ending::Failed(error.as_str()),
        }
    }

    /// Notes that the last byte has been handed over.
    pub(crate) fn complete(&mut self) {
        if matches!(self.ending, Ending::Left) {
            self.ending = Ending::Served;
        }
    }

    /// Notes that the engine released the request at `at`.
    fn release(&mut self, at: Time, endpoint: &Arc<Endpoint>) {
        self.decided = Some(at);
        self.released = true;
        self.endpoint = Some(Arc::clone(endpoint));
    }
}

impl Classified {
    /// Runs the stages *admit*, *queue*, *release* and *dispatch*.
    async fn admit(self, body: Incoming, mut exchange: Box<Exchange>) -> Response<ReplyBody> {
        let Classified { head, normalized, upgrade, trusted } = self;
        let conn = Rc::clone(&exchange.conn);
        let worker = Rc::clone(&conn.worker);
        let flow = worker.flow(exchange.client);
        let expects = head.headers.contains_key(EXPECT);
        let limits = exchange.active_config.site.limits;
        let size = body.size_hint();
        if let (Some(limit), lower) = (limits.body_bytes, size.lower())
            && lower > limit
        {
            return exchange.refuse(TOO_LARGE);
        }

        let routed = worker.route(normalized.target.path(), normalized.target.query());
        let mut body = Some(body);
        let mut whole = None;
        let pace = BodyPace::new(&exchange.active_config.site.timeouts);
        // A reload between the rules and the engine's decision requires a new classification. The number of
        // rounds is bounded, so that reloads cannot hold a request for ever.
        for _ in 0..8 {
            let view = View {
                host: normalized.host(),
                path: normalized.target.path(),
                query: normalized.target.query(),
                method: &head.method,
                headers: &head.headers,
                client: exchange.client,
                port: conn.port,
                vouched: trusted || exchange.active_config.site.trusted_proxies.is_empty(),
            };
            let class = Exchange::find_class(&exchange.active_config, &view);
            exchange.class = Some(match class {
                ClassRef::Class(class) => ClassIndex::Class(class.0),
                ClassRef::Template(template, _) => ClassIndex::Template(template),
            });
            let timeouts = exchange.timeouts();
            conn.progress.set(timeouts.body_progress);
            if let Some(small) = body
                .take_if(|b| !expects && b.size_hint().exact().is_some_and(|bytes| bytes > 0 && bytes <= SMALL_BODY))
            {
                match Box::pin(receive(&conn, small, limits.body_bytes, pace)).await {
                    Ok(bytes) => whole = Some(bytes),
                    Err(refusal) => return exchange.refuse(refusal),
                }
            }
            let locality_key = |exchange: &Exchange, class| {
                let of = exchange.active_config.locality_key_of(class)?;
                let query = if of == LocalityKeyOf::Query { normalized.target.query() } else { None };
                Some(worker.locality_key(normalized.host(), normalized.target.path(), query))
            };
            let from = (flow, exchange.class.and_then(|class| locality_key(&exchange, class)));
            let (at, admission) = worker.arrive(&exchange.active_config, class, from, routed);
            exchange.arrived = at;
            let mut admission = admission.await;
            if let Admission::Shed(_, refusal) = admission
                && let Some(fallback) = refusal.fallback
            {
                let class = exchange.class.replace(ClassIndex::Class(fallback.0));
                let from = (flow, locality_key(&exchange, ClassIndex::Class(fallback.0)));
                let (_, second) = worker.arrive(&exchange.active_config, ClassRef::Class(fallback), from, routed);
                admission = match second.await {
                    // If the fallback sheds the request as well, the first refusal is sent.
                    Admission::Shed(at, _) => {
                        exchange.class = class;
                        Admission::Shed(at, refusal)
                    }
                    other => other,
                };
            }
            let (permit, endpoint) = match admission {
                Admission::Stale => {
                    exchange.active_config = worker.active_config();
                    continue;
                }
                Admission::Shed(at, shed) => return exchange.shed(at, shed),
                Admission::Released(at, permit, endpoint) => {
                    exchange.release(at, &endpoint);
                    (permit, endpoint)
                }
            };
            let (body, progress) = match (whole, body) {
                (Some(bytes), _) => (RequestBody::Whole(Some(bytes)), None),
                (None, Some(body)) if !body.is_end_stream() => {
                    let (upload, progress) = Upload::new(body, &conn, limits.body_bytes, timeouts.first_byte, pace);
                    (RequestBody::Stream(upload), Some(progress))
                }
                (None, _) => (RequestBody::Empty, None),
            };
            let mut forward = Forward {
                method: head.method,
                headers: Some(head.headers),
                number: conn.calls.get(),
                target: normalized.target,
                authority: normalized.authority,
                trusted,
                upgrade,
                trace: exchange.trace,
                body,
                progress,
                timeouts,
                buffer: limits.buffer_per_request,
            };
            return forward::forward(&mut forward, permit, endpoint, exchange).await;
        }
        exchange.fail(NodeError::Unavailable)
    }
}

/// Receives a small body completely.
async fn receive(
    conn: &ClientConn,
    mut body: Incoming,
    limit: Option<u64>,
    mut pace: BodyPace,
) -> Result<Bytes, Refusal> {
    const BROKEN: Refusal = Refusal::bad("the request body is broken");
    let mut left = limit;
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    while !body.is_end_stream() {
        conn.begin_phase(conn.progress.get());
        conn.phase.set(conn.phase.get().min(pace.awaits(conn.now(), conn.bytes_in.get())));
        let frame = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
            Poll::Pending if conn.is_late() => Poll::Ready(Some(Err(TOO_SLOW))),
            Poll::Pending => Poll::Pending,
            Poll::Ready(frame) => Poll::Ready(frame.map(|f| f.map_err(|_| conn.body_refusal().unwrap_or(BROKEN)))),
        });
        let Some(frame) = frame.await else { break };
        let Ok(data) = frame?.into_data() else { continue };
        account(conn, &mut left, data.len())?;
        pace.arrived(conn.now());
        match &first {
            None => first = Some(data),
            Some(head) => {
                if rest.is_empty() {
                    rest.extend_from_slice(head);
                }
                rest.extend_from_slice(&data);
            }
        }
    }
    conn.phase.set(Time::NEVER);
    Ok(if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() })
}

/// Stage *observe*: records the request when it ends.
impl Drop for Exchange {
    fn drop(&mut self) {
        if self.upgrade && self.ending != Ending::Tunnelled {
            self.conn.declined.set(true);
        }
        if std::thread::panicking() {
            self.ending = Ending::Failed("proxy_internal_error");
            self.status = 500;
        }
        self.conn.end();
        let worker = &self.conn.worker;
        let now = self.ended.unwrap_or_else(|| worker.shared.control.clock().now());
        let node_ended = self.node_ended.unwrap_or(now);
        let decided = self.decided.unwrap_or(self.arrived);
        let record = AccessRecord {
            version: self.active_config.version,
            class: self.class,
            class_name: self.class.map_or("-", |c| self.active_config.class_name(c)),
            ending: self.ending,
            status: self.status,
            node: self.endpoint.as_ref().map(|t| t.name.as_str()),
            retries: self.retries,
            queue_wait: decided.since(self.arrived),
            service_time: if self.released { node_ended.since(decided) } else { Duration::ZERO },
            total: now.since(self.arrived),
            bytes_in: self.conn.bytes_in.get(),
            bytes_out: self.bytes_out,
            trace_id: self.trace.as_ref().map_or("", TraceId::as_str),
            method: self.method.as_ref(),
            host: self.normalized.as_ref().map_or("", NormalizedTarget::host),
            path: self.normalized.as_ref().map_or("", |s| s.target.as_str()),
            client: self.client,
        };
        worker.shared.observe(&record);
    }
}
