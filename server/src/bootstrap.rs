//! The first start: somebody must be able to get in.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use domain::{Actor, Role};
use engine::engine::Scope;
use engine::{Call, Engine};

use crate::database::Database;

/// The fewest characters of a token that somebody chose.
const FEWEST: usize = 32;

/// How to get in for the first time.
pub(crate) struct Welcome {
    /// The secret of a one-time sign-in link.
    pub(crate) link: String,
    /// Where an administrator's token was saved, for the command line.
    pub(crate) token_file: PathBuf,
}

/// Makes the first administrator, unless there is one. With `chosen` its token is that; otherwise it is a new one, saved
/// beside the database for the command line, and there is a sign-in link too.
///
/// # Errors
/// If the chosen token is too simple, the file cannot be written, or the database does not answer.
pub(crate) async fn first_start(engine: &Engine, database: &Database, chosen: Option<&str>) -> Result<Option<Welcome>> {
    if let Some(chosen) = chosen {
        let is_plain = chosen.bytes().all(|byte| byte.is_ascii_graphic());
        ensure!(
            chosen.len() >= FEWEST && is_plain && chosen.starts_with("jl_"),
            "JOB_LEASES_BOOTSTRAP_TOKEN must begin with jl_ and have at least {FEWEST} characters of visible ASCII"
        );
    }
    if engine.directory().has_admin(engine.now()) {
        if let Some(chosen) = chosen
            && engine.authenticate(chosen).await?.is_none()
        {
            tracing::warn!("JOB_LEASES_BOOTSTRAP_TOKEN is passed over: there is an administrator already");
        }
        return Ok(None);
    }
    let call = Call { actor: Arc::new(Actor::system("first start")), request_id: None, idempotency: None };
    let scope = Scope { role: Role::Admin, prefixes: Arc::from([]) };
    if let Some(chosen) = chosen {
        ensure!(
            !engine.directory().was_token(chosen),
            "JOB_LEASES_BOOTSTRAP_TOKEN was revoked or has expired, and no other administrator is left: choose another"
        );
        let made = engine.create_token_with(call, chosen, "bootstrap", scope, None).await;
        // Another node may have done the same at this moment.
        if made.is_err() && engine.authenticate(chosen).await?.is_none() {
            made.context("cannot store the first token")?;
        }
        return Ok(None);
    }
    let made = engine.create_token(call.clone(), "local", scope, None).await.context("cannot store the first token")?;
    let file = database.file()?;
    make_folder(&file).with_context(|| format!("cannot make the folder of {}", file.display()))?;
    let token_file = beside(&file, "-token");
    let secret = made.value.secret.context("a new token has a secret")?;
    save(&token_file, &secret).with_context(|| format!("cannot write {}", token_file.display()))?;
    let link = engine.create_sign_in_link(call).await.context("cannot store the sign-in link")?;
    Ok(Some(Welcome { link, token_file }))
}

/// `path` with `ending` behind its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Writes a secret for this user alone. Beside the file first: one that others can read is never there, not even briefly.
fn save(path: &Path, secret: &str) -> std::io::Result<()> {
    let new = beside(path, ".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    writeln!(file, "{secret}")?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// Makes the folder of a file, for this user alone.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn make_folder(file: &Path) -> std::io::Result<()> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_saved_for_its_user_alone_even_over_an_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db-token");
        fs::write(&path, "old").unwrap();
        save(&path, "jl_secret").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "jl_secret\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
