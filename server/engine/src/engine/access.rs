//! Making and ending API tokens, sessions and sign-in links. Secrets are made here, told once, and kept only as hashes.

use std::sync::Arc;

use domain::{Role, Span, Timestamp};
use rand::Rng as _;

use super::Engine;
use super::work::{AccessTask, Call, Done, Outcome, Scope, Task};
use crate::access::{Principal, SecretHash, Session, Token};
use crate::error::Fault;

/// How long a browser stays signed in at the most.
const SESSION_LASTS: Span = Span::millis(12 * 60 * 60 * 1000);

/// How long a sign-in link can be used.
const LINK_LASTS: Span = Span::millis(60 * 60 * 1000);

/// A new API token.
#[derive(Debug)]
pub struct NewToken {
    /// What the caller presents: told once. Absent when the request is only replayed.
    pub secret: Option<String>,
    /// The rest of it.
    pub token: Token,
}

/// A new session.
#[derive(Debug)]
pub struct SignedIn {
    /// What the browser presents: told once.
    pub secret: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// So many random bytes as text.
#[expect(clippy::disallowed_methods, reason = "secrets and ids are what the operating system's randomness is for")]
fn random<const N: usize>() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0_u8; N];
    rand::rng().fill_bytes(&mut bytes);
    let mut text = String::with_capacity(N * 4 / 3 + 1);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in bytes {
        bits = bits << 8 | u32::from(byte);
        count += 8;
        while count >= 6 {
            count -= 6;
            text.push(char::from(ALPHABET[(bits >> count & 63) as usize]));
        }
    }
    if count > 0 {
        text.push(char::from(ALPHABET[(bits << (6 - count) & 63) as usize]));
    }
    text
}

/// A public id: unguessable enough not to clash, short enough to read.
fn id(kind: &str) -> Arc<str> {
    Arc::from(format!("{kind}_{}", random::<12>()))
}

impl Engine {
    /// Makes an API token.
    ///
    /// # Errors
    /// If it could not be stored.
    pub async fn create_token(
        &self,
        call: Call,
        name: &str,
        scope: Scope,
        expires_at: Option<Timestamp>,
    ) -> Result<Done<NewToken>, Fault> {
        self.create_token_with(call, &format!("jl_{}", random::<32>()), name, scope, expires_at).await
    }

    /// Makes an API token of a given secret: for the first one, which the operator chose.
    ///
    /// # Errors
    /// If it could not be stored.
    pub async fn create_token_with(
        &self,
        call: Call,
        secret: &str,
        name: &str,
        scope: Scope,
        expires_at: Option<Timestamp>,
    ) -> Result<Done<NewToken>, Fault> {
        let token = Token {
            token_id: id("tk"),
            name: Arc::from(name),
            role: scope.role,
            prefixes: scope.prefixes,
            created_at: self.now(),
            expires_at,
            revoked_at: None,
        };
        let task = AccessTask::CreateToken(SecretHash::of(secret), token);
        let done = self.submit(call, Task::Access(task), None).await?;
        let made = match &done.value {
            Outcome::Access(id) => self.directory().live_token(id),
            Outcome::Reply(_) | Outcome::Batch(_) => None,
        };
        // A replayed request whose token was revoked since has nothing to show.
        let token = made.ok_or(Fault::NotFound("token"))?;
        let secret = (!done.replayed).then(|| secret.to_owned());
        Ok(done.map(|_| NewToken { secret, token }))
    }

    /// Revokes an API token, and ends the sessions it opened.
    ///
    /// # Errors
    /// If there is no such token, or it could not be stored.
    pub async fn revoke_token(&self, call: Call, token_id: &str) -> Result<Done<()>, Fault> {
        let task = AccessTask::RevokeToken(Arc::from(token_id));
        Ok(self.submit(call, Task::Access(task), None).await?.map(|_| ()))
    }

    /// Makes a one-time sign-in link, good for an hour; its secret.
    ///
    /// # Errors
    /// If it could not be stored.
    pub async fn create_sign_in_link(&self, call: Call) -> Result<String, Fault> {
        let secret = random::<32>();
        let task = AccessTask::CreateLink(SecretHash::of(&secret), LINK_LASTS);
        self.submit(call, Task::Access(task), None).await?;
        Ok(secret)
    }

    /// Signs in as an administrator by a one-time link, which is then used up.
    ///
    /// # Errors
    /// If the link does not exist, was used or is too old; or the session could not be stored.
    pub async fn sign_in_by_link(&self, call: Call, link: &str) -> Result<SignedIn, Fault> {
        let session = Session {
            session_id: id("se"),
            name: Arc::from("administrator"),
            role: Role::Admin,
            prefixes: Arc::from([]),
            token_id: None,
            created_at: self.now(),
            expires_at: self.now() + SESSION_LASTS,
        };
        self.open_session(call, session, Some(SecretHash::of(link))).await
    }

    /// Signs in with the rights of an API token.
    ///
    /// # Errors
    /// If the session could not be stored.
    pub async fn sign_in_by_token(&self, call: Call, token: &Principal) -> Result<SignedIn, Fault> {
        let lasts = self.now() + SESSION_LASTS;
        let session = Session {
            session_id: id("se"),
            name: Arc::clone(&token.actor.name),
            role: token.role,
            prefixes: Arc::clone(&token.prefixes),
            token_id: token.token_id.clone(),
            created_at: self.now(),
            expires_at: token.expires_at.map_or(lasts, |until| until.min(lasts)),
        };
        self.open_session(call, session, None).await
    }

    async fn open_session(&self, call: Call, session: Session, link: Option<SecretHash>) -> Result<SignedIn, Fault> {
        let secret = random::<32>();
        let expires_at = session.expires_at;
        let task = AccessTask::OpenSession { hash: SecretHash::of(&secret), session, link };
        self.submit(call, Task::Access(task), None).await?;
        Ok(SignedIn { secret, expires_at })
    }

    /// Ends a session.
    ///
    /// # Errors
    /// If it is not open, or this could not be stored.
    pub async fn sign_out(&self, call: Call, session_id: &str) -> Result<Done<()>, Fault> {
        let task = AccessTask::CloseSession(Arc::from(session_id));
        Ok(self.submit(call, Task::Access(task), None).await?.map(|_| ()))
    }
}
