//! The files: served by one process, by no time that is not written in them, and none is believed that does not fit the
//! others.

use std::path::Path;

use domain::lease::Command;
use engine::timeline::Position;
use engine::{Engine, Fault, OpenError, Options, VerifyError};

use crate::fixture::{Fixture, call, lease_key, refusal, terms};

async fn refused(path: &Path) -> OpenError {
    Engine::open(Options::sqlite(path)).await.err().expect("it is refused")
}

/// Opens the file by another name.
async fn open(path: &Path, fixture: &Fixture) -> Engine {
    Engine::open(Options { database: Options::sqlite(path).database, ..fixture.options() }).await.unwrap()
}

fn views(path: &Path) -> std::path::PathBuf {
    path.with_file_name("leases.db-views")
}

#[tokio::test]
async fn a_timeline_whose_end_was_cut_off_is_refused_and_its_leases_are_not_granted_again() {
    let mut fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    fixture.acquire("b", "one").await.unwrap();
    fixture.engine.close().await;
    let path = fixture.path();
    std::fs::copy(&path, path.with_extension("whole")).unwrap();
    fixture.database.remove_line(2).await;
    let error = refused(&path).await;
    assert!(matches!(error, OpenError::LinesMissing { applied: 2, .. }), "{error}");
    assert!(error.to_string().contains("lines are missing"), "{error}");
    let error = engine::verify(&path).await.unwrap_err();
    assert!(matches!(error, VerifyError::Missing(Position(2))), "{error}");
    // Restored, as the message says, it is served again.
    std::fs::copy(path.with_extension("whole"), &path).unwrap();
    fixture.reopen().await;
    refusal(fixture.acquire("b", "thief").await);
    engine::verify(&path).await.unwrap();
}

#[tokio::test]
async fn an_older_copy_is_served_once_the_read_models_were_taken_away_and_newer_ones_are_not_believed_then() {
    let mut fixture = Fixture::new().await;
    let path = fixture.path();
    let (older, newer) = (path.with_extension("older"), path.with_extension("newer"));
    fixture.acquire("a", "one").await.unwrap();
    fixture.engine.close().await;
    std::fs::copy(&path, &older).unwrap();
    fixture.reopen().await;
    fixture.acquire("b", "one").await.unwrap();
    fixture.engine.close().await;
    std::fs::copy(views(&path), &newer).unwrap();
    std::fs::copy(&older, &path).unwrap();
    refused(&path).await;
    fixture.lose_views().await;
    refusal(fixture.acquire("a", "two").await);
    fixture.acquire("c", "one").await.unwrap();
    fixture.engine.close().await;
    // As long as before, but another line 2.
    std::fs::copy(&newer, views(&path)).unwrap();
    let error = refused(&path).await;
    assert!(matches!(error, OpenError::LinesMissing { applied: 2, .. }), "{error}");
    let error = engine::verify(&path).await.unwrap_err();
    assert!(matches!(error, VerifyError::Another(Position(2))), "{error}");
}

#[tokio::test]
async fn read_models_of_another_timeline_are_not_believed() {
    let mut fixture = Fixture::new().await;
    let stranger = Fixture::new().await;
    stranger.acquire("strange", "one").await.unwrap();
    fixture.acquire("a", "one").await.unwrap();
    let views = format!("{}-views", stranger.path().display());
    stranger.engine.close().await;
    let swap = |path: &Path| {
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}-views{suffix}", path.display()));
        }
        std::fs::copy(&views, format!("{}-views", path.display())).unwrap();
    };
    fixture.reopen_after(swap).await;
    let rows = fixture.engine.list(crate::lists::all()).await.unwrap().page.rows;
    let names: Vec<&str> = rows.iter().map(|row| row.lease_key.as_str()).collect();
    assert_eq!(names, ["a"]);
}

#[tokio::test]
async fn read_models_that_are_older_than_the_lines_that_are_left_are_made_anew() {
    let mut fixture = Fixture::new().await;
    let path = fixture.path();
    fixture.acquire("a", "one").await.unwrap();
    fixture.engine.close().await;
    let old = path.with_extension("old");
    std::fs::copy(views(&path), &old).unwrap();
    fixture.reopen().await;
    fixture.acquire("b", "one").await.unwrap();
    fixture.hands.pass(91 * 24 * 60 * 60 * 1_000).await;
    let lease = fixture.acquire("c", "one").await.unwrap();
    fixture.engine.list(crate::lists::all()).await.unwrap();
    fixture.engine.retain(crate::fixture::call()).await.unwrap();
    let before = fixture.engine.list(crate::lists::all()).await.unwrap().page.rows;
    fixture
        .reopen_after(|path| {
            std::fs::copy(&old, views(path)).unwrap();
        })
        .await;
    assert_eq!(fixture.engine.list(crate::lists::all()).await.unwrap().page.rows, before);
    fixture.renew(&lease).await.unwrap();
}

#[tokio::test]
async fn a_second_process_is_refused_with_a_clear_message() {
    let fixture = Fixture::new().await;
    let second = Engine::open(fixture.options()).await;
    let message = second.err().unwrap().to_string();
    assert!(message.contains("served by another process"), "{message}");
}

#[tokio::test]
async fn a_second_server_is_refused_by_whatever_name_it_opens_the_file() {
    let fixture = Fixture::new().await;
    let path = fixture.path();
    let (symlink, hard_link) = (path.with_file_name("symlink.db"), path.with_file_name("hard-link.db"));
    std::os::unix::fs::symlink(&path, &symlink).unwrap();
    std::fs::hard_link(&path, &hard_link).unwrap();
    for name in [&path, &symlink, &hard_link] {
        let error = refused(name).await;
        assert!(matches!(error, OpenError::InUse(_)), "{}: {error}", name.display());
    }
    std::fs::remove_file(path.with_file_name("leases.db-lock")).unwrap();
    let error = refused(&path).await;
    assert!(matches!(error, OpenError::InUse(_)), "its lock file was deleted: {error}");
    // And it goes on as if nothing had been.
    fixture.acquire("a", "one").await.unwrap();
}

#[tokio::test]
async fn by_a_symlink_it_is_the_same_database_with_the_same_files_beside_it() {
    let mut fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.engine.close().await;
    let path = fixture.path();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let files = || std::fs::read_dir(elsewhere.path()).unwrap().count();
    fixture.engine = open(&link, &fixture).await;
    fixture.renew(&lease).await.unwrap();
    engine::verify(&link).await.unwrap();
    assert_eq!(files(), 1, "nothing lies beside the link");
    fixture.reopen().await;
    assert_eq!(fixture.renew(&lease).await.unwrap().lease.renewals, 2);
    // A link to a file that is not there yet makes it.
    let (there, link) = (path.with_file_name("there.db"), elsewhere.path().join("early.db"));
    std::os::unix::fs::symlink(&there, &link).unwrap();
    open(&link, &fixture).await.close().await;
    assert!(there.exists() && files() == 2);
}

#[tokio::test]
async fn nothing_is_answered_by_a_time_that_could_not_be_persisted() {
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    // Another process holds the database: the clock's mark cannot be written.
    let held = fixture.database.hold().await;
    fixture.hands.pass(10_000).await;
    assert!(!fixture.engine.is_healthy());
    let answer = fixture.engine.counters(&[]).await;
    assert!(matches!(answer, Err(Fault::Unavailable { .. })), "{answer:?}");
    held.let_go().await;
    fixture.engine.time().await.unwrap();
    fixture.engine.counters(&[]).await.unwrap();
    assert!(fixture.engine.is_healthy());
}

#[tokio::test]
async fn new_files_are_for_their_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let file = format!("{}{suffix}", fixture.path().display());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o077, 0, "{file}");
    }
}

#[tokio::test]
async fn what_killed_processes_left_in_the_log_is_moved_into_the_database_all_the_same() {
    let lives: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let file = |life: usize, name: &str| lives[life].path().join(name);
    // Each lives for less than it takes to move the log by itself.
    for life in 0..lives.len() {
        // As a process that is killed leaves it: nothing more is written, nothing is closed.
        for name in ["leases.db", "leases.db-wal"].into_iter().filter(|_| life > 0) {
            std::fs::copy(file(life - 1, name), file(life, name)).unwrap();
        }
        let engine = Engine::open(Options::sqlite(file(life, "leases.db"))).await.unwrap();
        for n in 0..400 {
            let take = Command::Acquire { request: terms("one"), wait: None };
            engine.run(call(), lease_key(&format!("{life}/{n}")), take).await.unwrap();
        }
    }
    let length = std::fs::metadata(file(3, "leases.db")).unwrap().len();
    assert!(length > 1 << 18, "{length} bytes are in the database, all else in the log");
}
