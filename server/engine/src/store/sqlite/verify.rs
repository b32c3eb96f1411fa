//! Checking the timeline in a file.

use std::path::Path;

use sqlx::{ConnectOptions as _, Connection as _};

use super::open::{self, StoredLines};
use super::views::{self, Progress};
use crate::error::StoreError;
use crate::timeline::{Lines as _, Verified, VerifyError, check};

/// Checks the timeline in the file at `path`: no line missing, none changed, each chained to the one before. That its end
/// was cut off shows by the read models beside it, if they are there.
///
/// # Errors
/// At the first line that is wrong, or if the file cannot be read.
pub async fn verify(path: &Path) -> Result<Verified, VerifyError> {
    // Before the lines, which only grow meanwhile.
    let followed = followed(path).await;
    let mut db = open::reading(path).connect().await.map_err(StoreError::from)?;
    let open::Base { epoch, position, hash } = open::base(&mut db).await?;
    db.close().await.map_err(StoreError::from)?;
    let followed = followed.filter(|progress| progress.epoch == epoch);
    let lines = StoredLines(open::readers(path, 1));
    let followed = followed.map(|progress| (progress.applied, progress.hash));
    let checked = check(&lines, (position, hash), followed).await;
    lines.close().await;
    checked
}

/// How far the read models have come, if there are any that can be read.
pub(super) async fn followed(path: &Path) -> Option<Progress> {
    // Beside the file itself, if this is a link to it.
    let file = views::path_beside(&path.canonicalize().ok()?);
    let mut db = open::reading(&file).connect().await.ok()?;
    let progress = views::progress(&mut db).await.ok();
    db.close().await.ok()?;
    progress
}
