//! A grant is worth something only if its caller hears of it.

use domain::LeaseKey;
use domain::lease::LeaseId;
use tokio::sync::mpsc::UnboundedSender;

/// A grant whose answer is on its way. Dropped before it was [delivered](Delivery::delivered), the leases end as
/// `undelivered`, without lock delay or minimum hold, and the next waiter has the key.
#[derive(Debug)]
pub struct Delivery {
    leases: Vec<(LeaseKey, LeaseId)>,
    lost: UnboundedSender<(LeaseKey, LeaseId)>,
}

impl Delivery {
    /// Of these leases. The channel needs no bound: there is at most one message for each grant under way.
    pub(super) fn new(leases: Vec<(LeaseKey, LeaseId)>, lost: &UnboundedSender<(LeaseKey, LeaseId)>) -> Option<Self> {
        (!leases.is_empty()).then(|| Self { leases, lost: lost.clone() })
    }

    /// The answer was written to the caller's connection.
    pub fn delivered(mut self) {
        self.leases.clear();
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        for lease in self.leases.drain(..) {
            // Without a writer nobody can end the lease; it expires.
            let _ = self.lost.send(lease);
        }
    }
}
