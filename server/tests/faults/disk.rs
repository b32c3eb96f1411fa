//! A small disk: a file system of its own, which can be filled up.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::programs::User;

/// What takes up the room.
const BALLAST: &str = "ballast";

/// A disk that is there until this is dropped.
pub(crate) struct Disk {
    folder: TempDir,
}

impl Disk {
    /// One of so many megabytes, in memory; of that user, if one is named.
    pub(crate) fn new(megabytes: u32, user: Option<User>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let owner = user.map(|user| format!(",uid={},gid={}", user.id, user.group)).unwrap_or_default();
        let options = format!("size={megabytes}m,mode=0700{owner}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "job-leases-test"]).arg(folder.path());
        let output = mount.output().unwrap_or_else(|error| panic!("mount is missing, which this test needs: {error}"));
        assert!(
            output.status.success(),
            "this test needs a disk of its own, to fill it up, and may not mount one ({}): run it as root, or in a \
             container that may (CAP_SYS_ADMIN)",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Takes up all room that is left.
    pub(crate) fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.path().join(BALLAST)).unwrap();
        for size in [1 << 20, 1 << 12] {
            let piece = vec![0; size];
            loop {
                match file.write_all(&piece) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => panic!("the disk cannot be filled: {error}"),
                }
            }
        }
    }

    /// Gives it back.
    pub(crate) fn make_room(&self) {
        fs::remove_file(self.path().join(BALLAST)).unwrap();
    }

    /// Copies what is on it, for whoever looks into a failure.
    pub(crate) fn copy_to(&self, folder: &Path) {
        let copied = Command::new("cp").arg("-a").arg(self.path().join(".")).arg(folder).status();
        if !copied.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be copied", self.path().display());
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // At once for all who look for it, in truth when the last has gone: whoever was just killed may not have.
        let gone = Command::new("umount").arg("-l").arg(self.path()).status();
        if !gone.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be unmounted", self.path().display());
        }
    }
}
