//! Random draws for tests that try many inputs. The seed is 1, or that of `WEIRGATE_SEED`. A failure prints it.

use weirgate_engine::Random;

/// Draws.
#[derive(Clone)]
pub(crate) struct Draw(pub(crate) Random);

impl Draw {
    /// Begins with the seed of this run.
    pub(crate) fn seeded() -> Draw {
        let seed = std::env::var("WEIRGATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        println!("WEIRGATE_SEED={seed}");
        Draw(Random::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
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
