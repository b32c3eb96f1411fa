//! Backups: one file, of the same shape whichever database it was taken from, so that it can be restored to either.
//!
//! It holds the truth as it was at one moment: the timeline, what retention has kept of keys, tokens and sign-ins, and the answers
//! to requests with an idempotency key. What follows from it is made anew. Under its name it appears only when it is whole, flushed
//! and checked.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use super::copy::{self, Copied, CopyError, PIECE};
use super::postgres::{self, Ends, PostgresUrl, Snapshot};
use super::sqlite::{self, Source, Target};
use crate::engine::Database;
use crate::error::{OpenError, StoreError};
use crate::timeline::{Chain, Hash, Line, Position, Replay, chain};

/// How often all is begun anew, if retention takes away lines that are being copied.
const ATTEMPTS: u32 = 5;

/// Backs up a database to a new file, for its user alone. Whoever serves the database goes on meanwhile.
///
/// # Errors
/// If the file is there already, the database is of another version, or one of them cannot be used or does not verify. Then there
/// is no such file.
pub async fn backup(from: &Database, to: &Path) -> Result<Copied, CopyError> {
    let folder = must_be_new(to)?;
    let temporary = temporary(&folder).map_err(CopyError::To)?;
    let (followed, is_older) = match from {
        Database::Sqlite(path) => sqlite::copy_file(path, &temporary).await.map_err(CopyError::From)?,
        Database::Postgres(url) => (Some(gather(url, &temporary).await?), false),
    };
    let copied = if is_older {
        // It stays so: what it is worth shows when a copy of it is brought up to date.
        inspect(&temporary_copy(&temporary, &folder).await?, followed).await?
    } else {
        inspect(&temporary, followed).await?
    };
    put(temporary, to, &folder)?;
    Ok(copied)
}

/// Restores a backup to a database that was never used: a file that is not there yet, or an empty shared database. It is a database of
/// its own then: event ids that the other gave out are none of this one, tokens go on above all that were ever given out, sign-in
/// links are void. Leases that were held are read through the time since the backup as through any outage; those that were granted
/// since are not known.
///
/// # Errors
/// If the backup is of a newer version or does not verify, there is something already where it is to be restored to, or one of them
/// cannot be used. Then nothing was restored.
pub async fn restore(from: &Path, to: &Database) -> Result<Copied, CopyError> {
    match to {
        Database::Sqlite(path) => {
            let folder = must_be_new(path)?;
            let failed = |source| CopyError::To(OpenError::File { path: folder.clone(), source });
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
            // What somebody who was there before has left would be taken for what belongs to this one.
            for suffix in ["-wal", "-shm", "-journal"] {
                must_be_new(&sqlite::beside(path, suffix))?;
            }
            let _lock = sqlite::lock_place(path).map_err(CopyError::To)?;
            let temporary = temporary_copy(from, &folder).await?;
            let whole = inspect(&temporary, None).await?;
            sqlite::begin_anew(&temporary).await?;
            let followed = Some((whole.timeline.head, whole.timeline.hash));
            let restored = inspect(&temporary, followed).await?;
            put(temporary, path, &folder)?;
            Ok(restored)
        }
        Database::Postgres(url) => {
            let temporary = temporary_copy(from, &std::env::temp_dir()).await?;
            sqlite::begin_anew(&temporary).await?;
            let mut source = Source::open(&temporary).await.map_err(CopyError::From)?;
            let epoch = source.epoch.clone();
            let restored = copy::to_postgres(&mut source, url, &epoch).await;
            source.close().await;
            restored
        }
    }
}

/// A copy of a backup in this folder, brought to this version: the backup itself may be older, and where nothing can be written.
async fn temporary_copy(of: &Path, folder: &Path) -> Result<TempPath, CopyError> {
    let temporary = temporary(folder).map_err(CopyError::To)?;
    sqlite::copy_file(of, &temporary).await.map_err(CopyError::From)?;
    sqlite::bring_up(&temporary).await.map_err(CopyError::From)?;
    Ok(temporary)
}

/// Reads a file from end to end: every line chained to the one before and fitting what was before of its key.
async fn inspect(path: &Path, followed: Option<(Position, Hash)>) -> Result<Copied, CopyError> {
    let mut source = Source::open(path).await.map_err(CopyError::From)?;
    let inspected = inspect_all(&mut source, followed).await;
    source.close().await;
    inspected
}

async fn inspect_all(source: &mut Source, followed: Option<(Position, Hash)>) -> Result<Copied, CopyError> {
    let mut replay = Replay::default();
    let mut after = String::new();
    loop {
        let kept = source.kept(&after, PIECE).await?;
        let Some((last, ..)) = kept.last() else { break };
        last.clone_into(&mut after);
        copy::keep(&mut replay, &kept)?;
    }
    let mut chain = Chain::after(source.base, followed)?;
    loop {
        let lines = source.lines(chain.head(), PIECE).await?;
        if lines.is_empty() {
            break;
        }
        for line in &lines {
            chain.take(line)?;
            replay.take(line)?;
        }
    }
    let timeline = chain.end()?;
    let lines = (timeline.head.0 - timeline.base.0).unsigned_abs();
    let tokens = source.tokens().await?.len() as u64;
    Ok(Copied { timeline, lines, keys: replay.len() as u64, tokens })
}

/// Writes what a shared database holds to a file; where its timeline ended by its own account.
async fn gather(url: &PostgresUrl, path: &Path) -> Result<(Position, Hash), CopyError> {
    let source = postgres::Source::open(url).await.map_err(CopyError::From)?;
    let mut target = Target::create(path).await.map_err(CopyError::To)?;
    let mut attempts = 0;
    let (mut snapshot, ends, seen) = loop {
        if let Some(seen) = lines(&source, &mut target).await? {
            let mut snapshot = source.snapshot().await?;
            let ends = snapshot.ends().await?;
            if ends.base.0 <= seen.chain.head() {
                break (snapshot, ends, seen);
            }
            // What follows may be gone since, too.
            snapshot.end().await?;
        }
        attempts += 1;
        if attempts == ATTEMPTS {
            return Err(StoreError::Overtaken.into());
        }
        target.forget(Position(i64::MAX)).await?;
    };
    let end = the_rest(&mut snapshot, ends, &mut target, seen).await?;
    snapshot.end().await?;
    source.close().await;
    target.finish().await?;
    Ok(end)
}

/// The lines first: they do not change, so that it need not be one moment as of which they are read. None if retention was quicker.
async fn lines(source: &postgres::Source, target: &mut Target) -> Result<Option<Seen>, CopyError> {
    let mut snapshot = source.snapshot().await?;
    let chain = Chain::after(snapshot.ends().await?.base, None)?;
    let mut replay = Replay::default();
    let mut after = String::new();
    loop {
        let kept = snapshot.kept(&after, PIECE).await?;
        let Some((key, ..)) = kept.last() else { break };
        key.clone_into(&mut after);
        copy::keep(&mut replay, &kept)?;
    }
    snapshot.end().await?;
    let mut seen = Seen { chain, replay };
    loop {
        let last = seen.chain.head();
        let lines = source.lines(last, PIECE).await?;
        let Some(first) = lines.first() else { return Ok(Some(seen)) };
        // Those between may be gone since.
        if first.position != last.next() && source.base().await? > last {
            return Ok(None);
        }
        seen.take(target, &lines).await?;
    }
}

/// All else, as it is at one moment, and the lines that have come to it by then.
async fn the_rest(
    snapshot: &mut Snapshot,
    ends: Ends,
    target: &mut Target,
    mut seen: Seen,
) -> Result<(Position, Hash), CopyError> {
    loop {
        let lines = snapshot.lines(seen.chain.head(), PIECE).await?;
        if lines.is_empty() {
            break;
        }
        seen.take(target, &lines).await?;
    }
    // What has no position yet is given one here, as it would be there.
    let (mut position, mut hash) = ends.head;
    let mut after = i64::MIN;
    while let Some((last, bodies)) = snapshot.logged(after, PIECE).await? {
        after = last;
        let mut lines = Vec::with_capacity(bodies.len());
        for body in bodies {
            position = position.next();
            hash = chain(&hash, position, &body);
            lines.push(Line::stored(position, hash, body)?);
        }
        seen.take(target, &lines).await?;
    }
    // Retention may have gone on meanwhile.
    target.forget(ends.base.0).await?;
    target.head(&ends.epoch, ends.base, ends.lived_at, ends.now).await?;
    let mut after = String::new();
    loop {
        let kept = snapshot.kept(&after, PIECE).await?;
        let Some((key, ..)) = kept.last() else { break };
        key.clone_into(&mut after);
        target.kept(&kept).await?;
    }
    states(snapshot, &seen.replay).await?;
    target.access(&snapshot.tokens().await?, &snapshot.sessions().await?, &snapshot.links().await?).await?;
    let mut after = (String::new(), String::new());
    loop {
        let answers = snapshot.answers((&after.0, &after.1), PIECE).await?;
        let Some((caller, key, ..)) = answers.last() else { return Ok(ends.head) };
        after = (caller.clone(), key.clone());
        target.answers(&answers).await?;
    }
}

/// Whether the states by which nodes decide are what the lines come to.
async fn states(snapshot: &mut Snapshot, replay: &Replay) -> Result<(), CopyError> {
    let outages = snapshot.outages().await?;
    let mut comparison = replay.comparison();
    let mut after = String::new();
    loop {
        let states = snapshot.states(&after, PIECE).await?;
        let Some((last, _)) = states.last() else { return Ok(comparison.end()?) };
        last.lease_key.as_str().clone_into(&mut after);
        for (mut state, seen) in states {
            outages.iter().filter(|(id, _)| *id > seen).for_each(|(_, outage)| state.through(outage));
            comparison.next(&state)?;
        }
    }
}

/// The lines so far, and what they come to.
struct Seen {
    chain: Chain,
    replay: Replay,
}

impl Seen {
    /// Takes lines that follow those before.
    async fn take(&mut self, target: &mut Target, lines: &[Line]) -> Result<(), CopyError> {
        for line in lines {
            self.chain.take(line)?;
            self.replay.take(line)?;
        }
        Ok(target.lines(lines).await?)
    }
}

/// The folder of a file that must not be there yet.
fn must_be_new(file: &Path) -> Result<PathBuf, CopyError> {
    // A link that leads nowhere is something, too.
    if std::fs::symlink_metadata(file).is_ok() {
        return Err(CopyError::Exists(file.to_owned()));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(folder.to_owned())
}

/// An empty file for its user alone, which is gone in the end unless it is put somewhere.
fn temporary(folder: &Path) -> Result<TempPath, OpenError> {
    let made = tempfile::Builder::new().prefix(".job-leases-").suffix(".part").tempfile_in(folder);
    // Closed at once: closing it later would undo the locks that SQLite has on it.
    Ok(made.map_err(|source| OpenError::File { path: folder.to_owned(), source })?.into_temp_path())
}

/// Flushes the file and gives it its name, unless there is another of that name by now.
fn put(temporary: TempPath, to: &Path, folder: &Path) -> Result<(), CopyError> {
    let failed = |source| CopyError::To(OpenError::File { path: to.to_owned(), source });
    let sync = |path: &Path| File::open(path).and_then(|file| file.sync_all());
    sync(&temporary).map_err(failed)?;
    temporary.persist_noclobber(to).map_err(|error| match error.error.kind() {
        std::io::ErrorKind::AlreadyExists => CopyError::Exists(to.to_owned()),
        _ => failed(error.error),
    })?;
    sync(folder).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use domain::lease::{Acquire, Command};
    use domain::{Actor, LeaseKey, Metadata, Owner, Span};
    use sqlx::sqlite::SqliteConnectOptions;
    use sqlx::{ConnectOptions as _, Connection as _};

    use super::*;
    use crate::engine::{Call, Engine, Options, Retention};
    use crate::store::postgres::testing;

    #[tokio::test]
    async fn retention_may_go_on_while_a_shared_database_is_backed_up() {
        let database = testing::database().await;
        let url = PostgresUrl::new(&database.url);
        let retention = Retention { timeline: Span::millis(1), ..Retention::default() };
        let engine = Engine::open(Options { retention, ..Options::postgres(&database.url) }).await.unwrap();
        let call = Call::system(&Arc::new(Actor::system("test")));
        let acquire = async |key: &str| {
            let request = Acquire {
                owner: Owner::parse("one").unwrap(),
                job_key: None,
                ttl: Span::millis(60_000),
                min_hold: Span::ZERO,
                max_hold: None,
                lock_delay: Span::ZERO,
                subjects: Arc::from([]),
                metadata: Metadata::EMPTY,
            };
            let command = Command::Acquire { request, wait: None };
            let done = engine.run(call.clone(), LeaseKey::parse(key).unwrap(), command).await.unwrap();
            done.delivery.unwrap().delivered();
        };
        for key in ["a", "b", "c"] {
            acquire(key).await;
        }
        engine.counters(&[]).await.unwrap();

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        let source = postgres::Source::open(&url).await.unwrap();
        let mut target = Target::create(&path).await.unwrap();
        let seen = lines(&source, &mut target).await.unwrap().unwrap();
        let copied = seen.chain.head();
        assert!(copied >= Position(3));
        // Between the lines and the rest of them they are taken away, and more come.
        tokio::time::sleep(Duration::from_millis(20)).await;
        engine.retain(call.clone()).await.unwrap();
        acquire("d").await;
        engine.counters(&[]).await.unwrap();
        let base = source.base().await.unwrap();
        assert!(base >= copied, "{base:?}");
        let mut snapshot = source.snapshot().await.unwrap();
        let ends = snapshot.ends().await.unwrap();
        let end = the_rest(&mut snapshot, ends, &mut target, seen).await.unwrap();
        snapshot.end().await.unwrap();
        source.close().await;
        target.finish().await.unwrap();
        let inspected = inspect(&path, Some(end)).await.unwrap();
        assert_eq!((inspected.keys, inspected.timeline.base), (4, base));
        let mut db = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
        let left = "SELECT count(*) FROM timeline WHERE position <= (SELECT base_position FROM head)";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&mut db).await.unwrap();
        assert_eq!(left, 0, "what is gone there is gone here");
        db.close().await.unwrap();
        engine.close().await;
    }
}
