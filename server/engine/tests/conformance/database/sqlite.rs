//! The database under test: SQLite, a file in a folder of its own for each fixture.

use std::path::{Path, PathBuf};

use domain::Timestamp;
use engine::timeline::{Position, chain};
use engine::{Engine, Options, Verified, VerifyError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::fixture::{Fixture, Hands};

/// How many scripts the differential test runs.
pub(crate) const SEEDS: &str = "0..25";

/// Whether every token is one more than the last.
pub(crate) const TOKENS_ARE_DENSE: bool = true;

/// Server time as the engine tells it: it goes on by the hands that it was given.
pub(crate) fn now(engine: &Engine, _: &Hands) -> Timestamp {
    engine.now()
}

/// A database of its own.
pub(crate) struct Database {
    folder: tempfile::TempDir,
}

impl Database {
    pub(crate) async fn new(_: i64) -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// The file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("leases.db")
    }

    /// How to open it.
    pub(crate) fn options(&self) -> Options {
        Options::sqlite(self.path())
    }

    pub(crate) fn dial(&self) -> Dial {
        Dial
    }

    /// Shows that whoever serves it lives: here any write does.
    pub(crate) async fn live(&self) {}

    /// Waits until the timeline has all that was answered: here it does when it is answered.
    pub(crate) async fn sequenced(&self, _: &Engine) {}

    /// Takes the read models away, while nobody serves the database.
    pub(crate) async fn lose_views(&self) {
        for suffix in ["-views", "-views-wal", "-views-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", self.path().display()));
        }
    }

    /// All that it holds.
    pub(crate) async fn content(&self) -> Vec<u8> {
        let files = ["", "-wal", "-views", "-views-wal"].map(|suffix| format!("{}{suffix}", self.path().display()));
        // A file that ended well leaves no write-ahead log.
        files.iter().filter_map(|file| std::fs::read(file).ok()).flatten().collect()
    }

    /// From now on no line can be written that says `poison`.
    pub(crate) async fn refuse_poison(&self) {
        self.change(
            "CREATE TRIGGER poison BEFORE INSERT ON timeline WHEN new.body LIKE '%poison%' \
             BEGIN SELECT RAISE(ABORT, 'poisoned'); END",
        )
        .await;
    }

    /// A version later than this one has used it, and from now on it takes one that knows its schema so far at least.
    pub(crate) async fn be_newer(&self, oldest: i64) {
        const NOTE: &str = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (9999, 'later', 1, x'00', 0)";
        self.change("ALTER TABLE idempotency ADD COLUMN note TEXT").await;
        self.change("CREATE TABLE notes (id INTEGER PRIMARY KEY)").await;
        self.change(NOTE).await;
        let mut db = self.connect().await;
        let raise = "UPDATE compatibility SET oldest = max(oldest, ?1)";
        sqlx::query(raise).bind(oldest).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
        let views = SqliteConnectOptions::new().filename(format!("{}-views", self.path().display()));
        let mut db = views.busy_timeout(std::time::Duration::from_secs(5)).connect().await.unwrap();
        for sql in ["ALTER TABLE keys ADD COLUMN note TEXT", NOTE] {
            sqlx::query(sql).execute(&mut db).await.unwrap();
        }
        db.close().await.unwrap();
    }

    /// Something has happened, while nobody served it, that no engine of this version would write.
    pub(crate) async fn append(&self, body: &str) {
        let mut db = self.connect().await;
        let (last, hash): (i64, Vec<u8>) =
            sqlx::query_as("SELECT position, hash FROM timeline ORDER BY position DESC LIMIT 1")
                .fetch_one(&mut db)
                .await
                .unwrap();
        let hash = chain(hash.as_slice().try_into().unwrap(), Position(last + 1), body);
        let append = sqlx::query("INSERT INTO timeline (position, hash, body) VALUES (?1, ?2, ?3)");
        append.bind(last + 1).bind(hash.to_vec()).bind(body.to_owned()).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
    }

    /// Checks its timeline.
    pub(crate) async fn verify(&self) -> Result<Verified, VerifyError> {
        engine::verify(&self.path()).await
    }

    /// Changes what a line says of `one`.
    pub(crate) async fn rewrite_line(&self, position: i64) {
        let rewrite = "UPDATE timeline SET body = replace(body, 'one', 'two') WHERE position = ?1";
        self.change_line(rewrite, position).await;
    }

    /// Takes a line away.
    pub(crate) async fn remove_line(&self, position: i64) {
        self.change_line("DELETE FROM timeline WHERE position = ?1", position).await;
    }

    async fn change_line(&self, sql: &'static str, position: i64) {
        let mut db = self.connect().await;
        let changed = sqlx::query(sql).bind(position).execute(&mut db).await.unwrap();
        assert_eq!(changed.rows_affected(), 1);
        db.close().await.unwrap();
    }

    /// Changes it behind the engine's back.
    async fn change(&self, sql: &'static str) {
        let mut db = self.connect().await;
        sqlx::query(sql).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
    }

    /// Keeps everybody else from writing.
    pub(crate) async fn hold(&self) -> Held {
        let mut db = self.connect().await;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut db).await.unwrap();
        Held(db)
    }

    async fn connect(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(self.path()).connect().await.unwrap()
    }
}

/// What moves the database's own time: it has none.
pub(crate) struct Dial;

impl Dial {
    /// Moves the engine's hands.
    pub(crate) async fn turn(&self, _: i64, hands: impl FnOnce()) {
        hands();
    }
}

/// A database that somebody keeps everybody else from writing.
pub(crate) struct Held(SqliteConnection);

impl Held {
    pub(crate) async fn let_go(mut self) {
        sqlx::query("ROLLBACK").execute(&mut self.0).await.unwrap();
    }
}

impl Fixture {
    /// The database file.
    pub(crate) fn path(&self) -> PathBuf {
        self.database.path()
    }

    /// Opens the file anew after `change` was made to it while closed.
    pub(crate) async fn reopen_after(&mut self, change: impl FnOnce(&Path)) {
        self.engine.close().await;
        change(&self.path());
        self.engine = Engine::open(self.options()).await.unwrap();
    }
}
