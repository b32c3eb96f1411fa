//! Checking a timeline from its first kept line to its last, whether or not a server has it open.

use super::{Hash, Lines, Position, chain};
use crate::error::{OpenError, StoreError};

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
    /// The database cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It holds something else, or could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks lines from `base`, whose hash is given: no line missing, none changed, each chained to the one before, and each (the
/// base too) the one that `followed` tells, if it tells of that position.
pub(crate) async fn check(
    lines: &dyn Lines,
    base: (Position, Hash),
    followed: Option<(Position, Hash)>,
) -> Result<Verified, VerifyError> {
    let (base, mut hash) = base;
    let mut head = base;
    let is_another = |position: Position, hash: &Hash| followed.is_some_and(|(at, of)| at == position && of != *hash);
    if is_another(base, &hash) {
        return Err(VerifyError::Another(base));
    }
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
    if followed.is_some_and(|(position, _)| position > head) {
        return Err(VerifyError::Missing(head.next()));
    }
    Ok(Verified { base, head, hash })
}
