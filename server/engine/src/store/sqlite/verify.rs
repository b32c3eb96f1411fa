//! Checking a timeline from its first kept line to its last, whether or not a server has it open.

use std::path::Path;

use sqlx::{ConnectOptions as _, Connection as _};

use super::open::{self, StoredLines};
use super::views::{self, Progress};
use crate::error::{OpenError, StoreError};
use crate::timeline::{Hash, Lines as _, Position, chain};

/// How many lines at once.
const PIECE: u32 = 2_000;

/// A timeline in which every line follows from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Retention has taken away everything up to this position.
    pub base: Position,
    /// The last line.
    pub head: Position,
    /// The last line's hash: noted elsewhere, it tells later whether the past was rewritten.
    pub hash: Hash,
}

/// What is wrong with a timeline.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A line is missing.
    #[error("line {} is missing", .0.0)]
    Missing(Position),
    /// A line is not what was written, or does not follow the one before.
    #[error("line {} does not follow from the one before: it, or one before it, was changed", .0.0)]
    Broken(Position),
    /// The timeline is whole but not the one that the read models follow.
    #[error("line {} is not the one that the read models have followed: it, or one before it, was written anew", .0.0)]
    Another(Position),
    /// The file cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file holds something else, or could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks the timeline in the file at `path`: no line missing, none changed, each chained to the one before. That its end
/// was cut off shows by the read models beside it, if they are there.
///
/// # Errors
/// At the first line that is wrong, or if the file cannot be read.
pub async fn verify(path: &Path) -> Result<Verified, VerifyError> {
    // Before the lines, which only grow meanwhile.
    let followed = followed(path).await;
    let mut db = open::reading(path).connect().await.map_err(StoreError::from)?;
    let open::Base { epoch, position: base, mut hash } = open::base(&mut db).await?;
    db.close().await.map_err(StoreError::from)?;
    let followed = followed.filter(|progress| progress.epoch == epoch);
    let is_another = |position: Position, hash: &Hash| {
        followed.as_ref().is_some_and(|progress| progress.applied == position && progress.hash != *hash)
    };
    if is_another(base, &hash) {
        return Err(VerifyError::Another(base));
    }
    let lines = StoredLines(open::readers(path, 1));
    let mut head = base;
    loop {
        let (piece, _) = lines.read(head, PIECE).await?;
        if piece.is_empty() {
            break;
        }
        for line in piece {
            if line.position != head.next() {
                return Err(VerifyError::Missing(head.next()));
            }
            hash = chain(&hash, line.position, &line.body);
            if hash != line.hash {
                return Err(VerifyError::Broken(line.position));
            }
            if is_another(line.position, &hash) {
                return Err(VerifyError::Another(line.position));
            }
            head = line.position;
        }
    }
    lines.close().await;
    if followed.is_some_and(|progress| progress.applied > head) {
        return Err(VerifyError::Missing(head.next()));
    }
    Ok(Verified { base, head, hash })
}

/// How far the read models have come, if there are any that can be read.
async fn followed(path: &Path) -> Option<Progress> {
    // Beside the file itself, if this is a link to it.
    let file = views::path_beside(&path.canonicalize().ok()?);
    let mut db = open::reading(&file).connect().await.ok()?;
    let progress = views::progress(&mut db).await.ok();
    db.close().await.ok()?;
    progress
}
