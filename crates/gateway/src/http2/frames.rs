//! Frames of a connection as they pass, counted by their cost: a bound for floods of frames that carry nothing.
//!
//! Sources: RFC 9113 Sec. 4.1 (frame header), Sec. 6, and Sec. 10.5 (denial of service). The library that reads the
//! frames bounds its memory but not its work: a client can reset streams (CVE-2023-44487), make the gateway reset them
//! (CVE-2025-8671), or send settings, pings, priorities, window updates and empty DATA as fast as it can (CVE-2019-9511
//! to 9518). Such a frame costs one unit of a budget that time fills up again, as nghttp2 limits resets. A frame of a
//! response fills it up too: a client that reads answers with window updates, and with pings that measure the path.

use weirgate_engine::Time;

/// Number of units that a message frame of a response gives back: two window updates (stream and connection), a ping
/// and a setting, which clients with dynamic windows send for each.
const GIVEN_BACK: u32 = 4;

/// Time in which an empty budget fills up: 33 frames a second at a budget of 1000, the rate of nghttp2.
const REFILL_SECONDS: u64 = 30;

/// Types of frames (RFC 9113 Sec. 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

/// Flags of frames.
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;

/// Largest payload of a DATA frame that can be padding alone.
const MAX_PADDING: u32 = 256;

/// Budget for frames without content.
#[derive(Debug)]
pub(super) struct Budget {
    max: u32,
    left: u32,
    /// Time up to which it has been filled up.
    filled: Time,
}

impl Budget {
    pub(super) fn new(max: u32, now: Time) -> Budget {
        Budget { max, left: max, filled: now }
    }

    /// Fills the budget up to the time `now`.
    pub(super) fn fill(&mut self, now: Time) {
        let nanos = u64::try_from(now.since(self.filled).as_nanos()).unwrap_or(u64::MAX);
        let units = u128::from(nanos) * u128::from(self.max) / (u128::from(REFILL_SECONDS) * 1_000_000_000);
        if units > 0 {
            self.give(u32::try_from(units).unwrap_or(u32::MAX));
            self.filled = now;
        }
    }

    fn give(&mut self, units: u32) {
        self.left = self.left.saturating_add(units).min(self.max);
    }

    /// Takes a unit. Returns whether there was one.
    fn take(&mut self) -> bool {
        let had = self.left > 0;
        self.left = self.left.saturating_sub(1);
        had
    }
}

/// The bytes of one direction, taken apart into frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    header: [u8; 9],
    /// Number of bytes of `header` that have passed.
    have: usize,
    /// Number of bytes of the payload that have not passed.
    left: u32,
    /// Whether a header block has begun and not ended.
    in_block: bool,
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    kind: u8,
    flags: u8,
    length: u32,
}

impl Frames {
    /// Takes the next frame header from the front of `bytes`. Returns `None` when all bytes have been examined.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<Frame> {
        let skipped = bytes.len().min(self.left as usize);
        *bytes = bytes.get(skipped..).unwrap_or_default();
        self.left -= skipped as u32;
        if self.left > 0 {
            return None;
        }
        if self.have == self.header.len() {
            self.have = 0;
            if self.kind() == HEADERS || self.kind() == CONTINUATION {
                self.in_block = self.header[4] & END_HEADERS == 0;
            }
        }
        if bytes.is_empty() {
            return None;
        }
        let taken = bytes.len().min(self.header.len() - self.have);
        self.header[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
        self.have += taken;
        *bytes = &bytes[taken..];
        if self.have < self.header.len() {
            return None;
        }
        let length = u32::from_be_bytes([0, self.header[0], self.header[1], self.header[2]]);
        self.left = length;
        self.in_block |= self.kind() == HEADERS;
        Some(Frame { kind: self.kind(), flags: self.header[4], length })
    }

    fn kind(&self) -> u8 {
        self.header[3]
    }

    /// Whether a header block has begun and its last byte has not passed.
    pub(super) fn in_block(&self) -> bool {
        self.in_block
    }
}

/// Charges the frames of `bytes`, which the client has sent. Returns false if the budget does not suffice.
pub(super) fn received(frames: &mut Frames, mut bytes: &[u8], budget: &mut Budget) -> bool {
    while let Some(frame) = frames.next(&mut bytes) {
        let free = match frame.kind {
            HEADERS => true,
            DATA => {
                let may_be_padding = frame.flags & PADDED != 0 && frame.length <= MAX_PADDING;
                frame.flags & END_STREAM != 0 || (frame.length > 0 && !may_be_padding)
            }
            _ => false,
        };
        if !free && !budget.take() {
            return false;
        }
    }
    true
}

/// Charges the frames of `bytes`, which the gateway has sent. Returns false if the budget does not suffice.
pub(super) fn sent(frames: &mut Frames, mut bytes: &[u8], budget: &mut Budget) -> bool {
    while let Some(frame) = frames.next(&mut bytes) {
        match frame.kind {
            DATA | HEADERS => budget.give(GIVEN_BACK),
            // Most of them are the client's fault, and each of them may have cost a request.
            RST_STREAM if !budget.take() => return false,
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![0, (payload >> 8) as u8, payload as u8, kind, flags, 0, 0, 0, 1];
        bytes.resize(9 + payload, 0xff);
        bytes
    }

    proptest! {
        /// Frames are found wherever the bytes are split.
        #[test]
        fn frames_are_found(
            sent in proptest::collection::vec((0u8..12, any::<u8>(), 0usize..300), 0..20),
            cuts in proptest::collection::vec(1usize..40, 1..200),
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(|&(kind, flags, length)| frame(kind, flags, length)).collect();
            let (mut frames, mut found, mut rest) = (Frames::default(), Vec::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                let (mut piece, after) = rest.split_at((*cut).min(rest.len()));
                while let Some(frame) = frames.next(&mut piece) {
                    found.push((frame.kind, frame.flags, frame.length as usize));
                }
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, sent);
        }
    }

    #[test]
    fn a_block_ends_with_its_last_byte() {
        let mut frames = Frames::default();
        let mut bytes = frame(HEADERS, 0, 10);
        bytes.extend(frame(CONTINUATION, END_HEADERS, 5));
        for (at, byte) in bytes.iter().enumerate() {
            let mut piece = std::slice::from_ref(byte);
            while frames.next(&mut piece).is_some() {}
            assert_eq!(frames.in_block(), at >= 8 && at + 1 < bytes.len(), "after byte {at}");
        }
    }

    #[test]
    fn only_frames_without_content_cost_something() {
        let mut budget = Budget::new(3, Time::ZERO);
        let mut frames = Frames::default();
        let content = [frame(HEADERS, END_HEADERS, 9), frame(DATA, 0, 1), frame(DATA, END_STREAM, 0)].concat();
        for _ in 0..10 {
            assert!(received(&mut frames, &content, &mut budget));
        }
        for (kind, flags, length) in [(DATA, 0, 0), (DATA, PADDED, 256), (6, 0, 8)] {
            assert!(received(&mut frames, &frame(kind, flags, length), &mut budget));
        }
        assert!(!received(&mut frames, &frame(4, 0, 0), &mut budget));
        // A tenth of the time fills up a tenth, and a response gives more.
        budget.fill(Time::from_millis(10_000));
        assert!(received(&mut frames, &frame(8, 0, 4), &mut budget));
        assert!(!received(&mut frames, &frame(8, 0, 4), &mut budget));
        let mut out = Frames::default();
        assert!(sent(&mut out, &frame(DATA, 0, 100), &mut budget));
        assert!(sent(&mut out, &frame(RST_STREAM, 0, 4).repeat(3), &mut budget));
        assert!(!sent(&mut out, &frame(RST_STREAM, 0, 4), &mut budget));
    }
}
