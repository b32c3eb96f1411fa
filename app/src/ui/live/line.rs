//! One line of the timeline, as far as the console needs it.

use std::sync::Arc;

use domain::Timestamp;
use domain::lease::{LeaseStatus, Outcome};
use serde::Deserialize;

use crate::api::leases::Status;

/// What the stream sends for an event. All fields that some kind of event lacks are optional, and fields that the
/// console has no use for are not read: a page must survive events that are newer than itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Line {
    /// When it was decided.
    pub at: Timestamp,
    /// What happened, as `subject.verb`.
    pub kind: Arc<str>,
    /// To which key, if to one.
    pub lease_key: Option<Arc<str>>,
    /// To which lease.
    pub fencing_token: Option<u64>,
    /// Its holder.
    pub owner: Option<Arc<str>>,
    /// Its job.
    pub job_key: Option<Arc<str>>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// What a line means for a table of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A lease was granted.
    Granted { owner: Arc<str>, job_key: Option<Arc<str>>, expires_at: Timestamp },
    /// A lease got another end.
    Renewed { expires_at: Timestamp },
    /// A lease will be ended.
    Breaking { expires_at: Timestamp },
    /// A lease is over.
    Ended { status: Status, at: Timestamp },
}

impl Line {
    /// Reads the stream's JSON; `None` if it is not an event.
    #[must_use]
    pub fn parse(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// What it means for a table of leases: the key, the lease's token, the change. `None` if nothing.
    #[must_use]
    pub fn change(&self) -> Option<(&Arc<str>, u64, Change)> {
        let key = self.lease_key.as_ref()?;
        let token = self.fencing_token?;
        let change = match self.kind.strip_prefix("lease.")? {
            "granted" => Change::Granted {
                owner: self.owner.clone()?,
                job_key: self.job_key.clone(),
                expires_at: self.expires_at?,
            },
            "renewed" => Change::Renewed { expires_at: self.expires_at? },
            "breaking" => Change::Breaking { expires_at: self.expires_at? },
            verb => {
                let outcome = Outcome::parse(verb)?;
                Change::Ended { status: LeaseStatus::Ended(outcome).into(), at: self.ended_at? }
            }
        };
        Some((key, token, change))
    }

    /// Whether a lease was granted.
    #[must_use]
    pub fn is_grant(&self) -> bool {
        &*self.kind == "lease.granted"
    }

    /// Whether it changes leases it does not name, so that what the page shows must be read anew: an outage of the
    /// server gives time to all who held one.
    #[must_use]
    pub fn changes_all(&self) -> bool {
        self.lease_key.is_none() && self.kind.contains("outage")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc as Shared;

    use domain::lease::{
        BreakRequested, Change as Told, Ended, Event, FencingToken, Granted, LeaseId, Origin, Renewed,
    };
    use domain::{Actor, JobKey, LeaseKey, Metadata, Owner, Reason, Span};

    use super::*;

    /// What the server would send for `change`.
    fn sent(change: Told) -> Line {
        let event = Event {
            at: Timestamp::from_micros(5),
            change,
            lease_key: LeaseKey::parse("nightly/report").unwrap(),
            actor: Shared::new(Actor::system("test")),
            request_id: None,
        };
        Line::parse(&serde_json::to_string(&event).unwrap()).unwrap()
    }

    #[test]
    fn every_event_of_a_lease_is_understood() {
        let fencing_token = FencingToken::new(7).unwrap();
        let lease_id = LeaseId::from(fencing_token);
        let owner = Owner::parse("worker-1").unwrap();
        let later = Timestamp::from_micros(9);
        let granted = sent(Told::Granted(Granted {
            lease_id,
            fencing_token,
            previous_token: None,
            owner: owner.clone(),
            job_key: Some(JobKey::parse("report").unwrap()),
            origin: Origin::Acquired,
            expires_at: later,
            ttl_us: Span::from_micros(4),
            max_hold_until: None,
            min_hold_until: None,
            lock_delay_us: Span::ZERO,
            subjects: Shared::from([]),
            metadata: Metadata::EMPTY,
        }));
        let holder: Arc<str> = Arc::from("worker-1");
        let change = Change::Granted { owner: holder, job_key: Some(Arc::from("report")), expires_at: later };
        assert_eq!(granted.change(), Some((&Arc::from("nightly/report"), 7, change)));

        let renewed = sent(Told::Renewed(Renewed {
            lease_id,
            fencing_token,
            expires_at: later,
            ttl_us: Span::from_micros(4),
            margin_us: Span::ZERO,
        }));
        assert_eq!(renewed.change().unwrap().2, Change::Renewed { expires_at: later });

        let reason = Reason::parse("stuck").unwrap();
        let breaking =
            sent(Told::Breaking(BreakRequested { lease_id, fencing_token, ends_at: later, expires_at: later, reason }));
        assert_eq!(breaking.change().unwrap().2, Change::Breaking { expires_at: later });

        let ended = Ended { lease_id, fencing_token, owner, ended_at: later, cooling_until: None, reason: None };
        for (told, status) in [
            (Told::Released(ended.clone()), Status::Released),
            (Told::Expired(ended.clone()), Status::Expired),
            (Told::Broken(ended.clone()), Status::Broken),
            (Told::Transferred(ended.clone()), Status::Transferred),
            (Told::Undelivered(ended), Status::Undelivered),
        ] {
            assert_eq!(sent(told).change().unwrap().2, Change::Ended { status, at: later });
        }
    }

    #[test]
    fn events_newer_than_the_page_are_passed_over() {
        let line = Line::parse(r#"{"at":"2026-07-03T20:41:39Z","kind":"gate.opened","gate":{"name":"x"}}"#).unwrap();
        assert_eq!(line.change(), None);
        assert!(!line.changes_all());
        assert_eq!(Line::parse("not json"), None);
    }
}
