//! What the specification says of a key and its lease at an instant, said anew: the judge does not ask the rules.

use domain::Timestamp;
use domain::lease::{Ending, KeyState, KeyStatus, Lease, Outage, Outcome};

pub(crate) fn is_alive(lease: &Lease, now: Timestamp) -> bool {
    lease.ended.is_none() && now < lease.expires_at
}

/// The lease that is held.
pub(crate) fn held(key: &KeyState, now: Timestamp) -> Option<&Lease> {
    key.lease.as_ref().filter(|lease| is_alive(lease, now))
}

/// How and when it ended, recorded or not; `None` while it is alive.
pub(crate) fn ending(lease: &Lease, now: Timestamp) -> Option<Ending> {
    if lease.ended.is_some() || is_alive(lease, now) {
        return lease.ended;
    }
    let broken = lease.breaking.as_ref().is_some_and(|breaking| breaking.ends_at <= lease.expires_at);
    Some(Ending { outcome: if broken { Outcome::Broken } else { Outcome::Expired }, at: lease.expires_at })
}

/// Until when the key cools after such an end, if at all: minimum hold after a clean one, lock delay after an unclean one.
pub(crate) fn cooling_until(lease: &Lease, ending: Ending) -> Option<Timestamp> {
    match ending.outcome {
        Outcome::Released => lease.min_hold_until.filter(|until| *until > ending.at),
        Outcome::Expired | Outcome::Broken if lease.lock_delay.is_zero() => None,
        Outcome::Expired | Outcome::Broken => Some(ending.at + lease.lock_delay),
        Outcome::Transferred | Outcome::Undelivered => None,
    }
}

pub(crate) fn status(key: &KeyState, now: Timestamp) -> KeyStatus {
    if key.quarantine.is_some() {
        return KeyStatus::Quarantined;
    }
    let Some(lease) = &key.lease else { return KeyStatus::Free };
    match ending(lease, now) {
        None if lease.breaking.is_some() => KeyStatus::Breaking,
        None => KeyStatus::Held,
        Some(ending) if cooling_until(lease, ending).is_some_and(|until| now < until) => KeyStatus::Cooling,
        Some(_) => KeyStatus::Free,
    }
}

/// The latest a lease may last: to the end of maximum hold and of a break.
pub(crate) fn ceiling(lease: &Lease) -> Timestamp {
    let hold = lease.max_hold_until.unwrap_or(Timestamp::MAX);
    lease.breaking.as_ref().map_or(hold, |breaking| hold.min(breaking.ends_at))
}

/// Whether a lease that is known later was alive at an earlier instant.
pub(crate) fn was_alive(lease: &Lease, at: Timestamp) -> bool {
    lease.acquired_at <= at && is_alive(lease, at)
}

/// When a lease expires once an outage is over.
pub(crate) fn expiry_after(lease: &Lease, outage: &Outage) -> Timestamp {
    if !was_alive(lease, outage.from) {
        return lease.expires_at;
    }
    let length = outage.to.since(outage.from);
    let given = [lease.ttl, outage.grace_us, length].into_iter().min().unwrap();
    lease.expires_at.max((outage.to + given).min(ceiling(lease)))
}
