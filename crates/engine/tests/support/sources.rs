//! Rules of the model about the sources of requests.
//!
//! A reload moves requests to other classes, which the model does not follow. It checks no source afterwards.

use std::time::Duration;

use weirgate_engine::*;

use super::{Model, Request, State};

impl Model {
    /// Number of waiting requests of a source.
    fn waiting_of(&self, from: (ClassId, u64)) -> usize {
        self.requests.values().filter(|r| r.state == State::Waiting && r.from == from).count()
    }

    /// Checks that a full queue refuses a request only if no other source of its class has more than its own
    /// would have.
    pub(super) fn may_be_refused(&self, (class, flow): (ClassId, u64)) {
        let own = self.waiting_of((class, flow));
        let most = (0..4).map(|flow| self.waiting_of((class, flow))).max().unwrap_or(0);
        let put_back = self.engine.policy().discipline.precedence == Precedence::Reenqueue;
        assert!(self.reloaded || put_back || most <= own + 1, "a source has {most} waiting, the refused one {own}");
    }

    /// Checks that the requests of a source are released in order of arrival. Costs may tell them apart, and a
    /// request that is put back or may be late is passed by others.
    pub(super) fn may_leave(&self, ticket: Ticket) {
        let request = &self.requests[&ticket];
        let policy = self.engine.policy();
        let apart = policy.discipline.precedence == Precedence::Reenqueue || !policy.resources.is_empty();
        let class = policy.classes.get(request.from.0.0 as usize);
        let class = class.or(policy.templates.first().map(|template| &template.class));
        let may_be_late = |r: &Request| {
            // At most four fifths of a limit are for the time in flight.
            let promised = class.and_then(|class| class.guarantee.response_time);
            let limit = promised.map_or(Duration::MAX, |promised| promised.limit);
            matches!(policy.discipline.admit, Admit::Predict(_)) && self.now - r.arrived >= limit.as_nanos() as u64 / 5
        };
        let older = |r: &&Request| {
            r.state == State::Waiting && r.from == request.from && r.token < request.token && !may_be_late(r)
        };
        assert!(self.reloaded || apart || self.requests.values().find(older).is_none(), "{request:?} is not its turn");
    }

    /// Checks that a request that makes room is the newest of the source with most waiting requests.
    pub(super) fn may_be_displaced(&self, request: &Request) {
        let (class, _) = request.from;
        let own = self.waiting_of(request.from);
        let most = (0..4).map(|flow| self.waiting_of((class, flow))).max().unwrap_or(0);
        let put_back = self.engine.policy().discipline.precedence == Precedence::Reenqueue;
        let newer = |r: &&Request| r.state == State::Waiting && r.from == request.from && r.token > request.token;
        let newest = put_back || self.requests.values().find(newer).is_none();
        assert!(self.reloaded || (own == most && newest), "{request:?} of {own}, {most} are the most");
    }
}
