//! Which files there are, and keeping other processes away from them.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::OpenError;

/// `path` with `suffix` behind its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What to make of an error about this file.
pub(super) fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::File { path, source }
}

/// Makes sure that there is such a file.
pub(super) fn must_exist(path: &Path) -> Result<(), OpenError> {
    // Not by opening it: see `lock`.
    std::fs::metadata(path).map(drop).map_err(file_error(path))
}

/// The database file itself, whatever links lead to it, made if it does not exist: the other files lie beside it.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(file_error(folder))?;
    }
    match path.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Perhaps a link to a file that is not there yet.
            make(path).map_err(file_error(path))?;
            path.canonicalize().map_err(file_error(path))
        }
        resolved => resolved.map_err(file_error(path)),
    }
}

/// How many bytes a process that did not end well left in the write-ahead log of this file, about.
pub(super) fn left_in_log(path: &Path) -> u64 {
    std::fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len())
}

/// Opens a file, making it for its user alone if it does not exist.
fn make(path: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)
}

/// Keeps other processes away for as long as it lives, which must be until SQLite has closed the file. It ends with the
/// process, however that ends.
pub(super) struct Locks {
    _beside: File,
    /// None where such a lock would be at odds with SQLite's own.
    _file: Option<File>,
}

/// Makes sure that no other process serves the database in this very file.
///
/// Two locks: one on a file beside it, which also stays when the database is replaced meanwhile; and one on the file
/// itself, which holds by whatever name it is opened and though the other one was deleted. Closing any descriptor of a
/// file undoes the locks that SQLite has on it, so this one is opened before SQLite opens the file and closed after.
pub(super) fn lock(path: &Path) -> Result<Locks, OpenError> {
    // First, so that within one process the file is not even opened for a second time.
    let beside = lock_one(&beside(path, "-lock"), path)?;
    // Elsewhere than on Linux these locks and those of SQLite may be of one kind.
    let file = if cfg!(target_os = "linux") { Some(lock_one(path, path)?) } else { None };
    Ok(Locks { _beside: beside, _file: file })
}

/// Keeps others from serving a database that is not there yet.
pub(crate) fn lock_place(path: &Path) -> Result<File, OpenError> {
    lock_one(&beside(path, "-lock"), path)
}

fn lock_one(file_path: &Path, database: &Path) -> Result<File, OpenError> {
    let file = make(file_path).map_err(file_error(file_path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::InUse(database.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(file_error(file_path)(source)),
    }
}
