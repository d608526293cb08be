//! The sources that have the guaranteed arrivals of a class.
//!
//! If more requests arrive than the guarantee covers, the first to come would be owed an answer. A source that sends
//! without a pause would then have nearly all of the guarantee, and the others of its class would be refused as soon as
//! a short queue forms. So a request that finds no token takes the place of one of the source that has most of the
//! latest guaranteed arrivals, if that source is greedy and keeps more than the new one has. That source owes a token
//! for it. Its next arrival that finds a token pays, and is surplus. So the guarantee is divided by max-min among the
//! sources, and as many arrivals as before are owed.
//!
//! Source: buffer stealing (McKenney, *Stochastic Fairness Queueing*, INFOCOM 1990), which takes places in a queue
//! from the longest flow. *Departure:* places are arrivals within a rate, and they are gone when another source
//! needs one. So the latest ones are kept, like the sample of Approximate Fair Dropping (Pan, Breslau, Prabhakar and
//! Shenker, CCR 2003), and the place is paid for later.
//!
//! Bounds: room for [`KEPT`] arrivals, some 300 bytes, from the first time that a class exceeds its guarantee. Until
//! then all of its requests are owed. An arrival of the source that has most compares two words, unless a token is
//! owed. Any other one compares [`KEPT`] words up to four times.

/// Number of arrivals that are kept: those of a second, as in a full bucket, of a class with 64/s.
const KEPT: usize = 64;

/// Number of them that make a source greedy: an eighth. Where many sources send alike, each has a few by chance.
const GREEDY: u32 = KEPT as u32 / 8;

/// The sources of the latest guaranteed arrivals of one class.
#[derive(Clone, Debug)]
pub(super) struct Holders {
    /// Their hashes, in a ring, and the number of those written to it.
    latest: [u32; KEPT],
    count: usize,
    /// The source that had most when one was last counted.
    most: u32,
    /// The source that owes tokens, and their number.
    debtor: u32,
    debt: u32,
}

impl Default for Holders {
    fn default() -> Holders {
        Holders { latest: [0; KEPT], count: 0, most: 0, debtor: 0, debt: 0 }
    }
}

impl Holders {
    /// Forgets all arrivals.
    pub(super) fn clear(&mut self) {
        (self.count, self.debt) = (0, 0);
    }

    /// Records the arrival of a request of a source with this hash, and returns whether it is owed an answer. If
    /// `has_token`, it takes a token, whether it is owed or pays for another.
    pub(super) fn owed(&mut self, hash: u64, has_token: bool) -> bool {
        let source = (hash ^ (hash >> 32)) as u32;
        // The source that has most, as one alone, takes over nothing from itself.
        if source == self.most && self.debt == 0 {
            if has_token {
                self.keep(source);
            }
            return has_token;
        }
        self.owed_beside_others(source, has_token)
    }

    fn owed_beside_others(&mut self, source: u32, has_token: bool) -> bool {
        if !has_token {
            return self.takes_over(source);
        }
        if self.debt > 0 && self.debtor == source {
            self.debt -= 1;
            return false;
        }
        self.keep(source);
        if self.held(source) >= self.held(self.most) {
            self.most = source;
        }
        true
    }

    fn keep(&mut self, source: u32) {
        self.latest[self.count % KEPT] = source;
        self.count += 1;
    }

    /// Lets `source` take the place of the source that has most, if that one is greedy and keeps more.
    fn takes_over(&mut self, source: u32) -> bool {
        if self.debt == 0 || self.held(self.debtor) == 0 {
            // One that has stopped pays no more.
            (self.debtor, self.debt) = (self.most, 0);
        }
        let kept = self.held(self.debtor);
        if kept <= GREEDY || kept <= self.held(source) + 1 {
            return false;
        }
        if let Some(holder) = self.latest.iter_mut().find(|holder| **holder == self.debtor) {
            *holder = source;
        }
        self.debt += 1;
        true
    }

    /// Number of the latest arrivals that a source has.
    fn held(&self, source: u32) -> u32 {
        self.latest[..self.count.min(KEPT)].iter().map(|holder| u32::from(*holder == source)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Plays a minute of sources with these requests a second, and a token every 20 ms. Returns the owed arrivals a
    /// second of each.
    fn play(rates: &[f64], seed: u64) -> Vec<f64> {
        let (mut holders, mut random) = (Holders::default(), Random::new(seed));
        let (mut tokens, mut owed) = (0.0_f64, vec![0.0; rates.len()]);
        for _ in 0..60_000 {
            tokens = (tokens + 0.05).min(50.0);
            for (source, rate) in rates.iter().enumerate() {
                if random.unit() < rate / 1e3 {
                    let has_token = tokens >= 1.0;
                    owed[source] += f64::from(u8::from(holders.owed(source as u64 + 7, has_token))) / 60.0;
                    tokens -= f64::from(u8::from(has_token));
                }
            }
        }
        owed
    }

    /// The max-min shares of `total`, by filling all sources at the same speed.
    fn max_min(rates: &[f64], total: f64) -> Vec<f64> {
        let (mut low, mut high) = (0.0, total);
        for _ in 0..100 {
            let level = (low + high) / 2.0;
            let sum: f64 = rates.iter().map(|rate| rate.min(level)).sum();
            if sum < total { low = level } else { high = level }
        }
        rates.iter().map(|rate| rate.min(high)).collect()
    }

    #[test]
    fn the_guarantee_is_divided_by_max_min() {
        let polite = |number, rate| vec![rate; number];
        let mixes = [
            [polite(20, 1.0), vec![150.0]].concat(),
            [polite(10, 1.0), vec![100.0, 100.0]].concat(),
            [polite(4, 2.0), vec![30.0, 60.0, 90.0]].concat(),
            polite(5, 40.0),
            vec![10.0, 20.0, 100.0],
        ];
        for (seed, rates) in mixes.into_iter().enumerate() {
            let owed = play(&rates, seed as u64);
            let sum: f64 = owed.iter().sum();
            assert!((48.0..=53.0).contains(&sum), "{rates:?}: {sum} of 50 a second");
            for ((owed, fair), rate) in owed.iter().zip(max_min(&rates, 50.0)).zip(&rates) {
                // A source just at the level of all has as many as the greedy one at times, and cannot take over.
                let error = (owed - fair) / fair;
                assert!(error.abs() < 1.0 / 3.0, "{rates:?}: a source of {rate}/s has {owed:.2} of {fair:.2}");
            }
        }
    }

    #[test]
    fn one_source_alone_has_what_the_tokens_allow() {
        let owed = play(&[200.0], 1);
        assert!((49.5..=50.5).contains(&owed[0]), "{owed:?}");
    }

    /// With sources that come and go, the owed arrivals exceed the tokens by no more than the places of those that
    /// went.
    #[test]
    fn few_arrivals_are_owed_beyond_the_tokens() {
        for seed in 0..50 {
            let (mut holders, mut random) = (Holders::default(), Random::new(seed));
            let (mut tokens, mut owed, mut greedy) = (0_u64, 0_u64, 0);
            let mut gone = 1;
            for step in 0..20_000_u64 {
                if random.below(300) == 0 {
                    (greedy, gone) = (random.below(1_000_000), gone + 1);
                }
                let source = if random.below(3) == 0 { random.below(20) } else { greedy };
                let has_token = step % 3 == 0;
                tokens += u64::from(has_token);
                owed += u64::from(holders.owed(source, has_token));
            }
            assert!(owed <= tokens + gone * KEPT as u64 / 2, "seed {seed}: {owed} of {tokens}, {gone}");
            assert!(owed >= tokens * 9 / 10, "seed {seed}: {owed} of {tokens}");
        }
    }
}
