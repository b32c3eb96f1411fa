//! What waits at the door.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::lease::{Acquire, Command, Refusal, Reply};
use domain::{Actor, LeaseKey, RequestId, Role, Timestamp};
use tokio::sync::oneshot;

use super::delivery::Delivery;
use super::idempotency::{Idempotency, IdempotencyId};
use crate::access::{SecretHash, Session, Token};
use crate::error::Fault;
use crate::store::Retain;
use crate::timeline::Refused;

/// Who asks, in which request, and under which idempotency key.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who.
    pub actor: Arc<Actor>,
    /// In which request.
    pub request_id: Option<RequestId>,
    /// The `Idempotency-Key`, if one was sent with a change.
    pub idempotency: Option<Idempotency>,
}

impl Call {
    /// What the server does by itself.
    pub(crate) fn system(actor: &Arc<Actor>) -> Self {
        Self { actor: Arc::clone(actor), request_id: None, idempotency: None }
    }

    /// The name under which the request is remembered, and its fingerprint.
    pub(super) fn fingerprinted(&self) -> Option<(IdempotencyId, [u8; 32])> {
        self.remembered_as().zip(self.idempotency.as_ref().map(|idempotency| idempotency.fingerprint))
    }

    /// The name under which the request is remembered.
    pub(super) fn remembered_as(&self) -> Option<IdempotencyId> {
        let idempotency = self.idempotency.as_ref()?;
        Some(IdempotencyId { caller: Arc::clone(&self.actor.id), key: Arc::clone(&idempotency.key) })
    }
}

/// What was done.
#[derive(Debug)]
pub struct Done<T> {
    /// The answer.
    pub value: T,
    /// Server time of the decision.
    pub server_time: Timestamp,
    /// Whether it is the answer to an earlier request with the same idempotency key.
    pub replayed: bool,
    /// For a grant: to be kept until the answer is written. Absent if the caller can ask again.
    pub delivery: Option<Delivery>,
}

impl<T> Done<T> {
    pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> Done<U> {
        let Self { value, server_time, replayed, delivery } = self;
        Done { value: f(value), server_time, replayed, delivery }
    }
}

/// The answer to any work.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Of a command, or of an acquire-many.
    Reply(Reply),
    /// Of a batch, in order.
    Batch(Vec<Result<Reply, Refusal>>),
    /// Of a change of tokens or sessions: the public id it concerned; the new token or session is in the request.
    Access(Arc<str>),
}

pub(super) type Answered = Result<Done<Outcome>, Fault>;

/// One thing to do.
pub(super) enum Task {
    /// A command on one key.
    One(LeaseKey, Command),
    /// Several keys, all or none.
    Many(Vec<(LeaseKey, Acquire)>),
    /// Independent commands, in order.
    Batch(Vec<(LeaseKey, Command)>),
    /// A change of tokens or sessions.
    Access(AccessTask),
    /// Refusals counted since the last time.
    Refusals(Vec<Refused>),
    /// To take away what has been kept long enough.
    Retain(Retain),
}

/// A change of tokens, sessions or links.
#[derive(Clone, Debug)]
pub(super) enum AccessTask {
    /// A new API token.
    CreateToken(SecretHash, Token),
    /// An API token is good no longer.
    RevokeToken(Arc<str>),
    /// A new session.
    OpenSession {
        /// Of its secret.
        hash: SecretHash,
        /// The session; when it is opened is decided later.
        session: Session,
        /// The link that opens it.
        link: Option<SecretHash>,
    },
    /// A session ends.
    CloseSession(Arc<str>),
    /// A new sign-in link, good for so long.
    CreateLink(SecretHash, domain::Span),
}

/// A role and its prefixes, for new tokens and sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// What may be done.
    pub role: Role,
    /// On which keys; all if empty.
    pub prefixes: Arc<[Arc<str>]>,
}

/// One thing to do, and whom to tell.
pub(super) struct Work {
    pub(super) call: Call,
    pub(super) task: Task,
    /// Nobody, for what the server does by itself.
    pub(super) reply: Option<oneshot::Sender<Answered>>,
    /// Whether the caller is still there, if it may wait.
    pub(super) alive: Option<Arc<AtomicBool>>,
}

impl Work {
    /// A command that the server gives itself.
    pub(super) fn system(actor: &Arc<Actor>, task: Task) -> Self {
        Self { call: Call::system(actor), task, reply: None, alive: None }
    }

    /// Whether the caller is still there, as far as is known.
    pub(super) fn is_there(&self) -> bool {
        self.alive.as_ref().is_none_or(|alive| alive.load(Ordering::Acquire))
    }

    /// How many commands it is.
    pub(super) fn weight(&self) -> usize {
        match &self.task {
            Task::Many(requests) => requests.len(),
            Task::Batch(commands) => commands.len(),
            _ => 1,
        }
    }

    /// The keys it needs.
    pub(super) fn keys(&self) -> impl Iterator<Item = &LeaseKey> {
        let many: &[(LeaseKey, Acquire)] = match &self.task {
            Task::Many(requests) => requests,
            _ => &[],
        };
        self.commands().map(|(key, _)| key).chain(many.iter().map(|(key, _)| key))
    }

    /// Its commands on single keys.
    pub(super) fn commands(&self) -> impl Iterator<Item = (&LeaseKey, &Command)> {
        let (one, batch): (_, &[(LeaseKey, Command)]) = match &self.task {
            Task::One(key, command) => (Some((key, command)), &[]),
            Task::Batch(commands) => (None, commands),
            _ => (None, &[]),
        };
        one.into_iter().chain(batch.iter().map(|(key, command)| (key, command)))
    }
}

/// Answers a caller, if there is one.
pub(super) fn tell(reply: Option<oneshot::Sender<Answered>>, answer: Answered) {
    if let Some(reply) = reply {
        // A caller who is gone drops the answer; a grant in it then ends as undelivered.
        drop(reply.send(answer));
    }
}

/// Answers all of them alike.
pub(super) fn refuse(works: impl IntoIterator<Item = Work>, fault: &Fault) {
    for work in works {
        tell(work.reply, Err(fault.clone()));
    }
}
