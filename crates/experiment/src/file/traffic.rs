//! Traffic: the classes of requests, their arrival times, and the behaviour of their clients.

use weirgate_config::embed::Token;
use weirgate_spanned_yaml::decode::{Defaulted, Named, Optional, Required, Switch};
use weirgate_spanned_yaml::unit::{Amount, Bytes, Count, Frequency, Name, Share, Span, Text, Whole};
use weirgate_spanned_yaml::{choice, record};

use super::change::Changing;
use super::count::Numbers;
use super::demand::{Demand, Times};

record! {
    /// One stream of requests. `rate`, `users` or `trace` determines the arrivals.
    pub(crate) struct TrafficForm {
        /// The class of the requests, or a template.
        class: Required<Name>,
        /// Name of these clients. Reports of the lab show clients with a name apart from their class.
        name: Optional<Name>,
        /// Number of keys of a template. Their popularity follows Zipf's law with exponent 1.
        keys: Optional<Count>,
        /// Clients that arrive independently of each other: their mean number per second, or a list of rates
        /// with `at` and `over`. Each sends one request, or asks for one or several pages.
        rate: Optional<Changing<Frequency>>,
        /// How a rate becomes arrivals: `poisson`, `even`, or `mmpp` for bursts. Poisson by default, which
        /// models many independent clients.
        arrivals: Defaulted<Arrivals> = "poisson",
        /// Users that send a request, wait for the reply, think, and send again: their number, or a list with
        /// `at` and `over`.
        users: Optional<Changing<Amount>>,
        /// Time between a reply and the user's next request.
        think: Optional<Times>,
        /// Number of addresses that these clients come from, each from one of them. By default every client has an
        /// address of its own. Queues are fair among addresses.
        sources: Optional<Count>,
        /// A log with a request in each line, as text or gzip, relative to this file's folder. Times are
        /// seconds from the start of the run, or dates, which count from the earliest.
        trace: Optional<Text>,
        /// Factor by which the trace is played faster than recorded.
        speed: Defaulted<Amount> = 1,
        /// Each arrival of `rate` or `trace` is a client that asks for several pages: a map.
        session: Optional<SessionForm>,
        /// Each request is for a page with these embedded objects: a map.
        objects: Optional<ObjectsForm>,
        /// Each request asks for one of many files: a map.
        documents: Optional<DocumentsForm>,
        /// Cost of a request on a nominal machine, or a list with `at` and `over`.
        demand: Required<Changing<Demand>>,
        /// How long a client waits for the last byte before it leaves. With `off` it never leaves.
        patience: Defaulted<Switch<Times>> = "off",
        /// Number of times that a client tries again after its request was shed or failed, or after it left.
        retries: Defaulted<Whole> = 0,
        /// How long the client waits before it tries again.
        retry_after: Defaulted<Times> = "1s",
        /// The request that the lab sends: a map. By default a request that emulated nodes understand, with
        /// the header `x-class: NAME`.
        request: Optional<RequestForm>,
    }
}

record! {
    /// The visit of a client.
    pub(crate) struct SessionForm {
        /// Number of pages that it asks for, one after the other, 1 to 1000: a number or a distribution.
        pages: Required<Numbers>,
        /// Time between the end of a page and the request for the next.
        think: Required<Times>,
    }
}

record! {
    /// Files, the same in every run. The popularity of a file falls with its rank, and popular files are small.
    pub(crate) struct DocumentsForm {
        /// Number of files.
        files: Required<Count>,
        /// Size of all files together.
        total: Required<Bytes>,
        /// Exponent of their popularity. The larger it is, the more requests are for a few files.
        zipf: Required<Amount>,
        /// Seed of the file sizes. A different seed gives different sizes.
        seed: Defaulted<Whole> = 1,
        /// Other classes that some of the files belong to, each with its share of the requests. `class` gets
        /// the remainder.
        others: Optional<Named<Name, Share>>,
    }
}

record! {
    /// Objects embedded in a page. A client asks for them when it has received the page itself.
    pub(crate) struct ObjectsForm {
        /// The class of the objects. The page's class by default.
        class: Optional<Name>,
        /// Number of objects per page, 0 to 1000: a number or a distribution.
        count: Required<Numbers>,
        /// Cost of each on a nominal machine, or a list with `at` and `over`.
        demand: Required<Changing<Demand>>,
        /// Number of requests for objects in flight at once. HTTP/1.1 first allowed a client 2 connections
        /// (RFC 2068, Sec. 8.1.4).
        connections: Defaulted<Count> = 2,
        /// The request that the lab sends for an object: a map. By default the page's request with another path.
        request: Optional<RequestForm>,
    }
}

record! {
    /// A request as it is sent. `{cpu_us}`, `{io_us}`, `{disk_us}`, `{link_us}` and `{stream_us}` stand for
    /// its cost, `{id}` for its id, `{key}` for its template key, `{source}` for an address of
    /// IPv4 that stands for its client, `{word}` for a word known to the service,
    /// `{object}` and `{bytes}` for its document and that document's size.
    pub(crate) struct RequestForm {
        /// Method.
        method: Defaulted<Token> = "GET",
        /// Path and query. By default a path that the service of the machines understands.
        path: Optional<Text>,
        /// Value of `Host`. By default the class's name, which every gateway passes on.
        host: Optional<Text>,
        /// Further header fields.
        headers: Optional<Named<Token, Text>>,
    }
}

choice! {
    /// How a rate becomes arrivals.
    pub(crate) enum Arrivals expects "`poisson`, `even` or `{ mmpp: { burst: …, share: …, length: … } }`" {
        /// Exponential gaps.
        Poisson = "poisson",
        /// Equal gaps.
        Even = "even",
        /// Calm and bursts alternate (a Markov-modulated Poisson process).
        Mmpp(MmppForm) = "mmpp" needs "its figures": "{ mmpp: { burst: …, share: …, length: … } }",
    }
}

record! {
    /// Alternating calm and bursts, both of exponential length. The mean rate is kept.
    pub(crate) struct MmppForm {
        /// Rate in a burst divided by the mean rate, more than 1.
        burst: Required<Amount>,
        /// Share of time in bursts. `burst` × `share` is below 1, so that some requests arrive between bursts.
        share: Required<Share>,
        /// Mean length of a burst.
        length: Required<Span>,
    }
}
