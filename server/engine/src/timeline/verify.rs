//! Checking a timeline from its first kept line to its last, whether or not a server has it open.

use domain::LeaseKey;

use super::{Hash, Line, Lines, Position, chain};
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
    /// A line says what cannot have happened to a key as it was.
    #[error("line {} does not fit what was before of the key {key}: it, or one before it, is not what happened", position.0)]
    Unfit {
        /// Which line.
        position: Position,
        /// Of which key.
        key: LeaseKey,
    },
    /// A stored state is another than its lines come to.
    #[error("the state of the key {0} is not what its lines come to")]
    OtherState(LeaseKey),
    /// The database cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It holds something else, or could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Lines are shown to it one by one.
pub(crate) struct Chain {
    base: Position,
    head: Position,
    hash: Hash,
    followed: Option<(Position, Hash)>,
}

impl Chain {
    /// Begins after `base`, whose hash is given. Each line (the base too) must be the one that `followed` tells, if it tells of
    /// that position.
    pub(crate) fn after(base: (Position, Hash), followed: Option<(Position, Hash)>) -> Result<Self, VerifyError> {
        let chain = Self { base: base.0, head: base.0, hash: base.1, followed };
        chain.is_followed()?;
        Ok(chain)
    }

    /// Takes the next line: none missing, none changed, chained to the one before.
    pub(crate) fn take(&mut self, line: &Line) -> Result<(), VerifyError> {
        if line.position != self.head.next() {
            return Err(VerifyError::Missing(self.head.next()));
        }
        self.hash = chain(&self.hash, line.position, &line.body);
        if self.hash != line.hash {
            return Err(VerifyError::Broken(line.position));
        }
        self.head = line.position;
        self.is_followed()
    }

    fn is_followed(&self) -> Result<(), VerifyError> {
        match self.followed {
            Some((position, hash)) if position == self.head && hash != self.hash => Err(VerifyError::Another(position)),
            _ => Ok(()),
        }
    }

    /// The last line that was taken.
    pub(crate) const fn head(&self) -> Position {
        self.head
    }

    /// There are no more.
    pub(crate) fn end(self) -> Result<Verified, VerifyError> {
        if self.followed.is_some_and(|(position, _)| position > self.head) {
            return Err(VerifyError::Missing(self.head.next()));
        }
        Ok(Verified { base: self.base, head: self.head, hash: self.hash })
    }
}

/// Checks all lines, see [`Chain`].
pub(crate) async fn check(
    lines: &dyn Lines,
    base: (Position, Hash),
    followed: Option<(Position, Hash)>,
) -> Result<Verified, VerifyError> {
    let mut chain = Chain::after(base, followed)?;
    loop {
        let (piece, _) = lines.read(chain.head, PIECE).await?;
        if piece.is_empty() {
            return chain.end();
        }
        piece.iter().try_for_each(|line| chain.take(line))?;
    }
}
