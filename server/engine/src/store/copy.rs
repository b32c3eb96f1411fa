//! Moving all that a database holds to another one: from a file to a shared database, in one transaction, checked on the way
//! and once more where it has come to.

use std::path::{Path, PathBuf};

use domain::lease::KeyState;
use sqlx::PgConnection;

use super::postgres::{PostgresUrl, Target};
use super::sqlite::{KeptRow, Source};
use crate::error::{OpenError, StoreError};
use crate::timeline::{Chain, Folded, Replay, Verified, VerifyError};

/// So many lines, keys or answers at once.
pub(super) const PIECE: u32 = 2_000;

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The timeline, as it was checked where it has come to.
    pub timeline: Verified,
    /// Lines of the timeline.
    pub lines: u64,
    /// Keys, each of whose states is what its lines come to.
    pub keys: u64,
    /// API tokens, revoked ones too.
    pub tokens: u64,
}

/// Why nothing was copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The database to copy from cannot be used.
    #[error("cannot copy from it: {0}")]
    From(#[source] OpenError),
    /// The database to copy to cannot be used.
    #[error("cannot copy to it: {0}")]
    To(#[source] OpenError),
    /// There is something already where the copy was to be.
    #[error("{} is there already: nothing is overwritten", .0.display())]
    Exists(PathBuf),
    /// The database to copy to was used before.
    #[error("there are leases or tokens in the database to copy to already: copy to one that was never used")]
    NotEmpty,
    /// What was to be copied, or the copy, is not what it should be.
    #[error("it does not verify: {0}")]
    Wrong(#[from] VerifyError),
    /// One of them failed half way.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Copies all there is in the database at `from`, which nobody may serve meanwhile, to a shared database that was never used.
/// Event ids, tokens and sign-ins stay good; tokens go on above all that were ever given out. Leases that were held are read
/// through the time without a server as through any outage.
///
/// # Errors
/// If one of them cannot be used or fails, or does not verify; then nothing was copied.
pub async fn copy(from: &Path, to: &PostgresUrl) -> Result<Copied, CopyError> {
    let mut source = Source::open_alone(from).await.map_err(CopyError::From)?;
    let epoch = source.epoch.clone();
    let copied = to_postgres(&mut source, to, &epoch).await;
    source.close().await;
    copied
}

/// Copies a file to a shared database that was never used, under this epoch.
pub(super) async fn to_postgres(source: &mut Source, to: &PostgresUrl, epoch: &str) -> Result<Copied, CopyError> {
    let target = Target::open(to).await.map_err(CopyError::To)?;
    let mut tx = target.begin().await?;
    if !target.is_empty(&mut tx).await? {
        return Err(CopyError::NotEmpty);
    }
    target.begin_timeline(&mut tx, epoch, source.base, source.lived_at).await?;
    let mut replay = Replay::default();
    let mut after = String::new();
    loop {
        let kept = source.kept(&after, PIECE).await?;
        let Some((last, ..)) = kept.last() else { break };
        last.clone_into(&mut after);
        target.kept(&mut tx, &kept).await?;
        keep(&mut replay, &kept)?;
    }
    target.begin_views(&mut tx).await?;
    let timeline = timeline(source, &target, &mut tx, &mut replay).await?;
    let mut states = replay.states().peekable();
    while states.peek().is_some() {
        let piece: Vec<&KeyState> = states.by_ref().take(PIECE as usize).collect();
        target.keys(&mut tx, &piece).await?;
    }
    let tokens = source.tokens().await?;
    target.access(&mut tx, &tokens, &source.sessions().await?, &source.links().await?).await?;
    let mut after = (String::new(), String::new());
    loop {
        let answers = source.answers((&after.0, &after.1), PIECE).await?;
        let Some((caller, key, ..)) = answers.last() else { break };
        after = (caller.clone(), key.clone());
        target.answers(&mut tx, &answers).await?;
    }
    target.end(&mut tx).await?;
    if arrived(source, &target, &mut tx, &replay).await? != timeline {
        return Err(VerifyError::Missing(timeline.head).into());
    }
    target.commit(tx).await?;
    target.close().await;
    let lines = (timeline.head.0 - timeline.base.0).unsigned_abs();
    Ok(Copied { timeline, lines, keys: replay.len() as u64, tokens: tokens.len() as u64 })
}

/// Begins with what retention has kept.
pub(super) fn keep(replay: &mut Replay, kept: &[KeptRow]) -> Result<(), StoreError> {
    for (key, state, _) in kept {
        let state = serde_json::from_str(state)
            .map_err(|error| StoreError::corrupt(format_args!("what was kept of {key}: {error}")))?;
        replay.keep(state);
    }
    Ok(())
}

/// The lines, and what they come to.
async fn timeline(
    source: &Source,
    target: &Target,
    db: &mut PgConnection,
    replay: &mut Replay,
) -> Result<Verified, CopyError> {
    let mut chain = Chain::after(source.base, None)?;
    loop {
        let lines = source.lines(chain.head(), PIECE).await?;
        if lines.is_empty() {
            return Ok(chain.end()?);
        }
        let mut folded = Folded::default();
        folded.take(&lines);
        for line in &lines {
            chain.take(line)?;
            replay.take(line)?;
        }
        target.lines(db, &lines, &folded).await?;
    }
}

/// Checks what stands there now.
async fn arrived(
    source: &Source,
    target: &Target,
    db: &mut PgConnection,
    replay: &Replay,
) -> Result<Verified, CopyError> {
    let mut chain = Chain::after(source.base, None)?;
    loop {
        let lines = target.stored_lines(db, chain.head(), PIECE).await?;
        if lines.is_empty() {
            break;
        }
        lines.iter().try_for_each(|line| chain.take(line))?;
    }
    let mut comparison = replay.comparison();
    let mut after = String::new();
    loop {
        let states = target.stored_states(db, &after, PIECE).await?;
        let Some(last) = states.last() else { break };
        last.lease_key.as_str().clone_into(&mut after);
        states.iter().try_for_each(|state| comparison.next(state))?;
    }
    comparison.end()?;
    Ok(chain.end()?)
}
