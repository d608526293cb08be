//! Files: their sizes, popularity and owners.
//!
//! Replaces the logs of Aron, Druschel and Zwaenepoel, *Cluster Reserves* (SIGMETRICS 2000), Secs. 5.1 and
//! 5.5. Of these logs, the paper gives the number of files, their total size, and the memory that holds the
//! files of 97, 98 or 99 % of the requests. A set is generated from its figures and from a seed that
//! belongs to the set, not to the run:
//!
//! - The file of rank r of F is requested in proportion to r^-z · √(1 − r/F). The first factor is Zipf's
//!   law, with the exponent that makes the set match the printed figures. Alone it does not match: the last
//!   files of a log of two months are requested only a few times, and they receive fewer of the requests
//!   than the law says.
//! - Sizes are log-normal, times (r/F)^0.4, scaled to the sum. Popular files are small. This makes the
//!   memory of a log so much smaller than the log, and the mean size of a request a third of that of a
//!   file.
//! - Files are dealt to the parts in the order of their rank, each to the part that is furthest behind its
//!   share of the requests.
//!
//! Requests are independent of one another. In a real log, requests for one file come closer together.

use weirgate_emulator::random::Random;

use super::Document;
use crate::Documents;

/// SURGE's figure for the body of file sizes (Barford and Crovella 1998). Its Pareto tail is left out,
/// because a handful of files would decide the total size.
const SIGMA: f64 = 1.318;

/// Growth of sizes with the rank. With it the mean size of a request is about 11 kB if that of a file is 33
/// kB. Typical transfers are 5 to 13 kB (Sec. 5.2).
const GROWTH: f64 = 0.4;

/// Fading of the popularity of the last files. Found by trial, together with the exponent, to match all
/// three printed figures.
const FADE: f64 = 0.5;

/// Files of a stream.
#[derive(Debug)]
pub struct Library {
    /// Popularity of each file and all files before it.
    cumulative: Vec<f64>,
    files: Vec<Document>,
}

impl Library {
    /// The files of stream number `index`.
    pub fn new(documents: &Documents, index: usize) -> Library {
        let parts = &documents.parts;
        let files = if documents.counted.is_empty() { Library::drawn(documents) } else { Library::counted(documents) };
        let mut library = Library { cumulative: Vec::new(), files: Vec::new() };
        let (mut total, mut dealt) = (0.0, vec![0.0; parts.len()]);
        for (file, (popularity, bytes)) in files.into_iter().enumerate() {
            total += popularity;
            let behind = |part: usize| parts[part].1 * total - dealt[part];
            let neediest = (0..parts.len()).max_by(|a, b| behind(*a).total_cmp(&behind(*b))).unwrap_or(0);
            if let Some(dealt) = dealt.get_mut(neediest) {
                *dealt += popularity;
            }
            let traffic = parts.get(neediest).map_or(index, |(traffic, _)| *traffic) as u32;
            let object = (index as u64) << 32 | file as u64;
            library.cumulative.push(total);
            library.files.push(Document { object, bytes, traffic });
        }
        library
    }

    /// Popularity and bytes of files, as counted in a log.
    fn counted(documents: &Documents) -> Vec<(f64, u64)> {
        documents.counted.iter().map(|(bytes, requests)| (*requests as f64, *bytes)).collect()
    }

    /// Popularity and bytes of files, drawn from their figures.
    fn drawn(documents: &Documents) -> Vec<(f64, u64)> {
        let Documents { files: count, bytes, zipf, seed, .. } = *documents;
        let mut random = Random::new(seed);
        let whole = f64::from(count);
        let mut sizes: Vec<f64> = (1..=count)
            .map(|rank| (SIGMA * normal(&mut random)).exp() * (f64::from(rank) / whole).powf(GROWTH))
            .collect();
        let scale = bytes as f64 / sizes.iter().sum::<f64>();
        sizes.iter_mut().for_each(|size| *size *= scale);
        let popularity = (1..=count).map(|rank| {
            let rank = f64::from(rank);
            rank.powf(-zipf) * (1.0 - (rank - 0.5) / whole).powf(FADE)
        });
        popularity.zip(sizes).map(|(popularity, size)| (popularity, size.round().max(1.0) as u64)).collect()
    }

    /// The file at point `point` of all requests, 0 to 1, 1 excluded.
    pub fn at(&self, point: f64) -> Document {
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        let file = self.cumulative.partition_point(|below| *below <= point * total);
        self.files[file.min(self.files.len() - 1)]
    }

    /// Bytes of the most popular files that receive this share of the requests.
    pub fn memory_for(&self, share: f64) -> u64 {
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        let files = self.cumulative.partition_point(|below| *below < share * total) + 1;
        self.files.iter().take(files).map(|file| file.bytes).sum()
    }

    /// Every file with its share of the requests, the most popular first.
    pub fn files(&self) -> impl Iterator<Item = (Document, f64)> + '_ {
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        let before = std::iter::once(0.0).chain(self.cumulative.iter().copied());
        self.files.iter().zip(self.cumulative.iter().zip(before)).map(move |(f, (to, from))| (*f, (to - from) / total))
    }
}

/// Draws a standard normal number (Box and Muller 1958).
fn normal(random: &mut Random) -> f64 {
    (2.0 * random.exponential()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_their_shares_and_popular_files_are_small() {
        let parts = vec![(0, 0.5), (3, 0.3), (4, 0.2)];
        let documents =
            Documents { files: 5000, bytes: 50_000_000, zipf: 0.9, seed: 7, counted: Vec::new(), parts: parts.clone() };
        let library = Library::new(&documents, 0);
        for (traffic, share) in parts {
            let own: f64 = library.files().filter(|(f, _)| f.traffic == traffic as u32).map(|(_, p)| p).sum();
            assert!((own - share).abs() < 1e-3, "stream {traffic} has {own}");
        }
        let bytes: u64 = library.files().map(|(file, _)| file.bytes).sum();
        assert!(bytes.abs_diff(50_000_000) < 5000, "{bytes}");
        let mean: f64 = library.files().map(|(file, share)| file.bytes as f64 * share).sum();
        assert!((2000.0..6000.0).contains(&mean), "a request's mean size is {mean}, a file's 10000");
        assert_eq!(library.at(0.0).object, 0);
        assert_eq!(library.at(1.0 - 1e-16).object, 4999);
    }

    #[test]
    fn a_seed_names_a_set() {
        let set = |seed, index| {
            let documents = Documents {
                files: 100,
                bytes: 100_000,
                zipf: 1.0,
                seed,
                counted: Vec::new(),
                parts: vec![(index, 1.0)],
            };
            Library::new(&documents, index).files().map(|(file, _)| (file.object, file.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(set(1, 0), set(1, 0));
        assert_ne!(set(1, 0), set(2, 0));
        assert!(set(1, 0).iter().all(|(object, _)| set(1, 1).iter().all(|(other, _)| object != other)));
    }
}
