//! Finds the cgroup trees of this machine and the interface that has the cpu controller.
//!
//! A controller belongs to one interface at a time. Some machines mount both: systemd's "hybrid" layout has
//! the resources in v1 and a v2 tree that only names services. The interface with `cpu` is used there.
//! Controllers of the other interface are left alone and reported.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Cgroups, V1, V2};

/// File in which the kernel lists the mounts.
pub(crate) const MOUNTS: &str = "/proc/self/mountinfo";

/// Controllers with knobs that are set in addition to those of `cpu`, by their names in v1 and v2.
const OTHERS: [(&str, &str); 2] = [("blkio", "io"), ("memory", "memory")];

/// The interface chosen on this machine.
pub struct Opened {
    /// The interface itself.
    pub cgroups: Box<dyn Cgroups>,
    /// Lines for the operator: the interface in use, and the controllers that are left alone.
    pub about: Vec<String>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("about", &self.about).finish_non_exhaustive()
    }
}

/// The cgroup trees that are mounted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    pub(crate) v2: Option<PathBuf>,
    /// Trees of v1, by controller.
    pub(crate) v1: BTreeMap<String, PathBuf>,
}

/// Opens the interface that has the cpu controller. Group names are relative to `root`. A relative `root` is
/// a group's path (below each controller, with v1). An absolute `root` is the directory of a v2 group, or a
/// directory that contains `cpu`, `cpuacct`, … as `/sys/fs/cgroup` does with v1.
///
/// # Errors
/// There is no such interface, or no such root.
pub fn open(root: Option<&Path>) -> Result<Opened, String> {
    match root.filter(|root| root.is_absolute()) {
        Some(root) => below(root),
        None => {
            let text = fs::read_to_string(MOUNTS).map_err(|error| format!("{MOUNTS}: {error}"))?;
            Mounts::parse(&text).open(root.unwrap_or(Path::new("")))
        }
    }
}

/// Opens the interface with the directory `root` as its root.
fn below(root: &Path) -> Result<Opened, String> {
    let tree = |controller: &str| Some(root.join(controller)).filter(|tree| tree.is_dir());
    let shown = root.display();
    if root.join("cgroup.controllers").is_file() {
        return Ok(Opened { cgroups: Box::new(V2::new(root)), about: vec![format!("cgroup v2 at {shown}")] });
    }
    match (tree("cpu"), tree("cpuacct")) {
        (Some(cpu), Some(cpuacct)) => {
            let cgroups = V1::new(&cpu, &cpuacct, tree("blkio").as_deref());
            Ok(Opened { cgroups: Box::new(cgroups), about: vec![format!("cgroup v1 at {shown}/cpu")] })
        }
        _ => Err(format!(
            "{shown} is no cgroup root: it has neither cgroup.controllers (v2) nor cpu and cpuacct (v1); for a group of \
             v1 write its path below the controllers, such as --cgroup-root lab/n1"
        )),
    }
}

impl Mounts {
    /// Parses `mountinfo` (see proc(5)). Mount points with spaces are not decoded.
    pub(crate) fn parse(text: &str) -> Mounts {
        let mut mounts = Mounts::default();
        for line in text.lines() {
            let Some((front, back)) = line.split_once(" - ") else { continue };
            let Some(point) = front.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut back = back.split(' ');
            // A tree may be mounted more than once. Operators expect the first mount point.
            match (back.next(), back.nth(1)) {
                (Some("cgroup2"), _) => mounts.v2 = mounts.v2.or(Some(point)),
                (Some("cgroup"), Some(options)) => {
                    for option in options.split(',') {
                        mounts.v1.entry(option.to_owned()).or_insert_with(|| point.clone());
                    }
                }
                _ => {}
            }
        }
        mounts
    }

    fn open(&self, root: &Path) -> Result<Opened, String> {
        let in_v2 = self.v2.as_ref().map(|v2| (v2, controllers(v2)));
        let tree = |controller: &str| self.v1.get(controller).map(|mount| at(mount, root));
        match (tree("cpu"), tree("cpuacct"), in_v2) {
            (Some(cpu), Some(cpuacct), in_v2) => {
                let (cpu, cpuacct) = (present(cpu)?, present(cpuacct)?);
                let blkio = tree("blkio").filter(|tree| tree.is_dir());
                let mut about = vec![format!("cgroup v1 at {}", cpu.display())];
                if let Some((v2, controllers)) = in_v2 {
                    let others =
                        OTHERS.iter().map(|(_, v2)| *v2).filter(|name| controllers.iter().any(|has| has == name));
                    let others: Vec<&str> = others.collect();
                    about.push(match others.as_slice() {
                        [] => format!("{} is mounted as well, has no controllers and is not used", v2.display()),
                        some => format!(
                            "{} is mounted as well and has {}, which is left alone: shares are where `cpu` is",
                            v2.display(),
                            some.join(" and ")
                        ),
                    });
                }
                Ok(Opened { cgroups: Box::new(V1::new(&cpu, &cpuacct, blkio.as_deref())), about })
            }
            (None, _, Some((v2, controllers))) if controllers.iter().any(|has| has == "cpu") => {
                let root = present(at(v2, root))?;
                let others = OTHERS.iter().map(|(v1, _)| *v1).filter(|name| self.v1.contains_key(*name));
                let mut about = vec![format!("cgroup v2 at {}", root.display())];
                about.extend(others.map(|name| format!("{name} is a controller of cgroup v1 here, and is left alone")));
                Ok(Opened { cgroups: Box::new(V2::new(&root)), about })
            }
            (Some(_), None, _) => {
                Err("the cpu controller is in cgroup v1, but cpuacct, which counts CPU time, is not \
                                       mounted: mount -t cgroup -o cpuacct none /sys/fs/cgroup/cpuacct"
                    .to_owned())
            }
            _ => Err(format!(
                "no cgroup tree with the cpu controller is mounted, says {MOUNTS}: in a container, give it the host's \
                 /sys/fs/cgroup; elsewhere `mount -t cgroup2 none /sys/fs/cgroup`"
            )),
        }
    }
}

/// Returns the directory of the group `root` in the tree at `mount`.
fn at(mount: &Path, root: &Path) -> PathBuf {
    // Joining an empty path would append a slash.
    if root.as_os_str().is_empty() { mount.to_owned() } else { mount.join(root) }
}

/// Returns the controllers of a v2 group.
fn controllers(group: &Path) -> Vec<String> {
    let text = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

fn present(root: PathBuf) -> Result<PathBuf, String> {
    match root.is_dir() {
        true => Ok(root),
        false => Err(format!("--cgroup-root: {0} is not there; make it with `mkdir -p {0}`", root.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    const HYBRID: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
37 31 0:34 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
23 1 254:0 / / rw,relatime - ext4 /dev/vda rw
";

    #[test]
    fn mounts_are_read() {
        let mounts = Mounts::parse(HYBRID);
        assert_eq!(mounts.v2, Some("/sys/fs/cgroup/unified".into()));
        for (controller, place) in [("cpu", "cpu,cpuacct"), ("cpuacct", "cpu,cpuacct"), ("blkio", "blkio")] {
            assert_eq!(mounts.v1.get(controller), Some(&Path::new("/sys/fs/cgroup").join(place)));
        }
        assert_eq!(mounts.v1.get("memory"), None);
        assert_eq!(Mounts::parse("odd\n\n1 2 - cgroup\n"), Mounts::default());
    }

    /// Returns the lines or the error reported for trees of the controllers `v1` and, if given, a v2 tree
    /// with `v2`'s controllers.
    fn said(v1: &[&str], v2: Option<&str>, root: &str) -> Result<Vec<String>, String> {
        let scratch = tempdir().expect("a directory");
        let mut mounts = Mounts::default();
        for controller in v1 {
            let tree = scratch.path().join(controller);
            fs::create_dir_all(tree.join("lab")).expect("a directory");
            mounts.v1.insert((*controller).to_owned(), tree);
        }
        if let Some(controllers) = v2 {
            let tree = scratch.path().join("unified");
            fs::create_dir_all(&tree).expect("a directory");
            fs::write(tree.join("cgroup.controllers"), controllers).expect("a file");
            mounts.v2 = Some(tree);
        }
        let place = scratch.path().display().to_string();
        let plain = |text: String| text.replace(&place, "");
        let opened = mounts.open(Path::new(root)).map_err(plain)?;
        Ok(opened.about.into_iter().map(plain).collect())
    }

    #[test]
    fn the_interface_that_shares_cpu_time_is_taken() {
        assert_eq!(said(&["cpu", "cpuacct"], None, ""), Ok(vec!["cgroup v1 at /cpu".into()]));
        assert_eq!(said(&["cpu", "cpuacct"], None, "lab"), Ok(vec!["cgroup v1 at /cpu/lab".into()]));
        assert_eq!(said(&[], Some("cpuset cpu io memory\n"), ""), Ok(vec!["cgroup v2 at /unified".into()]));
    }

    #[test]
    fn what_is_mixed_is_said() {
        let hybrid = said(&["cpu", "cpuacct"], Some("\n"), "").expect("v1");
        assert!(hybrid[1].contains("/unified is mounted as well, has no controllers"), "{hybrid:?}");
        let split = said(&["cpu", "cpuacct"], Some("io memory\n"), "").expect("v1");
        assert!(split[1].contains("has io and memory"), "{split:?}");
        let other = said(&["memory"], Some("cpu io\n"), "").expect("v2");
        assert!(
            other[0].starts_with("cgroup v2") && other[1].contains("memory is a controller of cgroup v1"),
            "{other:?}"
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        for (v1, v2, root, words) in [
            (&[][..], None, "", "no cgroup tree with the cpu controller"),
            (&[], Some("io\n"), "", "no cgroup tree with the cpu controller"),
            (&["cpu"], None, "", "cpuacct, which counts"),
            (&["cpu", "cpuacct"], None, "nowhere", "mkdir -p /cpu/nowhere"),
            (&[], Some("cpu\n"), "nowhere", "mkdir -p /unified/nowhere"),
        ] {
            let error = said(v1, v2, root).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
        let scratch = tempdir().expect("a directory");
        assert!(open(Some(scratch.path())).expect_err("empty").contains("lab/n1"));
    }
}
