//! Checking a timeline from its first kept line to its last, whether or not a server has it open.

use std::path::Path;

use sqlx::{ConnectOptions as _, Connection as _};

use super::open::{self, StoredLines};
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
    /// The file cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file holds something else, or could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks the timeline in the file at `path`: no line missing, none changed, each chained to the one before.
///
/// # Errors
/// At the first line that is wrong, or if the file cannot be read.
pub async fn verify(path: &Path) -> Result<Verified, VerifyError> {
    let mut db = open::reading(path).connect().await.map_err(StoreError::from)?;
    let (base, mut hash) = open::base(&mut db).await?;
    db.close().await.map_err(StoreError::from)?;
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
            head = line.position;
        }
    }
    lines.close().await;
    Ok(Verified { base, head, hash })
}
