//! What a server function knows of the request it serves, and what it leaves for the response besides its answer.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use domain::{Actor, LeaseKey, RequestId, Role, Timestamp};
use leptos::prelude::use_context;

use super::Backends;
use super::error::ApiError;

/// Who is asking, as the authentication layer found out.
#[derive(Clone, Debug)]
pub struct Caller {
    /// As the timeline will name it.
    pub actor: Arc<Actor>,
    /// What it may do.
    pub role: Role,
    /// The beginnings of keys it is limited to; empty is no limit.
    pub prefixes: Arc<[Arc<str>]>,
    /// When its token or session ends.
    pub expires_at: Option<Timestamp>,
}

impl Caller {
    /// Whether it may see and touch this key.
    #[must_use]
    pub fn covers(&self, key: &LeaseKey) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| key.as_str().starts_with(&**prefix))
    }
}

/// A grant that must have reached its caller before it counts.
pub trait Delivery: Send + Sync {
    /// The last byte of the answer was handed to the connection. Dropping the guard instead ends the grant.
    fn delivered(self: Box<Self>);
}

/// One request and its response, as far as server functions are concerned. Cheap to clone.
#[derive(Clone)]
pub struct Exchange(Arc<Inner>);

struct Inner {
    backends: Arc<Backends>,
    caller: Option<Arc<Caller>>,
    request_id: RequestId,
    idempotency_key: Option<Box<str>>,
    operation: &'static str,
    canonical: OnceLock<Vec<u8>>,
    notes: Mutex<Notes>,
}

/// What the response needs besides the answer itself.
#[derive(Default)]
pub struct Notes {
    /// The answer is the stored one of an earlier request with the same idempotency key.
    pub replayed: bool,
    /// The answer granted something.
    pub delivery: Option<Box<dyn Delivery>>,
}

impl Exchange {
    /// A request by `caller`, for the operation at path `operation`.
    #[must_use]
    pub fn new(
        backends: Arc<Backends>,
        caller: Option<Arc<Caller>>,
        request_id: RequestId,
        idempotency_key: Option<Box<str>>,
        operation: &'static str,
    ) -> Self {
        Self(Arc::new(Inner {
            backends,
            caller,
            request_id,
            idempotency_key,
            operation,
            canonical: OnceLock::new(),
            notes: Mutex::default(),
        }))
    }

    /// The one that the running server function or page serves. Ask before the first `await`.
    ///
    /// # Errors
    /// `internal` outside a request.
    pub fn current() -> Result<Self, ApiError> {
        use_context::<Self>().ok_or_else(ApiError::internal)
    }

    /// What the operations are handed to.
    #[must_use]
    pub fn backends(&self) -> &Backends {
        &self.0.backends
    }

    /// Who asks.
    ///
    /// # Errors
    /// `unauthenticated` if nobody has signed in.
    pub fn caller(&self) -> Result<&Arc<Caller>, ApiError> {
        self.0.caller.as_ref().ok_or_else(ApiError::unauthenticated)
    }

    /// Who asks, if they may do what `role` may.
    ///
    /// # Errors
    /// `unauthenticated` or `forbidden`.
    pub fn require(&self, role: Role) -> Result<&Arc<Caller>, ApiError> {
        let caller = self.caller()?;
        if caller.role < role {
            let needed = role.as_str();
            return Err(ApiError::new("forbidden", format!("this needs the role {needed}")));
        }
        Ok(caller)
    }

    /// Who asks, if they may do what `role` may with this key.
    ///
    /// # Errors
    /// `unauthenticated` or `forbidden`; the latter for a key that exists as for one that does not.
    pub fn require_on(&self, role: Role, key: &LeaseKey) -> Result<&Arc<Caller>, ApiError> {
        let caller = self.require(role)?;
        if !caller.covers(key) {
            return Err(ApiError::new("forbidden", "this token is limited to other keys"));
        }
        Ok(caller)
    }

    /// The request's id.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.0.request_id.0
    }

    /// The request's id, shared with the timeline.
    #[must_use]
    pub fn shared_request_id(&self) -> RequestId {
        self.0.request_id.clone()
    }

    /// The `Idempotency-Key` header.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        self.0.idempotency_key.as_deref()
    }

    /// What makes two requests the same one: the operation's path, and the arguments in one way of writing. Empty
    /// unless there is an idempotency key.
    #[must_use]
    pub fn canonical(&self) -> (&'static str, &[u8]) {
        (self.0.operation, self.0.canonical.get().map_or(&[], Vec::as_slice))
    }

    pub(super) fn set_canonical(&self, arguments: Vec<u8>) {
        // A request has one set of arguments: a second call would bring the same.
        let _ = self.0.canonical.set(arguments);
    }

    /// Leaves something for the response.
    pub fn note(&self, change: impl FnOnce(&mut Notes)) {
        change(&mut self.0.notes.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes what was left for the response.
    #[must_use]
    pub fn take_notes(&self) -> Notes {
        std::mem::take(&mut *self.0.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
