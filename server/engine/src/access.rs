//! Who may call: API tokens, browser sessions and one-time sign-in links.
//!
//! They are few, so all that are alive are kept in memory: authenticating a request asks no database.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use domain::{Actor, ActorKind, LeaseKey, Role, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The SHA-256 of a secret of 256 random bits: with so much chance in it, a slow hash would add nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SecretHash(pub [u8; 32]);

impl SecretHash {
    /// Of the secret's text.
    #[must_use]
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }
}

/// An API token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its public id.
    pub token_id: Arc<str>,
    /// What people call it.
    pub name: Arc<str>,
    /// What it may do.
    pub role: Role,
    /// On which keys; all if empty.
    pub prefixes: Arc<[Arc<str>]>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when it is good.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// A browser session, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its public id.
    pub session_id: Arc<str>,
    /// Who.
    pub name: Arc<str>,
    /// What it may do.
    pub role: Role,
    /// On which keys; all if empty.
    pub prefixes: Arc<[Arc<str>]>,
    /// The token that opened it, with which it ends.
    pub token_id: Option<Arc<str>>,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// A caller whose secret was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// As the timeline names it.
    pub actor: Arc<Actor>,
    /// What it may do.
    pub role: Role,
    /// On which keys; all if empty.
    pub prefixes: Arc<[Arc<str>]>,
    /// Until when.
    pub expires_at: Option<Timestamp>,
    /// The API token behind it, if there is one.
    pub token_id: Option<Arc<str>>,
}

impl Principal {
    /// Whether it may touch that key at all.
    #[must_use]
    pub fn covers(&self, key: &LeaseKey) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| key.as_str().starts_with(&**prefix))
    }
}

/// A change of tokens, sessions or links, written in the transaction of its event.
#[derive(Clone, Debug)]
pub enum AccessChange {
    /// A new API token.
    CreateToken(SecretHash, Token),
    /// An API token is good no longer; nor are the sessions it opened.
    RevokeToken(Arc<str>, Timestamp),
    /// A new session; the link that opened it, if one did, is used up.
    OpenSession {
        /// Of the session's secret.
        hash: SecretHash,
        /// The session.
        session: Session,
        /// The link that opened it.
        link: Option<SecretHash>,
    },
    /// A session ends.
    CloseSession(Arc<str>, Timestamp),
    /// A new sign-in link.
    CreateLink(SecretHash, SignInLink),
}

/// A one-time sign-in link, without its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignInLink {
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when it can be used.
    pub expires_at: Timestamp,
}

/// All tokens, and what is alive of the rest.
#[derive(Debug, Default)]
pub struct Directory {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    principals: HashMap<SecretHash, Arc<Principal>>,
    tokens: HashMap<Arc<str>, (SecretHash, Token)>,
    sessions: HashMap<Arc<str>, SecretHash>,
    links: HashMap<SecretHash, SignInLink>,
}

impl Directory {
    /// Knows from now on what `other` knows.
    pub(crate) fn become_as(&self, other: Self) {
        let other = other.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.inner.write().unwrap_or_else(PoisonError::into_inner) = other;
    }

    /// Brings a committed change to memory.
    pub(crate) fn apply(&self, change: &AccessChange) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        match change {
            AccessChange::CreateToken(hash, token) => {
                if token.revoked_at.is_none() {
                    inner.principals.insert(*hash, Arc::new(principal_of_token(token)));
                }
                inner.tokens.insert(Arc::clone(&token.token_id), (*hash, token.clone()));
            }
            AccessChange::RevokeToken(id, at) => {
                if let Some((_, token)) = inner.tokens.get_mut(id) {
                    token.revoked_at = Some(*at);
                }
                inner.principals.retain(|_, principal| principal.token_id.as_ref() != Some(id));
            }
            AccessChange::OpenSession { hash, session, link } => {
                if let Some(link) = link {
                    inner.links.remove(link);
                }
                inner.principals.insert(*hash, Arc::new(principal_of_session(session)));
                inner.sessions.insert(Arc::clone(&session.session_id), *hash);
            }
            AccessChange::CloseSession(id, _) => {
                if let Some(hash) = inner.sessions.remove(id) {
                    inner.principals.remove(&hash);
                }
            }
            AccessChange::CreateLink(hash, link) => {
                inner.links.insert(*hash, *link);
            }
        }
    }

    /// Who has this secret, if anybody has at `now`.
    #[must_use]
    pub fn authenticate(&self, secret: &str, now: Timestamp) -> Option<Arc<Principal>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let principal = inner.principals.get(&SecretHash::of(secret))?;
        principal.expires_at.is_none_or(|until| now < until).then(|| Arc::clone(principal))
    }

    /// All API tokens, the newest first.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let mut tokens: Vec<Token> = inner.tokens.values().map(|(_, token)| token.clone()).collect();
        tokens.sort_by(|a, b| (b.created_at, &b.token_id).cmp(&(a.created_at, &a.token_id)));
        tokens
    }

    /// Whether anybody could sign in or act as an administrator of all keys at `now`.
    #[must_use]
    pub fn has_admin(&self, now: Timestamp) -> bool {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.principals.values().any(|principal| {
            // One that is limited to some keys can make no tokens.
            let is_whole = principal.role == Role::Admin && principal.prefixes.is_empty();
            is_whole && principal.expires_at.is_none_or(|until| now < until)
        })
    }

    /// Whether this was ever an API token's secret, good or not.
    #[must_use]
    pub fn was_token(&self, secret: &str) -> bool {
        let hash = SecretHash::of(secret);
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.tokens.values().any(|(other, _)| *other == hash)
    }

    /// Whether the token or session by which somebody acted has ended at `now`.
    pub(crate) fn has_ended(&self, actor: &Actor, now: Timestamp) -> bool {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        match actor.kind {
            ActorKind::System => false,
            ActorKind::Token => inner.tokens.get(&actor.id).is_some_and(|(_, token)| {
                token.revoked_at.is_some() || token.expires_at.is_some_and(|until| now >= until)
            }),
            // One that has ended is no longer here.
            ActorKind::Session => {
                let principal = inner.sessions.get(&actor.id).and_then(|hash| inner.principals.get(hash));
                principal.is_none_or(|principal| principal.expires_at.is_some_and(|until| now >= until))
            }
        }
    }

    /// The API token of that id, if it exists and was not revoked.
    pub(crate) fn live_token(&self, id: &str) -> Option<Token> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.tokens.get(id).map(|(_, token)| token.clone()).filter(|token| token.revoked_at.is_none())
    }

    /// Whether the link can be used at `now`.
    pub(crate) fn link_is_good(&self, hash: &SecretHash, now: Timestamp) -> bool {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.links.get(hash).is_some_and(|link| now < link.expires_at)
    }

    /// Whether the session is open.
    pub(crate) fn has_session(&self, id: &str) -> bool {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).sessions.contains_key(id)
    }
}

fn principal_of_token(token: &Token) -> Principal {
    let actor = Actor { kind: ActorKind::Token, id: Arc::clone(&token.token_id), name: Arc::clone(&token.name) };
    Principal {
        actor: Arc::new(actor),
        role: token.role,
        prefixes: Arc::clone(&token.prefixes),
        expires_at: token.expires_at,
        token_id: Some(Arc::clone(&token.token_id)),
    }
}

fn principal_of_session(session: &Session) -> Principal {
    let actor =
        Actor { kind: ActorKind::Session, id: Arc::clone(&session.session_id), name: Arc::clone(&session.name) };
    Principal {
        actor: Arc::new(actor),
        role: session.role,
        prefixes: Arc::clone(&session.prefixes),
        expires_at: Some(session.expires_at),
        token_id: session.token_id.clone(),
    }
}
