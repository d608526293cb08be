//! One request, from its head to its access record: the stages in order.
//!
//! The stages are *classify*, then *admit*, *queue*, *release* and *dispatch* (this module asks the engine and waits
//! for its decision), *forward* (`forward.rs` and `transfer.rs`), and *observe* (the record follows the last byte).

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use weirgate_config::{ClassSite, HeaderRules, LocalityKeyOf, NodeTimeouts};
use weirgate_engine::{Outcome, Shed, Time, Would};
use weirgate_http1::{Head, Version};

use crate::active_config::{ConfigHandle, Endpoint};
use crate::classify::{ClassRef, NeedsBody, value_of};
use crate::client::Origin;
use crate::connection::End;
use crate::find_class::{find_class, last_class, payload, view};
use crate::hops::Connection;
use crate::memory::Pressure;
use crate::pages::Routed;
use crate::permit::Permit;
use crate::places::ClassPlace;
use crate::record::{AccessRecord, ClassIndex, Ending, Protocol};
use crate::refusal::Refusal;
use crate::reply::{NodeError, Reply};
use crate::request::Request;
use crate::request_stream::{Lost, RequestStream};
use crate::stream_state::StreamState;
use crate::trace::Trace;
use crate::tunnel::{Side, Tunnel};
use crate::visitor::Visitor;
use crate::worker::Admission;
use crate::{forward, grpc, websocket};

/// State of a request. Dropping it writes the access record.
pub(crate) struct Exchange {
    pub(crate) conn: Rc<StreamState>,
    pub(crate) active_config: Rc<ConfigHandle>,
    pub(crate) request: Request,
    pub(crate) ending: Ending,
    pub(crate) status: u16,
    pub(crate) endpoint: Option<Arc<Endpoint>>,
    pub(crate) retries: u8,
    pub(crate) bytes_out: u64,
    pub(crate) origin: Origin,
    pub(crate) trace: Option<Trace>,
    /// The right to be in flight at `endpoint`, while it is.
    pub(crate) permit: Option<Permit>,
    /// The place of the tunnel that it asks for or has become, or of its long response.
    pub(crate) place: Option<Box<ClassPlace>>,
    /// Version of the configuration and name of the class, after the request has let go of that configuration.
    classified: Option<Box<(u64, String)>>,
    class: Option<ClassIndex>,
    /// The visitor that its cookie names.
    pub(crate) visitor: Option<Box<Visitor>>,
    /// Whether it was turned away and goes to the fallback of its class.
    pub(crate) fell_back: bool,
    arrived: Time,
    /// Time of the engine's decision. [`Time::NEVER`] if there is none, which takes less memory than an `Option`.
    decided: Time,
    released: bool,
    node_ended: Option<(Time, Option<Would>)>,
    /// Whether the record has been written.
    recorded: bool,
}

/// How a request was served.
pub(crate) enum Served {
    /// The whole response has been sent. `kept` tells whether its head keeps the connection.
    Response { kept: bool },
    /// The response broke off after its head.
    BrokenOff,
    /// The protocol changed: the connection to the node, and the bytes received from it.
    Upgraded(Side, Bytes),
}

/// Reason why a request gets no response of a node.
pub(crate) enum Stop {
    /// The client has left.
    Gone,
    /// The request breaks a rule.
    Refused(Refusal),
    /// Its listener redirects to `https` at this port.
    Redirected(u16),
    /// It asks for the answer to a challenge of an authority, which is this one.
    Challenge(String),
    /// The engine shed it at this time.
    Shed(Time, Shed),
    /// The nodes failed to serve it.
    Failed(NodeError),
    /// The client's deadline has passed while the request waited.
    Late,
    /// This gateway has reached its own limits.
    Exhausted,
}

impl From<Lost> for Stop {
    fn from(lost: Lost) -> Stop {
        match lost {
            Lost::Gone => Stop::Gone,
            Lost::Refused(refusal) => Stop::Refused(refusal),
        }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

/// Serves a request after its head has been received.
///
/// The block captures the exchange and uses it in place. The argument of an `async fn` would be in its future twice.
pub(crate) fn serve<S: RequestStream>(
    conn: &Rc<StreamState>,
    stream: &mut S,
    request: Request,
) -> impl Future<Output = End> {
    let mut exchange = Exchange::new(conn, request);
    async move {
        #[cfg(test)]
        assert_eq!(exchange.request.values("x-panic").count(), 0, "a test asks for a panic");
        let stop = match exchange.stages(stream).await {
            Ok(Served::Response { kept }) => {
                exchange.complete();
                return exchange.end(stream, kept);
            }
            Ok(Served::BrokenOff) => Stop::Gone,
            Ok(Served::Upgraded(node, received)) => {
                return End::Tunnel(Box::new(Tunnel::new(node, received, exchange)));
            }
            Err(stop) => stop,
        };
        match exchange.answer(stream, stop).await {
            Ok(kept) => exchange.end(stream, kept),
            Err(_) => End::Gone,
        }
    }
}

/// Answers input that is no request.
pub(crate) async fn refuse(conn: &Rc<StreamState>, stream: &mut impl RequestStream, refusal: Refusal) -> End {
    let mut exchange = Exchange::new(conn, Request::default());
    match exchange.answer(stream, Stop::Refused(refusal)).await {
        Ok(_) => End::Linger,
        Err(_) => End::Gone,
    }
}

impl Exchange {
    fn new(conn: &Rc<StreamState>, request: Request) -> Exchange {
        Exchange {
            conn: Rc::clone(conn),
            active_config: conn.worker.active_config(),
            request,
            ending: Ending::Left,
            status: 0,
            endpoint: None,
            retries: 0,
            bytes_out: 0,
            trace: None,
            permit: None,
            place: None,
            classified: None,
            class: None,
            visitor: None,
            fell_back: false,
            origin: Origin { client: conn.peer.ip(), listed: false },
            arrived: conn.now(),
            decided: Time::NEVER,
            released: false,
            node_ended: None,
            recorded: false,
        }
    }

    /// Runs all stages up to the last byte of the response.
    async fn stages(&mut self, stream: &mut impl RequestStream) -> Result<Served, Stop> {
        // First, so that the end of the request is found even if it is shed.
        stream.begin_body()?;
        if self.conn.worker.shared.memory.pressure() == Pressure::Admit {
            return Err(Stop::Exhausted);
        }
        self.identify()?;
        if self.conn.tls.get().is_none()
            && let Some(answer) = self.conn.worker.shared.acme.challenges.page(|| self.request.path())
        {
            return Err(Stop::Challenge(answer));
        }
        let listener = self.active_config.site.listener(&self.conn.listener);
        if let Some(port) = listener.and_then(|listener| listener.redirect_to_https)
            && self.conn.tls.get().is_none()
        {
            return Err(Stop::Redirected(port));
        }
        if self.is_call()
            && let Some(timeout) = grpc::timeout(&self.request)
        {
            self.conn.total.set(self.conn.now() + timeout);
        }
        // Before the request is admitted, so that it holds no slot while there is nothing to send.
        if self.request.expects_continue() && !stream.body().is_sendable() {
            stream.invite_body();
        }
        self.admit(stream).await?;
        forward::forward(self, stream).await
    }

    /// Whether the request is a call of gRPC.
    pub(crate) fn is_call(&self) -> bool {
        self.conn.http2.get() && grpc::is_call(&self.request)
    }

    /// Stage *classify* up to the rules: determines the target, the authority and the client of the request.
    fn identify(&mut self) -> Result<(), Refusal> {
        self.request.normalise()?;
        self.origin = Origin::new(self.conn.peer.ip(), &self.active_config.site, &self.request);
        self.find_visitor();
        let share = self.active_config.site.telemetry.as_ref().map_or(0.0, |telemetry| telemetry.traces);
        self.trace = Some(self.conn.worker.traces.of(&self.request, share, self.origin.listed));
        self.request.check_expectation()
    }

    pub(crate) fn timeouts(&self) -> NodeTimeouts {
        // Every class of a policy has an entry, so this is never used.
        const UNKNOWN: NodeTimeouts = NodeTimeouts {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(30),
            body_progress: Duration::from_secs(30),
            total: Duration::from_secs(60),
        };
        self.class_site().map_or(UNKNOWN, |class| class.timeouts)
    }

    /// Returns the header rules for the request: those of its class, if it has one.
    pub(crate) fn headers(&self) -> &HeaderRules {
        self.class_site().map_or(&self.active_config.site.headers, |class| &class.headers)
    }

    /// Returns the settings of the request's class, if it has one.
    pub(crate) fn class_site(&self) -> Option<&ClassSite> {
        self.class.and_then(|class| self.active_config.class_site(class))
    }

    /// Returns the name of the class in the policy, if the request has one.
    pub(crate) fn class_name(&self) -> Option<&str> {
        self.class.map(|class| self.active_config.class_name(class))
    }

    /// Lets go of the configuration under which the request was classified, if another one is in force. A tunnel may
    /// outlive many.
    pub(crate) fn let_go(&mut self) {
        let active_config = self.conn.worker.active_config();
        let version = self.active_config.version;
        if version != active_config.version {
            let name = self.class_name().unwrap_or("-").to_owned();
            self.classified.get_or_insert_with(|| Box::new((version, name)));
            self.active_config = active_config;
        }
    }

    /// Runs the stages *admit*, *queue*, *release* and *dispatch*.
    async fn admit(&mut self, stream: &mut impl RequestStream) -> Result<(), Stop> {
        let worker = Rc::clone(&self.conn.worker);
        let routed = worker.route(&self.request);
        // A reload between the rules and the engine's decision requires a new classification. The number of
        // rounds is bounded, so that reloads cannot hold a request for ever.
        for _ in 0..8 {
            // A view is made again after a wait, because the future of every request would have its size.
            let mut found = find_class(
                &self.active_config,
                &view(&self.active_config.site, &self.request, &self.conn, (self.origin, self.visitor.as_deref())),
                payload(self, stream),
            );
            if found.is_err() {
                let bytes = self.active_config.site.limits.body_prefix;
                poll_fn(|cx| stream.poll_prefix(cx, bytes)).await?;
                found = find_class(
                    &self.active_config,
                    &view(&self.active_config.site, &self.request, &self.conn, (self.origin, self.visitor.as_deref())),
                    payload(self, stream),
                );
            }
            let class = found.unwrap_or_else(|NeedsBody| last_class(&self.active_config));
            let index = class.index();
            let field = |by: &_| {
                value_of(
                    by,
                    &view(&self.active_config.site, &self.request, &self.conn, (self.origin, self.visitor.as_deref())),
                )
            };
            let source = worker.source(&self.active_config, Some(index), self.origin.client, field);
            self.class = Some(index);
            self.conn.progress.set(self.timeouts().body_progress);
            poll_fn(|cx| stream.poll_sendable(cx)).await?;
            // A reload may have changed the class, so another place is given back first.
            (self.place, self.fell_back) = (None, false);
            self.place = self.tunnel_place()?;
            let from = (source, self.class.and_then(|class| self.locality_key(class)));
            let (at, mut admission) = worker.arrive(&self.active_config, class, from, routed);
            self.arrived = at;
            self.decide(stream, &mut admission, &routed).await?;
            if let Admission::Shed(_, refusal) = admission
                && let Some(fallback) = refusal.fallback
            {
                let class = self.class.replace(ClassIndex::Class(fallback.0));
                let from = (source, self.locality_key(ClassIndex::Class(fallback.0)));
                admission = worker.arrive(&self.active_config, ClassRef::Class(fallback), from, routed).1;
                self.decide(stream, &mut admission, &routed).await?;
                self.fell_back = true;
                // If the fallback sheds the request as well, the first refusal is sent.
                if let Admission::Shed(_, shed) = &mut admission {
                    self.class = class;
                    *shed = refusal;
                }
            }
            match admission {
                // It has been decided.
                Admission::Queued(_) => {}
                Admission::Stale => self.active_config = worker.active_config(),
                Admission::Shed(at, shed) => return Err(Stop::Shed(at, shed)),
                Admission::Released(at, permit, endpoint) => {
                    self.decided = at;
                    self.released = true;
                    self.permit = Some(permit);
                    self.endpoint = Some(endpoint);
                    return Ok(());
                }
            }
        }
        Err(Stop::Failed(NodeError::Unavailable))
    }

    /// Waits for the decision about a queued request, unless the client leaves, breaks a rule or gives up meanwhile, or
    /// the request has to give way to another connection.
    async fn decide(
        &self,
        stream: &mut impl RequestStream,
        admission: &mut Admission,
        routed: &Routed,
    ) -> Result<(), Stop> {
        let Admission::Queued(wait_slot) = admission else { return Ok(()) };
        let conn = &self.conn;
        let mut waits = false;
        let decided = poll_fn(|cx| match Pin::new(&mut *wait_slot).poll(cx) {
            Poll::Ready(decided) => {
                if waits {
                    conn.stand();
                }
                Poll::Ready(Ok(decided))
            }
            Poll::Pending if conn.is_late() => Poll::Ready(Err(Stop::Late)),
            Poll::Pending if conn.gives_way.get() => Poll::Ready(Err(Stop::Exhausted)),
            Poll::Pending => {
                let guaranteed = self.class.is_some_and(|class| self.active_config.is_guaranteed(class));
                if !std::mem::replace(&mut waits, true) && !guaranteed {
                    conn.may_give_way();
                }
                match stream.await_body(cx) {
                    Ok(()) => Poll::Pending,
                    Err(lost) => Poll::Ready(Err(Stop::from(lost))),
                }
            }
        })
        .await?;
        *admission = conn.worker.decided(wait_slot.ticket(), decided, *routed);
        Ok(())
    }

    fn locality_key(&self, class: ClassIndex) -> Option<u64> {
        let of = self.active_config.locality_key_of(class)?;
        let query = if of == LocalityKeyOf::Query { self.request.query() } else { None };
        Some(self.conn.worker.locality_key(self.request.host(), self.request.path(), query))
    }

    /// Sends the gateway's own response. Returns whether the connection stays open.
    async fn answer(&mut self, stream: &mut impl RequestStream, stop: Stop) -> Result<bool, Lost> {
        let config = Rc::clone(&self.active_config);
        let reply = match stop {
            Stop::Gone => return Err(Lost::Gone),
            Stop::Refused(refusal) => {
                self.ending = Ending::Refused(refusal.text());
                Reply::refused(refusal)
            }
            Stop::Redirected(port) => match self.request.at_https(port) {
                Ok(location) => {
                    self.ending = Ending::Redirected;
                    Reply::redirected(location)
                }
                Err(refusal) => {
                    self.ending = Ending::Refused(refusal.text());
                    Reply::refused(refusal)
                }
            },
            Stop::Challenge(answer) => {
                self.ending = Ending::Challenge;
                Reply::challenge(answer)
            }
            Stop::Shed(at, shed) => {
                self.ending = Ending::Shed(shed.reason);
                self.decided = at;
                Reply::shed(shed, self.class.and_then(|class| config.shed_reply(class)))
            }
            Stop::Failed(error) => {
                self.ending = Ending::Failed(error.as_str());
                Reply::failed(error)
            }
            Stop::Late => {
                self.ending = Ending::Failed("deadline_exceeded");
                Reply::late()
            }
            Stop::Exhausted => {
                self.ending = Ending::Failed("connection_limit_reached");
                Reply::exhausted()
            }
        };
        let call = self.is_call();
        self.status = if call { 200 } else { reply.status.as_u16() };
        self.conn.end_phases();
        self.conn.body_due.set(Time::NEVER);
        // The bytes after a request that breaks a rule cannot be trusted.
        let mut connection = self.connection(stream);
        connection.kept &= !matches!(self.ending, Ending::Refused(_));
        let with_body = self.request.method() != Some(&Method::HEAD);
        let mut sent = false;
        poll_fn(|cx| {
            if !std::mem::replace(&mut sent, true) {
                let worker = &self.conn.worker;
                let mut out = worker.out.borrow_mut();
                let date = worker.date.borrow();
                let edits = self.response_edits();
                let bytes = match call {
                    true => reply.write_call(&mut out, date.as_bytes(), &edits),
                    false => reply.write(&mut out, with_body, connection, date.as_bytes(), &edits),
                };
                self.bytes_out = bytes as u64;
                stream.begin_message(out.len() - bytes);
                stream.end_message(b"", connection.kept);
                stream.send(cx, &out, b"");
                out.clear();
            }
            stream.poll_flush(cx)
        })
        .await?;
        Ok(connection.kept)
    }

    /// Returns what the head of a response says about the client's connection: whether it can stay open after the
    /// current request, as far as is known now.
    pub(crate) fn connection(&self, stream: &impl RequestStream) -> Connection {
        let (head, _) = self.request.head();
        let protocol = self.protocol();
        let ends = self.conn.closing.get() || self.conn.worker.drains() || self.conn.exceeds_its_part();
        let kept = stream.has_sent_all() && head.is_persistent() && !ends;
        Connection { kept, protocol }
    }

    /// Protocol of the request.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.request.head().0.version() {
            _ if self.conn.http2.get() => Protocol::Http2,
            Version::Http11 => Protocol::Http11,
            Version::Http10 => Protocol::Http10,
        }
    }

    /// Whether a 101 with this head answers the request. A client over HTTP/1.1 checks the answer itself. A client over
    /// HTTP/2 has left that to the gateway.
    pub(crate) fn is_answered_by(&self, (head, bytes): (&Head, &[u8])) -> bool {
        if !self.conn.http2.get() {
            return self.request.asks_for_upgrade();
        }
        let key = self.request.values("sec-websocket-key").next().filter(|_| self.request.upgrade().is_some());
        let accept = head.named(bytes, b"sec-websocket-accept").next();
        key.is_some_and(|key| accept == Some(websocket::accept(key).as_bytes()))
    }

    /// Notes that a node has answered.
    pub(crate) fn answered(&mut self, status: u16) {
        self.status = status;
        if status < 400 {
            self.conn.worker.answered(&self.request);
        }
    }

    /// Ends the node's part of the request with `outcome`.
    pub(crate) fn finish(&mut self, outcome: Outcome) {
        if let Some(mut permit) = self.permit.take() {
            self.node_ended = Some(permit.finish(outcome));
        }
        self.conn.end_phases();
    }

    /// Notes that the node failed before anything was sent to the client. Returns whether the request may be sent to
    /// the node that is then the exchange's.
    pub(crate) fn fail(&mut self, retryable: bool) -> bool {
        let Some(mut permit) = self.permit.take() else { return false };
        let (at, next) = permit.fail(retryable);
        let Some(next) = next else {
            self.node_ended = Some(at);
            return false;
        };
        self.retries = self.retries.saturating_add(1);
        self.endpoint = Some(next);
        self.permit = Some(permit);
        true
    }

    /// Notes that the node failed in the middle of its response.
    pub(crate) fn break_off(&mut self, error: NodeError) {
        self.ending = Ending::Failed(error.as_str());
        self.finish(Outcome::Failed { retryable: false });
    }

    /// Notes that the last byte has been sent.
    fn complete(&mut self) {
        if matches!(self.ending, Ending::Left) {
            self.ending = Ending::Served;
        }
    }

    /// Records the request after its last byte, and lets the stream continue.
    fn end(&mut self, stream: &mut impl RequestStream, kept: bool) -> End {
        self.observe();
        stream.finish(std::mem::take(&mut self.request), kept)
    }

    /// Stage *observe*: records the request, once.
    fn observe(&mut self) {
        if std::mem::replace(&mut self.recorded, true) {
            return;
        }
        self.conn.end();
        let worker = &self.conn.worker;
        let now = worker.timers.this_turn(worker.shared.control.clock());
        let (node_ended, would) = self.node_ended.unwrap_or((now, None));
        let decided = if self.decided == Time::NEVER { self.arrived } else { self.decided };
        let (version, class_name) = match &self.classified {
            Some(classified) => (classified.0, classified.1.as_str()),
            None => (self.active_config.version, self.class_name().unwrap_or("-")),
        };
        let record = AccessRecord {
            version,
            class: self.class,
            class_name,
            ending: self.ending,
            would,
            status: self.status,
            node: self.endpoint.as_ref().map(|t| t.name.as_str()),
            retries: self.retries,
            queue_wait: decided.since(self.arrived),
            service_time: if self.released { node_ended.since(decided) } else { Duration::ZERO },
            total: now.since(self.arrived),
            bytes_in: self.conn.bytes_in.get(),
            bytes_out: self.bytes_out,
            protocol: self.protocol(),
            trace_id: self.trace.as_ref().map(|trace| &trace.id),
            span: self.trace.and_then(|trace| trace.span_ids()),
            request: &self.request,
            client: self.origin.client,
            tls: self.conn.tls.get().map(|tls| &**tls),
        };
        worker.shared.observe(&record);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.ending = Ending::Failed("proxy_internal_error");
            self.status = 500;
        }
        self.observe();
    }
}
