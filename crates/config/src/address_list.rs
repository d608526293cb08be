//! Lists of networks in files, such as those of known crawlers, with a look-up by longest prefix.
//!
//! Networks of one family may lie in others. [`AddressList`] cuts the range of all addresses into pieces, each with the
//! line of the smallest network around it, and searches the sorted pieces. The result is that of a tree of prefixes
//! (Morrison, *PATRICIA*, JACM 1968). Pieces are two plain arrays: a search among the 200,000 pieces of 100,000
//! networks takes 18 comparisons and follows no pointers.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use weirgate_spanned_yaml::decode::FromText as _;
use weirgate_spanned_yaml::errors::Complaint;

use crate::file::Net;

/// Maximum number of networks in the lists of a policy. They take at most 40 MB then, if all are of IPv6.
pub(crate) const MAX_NETWORKS: usize = 1_000_000;

/// Largest file of a list: room for [`MAX_NETWORKS`] lines with the longest network and a short comment.
pub(crate) const MAX_LIST_BYTES: u64 = 64 << 20;

/// Networks, each with its line in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct AddressList {
    /// The file, as the policy names it.
    pub name: String,
    /// Number of networks in it.
    pub networks: usize,
    v4: Pieces<u32>,
    v6: Pieces<u128>,
}

/// A line of a list that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrongLine {
    /// Number of the line, from 1.
    pub(crate) line: u32,
    /// Column of its first character that is no space, from 1.
    pub(crate) column: u32,
    pub(crate) complaint: Complaint,
}

impl AddressList {
    /// Returns the line of the smallest network that contains `address`. Of two equal networks the first counts.
    pub fn line(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(v4) => self.v4.line(u32::from(v4)),
            IpAddr::V6(v6) => self.v6.line(u128::from(v6)),
        }
    }

    /// Reads a list: a network or address a line, and comments after `#` or `;`. It has at most `max` networks.
    ///
    /// # Errors
    /// All lines that are wrong. After the network that is too many, no further ones are read.
    pub(crate) fn parse(name: &str, text: &[u8], max: usize) -> Result<AddressList, Vec<WrongLine>> {
        let (mut v4, mut v6, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        for (number, line) in (1u32..).zip(text.split(|&b| b == b'\n')) {
            let entry = line.split(|b| matches!(b, b'#' | b';')).next().unwrap_or_default();
            let start = entry.iter().take_while(|b| b.is_ascii_whitespace()).count();
            let entry = entry.trim_ascii();
            if entry.is_empty() {
                continue;
            }
            let mut refuse = |complaint| {
                let column = u32::try_from(start + 1).unwrap_or(u32::MAX);
                wrong.push(WrongLine { line: number, column, complaint });
            };
            if v4.len() + v6.len() >= max {
                let what = format!("the lists of a policy have at most {MAX_NETWORKS} networks");
                refuse(Complaint::new(what, "join neighbours into larger networks"));
                break;
            }
            match network(&String::from_utf8_lossy(entry)) {
                Ok(IpNet::V4(net)) => v4.push((u32::from(net.network()), u32::from(net.broadcast()), number)),
                Ok(IpNet::V6(net)) => v6.push((u128::from(net.network()), u128::from(net.broadcast()), number)),
                Err(complaint) => refuse(complaint),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let networks = v4.len() + v6.len();
        Ok(AddressList { name: name.to_owned(), networks, v4: Pieces::new(v4), v6: Pieces::new(v6) })
    }
}

/// Reads the network of a line.
fn network(entry: &str) -> Result<IpNet, Complaint> {
    let Net(net) = Net::from_text(entry).map_err(|complaint| match entry.split_once(char::is_whitespace) {
        Some((net, _)) => Complaint::new(complaint.what, format!("write one network a line, as `{net} # comment`")),
        None => complaint,
    })?;
    // Clients with such addresses count as clients of IPv4.
    if let IpNet::V6(v6) = net
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && v6.prefix_len() >= 96
    {
        let what = format!("`{entry}` is a network of IPv4 in the form of IPv6");
        return Err(Complaint::new(what, format!("write `{v4}/{}`", v6.prefix_len() - 96)));
    }
    Ok(net)
}

/// Reads the bytes of the list at `path`.
///
/// # Errors
/// The reason why they cannot be read.
pub(crate) fn read_list(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_LIST_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > MAX_LIST_BYTES => Err("it has more than 64 MiB".to_owned()),
        Ok(_) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

/// The addresses of a family in pieces.
#[derive(Debug, PartialEq, Eq)]
struct Pieces<T> {
    /// The first address of each piece, ascending. A piece ends before the next one.
    starts: Vec<T>,
    /// The line of each piece, or 0 for addresses that are not listed.
    lines: Vec<u32>,
}

/// An address as a number.
trait Number: Copy + Ord {
    /// The next address, if this is not the last one.
    fn next(self) -> Option<Self>;
}

impl Number for u32 {
    fn next(self) -> Option<u32> {
        self.checked_add(1)
    }
}

impl Number for u128 {
    fn next(self) -> Option<u128> {
        self.checked_add(1)
    }
}

impl<T: Number> Pieces<T> {
    /// Makes the pieces of networks: first address, last address and line. Two of them are disjoint, or one contains
    /// the other.
    fn new(mut networks: Vec<(T, T, u32)>) -> Pieces<T> {
        // Outer networks come before those within them, and of equal ones the last line, which the others cover.
        networks.sort_unstable_by(|a, b| (a.0, b.1, b.2).cmp(&(b.0, a.1, a.2)));
        let mut pieces = Pieces { starts: Vec::new(), lines: Vec::new() };
        let mut around: Vec<(T, u32)> = Vec::new();
        for (first, last, line) in networks {
            while let Some(&(end, _)) = around.last().filter(|(end, _)| *end < first) {
                around.pop();
                pieces.close(end, &around);
            }
            pieces.begin(first, line);
            around.push((last, line));
        }
        while let Some((end, _)) = around.pop() {
            pieces.close(end, &around);
        }
        pieces.starts.shrink_to_fit();
        pieces.lines.shrink_to_fit();
        pieces
    }

    /// Ends a network whose last address is `end`. The addresses after it belong to the next one around.
    fn close(&mut self, end: T, around: &[(T, u32)]) {
        if let Some(after) = end.next() {
            self.begin(after, around.last().map_or(0, |(_, line)| *line));
        }
    }

    fn begin(&mut self, start: T, line: u32) {
        if self.starts.last() == Some(&start) {
            self.lines.pop();
        } else {
            self.starts.push(start);
        }
        self.lines.push(line);
    }

    fn line(&self, address: T) -> Option<u32> {
        let at = self.starts.partition_point(|start| *start <= address).checked_sub(1)?;
        self.lines.get(at).copied().filter(|line| *line > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(text: &str) -> AddressList {
        AddressList::parse("l", text.as_bytes(), MAX_NETWORKS).expect("it is sound")
    }

    fn line(list: &AddressList, address: &str) -> Option<u32> {
        list.line(address.parse().expect("an address"))
    }

    #[test]
    fn the_smallest_network_counts() {
        let text = "\u{feff}# crawlers\r\n10.0.0.0/8\n\n  10.1.0.0/16 ; office\n10.1.2.3 # \u{e9}\n0.0.0.0/0\n";
        let list = list(&format!("{text}2001:db8::/32\n255.255.255.255\n10.1.0.0/16\n"));
        assert_eq!(list.networks, 7);
        assert_eq!(line(&list, "10.1.2.3"), Some(5));
        assert_eq!(line(&list, "10.1.2.4"), Some(4), "of two equal networks the first counts");
        assert_eq!((line(&list, "10.2.0.0"), line(&list, "11.0.0.0")), (Some(2), Some(6)));
        assert_eq!((line(&list, "255.255.255.255"), line(&list, "255.255.255.254")), (Some(8), Some(6)));
        assert_eq!((line(&list, "2001:db8::1"), line(&list, "2001:db9::")), (Some(7), None));
        assert_eq!(line(&self::list("# nothing\n"), "10.0.0.1"), None);
    }

    #[test]
    fn broken_lines_are_told_with_their_places() {
        let text = "10.0.0.0/8\n  10.1.2.3/8\n10.0.0.0/33\ncrawler.test\n10.0.0.1 office\n::ffff:10.0.0.0/104\n";
        let wrong = AddressList::parse("l", text.as_bytes(), MAX_NETWORKS).expect_err("it is broken");
        let places: Vec<_> = wrong.iter().map(|wrong| (wrong.line, wrong.column)).collect();
        assert_eq!(places, [(2, 3), (3, 1), (4, 1), (5, 1), (6, 1)]);
        assert!(wrong[0].complaint.hint.contains("`10.0.0.0/8`"));
        assert_eq!(wrong[3].complaint.hint, "write one network a line, as `10.0.0.1 # comment`");
        assert_eq!(wrong[4].complaint.hint, "write `10.0.0.0/8`");
        let many = AddressList::parse("l", b"10.0.0.0/8\n10.0.0.1\n10.0.0.2\n10.0.0.3\n", 2).expect_err("too many");
        assert_eq!((many.len(), many[0].line), (1, 3));
    }

    proptest! {
        /// Agrees with the longest of all prefixes that contain the address.
        #[test]
        fn agrees_with_all_networks(
            nets in prop::collection::vec((any::<u32>(), 0u8..=32, any::<bool>()), 0..40),
            addresses in prop::collection::vec(any::<u32>(), 20),
        ) {
            // Few bits vary, so that networks contain one another.
            let address = |bits: u32, v6: bool| -> IpAddr {
                let bits = bits & 0x0f03_000f;
                if v6 { std::net::Ipv6Addr::from(u128::from(bits) << 96).into() }
                else { std::net::Ipv4Addr::from(bits).into() }
            };
            let nets: Vec<IpNet> = nets
                .into_iter()
                .map(|(bits, prefix, v6)| IpNet::new(address(bits, v6), prefix).expect("a prefix").trunc())
                .collect();
            let text: Vec<String> = nets.iter().map(IpNet::to_string).collect();
            let list = list(&text.join("\n"));
            let ends = nets.iter().flat_map(|net| [net.network(), net.broadcast()]);
            for probe in addresses.into_iter().flat_map(|bits| [address(bits, false), address(bits, true)]).chain(ends) {
                let around = nets.iter().zip(1u32..).filter(|(net, _)| net.contains(&probe));
                let best = around.max_by_key(|(net, line)| (net.prefix_len(), std::cmp::Reverse(*line)));
                prop_assert_eq!(list.line(probe), best.map(|(_, line)| line));
            }
        }

        #[test]
        fn any_bytes_are_a_list_or_errors(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = AddressList::parse("l", &text, MAX_NETWORKS);
        }
    }
}
