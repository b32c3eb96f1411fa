//! Which database, as it is named on the command line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use engine::{Options, PostgresUrl};

/// A database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A file, served by one process.
    Sqlite(PathBuf),
    /// One that several nodes share.
    Postgres(PostgresUrl),
}

impl Database {
    /// `$XDG_DATA_HOME/job-leases/job-leases.db`, or below `~/.local/share`.
    ///
    /// # Errors
    /// If there is no such folder.
    pub(crate) fn default_file() -> Result<PathBuf> {
        let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let data = data.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")));
        let data = data.context("there is no HOME to keep the database in: name one with --database sqlite:PATH")?;
        Ok(data.join("job-leases/job-leases.db"))
    }

    /// How the engine opens it.
    pub(crate) fn options(&self) -> Options {
        match self {
            Self::Sqlite(path) => Options::sqlite(path),
            Self::Postgres(url) => Options::on(engine::Database::Postgres(url.clone())),
        }
    }

    /// The file beside which what belongs to this user alone is kept; where the database is no file, that of a database which
    /// is one by default.
    pub(crate) fn file(&self) -> Result<PathBuf> {
        match self {
            Self::Sqlite(path) => Ok(path.clone()),
            Self::Postgres(_) => Self::default_file(),
        }
    }
}

impl From<&Path> for Database {
    fn from(path: &Path) -> Self {
        Self::Sqlite(path.to_owned())
    }
}

impl From<PathBuf> for Database {
    fn from(path: PathBuf) -> Self {
        Self::Sqlite(path)
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

impl FromStr for Database {
    type Err = String;
    fn from_str(url: &str) -> Result<Self, String> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(PostgresUrl::new(url)));
        }
        match url.strip_prefix("sqlite:") {
            Some("") => Err("sqlite: needs a path, as in sqlite:/var/lib/job-leases/job-leases.db".to_owned()),
            // SQLite would take these for no file at all, or for something else than a path.
            Some(path) if path.starts_with(':') || path.starts_with("file:") => {
                Err("sqlite: needs the path of a file, as in sqlite:/var/lib/job-leases/job-leases.db".to_owned())
            }
            Some(path) => Ok(Self::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))),
            None => Err("must be sqlite:PATH or postgres://USER@HOST/DATABASE".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_by_its_path_or_its_url() {
        let file = |path: &str| Ok(Database::Sqlite(PathBuf::from(path)));
        assert_eq!("sqlite:/a/b.db".parse(), file("/a/b.db"));
        assert_eq!("sqlite:///a/b.db".parse(), file("/a/b.db"));
        assert_eq!("sqlite:b.db".parse(), file("b.db"));
        let postgres: Database = "postgres://u:secret@h/d".parse().unwrap();
        assert!(!postgres.to_string().contains("secret") && postgres.to_string().contains("h/d"), "{postgres}");
        for url in ["sqlite:", "/a/b.db", "sqlite::memory:", "sqlite:file:b.db", "mysql://h/d"] {
            assert!(url.parse::<Database>().is_err(), "{url}");
        }
    }
}
