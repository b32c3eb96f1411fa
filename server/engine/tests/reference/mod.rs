//! Leases, done naively: a second opinion on every answer.
//!
//! Written from the specification and not from the rules, with plain numbers, texts, lists and loops, so that what it has
//! in common with the product are only the words in which a command is asked. It remembers every grant for ever and works
//! everything else out anew each time. Instants and lengths are microseconds.

use domain::lease::{Acquire, Answer, Command, KeyReading, Lease, LeaseReading, Refusal, Reply, Rules, Verdict};
use domain::{Span, Timestamp};

/// A lease as anybody sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeaseSeen {
    pub(crate) key: String,
    pub(crate) token: u64,
    pub(crate) owner: String,
    pub(crate) job: Option<String>,
    pub(crate) status: &'static str,
    pub(crate) acquired_at: i64,
    pub(crate) expires_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) ttl: i64,
    pub(crate) renewals: u32,
    pub(crate) max_hold_until: Option<i64>,
    pub(crate) subjects: Vec<String>,
    pub(crate) metadata: String,
}

/// A key as anybody sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeySeen {
    pub(crate) status: &'static str,
    pub(crate) lease: Option<LeaseSeen>,
    pub(crate) cooling_until: Option<i64>,
    /// Since when, why, by whom.
    pub(crate) quarantine: Option<(i64, String, String)>,
    pub(crate) queue_length: usize,
}

/// What a caller is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Lease(LeaseSeen),
    Leases(Vec<LeaseSeen>),
    Released(LeaseSeen, &'static str),
    Key(KeySeen),
    Verdict(&'static str, Option<u64>),
    Nothing,
    Wait,
    Refused(No),
}

/// Why not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum No {
    /// `held`, `breaking` or `cooling`.
    Busy(&'static str, Busy),
    /// Since when and why.
    Quarantined(i64, String),
    WaitTimeout(Option<Busy>),
    QueueFull,
    KeysBusy(Vec<(String, No)>),
    /// How it ended; who holds the key now, and since when.
    LeaseLost(&'static str, Option<(String, i64)>),
    LeaseUnknown,
    KeyUnknown,
    NotHeld,
    NotQuarantined,
}

/// Who is in the way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Busy {
    pub(crate) owner: String,
    pub(crate) since: i64,
    pub(crate) expires_at: i64,
    pub(crate) queue_length: usize,
}

/// One grant, for ever.
#[derive(Clone, Debug)]
struct Grant {
    key: String,
    token: u64,
    asked: Terms,
    acquired_at: i64,
    expires_at: i64,
    updated_at: i64,
    renewals: u32,
    max_hold_until: Option<i64>,
    min_hold_until: i64,
    break_ends_at: Option<i64>,
    end: Option<(&'static str, i64)>,
    forgotten: bool,
}

#[derive(Clone, Debug)]
struct Terms {
    owner: String,
    job: Option<String>,
    ttl: i64,
    min_hold: i64,
    max_hold: Option<i64>,
    lock_delay: i64,
    subjects: Vec<String>,
    metadata: String,
}

#[derive(Clone, Debug)]
struct Waiter {
    key: String,
    id: u64,
    terms: Terms,
    deadline: i64,
}

/// All keys.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    waiters_per_key: usize,
    last_token: u64,
    grants: Vec<Grant>,
    waiters: Vec<Waiter>,
    /// Key, since when, why, by whom.
    quarantines: Vec<(String, i64, String, String)>,
    /// Who was woken by the command under way.
    woken: Vec<(u64, Told)>,
}

impl Reference {
    /// Nothing has happened; the next token is one more than `last_token`.
    pub(crate) fn new(rules: &Rules, last_token: u64) -> Self {
        Self {
            waiters_per_key: rules.waiters_per_key,
            last_token,
            grants: Vec::new(),
            waiters: Vec::new(),
            quarantines: Vec::new(),
            woken: Vec::new(),
        }
    }

    /// Does a command on one key: what the caller is told, and which waiters are woken with what.
    pub(crate) fn run(
        &mut self,
        now: Timestamp,
        key: &str,
        command: &Command,
        by: &str,
        is_live: &dyn Fn(u64) -> bool,
    ) -> (Told, Vec<(u64, Told)>) {
        let now = now.as_micros();
        self.settle(key, now, is_live);
        let told = match command {
            Command::Acquire { request, wait } => {
                let wait = wait.map(|wait| (wait.waiter.0, wait.time.as_micros()));
                self.acquire(key, now, terms(request), wait)
            }
            Command::Renew { lease_id, ttl, shorten } => {
                self.renew(key, now, lease_id.token().get(), ttl.map(Span::as_micros), *shorten)
            }
            Command::Release { lease_id } => self.release(key, now, lease_id.token().get()),
            Command::Transfer { lease_id, to_owner } => {
                self.transfer(key, now, lease_id.token().get(), to_owner.as_str())
            }
            Command::Break { grace, lease_id, .. } => {
                self.break_lease(key, now, grace.as_micros(), lease_id.map(|id| id.token().get()))
            }
            Command::Quarantine { reason } => match self.quarantine_of(key) {
                Some(refusal) => Told::Refused(refusal),
                None => {
                    self.quarantines.push((key.into(), now, reason.as_str().into(), by.into()));
                    self.settle(key, now, is_live);
                    Told::Key(self.see(key, now))
                }
            },
            Command::Lift { .. } => match self.quarantines.iter().position(|(of, ..)| of == key) {
                None => Told::Refused(No::NotQuarantined),
                Some(place) => {
                    self.quarantines.remove(place);
                    Told::Key(self.see(key, now))
                }
            },
            Command::Undelivered { lease_id } => {
                if let Some(grant) =
                    self.held(key, now).filter(|&grant| self.grants[grant].token == lease_id.token().get())
                {
                    self.end(grant, "undelivered", now, now);
                }
                Told::Nothing
            }
            Command::Get if self.last(key).is_none() && self.quarantine_of(key).is_none() => {
                Told::Refused(No::KeyUnknown)
            }
            Command::Get => Told::Key(self.see(key, now)),
            Command::Validate { token } => {
                let current = self.last(key).map(|grant| self.grants[grant].token);
                let held = self.held(key, now).is_some();
                let verdict = match current {
                    Some(current) if token.get() > current => "unknown",
                    Some(current) if token.get() == current && held => "current",
                    Some(_) => "stale",
                    None => "unknown",
                };
                Told::Verdict(verdict, current)
            }
            Command::Settle => Told::Nothing,
        };
        // Whatever the command set free is given to whoever waits for it.
        self.settle(key, now, is_live);
        (told, std::mem::take(&mut self.woken))
    }

    /// Takes all keys or none.
    pub(crate) fn run_many(
        &mut self,
        now: Timestamp,
        requests: &[(String, Acquire)],
        is_live: &dyn Fn(u64) -> bool,
    ) -> (Told, Vec<(u64, Told)>) {
        let now = now.as_micros();
        for (key, _) in requests {
            self.settle(key, now, is_live);
        }
        let busy: Vec<_> =
            requests.iter().filter_map(|(key, _)| Some((key.clone(), self.obstacle(key, now)?))).collect();
        let told = if busy.is_empty() {
            Told::Leases(requests.iter().map(|(key, request)| self.grant(key, now, terms(request))).collect())
        } else {
            Told::Refused(No::KeysBusy(busy))
        };
        (told, std::mem::take(&mut self.woken))
    }

    /// The service was away from `from` to `to`.
    pub(crate) fn outage(&mut self, from: Timestamp, to: Timestamp, grace: Span) {
        let (from, to) = (from.as_micros(), to.as_micros());
        for grant in &mut self.grants {
            let alive = grant.end.is_none() && grant.acquired_at <= from && from < grant.expires_at;
            if alive {
                let given = grant.asked.ttl.min(grace.as_micros()).min(to - from);
                let mut until = to + given;
                for limit in [grant.max_hold_until, grant.break_ends_at].into_iter().flatten() {
                    until = until.min(limit);
                }
                grant.expires_at = grant.expires_at.max(until);
            }
        }
    }

    /// A grant is retained away: it can no longer be asked about by its id. The last of each key stays.
    pub(crate) fn forget(&mut self, token: u64) {
        if let Some(place) = self.grants.iter().position(|grant| grant.token == token) {
            self.grants[place].forgotten = self.last(&self.grants[place].key) != Some(place);
        }
    }

    /// A server that restarts has no waiters.
    pub(crate) fn restart(&mut self) {
        self.waiters.clear();
    }

    /// Tokens go on after `number`, if they have not come so far.
    #[allow(dead_code, reason = "not every test that has a reference restarts a store")]
    pub(crate) fn tokens_after(&mut self, number: u64) {
        self.last_token = self.last_token.max(number);
    }

    /// A key as it is shown, settled or not.
    pub(crate) fn see(&self, key: &str, now: i64) -> KeySeen {
        let cooling_until = self.last(key).and_then(|grant| self.cooling_until(&self.grants[grant], now));
        let quarantine = self.quarantines.iter().find(|(of, ..)| of == key);
        KeySeen {
            status: match (quarantine, self.obstacle_of_lease(key, now)) {
                (Some(_), _) => "quarantined",
                (None, Some((status, _))) => status,
                (None, None) => "free",
            },
            lease: self.last(key).map(|grant| see_grant(&self.grants[grant], now)),
            cooling_until,
            quarantine: quarantine.map(|(_, since, reason, by)| (*since, reason.clone(), by.clone())),
            queue_length: self.queue_length(key),
        }
    }

    fn settle(&mut self, key: &str, now: i64, is_live: &dyn Fn(u64) -> bool) {
        if let Some(last) = self.last(key)
            && let Some((how, at)) = ending(&self.grants[last], now)
            && self.grants[last].end.is_none()
        {
            self.end(last, how, at, now);
        }
        let mut stay = Vec::new();
        let mut late = Vec::new();
        for waiter in std::mem::take(&mut self.waiters) {
            if waiter.key != key {
                stay.push(waiter);
            } else if !is_live(waiter.id) {
                // Gone without a word.
            } else if let Some(refusal) = self.quarantine_of(key) {
                self.woken.push((waiter.id, Told::Refused(refusal)));
            } else if now >= waiter.deadline {
                late.push(waiter.id);
            } else {
                stay.push(waiter);
            }
        }
        self.waiters = stay;
        for id in late {
            let busy = self.obstacle_of_lease(key, now).map(|(_, busy)| busy);
            self.woken.push((id, Told::Refused(No::WaitTimeout(busy))));
        }
        if self.obstacle(key, now).is_none()
            && let Some(first) = self.waiters.iter().position(|waiter| waiter.key == key)
        {
            let waiter = self.waiters.remove(first);
            let lease = self.grant(key, now, waiter.terms);
            self.woken.push((waiter.id, Told::Lease(lease)));
        }
    }

    fn acquire(&mut self, key: &str, now: i64, terms: Terms, wait: Option<(u64, i64)>) -> Told {
        let Some(refusal) = self.obstacle(key, now) else { return Told::Lease(self.grant(key, now, terms)) };
        let quarantined = matches!(refusal, No::Quarantined(..));
        match wait {
            Some((_, time)) if time > 0 && !quarantined && self.queue_length(key) >= self.waiters_per_key => {
                Told::Refused(No::QueueFull)
            }
            Some((id, time)) if time > 0 && !quarantined => {
                self.waiters.push(Waiter { key: key.into(), id, terms, deadline: now + time });
                Told::Wait
            }
            _ => Told::Refused(refusal),
        }
    }

    fn renew(&mut self, key: &str, now: i64, token: u64, ttl: Option<i64>, shorten: bool) -> Told {
        let Some(grant) = self.held(key, now).filter(|&grant| self.grants[grant].token == token) else {
            return Told::Refused(self.lost(key, now, token));
        };
        let grant = &mut self.grants[grant];
        grant.asked.ttl = ttl.unwrap_or(grant.asked.ttl);
        let mut until = now + grant.asked.ttl;
        for limit in [grant.max_hold_until, grant.break_ends_at].into_iter().flatten() {
            until = until.min(limit);
        }
        if shorten || until > grant.expires_at {
            grant.expires_at = until;
        }
        grant.renewals += 1;
        grant.updated_at = now;
        Told::Lease(see_grant(grant, now))
    }

    fn release(&mut self, key: &str, now: i64, token: u64) -> Told {
        if let Some(grant) = self.held(key, now).filter(|&grant| self.grants[grant].token == token) {
            self.end(grant, "released", now, now);
        }
        let nobody_since = self.last(key).is_some_and(|last| self.grants[last].token == token);
        match self.known(key, token).map(|grant| (see_grant(grant, now), grant.end)) {
            Some((lease, Some(("released", _)))) => Told::Released(lease, "released"),
            Some((lease, Some(("expired", _)))) if nobody_since => Told::Released(lease, "expired"),
            _ => Told::Refused(self.lost(key, now, token)),
        }
    }

    fn transfer(&mut self, key: &str, now: i64, token: u64, to_owner: &str) -> Told {
        let Some(grant) = self.held(key, now).filter(|&grant| self.grants[grant].token == token) else {
            return Told::Refused(self.lost(key, now, token));
        };
        if let Some(refusal) = self.quarantine_of(key) {
            return Told::Refused(refusal);
        }
        if self.grants[grant].break_ends_at.is_some() {
            return Told::Refused(self.obstacle(key, now).unwrap_or(No::LeaseUnknown));
        }
        let old = self.grants[grant].clone();
        self.end(grant, "transferred", now, now);
        let asked = Terms { owner: to_owner.into(), ..old.asked };
        self.grant(key, now, asked);
        // On the terms of the old lease, not on new ones.
        let new = self.grants.last_mut().unwrap();
        new.expires_at = old.expires_at;
        new.max_hold_until = old.max_hold_until;
        new.min_hold_until = old.min_hold_until;
        Told::Lease(see_grant(new, now))
    }

    fn break_lease(&mut self, key: &str, now: i64, grace: i64, token: Option<u64>) -> Told {
        let Some(grant) = self.held(key, now) else { return Told::Refused(No::NotHeld) };
        if let Some(token) = token.filter(|&token| token != self.grants[grant].token) {
            return Told::Refused(self.lost(key, now, token));
        }
        if grace == 0 {
            self.end(grant, "broken", now, now);
        } else {
            let grant = &mut self.grants[grant];
            if grant.break_ends_at.is_none_or(|first| now + grace < first) {
                grant.break_ends_at = Some(now + grace);
                grant.expires_at = grant.expires_at.min(now + grace);
                grant.updated_at = now;
            }
        }
        Told::Lease(see_grant(&self.grants[grant], now))
    }

    fn grant(&mut self, key: &str, now: i64, asked: Terms) -> LeaseSeen {
        self.last_token += 1;
        let max_hold_until = asked.max_hold.map(|hold| now + hold);
        let grant = Grant {
            key: key.into(),
            token: self.last_token,
            acquired_at: now,
            expires_at: max_hold_until.map_or(now + asked.ttl, |until| until.min(now + asked.ttl)),
            updated_at: now,
            renewals: 0,
            max_hold_until,
            min_hold_until: now + asked.min_hold,
            break_ends_at: None,
            end: None,
            forgotten: false,
            asked,
        };
        let seen = see_grant(&grant, now);
        self.grants.push(grant);
        seen
    }

    fn end(&mut self, grant: usize, how: &'static str, at: i64, now: i64) {
        let grant = &mut self.grants[grant];
        grant.end = Some((how, at));
        grant.expires_at = at;
        grant.updated_at = now;
    }

    fn last(&self, key: &str) -> Option<usize> {
        self.grants.iter().rposition(|grant| grant.key == key)
    }

    fn held(&self, key: &str, now: i64) -> Option<usize> {
        self.last(key).filter(|&last| ending(&self.grants[last], now).is_none())
    }

    fn known(&self, key: &str, token: u64) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.key == key && grant.token == token && !grant.forgotten)
    }

    fn lost(&self, key: &str, now: i64, token: u64) -> No {
        match self.known(key, token).and_then(|grant| grant.end) {
            None => No::LeaseUnknown,
            Some((how, _)) => {
                let holder = self.held(key, now).map(|grant| &self.grants[grant]);
                No::LeaseLost(how, holder.map(|grant| (grant.asked.owner.clone(), grant.acquired_at)))
            }
        }
    }

    fn queue_length(&self, key: &str) -> usize {
        self.waiters.iter().filter(|waiter| waiter.key == key).count()
    }

    fn quarantine_of(&self, key: &str) -> Option<No> {
        let (_, since, reason, _) = self.quarantines.iter().find(|(of, ..)| of == key)?;
        Some(No::Quarantined(*since, reason.clone()))
    }

    fn obstacle(&self, key: &str, now: i64) -> Option<No> {
        self.quarantine_of(key)
            .or_else(|| self.obstacle_of_lease(key, now).map(|(status, busy)| No::Busy(status, busy)))
    }

    fn obstacle_of_lease(&self, key: &str, now: i64) -> Option<(&'static str, Busy)> {
        let grant = &self.grants[self.last(key)?];
        let (status, since, expires_at) = match ending(grant, now) {
            None if grant.break_ends_at.is_some() => ("breaking", grant.acquired_at, grant.expires_at),
            None => ("held", grant.acquired_at, grant.expires_at),
            Some((_, at)) => ("cooling", at, self.cooling_until(grant, now)?),
        };
        let owner = grant.asked.owner.clone();
        Some((status, Busy { owner, since, expires_at, queue_length: self.queue_length(key) }))
    }

    fn cooling_until(&self, grant: &Grant, now: i64) -> Option<i64> {
        let until = match ending(grant, now)? {
            ("released", _) => grant.min_hold_until,
            ("expired" | "broken", at) => at + grant.asked.lock_delay,
            _ => return None,
        };
        Some(until).filter(|&until| now < until)
    }
}

/// How and when a grant ended, noticed or not.
fn ending(grant: &Grant, now: i64) -> Option<(&'static str, i64)> {
    match grant.end {
        Some(end) => Some(end),
        None if now < grant.expires_at => None,
        None if grant.break_ends_at == Some(grant.expires_at) => Some(("broken", grant.expires_at)),
        None => Some(("expired", grant.expires_at)),
    }
}

fn see_grant(grant: &Grant, now: i64) -> LeaseSeen {
    LeaseSeen {
        key: grant.key.clone(),
        token: grant.token,
        owner: grant.asked.owner.clone(),
        job: grant.asked.job.clone(),
        status: match ending(grant, now) {
            Some((how, _)) => how,
            None if grant.break_ends_at.is_some() => "breaking",
            None => "held",
        },
        acquired_at: grant.acquired_at,
        expires_at: grant.expires_at,
        updated_at: grant.updated_at,
        ttl: grant.asked.ttl,
        renewals: grant.renewals,
        max_hold_until: grant.max_hold_until,
        subjects: grant.asked.subjects.clone(),
        metadata: grant.asked.metadata.clone(),
    }
}

fn terms(request: &Acquire) -> Terms {
    Terms {
        owner: request.owner.as_str().into(),
        job: request.job_key.as_ref().map(|job| job.as_str().into()),
        ttl: request.ttl.as_micros(),
        min_hold: request.min_hold.as_micros(),
        max_hold: request.max_hold.map(Span::as_micros),
        lock_delay: request.lock_delay.as_micros(),
        subjects: request.subjects.iter().map(|subject| subject.as_str().into()).collect(),
        metadata: request.metadata.as_str().into(),
    }
}

// The product's answers in the same words, for comparison. `now` is the server time of the answer.

/// A key as the product shows it.
pub(crate) fn see_key(reading: &KeyReading, now: Timestamp) -> KeySeen {
    let key = &reading.state;
    // An end that nobody has recorded yet cools the key as well.
    let due = key.lease.as_ref().filter(|lease| lease.ended.is_none() && !lease.is_alive(now));
    let cooling_until = due.map_or(key.cooling_until, |lease| lease.cooling_after(lease.ending()));
    KeySeen {
        status: key.status(now).as_str(),
        lease: key.lease.as_ref().map(|lease| see_lease(key.lease_key.as_str(), lease, now)),
        cooling_until: cooling_until.filter(|until| now < *until).map(Timestamp::as_micros),
        quarantine: key.quarantine.as_ref().map(|quarantine| {
            (quarantine.since.as_micros(), quarantine.reason.as_str().into(), quarantine.by.id.as_ref().into())
        }),
        queue_length: reading.queue_length,
    }
}

/// A lease as the product shows it.
pub(crate) fn see_lease(key: &str, lease: &Lease, now: Timestamp) -> LeaseSeen {
    LeaseSeen {
        key: key.into(),
        token: lease.token.get(),
        owner: lease.owner.as_str().into(),
        job: lease.job_key.as_ref().map(|job| job.as_str().into()),
        status: lease.status(now).as_str(),
        acquired_at: lease.acquired_at.as_micros(),
        expires_at: lease.expires_at.as_micros(),
        updated_at: lease.updated_at.as_micros(),
        ttl: lease.ttl.as_micros(),
        renewals: lease.renewals,
        max_hold_until: lease.max_hold_until.map(Timestamp::as_micros),
        subjects: lease.subjects.iter().map(|subject| subject.as_str().into()).collect(),
        metadata: lease.metadata.as_str().into(),
    }
}

/// An answer of the product.
pub(crate) fn told(answer: &Answer, now: Timestamp) -> Told {
    match answer {
        Answer::Done(reply) => told_reply(reply, now),
        Answer::Refused(refusal) => Told::Refused(told_refusal(refusal)),
        Answer::Waiting => Told::Wait,
    }
}

/// What the product answers when it does not refuse.
pub(crate) fn told_reply(reply: &Reply, now: Timestamp) -> Told {
    let see = |reading: &LeaseReading| see_lease(reading.lease_key.as_str(), &reading.lease, now);
    match reply {
        Reply::Lease(reading) => Told::Lease(see(reading)),
        Reply::Leases(readings) => Told::Leases(readings.iter().map(see).collect()),
        Reply::Released { lease, outcome } => Told::Released(
            see(lease),
            match outcome {
                domain::lease::ReleaseOutcome::Released => "released",
                domain::lease::ReleaseOutcome::Expired => "expired",
            },
        ),
        Reply::Key(reading) => Told::Key(see_key(reading, now)),
        Reply::Verdict { verdict, current_token } => {
            let verdict = match verdict {
                Verdict::Current => "current",
                Verdict::Stale => "stale",
                Verdict::Unknown => "unknown",
            };
            Told::Verdict(verdict, current_token.map(|token| token.get()))
        }
        Reply::Nothing => Told::Nothing,
    }
}

/// Why the product refuses.
pub(crate) fn told_refusal(refusal: &Refusal) -> No {
    let busy = |busy: &domain::lease::Busy| Busy {
        owner: busy.owner.as_str().into(),
        since: busy.since.as_micros(),
        expires_at: busy.expires_at.as_micros(),
        queue_length: busy.queue_length,
    };
    match refusal {
        Refusal::Held(told) => No::Busy("held", busy(told)),
        Refusal::Breaking(told) => No::Busy("breaking", busy(told)),
        Refusal::Cooling(told) => No::Busy("cooling", busy(told)),
        Refusal::Quarantined(quarantine) => {
            No::Quarantined(quarantine.since.as_micros(), quarantine.reason.as_str().into())
        }
        Refusal::WaitTimeout(told) => No::WaitTimeout(told.as_ref().map(busy)),
        Refusal::QueueFull { .. } => No::QueueFull,
        Refusal::KeysBusy(keys) => {
            No::KeysBusy(keys.iter().map(|key| (key.lease_key.as_str().into(), told_refusal(&key.refusal))).collect())
        }
        Refusal::LeaseLost { reason, holder } => No::LeaseLost(
            reason.as_str(),
            holder.as_ref().map(|(owner, since)| (owner.as_str().into(), since.as_micros())),
        ),
        Refusal::LeaseUnknown => No::LeaseUnknown,
        Refusal::KeyUnknown => No::KeyUnknown,
        Refusal::NotHeld => No::NotHeld,
        Refusal::NotQuarantined => No::NotQuarantined,
    }
}
