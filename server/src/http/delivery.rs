//! Grants that count only once their answer was written to the caller's socket.
//!
//! The guard of a grant rides on the response's body. When the last byte of the body has been taken, the guard moves to
//! the connection's outbox, and when the connection has written all it had, what is in the outbox was delivered. Wherever
//! it is dropped before that, with the handler, the body or the connection, the engine takes the grant back.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use app::api::exchange::Delivery;
use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};

/// The guards whose answers the connection has taken but perhaps not yet written.
#[derive(Default)]
pub(crate) struct Outbox(Mutex<Vec<Box<dyn Delivery>>>);

impl Outbox {
    fn put(&self, guard: Box<dyn Delivery>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
    }

    fn take(&self) -> Vec<Box<dyn Delivery>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All that was taken has been written.
    pub(super) fn written(&self) {
        for guard in self.take() {
            guard.delivered();
        }
    }

    /// The connection is gone: what is still here was not delivered.
    pub(super) fn lost(&self) {
        drop(self.take());
    }
}

/// Puts the guard on the response's body.
pub(super) fn guard(response: Response, guard: Box<dyn Delivery>, outbox: Arc<Outbox>) -> Response {
    response.map(|body| Body::new(Guarded { body, guard: Some(guard), outbox }))
}

struct Guarded {
    body: Body,
    guard: Option<Box<dyn Delivery>>,
    outbox: Arc<Outbox>,
}

impl http_body::Body for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let is_last = match &frame {
            Some(Ok(_)) => self.body.is_end_stream(),
            Some(Err(_)) => false,
            None => true,
        };
        if is_last && let Some(guard) = self.guard.take() {
            self.outbox.put(guard);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use http_body_util::BodyExt;

    use super::*;

    const PENDING: u8 = 0;
    const DELIVERED: u8 = 1;
    const DROPPED: u8 = 2;

    struct Probe(Arc<AtomicU8>);

    impl Delivery for Probe {
        fn delivered(self: Box<Self>) {
            self.0.store(DELIVERED, Ordering::Relaxed);
        }
    }

    impl Drop for Probe {
        fn drop(&mut self) {
            let _ = self.0.compare_exchange(PENDING, DROPPED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn guarded() -> (Response, Arc<Outbox>, Arc<AtomicU8>) {
        let (outbox, fate) = (Arc::new(Outbox::default()), Arc::new(AtomicU8::new(PENDING)));
        let response =
            guard(Response::new(Body::from("granted")), Box::new(Probe(Arc::clone(&fate))), Arc::clone(&outbox));
        (response, outbox, fate)
    }

    #[tokio::test]
    async fn an_answer_counts_once_it_was_written_and_not_before() {
        let (response, outbox, fate) = guarded();
        outbox.written();
        assert_eq!(fate.load(Ordering::Relaxed), PENDING);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "granted");
        assert_eq!(fate.load(Ordering::Relaxed), PENDING);
        outbox.written();
        assert_eq!(fate.load(Ordering::Relaxed), DELIVERED);
    }

    #[tokio::test]
    async fn an_answer_that_was_never_taken_or_never_written_does_not_count() {
        let (response, outbox, fate) = guarded();
        drop(response);
        outbox.written();
        assert_eq!(fate.load(Ordering::Relaxed), DROPPED);

        let (response, outbox, fate) = guarded();
        response.into_body().collect().await.unwrap();
        outbox.lost();
        assert_eq!(fate.load(Ordering::Relaxed), DROPPED);
    }
}
