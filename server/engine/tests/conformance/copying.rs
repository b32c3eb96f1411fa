//! Moving from SQLite: nothing is left behind, and all of it goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::timeline::Position;
use engine::{CopyError, Database, Engine, OpenError, Options, PostgresUrl, copy};
use tempfile::TempDir;

use crate::estate::Estate;
use crate::fixture::{Fixture, Hands, keeping_no_lines, options};

/// A file that was served for a while.
struct Served {
    _folder: TempDir,
    path: PathBuf,
    estate: Estate,
}

/// With lines that retention took away, if `forgetful`.
async fn served(hands: &Arc<Hands>, forgetful: bool) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let options = Options { time: Arc::clone(hands) as _, ..Options::sqlite(&path) };
    let options = if forgetful { keeping_no_lines(options) } else { options };
    let engine = Engine::open(options).await.unwrap();
    let estate = Estate::fill(&engine, hands, forgetful).await;
    engine.close().await;
    Served { _folder: folder, path, estate }
}

fn url(options: Options) -> PostgresUrl {
    match options.database {
        Database::Postgres(url) => url,
        Database::Sqlite(path) => panic!("{}", path.display()),
    }
}

async fn lines_of(path: &Path) -> (Position, [u8; 32]) {
    let verified = engine::verify(path).await.unwrap();
    (verified.head, verified.hash)
}

async fn everything_goes_on(forgetful: bool) {
    let (database, hands) = Fixture::unopened().await;
    let served = served(&hands, forgetful).await;
    let to = url(database.options());
    let copied = copy(&served.path, &to).await.unwrap();
    assert_eq!((copied.keys, copied.tokens), (Estate::KEYS, 1));
    // The same lines, and nothing else.
    let verified = engine::verify_postgres(&to).await.unwrap();
    assert_eq!((verified.head, verified.hash), lines_of(&served.path).await);
    assert_eq!(verified, copied.timeline);

    let engine = Engine::open(options(&database, &hands)).await.unwrap();
    served.estate.is_whole(&engine).await;
    engine.close().await;
}

#[tokio::test]
async fn everything_that_was_on_sqlite_goes_on_on_postgresql() {
    everything_goes_on(false).await;
}

#[tokio::test]
async fn so_does_what_retention_has_kept_of_lines_that_are_gone() {
    everything_goes_on(true).await;
}

#[tokio::test]
async fn nothing_is_copied_from_a_file_that_is_served_or_to_a_database_that_was_used() {
    let (database, hands) = Fixture::unopened().await;
    let served = served(&hands, false).await;
    let to = url(database.options());
    let server = Engine::open(Options::sqlite(&served.path)).await.unwrap();
    let error = copy(&served.path, &to).await.unwrap_err();
    assert!(matches!(error, CopyError::From(OpenError::InUse(_))), "{error}");
    server.close().await;
    copy(&served.path, &to).await.unwrap();
    let error = copy(&served.path, &to).await.unwrap_err();
    assert!(matches!(error, CopyError::NotEmpty), "{error}");
    let error = copy(&served.path.with_extension("other"), &to).await.unwrap_err();
    assert!(matches!(error, CopyError::From(_)), "{error}");
}
