//! What the explored worlds brought about, so that a model in which nothing happens cannot pass.

use std::collections::BTreeSet;
use std::sync::Mutex;

use domain::lease::{Answer, Change, Decision, KeyState, Origin, Reply};

/// The kinds of events, answers and wake-ups seen.
#[derive(Default)]
pub(crate) struct Coverage(Mutex<BTreeSet<String>>);

impl Coverage {
    pub(crate) fn decision(&self, decision: &Decision) {
        for event in &decision.settled.events {
            match &event.change {
                Change::Granted(granted) => self.see(match granted.origin {
                    Origin::Acquired => "lease.granted to a newcomer",
                    Origin::Waited => "lease.granted to a waiter",
                    Origin::Transferred => "lease.granted by transfer",
                }),
                change => self.see(change.kind()),
            }
        }
        for woken in &decision.settled.woken {
            self.see(match &woken.result {
                Ok(_) => "woken with a lease",
                Err(refusal) => refusal.code(),
            });
        }
        self.see(match &decision.answer {
            Answer::Waiting => "waiting",
            Answer::Done(Reply::Leases(_)) => "both keys taken",
            Answer::Done(_) => "done",
            Answer::Refused(refusal) => refusal.code(),
        });
    }

    pub(crate) fn outage(&self, before: &KeyState, after: &KeyState) {
        self.see(if before == after { "an outage changed nothing" } else { "an outage extended a lease" });
    }

    pub(crate) fn seen(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().clone()
    }

    fn see(&self, what: &str) {
        let mut seen = self.0.lock().unwrap();
        if !seen.contains(what) {
            seen.insert(what.to_owned());
        }
    }
}
