//! Random draws for tests that try many inputs. The seed is 1, or that of `WEIRGATE_SEED`. A failure prints it.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone)]
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    /// Begins with the seed of this run.
    pub(crate) fn seeded() -> Draw {
        let seed = std::env::var("WEIRGATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        println!("WEIRGATE_SEED={seed}");
        Draw(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Cuts bytes into pieces of any size, also pieces that end within the head of a message.
    pub(crate) fn pieces(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let max = [3, 200, 30_000][self.below(3)];
            let (piece, after) = rest.split_at((1 + self.below(max)).min(rest.len()));
            pieces.push(piece.to_vec());
            rest = after;
        }
        pieces
    }
}
