//! Every reason for refusing a message, with its status, its text and the section of the RFC.

/// Declares the faults once. Status, text, source and list come from the same lines.
macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $status:literal, $text:literal, $source:literal;)*) => {
        /// Reason for refusing a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// All faults, in the order of the documentation.
            pub const ALL: &[Fault] = &[$(Fault::$name),*];

            /// Status of the response to a request with this fault.
            pub const fn status(self) -> u16 {
                match self { $(Fault::$name => $status,)* }
            }

            /// The fault in a few words, for logs and for the body of the response.
            pub const fn text(self) -> &'static str {
                match self { $(Fault::$name => $text,)* }
            }

            /// Section that forbids the input, or that permits to refuse it.
            pub const fn source(self) -> &'static str {
                match self { $(Fault::$name => $source,)* }
            }
        }
    };
}

faults! {
    /// The first byte cannot start a head.
    NotHttp = 400, "this is not HTTP/1.1", "RFC 9112 Sec. 3";
    /// More than one empty line before a head.
    EmptyLines = 400, "empty lines instead of a request", "RFC 9112 Sec. 2.2";
    /// A line of a request ends without a carriage return.
    BareLineFeed = 400, "a line ends with a bare line feed", "RFC 9112 Sec. 2.2";
    /// The method is empty, too long or has other characters than a token.
    Method = 400, "the method is not valid", "RFC 9112 Sec. 3.1";
    /// The target is empty or has characters that no URI has.
    Target = 400, "the request target is not valid", "RFC 9112 Sec. 3.2";
    /// Another version than 1.0 and 1.1.
    Version = 400, "the protocol version is not HTTP/1.1 or HTTP/1.0", "RFC 9112 Sec. 2.3";
    /// The status is not three digits from 100 to 599.
    Status = 502, "the status is not valid", "RFC 9112 Sec. 4";
    /// The first line is longer than a head may be.
    LineTooLong = 414, "the request line is too long", "RFC 9110 Sec. 15.5.15";
    /// The head is larger than a head may be.
    HeadTooLarge = 431, "the request head is too large", "RFC 6585 Sec. 5";
    /// The head has more fields than allowed.
    TooManyFields = 431, "too many header fields", "RFC 6585 Sec. 5";
    /// A line starts with white space.
    Folded = 400, "a header line is folded", "RFC 9112 Sec. 5.2";
    /// White space between the name and the colon of a request.
    SpaceBeforeColon = 400, "a header name is followed by white space", "RFC 9112 Sec. 5.1";
    /// A name has other characters than a token, or the line has no colon.
    FieldName = 400, "a header name is not valid", "RFC 9112 Sec. 5";
    /// A line starts with a colon.
    NoName = 400, "a header has no name", "RFC 9112 Sec. 5";
    /// A value has control characters or a bare carriage return.
    FieldValue = 400, "a header value has control characters", "RFC 9110 Sec. 5.5";
    /// A name that CGI-like interfaces cannot tell from a name with a meaning.
    ConfusableName = 400, "a header name can be mistaken for another", "RFC 3875 Sec. 4.1.18";
    /// A request of HTTP/1.1 without `Host`.
    NoHost = 400, "there is no Host header", "RFC 9112 Sec. 3.2";
    /// `Host` twice.
    TwoHosts = 400, "there are two Host headers", "RFC 9112 Sec. 3.2";
    /// `Host` is not a name or address with an optional port.
    Host = 400, "the Host header is not valid", "RFC 9112 Sec. 3.2";
    /// `Content-Length` is not a number of digits only, or does not fit.
    ContentLength = 400, "Content-Length is not a number", "RFC 9112 Sec. 6.3";
    /// `Content-Length` twice. In a response only if the values differ.
    TwoContentLengths = 400, "there are two Content-Length headers", "RFC 9112 Sec. 6.3";
    /// `Transfer-Encoding` twice.
    TwoTransferEncodings = 400, "there are two Transfer-Encoding headers", "RFC 9112 Sec. 6.1";
    /// A transfer coding other than `chunked`.
    TransferEncoding = 400, "Transfer-Encoding is not chunked", "RFC 9112 Sec. 6.1";
    /// Both `Content-Length` and `Transfer-Encoding`.
    TwoLengths = 400, "Content-Length and Transfer-Encoding exclude each other", "RFC 9112 Sec. 6.1";
    /// A transfer coding in HTTP/1.0.
    TransferEncodingIn10 = 400, "HTTP/1.0 has no Transfer-Encoding", "RFC 9112 Sec. 6.1";
    /// A chunk size does not fit.
    ChunkTooLarge = 400, "a chunk size is too large", "RFC 9112 Sec. 7.1";
    /// A chunk size is not hexadecimal.
    ChunkSize = 400, "a chunk size is not a hexadecimal number", "RFC 9112 Sec. 7.1";
    /// The bytes after a chunk are not the end of its line.
    ChunkEnd = 400, "a chunk is longer than its size", "RFC 9112 Sec. 7.1";
    /// A chunk extension breaks the grammar.
    ChunkExtension = 400, "a chunk extension is not valid", "RFC 9112 Sec. 7.1.1";
    /// The chunk extensions of one body exceed their limit.
    ChunkExtensions = 400, "the chunk extensions are too long", "RFC 9112 Sec. 7.1.1";
    /// A carriage return without a line feed.
    BareReturn = 400, "a carriage return has no line feed", "RFC 9112 Sec. 2.2";
    /// A trailer field breaks the grammar.
    Trailer = 400, "a trailer field is not valid", "RFC 9112 Sec. 7.1.2";
    /// A field in a trailer section that changes the meaning of the message.
    TrailerName = 400, "a trailer field belongs in the head", "RFC 9110 Sec. 6.5.1";
    /// The trailer section exceeds the limits of a head.
    TrailersTooLarge = 431, "the trailer section is too large", "RFC 6585 Sec. 5";
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Fault {}
