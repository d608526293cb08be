//! Unix sockets as files: their permissions, the replacement of an old file, and the removal at the end.
//!
//! Source: `unix(7)`. A socket's file outlives its process. It is replaced only if connections to it are refused, so
//! that no running program loses its clients. A socket is bound before its mode and owner are set, and listens
//! afterwards, so that no other process connects in between.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::unistd::{Group, User};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::address::{abstract_name, unix_address};

/// Maximum number of connections that wait in the kernel, as for TCP. The kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The bits of a file's mode that can be set. The others are its kind.
const MODE: u32 = 0o7777;

/// Mode, owner and group of a socket's file. To connect, a process needs the right to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// Mode, such as `0o660`.
    pub mode: u32,
    /// Id of the owner. `None` leaves it to the process.
    pub owner: Option<u32>,
    /// Id of the group. `None` leaves it to the process.
    pub group: Option<u32>,
}

impl FileAccess {
    /// Only the owner may connect.
    pub const OWNER: FileAccess = FileAccess { mode: 0o600, owner: None, group: None };

    /// Owner and group may connect.
    pub const GROUP: FileAccess = FileAccess { mode: 0o660, owner: None, group: None };
}

/// The file of a Unix socket. If this process owns it, it is removed when the value is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    id: Option<(u64, u64)>,
    owned: bool,
}

impl SocketFile {
    /// Returns the file of a socket whose process is still in charge of it.
    pub(crate) fn of_predecessor(path: &Path) -> SocketFile {
        SocketFile { path: path.to_owned(), id: id(path), owned: false }
    }

    /// Returns the file of a duplicate of the socket, which does not own it.
    pub(crate) fn duplicate(&self) -> SocketFile {
        SocketFile { path: self.path.clone(), id: self.id, owned: false }
    }

    /// Sets mode, owner and group where they differ. A process that has dropped its rights can then still keep them.
    ///
    /// # Errors
    /// The process may not do so, or ([`io::ErrorKind::NotFound`]) the file was deleted or replaced.
    pub fn set(&self, access: FileAccess) -> io::Result<()> {
        let file = fs::symlink_metadata(&self.path).ok().filter(|file| self.id == Some((file.dev(), file.ino())));
        let Some(file) = file else {
            let why = "its file was deleted or replaced, so no program can connect. Restart, or remove the address by a \
                       reload and add it again";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        };
        let denied = |what: &str, error: io::Error, right: &str| {
            let why = format!("{what} cannot be set: {error}. That needs root, or {right}");
            io::Error::new(error.kind(), why)
        };
        if file.mode() & MODE != access.mode {
            fs::set_permissions(&self.path, Permissions::from_mode(access.mode))
                .map_err(|error| denied("mode", error, "CAP_FOWNER"))?;
        }
        let owner = access.owner.filter(|owner| *owner != file.uid());
        let group = access.group.filter(|group| *group != file.gid());
        match (owner, group) {
            (None, None) => Ok(()),
            _ => lchown(&self.path, owner, group).map_err(|error| denied("owner and group", error, "CAP_CHOWN")),
        }
    }

    /// Owns the file, because the process that did has left it to this one.
    pub fn take_over(&mut self) {
        self.owned = true;
    }

    /// Leaves the file to another process.
    pub fn leave(&mut self) {
        self.owned = false;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have put its own socket there.
        if self.owned && self.id.is_some() && self.id == id(&self.path) {
            // A failure does no harm: the next start replaces a socket on which nothing listens.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn id(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Opens a Unix socket at `path`, and sets the mode and owner of its file. There is no file if `path` stands for a name
/// outside the file system.
///
/// # Errors
/// A process listens there, there is another kind of file, or the file cannot be made or given to its owner.
pub(crate) fn open(path: &Path, access: FileAccess) -> io::Result<(UnixListener, Option<SocketFile>)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let has_file = abstract_name(path).is_none();
    if has_file {
        make_way(path)?;
    }
    bind(&socket, &unix_address(path)?)?;
    let file = has_file.then(|| SocketFile { path: path.to_owned(), id: id(path), owned: true });
    if let Some(file) = &file {
        file.set(access)?;
    }
    listen(&socket, BACKLOG)?;
    Ok((UnixListener::from(socket), file))
}

/// Removes the file of a socket whose process has ended.
fn make_way(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is another kind of file. Remove it"));
        }
        Ok(_) => {}
    }
    // Without blocking, because the queue of a busy process may be full.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &unix_address(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::ACCESS) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "there is a socket, and this process may not find out whether another one listens on it. Remove it",
        )),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Returns the id of a user, by its name or its id. `None` if this machine has no such user.
pub fn user_id(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| Some(User::from_name(name).ok()??.uid.as_raw()))
}

/// Returns the id of a group, by its name or its id. `None` if this machine has no such group.
pub fn group_id(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| Some(Group::from_name(name).ok()??.gid.as_raw()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use tempfile::tempdir;

    use super::*;

    #[test]
    fn the_file_has_its_mode_and_goes_with_its_owner() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("s");
        let own = fs::metadata(folder.path()).unwrap();
        let access = FileAccess { mode: 0o620, owner: Some(own.uid()), group: Some(own.gid()) };
        let (_listener, file) = open(&path, access).unwrap();
        let made = fs::metadata(&path).unwrap();
        assert_eq!((made.mode() & 0o777, made.uid(), made.gid()), (0o620, own.uid(), own.gid()));
        let mut file = file.unwrap();
        file.leave();
        drop(file);
        assert!(path.exists(), "it is another process's now");
        let mut theirs = SocketFile::of_predecessor(&path);
        theirs.take_over();
        drop(theirs);
        assert!(!path.exists());
    }

    /// Returns the time of the last change of a file's mode or owner.
    fn changed(path: &Path) -> (i64, i64) {
        let file = fs::metadata(path).unwrap();
        (file.ctime(), file.ctime_nsec())
    }

    #[test]
    fn mode_and_owner_are_set_only_if_they_differ() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("s");
        let own = fs::metadata(folder.path()).unwrap();
        let access = FileAccess { mode: 0o620, owner: Some(own.uid()), group: Some(own.gid()) };
        let (_listener, file) = open(&path, access).unwrap();
        let (file, before) = (file.unwrap(), changed(&path));
        // Until the clock of the file system has advanced.
        let clock = folder.path().join("clock");
        while !clock.exists() || changed(&clock) == before {
            fs::write(&clock, "").unwrap();
        }
        file.set(access).unwrap();
        assert_eq!(changed(&path), before);
        file.set(FileAccess { mode: 0o600, ..access }).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // Not that of another program, and none is made.
        fs::rename(&path, folder.path().join("moved")).unwrap();
        assert_eq!(file.set(FileAccess::GROUP).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "precious").unwrap();
        let before = fs::metadata(&path).unwrap().mode();
        assert_eq!(file.set(FileAccess::GROUP).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::metadata(&path).unwrap().mode(), before);
    }

    #[test]
    fn a_dead_socket_makes_way_and_nothing_else_does() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a socket outlives its process");
        let (listener, file) = open(&path, FileAccess::OWNER).unwrap();
        assert_eq!(open(&path, FileAccess::OWNER).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        drop((listener, file));
        assert!(!path.exists());
        let _datagrams = UnixDatagram::bind(&path).unwrap();
        assert_eq!(open(&path, FileAccess::OWNER).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert_eq!(open(&path, FileAccess::OWNER).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_full_queue_is_a_sign_of_life() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("s");
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &unix_address(&path).unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        assert_eq!(open(&path, FileAccess::OWNER).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn the_file_of_another_process_stays() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("s");
        let (_listener, file) = open(&path, FileAccess::OWNER).unwrap();
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists() && moved.exists());
    }

    #[test]
    fn names_outside_the_file_system_are_free_again_at_once() {
        let path = PathBuf::from(format!("@weirgate-listening-{}", std::process::id()));
        for _ in 0..2 {
            let (_listener, file) = open(&path, FileAccess::OWNER).unwrap();
            assert!(file.is_none());
            assert_eq!(open(&path, FileAccess::OWNER).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn users_are_known_by_name_and_number() {
        assert_eq!((user_id("root"), group_id("root")), (Some(0), Some(0)));
        assert_eq!((user_id("4242"), group_id("4242")), (Some(4242), Some(4242)));
        assert_eq!((user_id("no such user"), group_id("no such group")), (None, None));
    }
}
