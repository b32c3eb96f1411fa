//! Moving from an embedded database to a shared one: everything, in one transaction.

use std::path::Path;

use domain::lease::KeyState;
use sqlx::PgConnection;

use super::postgres::{PostgresUrl, Target};
use super::sqlite::Source;
use crate::error::{OpenError, StoreError};
use crate::timeline::Folded;

/// So many lines, keys or answers at once.
const PIECE: u32 = 2_000;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Lines of the timeline.
    pub lines: u64,
    /// Keys.
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
    /// The database to copy to was used before.
    #[error("there are leases or tokens in the database to copy to already: copy to one that was never used")]
    NotEmpty,
    /// One of them failed half way.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Copies all there is in the database at `from`, which nobody may serve meanwhile, to a shared database that was never used.
/// Event ids, tokens and sign-ins stay good; tokens go on above all that were ever given out. Leases that were held are read
/// through the time without a server as through any outage.
///
/// # Errors
/// If one of them cannot be used or fails; then nothing was copied.
pub async fn copy(from: &Path, to: &PostgresUrl) -> Result<Copied, CopyError> {
    let mut source = Source::open(from).await.map_err(CopyError::From)?;
    let copied = copy_from(&mut source, to).await;
    source.close().await;
    copied
}

async fn copy_from(source: &mut Source, to: &PostgresUrl) -> Result<Copied, CopyError> {
    let target = Target::open(to).await.map_err(CopyError::To)?;
    let mut tx = target.begin().await?;
    if !target.is_empty(&mut tx).await? {
        return Err(CopyError::NotEmpty);
    }
    let mut copied = Copied::default();
    target.begin_timeline(&mut tx, &source.epoch, source.base, source.lived_at).await?;
    target.kept(&mut tx, &source.kept().await?).await?;
    copied.lines = timeline(source, &target, &mut tx).await?;
    copied.keys = keys(source, &target, &mut tx).await?;
    let tokens = source.tokens().await?;
    copied.tokens = tokens.len() as u64;
    target.access(&mut tx, &tokens, &source.sessions().await?, &source.links().await?).await?;
    let mut after = (String::new(), String::new());
    loop {
        let answers = source.answers((&after.0, &after.1), PIECE).await?;
        let Some((caller, key, ..)) = answers.last() else { break };
        after = (caller.clone(), key.clone());
        target.answers(&mut tx, &answers).await?;
    }
    target.end(&mut tx).await?;
    target.commit(tx).await?;
    target.close().await;
    Ok(copied)
}

/// The lines, and what they come to.
async fn timeline(source: &Source, target: &Target, db: &mut PgConnection) -> Result<u64, CopyError> {
    let (mut after, mut count) = (source.base.0, 0);
    loop {
        let lines = source.lines(after, PIECE).await?;
        let Some(last) = lines.last() else { return Ok(count) };
        after = last.position;
        count += lines.len() as u64;
        let mut folded = Folded::default();
        folded.take(&lines);
        target.lines(db, &lines, &folded).await?;
    }
}

async fn keys(source: &mut Source, target: &Target, db: &mut PgConnection) -> Result<u64, CopyError> {
    let (mut after, mut count) = (String::new(), 0);
    loop {
        let states: Vec<KeyState> = source.states(&after, PIECE).await?;
        let Some(last) = states.last() else { return Ok(count) };
        last.lease_key.as_str().clone_into(&mut after);
        count += states.len() as u64;
        target.keys(db, &states).await?;
    }
}
