//! Backups: taken while the database is served, worth what they say, and restored to a database of its own, be it of the same
//! kind or a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::lease::{Command, KeyStatus, Refusal, Reply};
use domain::{LeaseKey, Span};
use engine::timeline::Position;
use engine::{Copied, CopyError, Database, Engine, Fault, OpenError, Options, VerifyError, backup, restore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tempfile::TempDir;

use crate::database;
use crate::estate::{self, Estate};
use crate::fixture::{Fixture, Hands, call, keeping_no_lines, lease_key, options, refusal, terms};

/// How long after the backup it is restored, in milliseconds: long enough for an outage.
const LATER: i64 = 60_000;

/// A backup, and where it lies.
pub(crate) struct Backup {
    folder: TempDir,
    pub(crate) copied: Copied,
}

impl Backup {
    pub(crate) async fn of(database: &Database) -> Result<Self, CopyError> {
        let folder = tempfile::tempdir().unwrap();
        let copied = backup(database, &folder.path().join("backup")).await?;
        Ok(Self { folder, copied })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    /// What lies in its folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let mut files: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        files
    }

    /// Changes it behind everybody's back.
    async fn change(&self, sql: &'static str) {
        change(&self.path(), sql).await;
    }
}

async fn change(path: &Path, sql: &'static str) {
    let mut db = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
}

/// A database to restore to, where it is later; once as it is here, and once a SQLite file.
async fn later() -> (Arc<database::Database>, Arc<Hands>) {
    let (database, hands) = Fixture::unopened().await;
    hands.pass(LATER).await;
    (database, hands)
}

async fn all_is_restored(is_forgetful: bool) {
    let (here, hands) = Fixture::unopened().await;
    let open = options(&here, &hands);
    let open = if is_forgetful { keeping_no_lines(open) } else { open };
    let from = open.database.clone();
    let engine = Engine::open(open).await.unwrap();
    Estate::fill(&engine, &hands, is_forgetful).await;
    let backup = Backup::of(&from).await.unwrap();
    assert_eq!((backup.copied.keys, backup.copied.tokens), (Estate::KEYS, 1));
    assert_eq!(backup.copied.timeline.base > Position(0), is_forgetful);
    assert_eq!(backup.files(), ["backup"], "and nothing beside it");
    // It goes on, and gives out more tokens.
    let mut last = estate::acquire(&engine, "since", terms("one")).await.lease.token;
    for n in 0..20 {
        last = estate::acquire(&engine, &format!("since/{n}"), terms("one")).await.lease.token.max(last);
    }
    let epoch = engine.timeline().epoch().to_owned();
    engine.close().await;

    let (there, hands) = later().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let file = Options::sqlite(elsewhere.path().join("new/restored.db"));
    for open in [options(&there, &hands), Options { time: Arc::clone(&hands) as _, ..file }] {
        let restored = restore(&backup.path(), &open.database).await.unwrap();
        assert_eq!(restored, backup.copied);
        let error = restore(&backup.path(), &open.database).await.unwrap_err();
        assert!(matches!(error, CopyError::Exists(_) | CopyError::NotEmpty), "{error}");
        let engine = Engine::open(open).await.unwrap();
        assert_ne!(engine.timeline().epoch(), epoch, "ids of events are told apart");
        let since = engine.run(call(), lease_key("since"), Command::Get).await;
        assert_eq!(refusal(since.map(|done| done.value)), Refusal::KeyUnknown, "what was granted since is not known");
        let next = estate::acquire(&engine, "since", terms("two")).await.lease.token;
        assert!(next > last, "{next} follows {last}, which was given out after the backup");
        let release = Command::Release { lease_id: next.into() };
        estate::run(&engine, "since", release).await;
        engine.close().await;
    }
}

#[tokio::test]
async fn what_a_backup_was_taken_of_goes_on_where_it_is_restored_and_tokens_go_on_above_all_others() {
    all_is_restored(false).await;
}

#[tokio::test]
async fn so_it_is_with_what_retention_has_kept_of_lines_that_are_gone() {
    all_is_restored(true).await;
}

#[tokio::test]
async fn a_backup_is_whole_although_retention_takes_lines_away_meanwhile() {
    let (here, hands) = Fixture::unopened().await;
    let open = keeping_no_lines(options(&here, &hands));
    let from = open.database.clone();
    let engine = Engine::open(open).await.unwrap();
    let keys: Vec<_> = (0..500).map(|n| lease_key(&format!("k{n}"))).collect();
    let is_over = AtomicBool::new(false);
    let work = async {
        while !is_over.load(Ordering::Relaxed) {
            let take = |key: &LeaseKey| (key.clone(), Command::Acquire { request: terms("one"), wait: None });
            let taken = engine.batch(call(), keys.iter().map(take).collect()).await.unwrap();
            taken.delivery.unwrap().delivered();
            let give = taken.value.into_iter().map(|lease| match lease {
                Ok(Reply::Lease(lease)) => (lease.lease_key, Command::Release { lease_id: lease.lease.id() }),
                other => panic!("{other:?}"),
            });
            engine.batch(call(), give.collect()).await.unwrap();
            hands.pass(2).await;
            engine.retain(call()).await.unwrap();
        }
    };
    let back_up = async {
        let mut bases = Vec::new();
        for _ in 0..10 {
            let backup = Backup::of(&from).await.unwrap();
            bases.push(backup.copied.timeline.base);
            let elsewhere = tempfile::tempdir().unwrap();
            let file = Options::sqlite(elsewhere.path().join("restored.db"));
            assert_eq!(restore(&backup.path(), &file.database).await.unwrap(), backup.copied);
        }
        is_over.store(true, Ordering::Relaxed);
        bases
    };
    let ((), bases) = tokio::join!(work, back_up);
    assert!(bases.is_sorted() && bases.first() < bases.last(), "{bases:?}");
    engine.close().await;
}

#[tokio::test]
async fn all_that_was_there_is_there_again() {
    for is_forgetful in [false, true] {
        let (here, hands) = Fixture::unopened().await;
        let open = options(&here, &hands);
        let open = if is_forgetful { keeping_no_lines(open) } else { open };
        let from = open.database.clone();
        let engine = Engine::open(open).await.unwrap();
        let estate = Estate::fill(&engine, &hands, is_forgetful).await;
        let backup = Backup::of(&from).await.unwrap();
        engine.close().await;
        // A moment later, so that no outage changes anything.
        let (there, hands) = Fixture::unopened().await;
        hands.pass(3).await;
        let elsewhere = tempfile::tempdir().unwrap();
        let file = Options::sqlite(elsewhere.path().join("restored.db"));
        for open in [options(&there, &hands), Options { time: Arc::clone(&hands) as _, ..file }] {
            restore(&backup.path(), &open.database).await.unwrap();
            let engine = Engine::open(open).await.unwrap();
            estate.is_whole(&engine).await;
            engine.close().await;
        }
    }
}

#[tokio::test]
async fn a_lease_of_the_backup_is_read_through_the_time_since_as_through_an_outage() {
    let fixture = Fixture::new().await;
    let held = fixture.acquire("a", "one").await.unwrap();
    let backup = Backup::of(&fixture.options().database).await.unwrap();
    fixture.engine.close().await;
    let (there, hands) = later().await;
    let open = options(&there, &hands);
    restore(&backup.path(), &open.database).await.unwrap();
    let mut restored = Fixture { engine: Engine::open(open).await.unwrap(), hands, database: there };
    let now = restored.now();
    let Reply::Key(key) = restored.run("a", Command::Get).await else { panic!() };
    assert_eq!(key.state.status(now), KeyStatus::Held);
    let lease = key.state.lease.unwrap();
    assert_eq!((lease.token, lease.expires_at), (held.lease.token, now + Span::millis(5_000)));
    restored.renew(&held).await.unwrap();
    let lines = restored.lines().await;
    assert!(lines.iter().any(|line| line.body.contains("service.outage")));
    restored.reopen().await;
    restored.renew(&held).await.unwrap();
}

#[tokio::test]
async fn a_sign_in_link_is_not_good_once_more_where_it_is_restored() {
    let fixture = Fixture::new().await;
    let link = fixture.engine.create_sign_in_link(call()).await.unwrap();
    let backup = Backup::of(&fixture.options().database).await.unwrap();
    fixture.engine.sign_in_by_link(call(), &link).await.unwrap();
    let (there, hands) = later().await;
    let open = options(&there, &hands);
    restore(&backup.path(), &open.database).await.unwrap();
    let engine = Engine::open(open).await.unwrap();
    assert_eq!(engine.sign_in_by_link(call(), &link).await.unwrap_err(), Fault::NotFound("sign-in link"));
    engine.close().await;
}

#[tokio::test]
async fn what_somebody_before_has_left_is_not_taken_for_what_belongs_to_a_restored_file() {
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    let backup = Backup::of(&fixture.options().database).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    for suffix in ["-wal", "-shm", "-journal"] {
        let left = folder.path().join(format!("leases.db{suffix}"));
        std::fs::write(&left, "left").unwrap();
        let error = restore(&backup.path(), &Database::Sqlite(path.clone())).await.unwrap_err();
        assert!(matches!(&error, CopyError::Exists(file) if *file == left), "{error}");
        std::fs::remove_file(left).unwrap();
    }
    // A server that starts there at this moment, too.
    let file = std::fs::File::create(folder.path().join("leases.db-lock")).unwrap();
    file.lock().unwrap();
    let error = restore(&backup.path(), &Database::Sqlite(path.clone())).await.unwrap_err();
    assert!(matches!(error, CopyError::To(OpenError::InUse(_))), "{error}");
    file.unlock().unwrap();
    restore(&backup.path(), &Database::Sqlite(path)).await.unwrap();
}

#[tokio::test]
async fn nothing_is_overwritten() {
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    let from = fixture.options().database;
    let backup = Backup::of(&from).await.unwrap();
    let before = std::fs::read(backup.path()).unwrap();
    let error = engine::backup(&from, &backup.path()).await.unwrap_err();
    assert!(matches!(error, CopyError::Exists(_)), "{error}");
    assert_eq!(std::fs::read(backup.path()).unwrap(), before);
    assert_eq!(backup.files(), ["backup"]);
    let link = backup.path().with_file_name("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let error = engine::backup(&from, &link).await.unwrap_err();
    assert!(matches!(error, CopyError::Exists(_)), "{error}");
    // Nor is a database that is at work.
    let error = restore(&backup.path(), &from).await.unwrap_err();
    assert!(matches!(error, CopyError::Exists(_) | CopyError::NotEmpty), "{error}");
    fixture.acquire("b", "one").await.unwrap();
}

#[tokio::test]
async fn a_backup_is_for_its_user_alone_is_left_as_it_is_and_can_be_verified() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new().await;
    for n in 0..10 {
        fixture.acquire(&format!("k{n}"), "one").await.unwrap();
    }
    let backup = Backup::of(&fixture.options().database).await.unwrap();
    assert_eq!(std::fs::metadata(backup.path()).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(backup.path()).unwrap();
    assert_eq!(engine::verify(&backup.path()).await.unwrap(), backup.copied.timeline);
    let (there, hands) = later().await;
    restore(&backup.path(), &options(&there, &hands).database).await.unwrap();
    assert_eq!(std::fs::read(backup.path()).unwrap(), before);
    assert_eq!(backup.files(), ["backup"]);
}

#[tokio::test]
async fn a_backup_that_was_changed_is_not_restored() {
    let fixture = Fixture::new().await;
    for n in 0..10 {
        let lease = fixture.acquire(&format!("k{n}"), "one").await.unwrap();
        fixture.release(&lease).await.unwrap();
    }
    for (sql, wrong) in [
        ("UPDATE timeline SET body = replace(body, 'one', 'two') WHERE position = 3", "line 3 does not follow"),
        ("DELETE FROM timeline WHERE position = 4", "line 4 is missing"),
        ("UPDATE timeline SET body = 'nonsense' WHERE position = 4", "line 4"),
        ("UPDATE head SET base_hash = randomblob(32)", "line 1 does not follow"),
        // Retention would have kept what the lines go on from.
        (
            "UPDATE head SET base_position = 1, base_hash = (SELECT hash FROM timeline WHERE position = 1); \
             DELETE FROM timeline WHERE position = 1",
            "line 2 does not fit what was before of the key k0",
        ),
        ("DROP TABLE kept_keys", "no such table"),
        ("DROP TABLE _sqlx_migrations", "no database of Job Leases"),
    ] {
        let backup = Backup::of(&fixture.options().database).await.unwrap();
        backup.change(sql).await;
        let (there, hands) = later().await;
        let elsewhere = tempfile::tempdir().unwrap();
        let file = Options::sqlite(elsewhere.path().join("restored.db"));
        for open in [options(&there, &hands), Options { time: Arc::clone(&hands) as _, ..file }] {
            let error = restore(&backup.path(), &open.database).await.unwrap_err().to_string();
            assert!(error.contains(wrong), "{sql}: {error}");
            // Nothing was restored: it is as new.
            let engine = Engine::open(open).await.unwrap();
            assert_eq!(engine.timeline().head(), Position(0));
            engine.close().await;
        }
        assert_eq!(backup.files(), ["backup"]);
    }
}

#[tokio::test]
async fn what_is_no_database_of_ours_is_neither_backed_up_nor_restored() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let text = folder.path().join("text");
    std::fs::write(&text, "no database at all").unwrap();
    let other = folder.path().join("other");
    change_new(&other, "CREATE TABLE t (x)").await;
    for from in [&nowhere, &text, &other] {
        let to = folder.path().join("to");
        let backed_up = engine::backup(&Database::Sqlite(from.clone()), &to).await;
        let restored = restore(from, &Database::Sqlite(to.clone())).await;
        for done in [backed_up, restored] {
            let error = done.unwrap_err();
            assert!(matches!(error, CopyError::From(_)), "{}: {error}", from.display());
        }
        assert!(!to.exists());
    }
}

async fn change_new(path: &Path, sql: &'static str) {
    std::fs::write(path, "").unwrap();
    change(path, sql).await;
}

#[tokio::test]
async fn a_backup_of_a_newer_version_is_refused_and_so_is_a_newer_database() {
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    let from = fixture.options().database;
    let backup = Backup::of(&from).await.unwrap();
    backup
        .change(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (9999, 'later', 1, x'00', 0)",
        )
        .await;
    let (there, hands) = later().await;
    let error = restore(&backup.path(), &options(&there, &hands).database).await.unwrap_err();
    assert!(matches!(error, CopyError::From(OpenError::Newer { found: 9999, .. })), "{error}");
    // Although this version may use it: it does not know all that it holds.
    fixture.database.be_newer(1).await;
    let error = Backup::of(&from).await.err().unwrap();
    assert!(matches!(error, CopyError::From(OpenError::Newer { found: 9999, .. })), "{error}");
    assert!(error.to_string().contains("newer version"), "{error}");
}

#[tokio::test]
async fn a_database_whose_timeline_does_not_verify_is_not_backed_up() {
    let fixture = Fixture::new().await;
    for n in 0..5 {
        fixture.acquire(&format!("k{n}"), "one").await.unwrap();
    }
    fixture.head().await;
    fixture.engine.close().await;
    fixture.database.rewrite_line(3).await;
    let from = fixture.options().database;
    let error = Backup::of(&from).await.err().unwrap();
    assert!(matches!(error, CopyError::Wrong(VerifyError::Broken(Position(3)))), "{error}");
    fixture.database.remove_line(5).await;
    let folder = tempfile::tempdir().unwrap();
    engine::backup(&from, &folder.path().join("b")).await.unwrap_err();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}
