//! Plain forms, as browsers send them.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use tokio::time::timeout;

/// The most bytes of a form.
const MOST: usize = 16 * 1024;
/// How long it may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// The form as it was sent, still encoded; nothing if it is too long or does not arrive.
pub(super) async fn read(body: Body) -> Option<axum::body::Bytes> {
    timeout(PATIENCE, to_bytes(body, MOST)).await.ok()?.ok()
}
