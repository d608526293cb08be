//! Index of a head: the positions of its parts within the bytes that were received.
//!
//! The index does not hold the bytes, so that a connection may keep them where it likes. Every accessor takes them:
//! the bytes from the first of the head on, as they were when the head was parsed.

use crate::{Authority, Name, Names};

/// Version of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// A part of the head, as positions of its first byte and of the byte after its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// A head has at most [`MAX_HEAD`] bytes, so its positions fit.
    pub(crate) fn new(start: usize, end: usize) -> Span {
        let position = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { start: position(start), end: position(end) }
    }

    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// The same part, if the bytes before it have grown by `by`, modulo 2^32.
    fn moved(self, by: u32) -> Span {
        Span { start: self.start.wrapping_add(by), end: self.end.wrapping_add(by) }
    }
}

/// Options of all `Connection` fields (RFC 9110 Sec. 7.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    close: bool,
    keep_alive: bool,
    /// Whether there are others, which name fields.
    others: bool,
}

impl Options {
    /// Adds those of one field.
    pub(crate) fn add(&mut self, value: &[u8]) {
        for option in elements(value) {
            match option {
                option if option.eq_ignore_ascii_case(b"close") => self.close = true,
                option if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                _ => self.others = true,
            }
        }
    }
}

/// Returns the elements of a comma-separated list (RFC 9110 Sec. 5.6.1).
fn elements(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Maximum size of a head that can be indexed, in bytes. [`crate::Limits::head_bytes`] has no effect beyond it.
pub(crate) const MAX_HEAD: usize = 16 * 1024 * 1024;

/// Position of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    name: Name,
    /// Whether the line can be sent on as it was received.
    regular: bool,
    name_length: u16,
    start: u32,
    value: Span,
}

impl Field {
    pub(crate) fn new(name: Name, regular: bool, name_length: u16, start: usize, value: Span) -> Field {
        Field { name, regular, name_length, start: u32::try_from(start).unwrap_or(u32::MAX), value }
    }

    /// Returns the name, if the gateway has to know the field.
    #[inline]
    pub fn name(&self) -> Name {
        self.name
    }

    /// Returns the name as it was sent.
    #[inline]
    pub fn spelling<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let start = self.start as usize;
        bytes.get(start..start + usize::from(self.name_length)).unwrap_or_default()
    }

    /// Returns the value without the white space around it.
    #[inline]
    pub fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.value.of(bytes)
    }

    /// The same field, if its line begins at `start`.
    pub(crate) fn moved_to(self, start: usize) -> Field {
        self.moved(distance(self.start as usize, start))
    }

    /// The same field, if the bytes before it have grown by `by`, modulo 2^32.
    fn moved(self, by: u32) -> Field {
        Field { start: self.start.wrapping_add(by), value: self.value.moved(by), ..self }
    }

    /// Position of the value.
    pub(crate) fn value_start(&self) -> usize {
        self.value.start as usize
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.regular
    }

    pub(crate) fn start(&self) -> usize {
        self.start as usize
    }
}

/// Difference of two positions. Positions fit into 32 bits, so their differences do modulo 2^32.
fn distance(from: usize, to: usize) -> u32 {
    (to as u32).wrapping_sub(from as u32)
}

/// Index of a head. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub(crate) method: Span,
    pub(crate) target: Span,
    pub(crate) reason: Span,
    pub(crate) version: Version,
    pub(crate) status: u16,
    pub(crate) fields: Vec<Field>,
    pub(crate) names: Names,
    pub(crate) options: Options,
    pub(crate) content_length: Option<u64>,
    /// Name and port of `Host`. The name is empty without `Host`.
    pub(crate) host: (Span, Option<u16>),
    /// Position of the empty line that ends the head.
    pub(crate) end: u32,
}

impl Head {
    /// Forgets the head and keeps the memory of its index.
    pub(crate) fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Head { fields, ..Head::default() };
    }

    /// Method of a request. Empty for a response.
    #[inline]
    pub fn method<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.method.of(bytes)
    }

    /// Target of a request, as it was sent. It is ASCII. Empty for a response.
    #[inline]
    pub fn target<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.target.of(bytes)
    }

    /// `Host` of a request, taken apart.
    #[inline]
    pub fn authority<'a>(&self, bytes: &'a [u8]) -> Option<Authority<'a>> {
        let (host, port) = self.host;
        self.names.contains(Name::Host).then(|| Authority { host: host.of(bytes), port })
    }

    /// Version of the message.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Status of a response, from 100 to 999. 0 for a request.
    #[inline]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Reason of a response. It may be empty and need not be UTF-8.
    pub fn reason<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.reason.of(bytes)
    }

    /// `Content-Length`, as the message declares it.
    #[inline]
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns the known names of its fields.
    #[inline]
    pub fn names(&self) -> Names {
        self.names
    }

    /// Returns the fields in the order in which they were sent.
    #[inline]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the first value of a known field.
    #[inline]
    pub fn get<'a>(&self, bytes: &'a [u8], name: Name) -> Option<&'a [u8]> {
        self.all(bytes, name).next()
    }

    /// Returns the values of a known field, in the order in which they were sent.
    #[inline]
    pub fn all<'a>(&self, bytes: &'a [u8], name: Name) -> Fields<'_, 'a> {
        let fields = if self.names.contains(name) { self.fields.as_slice() } else { &[] };
        Fields { fields: fields.iter(), name, bytes }
    }

    /// Returns the values of a field by its name in any case, in the order in which they were sent.
    pub fn named<'a>(&self, bytes: &'a [u8], name: &[u8]) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let is = move |field: &&Field| field.name != Name::Dropped && field.spelling(bytes).eq_ignore_ascii_case(name);
        self.fields.iter().filter(is).map(|field| field.value(bytes))
    }

    /// Returns the elements of all fields of a known name that are comma-separated lists (RFC 9110 Sec. 5.6.1).
    pub fn list<'a>(&self, bytes: &'a [u8], name: Name) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.all(bytes, name).flat_map(elements)
    }

    /// Returns whether the sender keeps the connection open after this message (RFC 9112 Sec. 9.3).
    pub fn is_persistent(&self) -> bool {
        let Options { close, keep_alive, .. } = self.options;
        !close && (keep_alive || self.version == Version::Http11)
    }

    /// Renames the fields that `Connection` names to [`Name::Dropped`], so that they are found under no name (RFC 9110
    /// Sec. 7.6.1). Fields of `protected` cannot be named.
    pub fn drop_named(&mut self, bytes: &[u8], protected: Names) {
        // Most values are `close` or `keep-alive`, which name no field.
        if !self.options.others {
            return;
        }
        let options: Vec<&[u8]> = self.list(bytes, Name::Connection).collect();
        let mut names = Names::NONE;
        for field in &mut self.fields {
            let spelling = field.spelling(bytes);
            let named = || options.iter().any(|option| option.eq_ignore_ascii_case(spelling));
            if !protected.contains(field.name) && named() {
                field.name = Name::Dropped;
            }
            names.insert(field.name);
        }
        self.names = names;
    }

    /// Makes this the index of a head that has the same fields as `before`, the head that it is the index of. The
    /// fields of `input` begin at `at`. Returns the size of the new head, or `None` if the fields differ.
    ///
    /// A client repeats its fields in most requests of a connection. Comparing them takes a small part of the time
    /// that their parser takes.
    pub(crate) fn repeat(&mut self, input: &[u8], at: usize, before: &[u8]) -> Option<usize> {
        let start = self.fields.first()?.start();
        let fields = before.get(start..self.end as usize + 2)?;
        // Fields that have lost their names are parsed again.
        if !input.get(at..)?.starts_with(fields) || self.names.contains(Name::Dropped) {
            return None;
        }
        if at != start {
            let by = distance(start, at);
            for field in &mut self.fields {
                *field = field.moved(by);
            }
            if self.names.contains(Name::Host) {
                self.host.0 = self.host.0.moved(by);
            }
            self.end = self.end.wrapping_add(by);
        }
        Some(at + fields.len())
    }

    /// Returns the position after the line of the field with this index.
    pub(crate) fn line_end(&self, index: usize) -> usize {
        self.fields.get(index + 1).map_or(self.end as usize, Field::start)
    }
}

/// Values of one field. Returned by [`Head::all`].
#[derive(Clone, Debug)]
pub struct Fields<'h, 'a> {
    fields: std::slice::Iter<'h, Field>,
    name: Name,
    bytes: &'a [u8],
}

impl<'a> Iterator for Fields<'_, 'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.fields.find(|field| field.name == self.name).map(|field| field.value(self.bytes))
    }
}

impl DoubleEndedIterator for Fields<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.fields.rfind(|field| field.name == self.name).map(|field| field.value(self.bytes))
    }
}
