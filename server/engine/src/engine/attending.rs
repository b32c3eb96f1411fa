//! Holders who want to hear at once that their lease ends, or is to end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::lease::{Change, FencingToken};
use tokio::sync::Notify;

use crate::timeline::Record;

/// All of them, by the lease.
#[derive(Default)]
pub(super) struct Attending(Mutex<HashMap<FencingToken, Attended>>);

struct Attended {
    told: Arc<Notify>,
    by: usize,
}

impl Attending {
    /// Attends a lease until the answer is dropped.
    pub(super) fn enter(self: &Arc<Self>, lease: FencingToken) -> Attendance {
        let mut all = self.all();
        let attended = all.entry(lease).or_insert_with(|| Attended { told: Arc::new(Notify::new()), by: 0 });
        attended.by += 1;
        Attendance { all: Arc::clone(self), lease, told: Arc::clone(&attended.told) }
    }

    /// Tells those whom it concerns what was committed.
    pub(super) fn tell(&self, records: &[Arc<Record>]) {
        let all = self.all();
        if all.is_empty() {
            return;
        }
        for record in records {
            let Record::Lease(event) = &**record else { continue };
            let ends = matches!(event.change, Change::Breaking(_)) || event.change.ended().is_some();
            if ends && let Some(attended) = event.change.token().and_then(|token| all.get(&token)) {
                attended.told.notify_waiters();
            }
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<FencingToken, Attended>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who attends.
pub(super) struct Attendance {
    all: Arc<Attending>,
    lease: FencingToken,
    /// Notified when the lease ends or is to end.
    pub(super) told: Arc<Notify>,
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let mut all = self.all.all();
        if let Some(attended) = all.get_mut(&self.lease) {
            attended.by -= 1;
            if attended.by == 0 {
                all.remove(&self.lease);
            }
        }
    }
}
