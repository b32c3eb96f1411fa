//! Leases.

use std::sync::Arc;

use app::api::exchange::Exchange;
use app::api::leases::{
    AcquireManyRequest, AcquireRequest, AttendRequest, BatchAnswer, BatchOperation, BatchRequest, BatchResult,
    BatchResults, BreakRequest, GetRequest, HistoryRequest, Inspection, Intervention, Key, Lease, Leases as Granted,
    LeasesBackend, ListRequest, OneOfMany, Quarantine, QuarantineRequest, ReleaseRequest, Released, RenewRequest,
    Renewal, Sort, Status, TransferRequest, ValidateRequest, Validity, Waiter,
};
use app::api::page::{AsOf, Count, Page};
use app::api::values::{Millis, PageSize};
use app::api::{ApiError, Pending};
use domain::lease::{
    Acquire, Change, Command, Event, FencingToken, KeyReading, LeaseReading, LeaseStatus, Outcome, Reply, Rules, Wait,
    WaiterId,
};
use domain::{LeaseKey, Metadata, Owner, Role, Timestamp};
use engine::reading::{HistoryQuery, ListQuery, MOST_COUNTED, SortField};
use engine::timeline::Position;
use engine::{Done, Engine};

use super::problems::{of_fault, of_range, of_refusal};
use super::{call, cursor, note};

/// Leases.
pub(crate) struct Leases {
    engine: Engine,
}

impl Leases {
    pub(crate) const fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// Carries out a command on one key for a caller who may do what `role` may.
    async fn run(
        &self,
        exchange: &Exchange,
        role: Role,
        key: LeaseKey,
        command: Command,
    ) -> Result<Done<Reply>, ApiError> {
        let call = call(exchange, exchange.require_on(role, &key)?);
        let mut done = self.engine.run(call, key, command).await.map_err(of_fault)?;
        note(exchange, &mut done);
        Ok(done)
    }
}

impl LeasesBackend for Leases {
    fn acquire<'a>(&'a self, exchange: &'a Exchange, request: AcquireRequest) -> Pending<'a, Lease> {
        Box::pin(async move {
            // Who may not touch the key is not told what else is wrong.
            exchange.require_on(Role::Worker, &request.lease_key)?;
            let (key, command) = acquire(request, self.engine.rules())?;
            lease(self.run(exchange, Role::Worker, key, command).await?)
        })
    }

    fn renew<'a>(&'a self, exchange: &'a Exchange, request: RenewRequest) -> Pending<'a, Lease> {
        Box::pin(async move {
            exchange.require_on(Role::Worker, &request.lease_key)?;
            let (key, command) = renew(request, self.engine.rules())?;
            lease(self.run(exchange, Role::Worker, key, command).await?)
        })
    }

    fn release<'a>(&'a self, exchange: &'a Exchange, request: ReleaseRequest) -> Pending<'a, Released> {
        Box::pin(async move {
            let ReleaseRequest { lease_key, lease_id } = request;
            let done = self.run(exchange, Role::Worker, lease_key, Command::Release { lease_id }).await?;
            released(done.value, done.server_time)
        })
    }

    fn transfer<'a>(&'a self, exchange: &'a Exchange, request: TransferRequest) -> Pending<'a, Lease> {
        Box::pin(async move {
            let TransferRequest { lease_key, lease_id, to_owner } = request;
            let command = Command::Transfer { lease_id, to_owner };
            lease(self.run(exchange, Role::Operator, lease_key, command).await?)
        })
    }

    fn break_lease<'a>(&'a self, exchange: &'a Exchange, request: BreakRequest) -> Pending<'a, Lease> {
        Box::pin(async move {
            let BreakRequest { lease_key, reason, grace_ms, lease_id } = request;
            exchange.require_on(Role::Operator, &lease_key)?;
            let rules = self.engine.rules();
            let grace = match grace_ms {
                Some(Millis(millis)) => rules.grace(millis).map_err(of_range("grace_ms"))?,
                None => rules.grace_default,
            };
            let command = Command::Break { reason, grace, lease_id };
            lease(self.run(exchange, Role::Operator, lease_key, command).await?)
        })
    }

    fn quarantine<'a>(&'a self, exchange: &'a Exchange, request: QuarantineRequest) -> Pending<'a, Key> {
        Box::pin(async move {
            let QuarantineRequest { lease_key, reason } = request;
            key(self.run(exchange, Role::Operator, lease_key, Command::Quarantine { reason }).await?)
        })
    }

    fn lift<'a>(&'a self, exchange: &'a Exchange, request: QuarantineRequest) -> Pending<'a, Key> {
        Box::pin(async move {
            let QuarantineRequest { lease_key, reason } = request;
            key(self.run(exchange, Role::Operator, lease_key, Command::Lift { reason }).await?)
        })
    }

    fn validate<'a>(&'a self, exchange: &'a Exchange, request: ValidateRequest) -> Pending<'a, Validity> {
        Box::pin(async move {
            let ValidateRequest { lease_key, fencing_token } = request;
            let command = Command::Validate { token: fencing_token };
            match self.run(exchange, Role::Viewer, lease_key, command).await?.value {
                Reply::Verdict { verdict, current_token } => Ok(Validity { verdict, current_token }),
                _ => Err(unexpected("validate")),
            }
        })
    }

    fn acquire_many<'a>(&'a self, exchange: &'a Exchange, request: AcquireManyRequest) -> Pending<'a, Granted> {
        Box::pin(async move {
            let caller = exchange.require(Role::Worker)?;
            for one in &request.leases {
                exchange.require_on(Role::Worker, &one.lease_key)?;
            }
            let requests = several(request, self.engine.rules())?;
            let call = call(exchange, caller);
            let mut done = self.engine.acquire_many(call, requests).await.map_err(of_fault)?;
            note(exchange, &mut done);
            let Reply::Leases(readings) = done.value else { return Err(unexpected("acquire-many")) };
            let leases = readings.into_iter().map(|reading| shape(reading, done.server_time)).collect();
            Ok(Granted { leases })
        })
    }

    fn batch<'a>(&'a self, exchange: &'a Exchange, request: BatchRequest) -> Pending<'a, BatchResults> {
        Box::pin(async move {
            let caller = exchange.require(Role::Worker)?;
            let rules = self.engine.rules();
            if request.operations.is_empty() {
                return Err(ApiError::out_of_range("operations", "must name at least one"));
            }
            let mut commands = Vec::with_capacity(request.operations.len());
            for (index, operation) in request.operations.into_iter().enumerate() {
                let (key, name) = match &operation {
                    BatchOperation::Acquire(acquire) => (&acquire.lease_key, "acquire"),
                    BatchOperation::Renew(renew) => (&renew.lease_key, "renew"),
                    BatchOperation::Release(release) => (&release.lease_key, "release"),
                };
                exchange.require_on(Role::Worker, key)?;
                let command = match operation {
                    BatchOperation::Acquire(request) => match request.wait_ms {
                        Some(Millis(1..)) => {
                            Err(ApiError::out_of_range("wait_ms", "must be 0 in a batch, which never waits"))
                        }
                        _ => acquire(*request, rules),
                    },
                    BatchOperation::Renew(request) => renew(request, rules),
                    BatchOperation::Release(ReleaseRequest { lease_key, lease_id }) => {
                        Ok((lease_key, Command::Release { lease_id }))
                    }
                };
                commands.push(command.map_err(|error| error.below(&format!("operations[{index}].{name}")))?);
            }
            let mut done = self.engine.batch(call(exchange, caller), commands).await.map_err(of_fault)?;
            note(exchange, &mut done);
            let now = done.server_time;
            let results = done.value.into_iter().map(|result| match result {
                Ok(reply @ Reply::Released { .. }) => {
                    released(reply, now).map(|released| BatchResult::Ok(BatchAnswer::Released(Box::new(released))))
                }
                Ok(Reply::Lease(reading)) => Ok(BatchResult::Ok(BatchAnswer::Lease(Box::new(shape(reading, now))))),
                Ok(_) => Err(unexpected("batch")),
                Err(refusal) => Ok(BatchResult::Error(of_refusal(refusal))),
            });
            Ok(BatchResults { results: results.collect::<Result<_, _>>()? })
        })
    }

    fn get<'a>(&'a self, exchange: &'a Exchange, request: GetRequest) -> Pending<'a, Key> {
        Box::pin(async move { key(self.run(exchange, Role::Viewer, request.lease_key, Command::Get).await?) })
    }

    fn inspect<'a>(&'a self, exchange: &'a Exchange, request: GetRequest) -> Pending<'a, Inspection> {
        Box::pin(async move {
            let done = self.run(exchange, Role::Viewer, request.lease_key.clone(), Command::Get).await?;
            let Reply::Key(reading) = &done.value else { return Err(unexpected("inspect")) };
            let waiters = reading.queue.iter().take(Inspection::MOST_WAITERS).map(|waiter| Waiter {
                owner: waiter.request.owner.clone(),
                since: waiter.since,
                deadline: waiter.deadline,
            });
            let waiters = waiters.collect();
            let background = self.engine.background(&request.lease_key).await.map_err(of_fault)?;
            let renewals = background.renewals.into_iter();
            let recent_renewals =
                renewals.map(|(at, margin)| Renewal { at, margin_ms: margin.as_millis().unsigned_abs() }).collect();
            let interventions = background.interventions.iter().map(|(position, event)| intervention(*position, event));
            let interventions = interventions.collect::<Result<_, _>>()?;
            Ok(Inspection { key: key(done)?, waiters, recent_renewals, interventions })
        })
    }

    fn attend<'a>(&'a self, exchange: &'a Exchange, request: AttendRequest) -> Pending<'a, Key> {
        Box::pin(async move {
            let AttendRequest { lease_key, lease_id, wait_ms } = request;
            let caller = exchange.require_on(Role::Viewer, &lease_key)?;
            let Millis(millis) = wait_ms.unwrap_or(Millis(0));
            let wait = self.engine.rules().wait(millis).map_err(of_range("wait_ms"))?;
            let call = call(exchange, caller);
            key(self.engine.attend(call, lease_key, lease_id, wait).await.map_err(of_fault)?)
        })
    }

    fn list<'a>(&'a self, exchange: &'a Exchange, request: ListRequest) -> Pending<'a, Page<Lease>> {
        Box::pin(async move {
            let caller = exchange.require(Role::Viewer)?;
            let ListRequest { prefix, owner, job_key, subject, status, sort, limit, cursor, count } = request;
            let sort = order(sort.unwrap_or_default());
            let query = ListQuery {
                // An ended status is asked for to see all that ended so, not only what is still the last of its key.
                current_only: status.is_none_or(Status::is_alive),
                prefix: prefix.map(String::from),
                allowed_prefixes: caller.prefixes.iter().map(ToString::to_string).collect(),
                owner,
                job_key,
                subject,
                status: status.map(lease_status),
                sort,
                limit: u32::from(limit.unwrap_or(PageSize::DEFAULT).get()),
                cursor: cursor.map(|cursor| cursor::of_list(&cursor, sort)).transpose()?,
                count: count.unwrap_or(false),
            };
            let listed = self.engine.list(query).await.map_err(of_fault)?;
            let next = listed.page.next.as_ref().map(|next| cursor::write_list(next, sort)).transpose()?;
            Ok(page(listed.page, next, listed.server_time))
        })
    }

    fn history<'a>(&'a self, exchange: &'a Exchange, request: HistoryRequest) -> Pending<'a, Page<Lease>> {
        Box::pin(async move {
            let HistoryRequest { lease_key, limit, cursor } = request;
            exchange.require_on(Role::Viewer, &lease_key)?;
            let query = HistoryQuery {
                lease_key,
                before: cursor.map(|cursor| cursor::of_history(&cursor)).transpose()?,
                limit: u32::from(limit.unwrap_or(PageSize::DEFAULT).get()),
            };
            let listed = self.engine.history(query).await.map_err(of_fault)?;
            let last = listed.page.next.as_ref().and_then(|next| u64::try_from(next.token).ok());
            let next = last.and_then(FencingToken::new).map(cursor::write_history);
            Ok(page(listed.page, next, listed.server_time))
        })
    }
}

// From requests to commands.

fn acquire(request: AcquireRequest, rules: &Rules) -> Result<(LeaseKey, Command), ApiError> {
    let AcquireRequest {
        lease_key,
        owner,
        job_key,
        ttl_ms,
        wait_ms,
        min_hold_ms,
        max_hold_ms,
        lock_delay_ms,
        subjects,
        metadata,
    } = request;
    let wait = match wait_ms {
        None => None,
        Some(Millis(millis)) => Some(rules.wait(millis).map_err(of_range("wait_ms"))?).filter(|wait| !wait.is_zero()),
    };
    let one = OneOfMany { lease_key, job_key, ttl_ms, min_hold_ms, max_hold_ms, lock_delay_ms, subjects, metadata };
    let (key, request) = terms(one, owner, None, rules)?;
    // The engine gives the waiter its name.
    let wait = wait.map(|time| Wait { waiter: WaiterId(0), time });
    Ok((key, Command::Acquire { request, wait }))
}

/// The terms of a grant; `ttl` is for a request that names none.
fn terms(one: OneOfMany, owner: Owner, ttl: Option<Millis>, rules: &Rules) -> Result<(LeaseKey, Acquire), ApiError> {
    let OneOfMany { lease_key, job_key, ttl_ms, min_hold_ms, max_hold_ms, lock_delay_ms, subjects, metadata } = one;
    if lease_key.is_reserved() {
        let prefixes = LeaseKey::RESERVED_PREFIXES.join(" and ");
        return Err(ApiError::invalid("lease_key", format_args!("is reserved, as are all below {prefixes}")));
    }
    let request = Acquire {
        owner,
        job_key,
        ttl: match ttl_ms.or(ttl) {
            Some(Millis(millis)) => rules.ttl(millis).map_err(of_range("ttl_ms"))?,
            None => rules.ttl_default,
        },
        min_hold: match min_hold_ms {
            Some(Millis(millis)) => rules.min_hold(millis).map_err(of_range("min_hold_ms"))?,
            None => rules.min_hold_default,
        },
        max_hold: match max_hold_ms {
            Some(Millis(millis)) => Some(rules.max_hold(millis).map_err(of_range("max_hold_ms"))?),
            None => rules.max_hold_default,
        },
        lock_delay: match lock_delay_ms {
            Some(Millis(millis)) => rules.lock_delay(millis).map_err(of_range("lock_delay_ms"))?,
            None => rules.lock_delay_default,
        },
        subjects: Arc::from(subjects),
        metadata: metadata.unwrap_or(Metadata::EMPTY),
    };
    Ok((lease_key, request))
}

fn several(request: AcquireManyRequest, rules: &Rules) -> Result<Vec<(LeaseKey, Acquire)>, ApiError> {
    let AcquireManyRequest { owner, ttl_ms, leases } = request;
    if leases.is_empty() {
        return Err(ApiError::out_of_range("leases", "must name at least one"));
    }
    // Checked by itself, so that the field at fault is this one and not each lease's.
    if let Some(Millis(millis)) = ttl_ms {
        rules.ttl(millis).map_err(of_range("ttl_ms"))?;
    }
    let mut seen = std::collections::HashSet::with_capacity(leases.len());
    let mut requests = Vec::with_capacity(leases.len());
    for (index, one) in leases.into_iter().enumerate() {
        let below = |error: ApiError| error.below(&format!("leases[{index}]"));
        if !seen.insert(one.lease_key.clone()) {
            return Err(below(ApiError::invalid("lease_key", "is named twice")));
        }
        requests.push(terms(one, owner.clone(), ttl_ms, rules).map_err(below)?);
    }
    Ok(requests)
}

fn renew(request: RenewRequest, rules: &Rules) -> Result<(LeaseKey, Command), ApiError> {
    let RenewRequest { lease_key, lease_id, ttl_ms, shorten } = request;
    let ttl = ttl_ms.map(|Millis(millis)| rules.ttl(millis).map_err(of_range("ttl_ms"))).transpose()?;
    Ok((lease_key, Command::Renew { lease_id, ttl, shorten: shorten.unwrap_or(false) }))
}

const fn lease_status(status: Status) -> LeaseStatus {
    match status {
        Status::Held => LeaseStatus::Held,
        Status::Breaking => LeaseStatus::Breaking,
        Status::Released => LeaseStatus::Ended(Outcome::Released),
        Status::Expired => LeaseStatus::Ended(Outcome::Expired),
        Status::Broken => LeaseStatus::Ended(Outcome::Broken),
        Status::Transferred => LeaseStatus::Ended(Outcome::Transferred),
        Status::Undelivered => LeaseStatus::Ended(Outcome::Undelivered),
    }
}

const fn order(sort: Sort) -> engine::reading::Sort {
    let (field, descending) = match sort {
        Sort::LeaseKey => (SortField::LeaseKey, false),
        Sort::LeaseKeyDown => (SortField::LeaseKey, true),
        Sort::AcquiredAt => (SortField::AcquiredAt, false),
        Sort::AcquiredAtDown => (SortField::AcquiredAt, true),
        Sort::ExpiresAt => (SortField::ExpiresAt, false),
        Sort::ExpiresAtDown => (SortField::ExpiresAt, true),
        Sort::UpdatedAt => (SortField::UpdatedAt, false),
        Sort::UpdatedAtDown => (SortField::UpdatedAt, true),
    };
    engine::reading::Sort { field, descending }
}

// From replies to answers.

fn lease(done: Done<Reply>) -> Result<Lease, ApiError> {
    match done.value {
        Reply::Lease(reading) => Ok(shape(reading, done.server_time)),
        _ => Err(unexpected("a command on a lease")),
    }
}

fn shape(reading: LeaseReading, now: Timestamp) -> Lease {
    Lease::at(reading.lease_key, &reading.lease, now)
}

fn released(reply: Reply, now: Timestamp) -> Result<Released, ApiError> {
    match reply {
        Reply::Released { lease, outcome } => Ok(Released { lease: shape(lease, now), outcome }),
        _ => Err(unexpected("release")),
    }
}

fn key(done: Done<Reply>) -> Result<Key, ApiError> {
    let now = done.server_time;
    let Reply::Key(KeyReading { state, queue_length, .. }) = done.value else {
        return Err(unexpected("a command on a key"));
    };
    Ok(Key {
        status: state.status(now),
        lease: state.lease.as_ref().map(|lease| Lease::at(state.lease_key.clone(), lease, now)),
        cooling_until: state.cooling_until.filter(|_| state.is_cooling(now)),
        quarantine: state.quarantine.map(|quarantine| Quarantine {
            since: quarantine.since,
            reason: quarantine.reason,
            by: quarantine.by,
        }),
        queue_length: queue_length as u64,
        server_time: now,
        lease_key: state.lease_key,
    })
}

fn intervention(position: Position, stored: &str) -> Result<Intervention, ApiError> {
    let event: Event = serde_json::from_str(stored).map_err(|error| {
        tracing::error!(%error, position = position.0, "an intervention cannot be read");
        ApiError::internal()
    })?;
    let kind = event.change.kind().to_owned();
    let owner = event.change.ended().map(|(_, ended)| ended.owner.clone());
    let reason = match event.change {
        Change::Breaking(breaking) => Some(breaking.reason),
        Change::Quarantined { reason } | Change::Lifted { reason } => Some(reason),
        change => change.ended().and_then(|(_, ended)| ended.reason.clone()),
    };
    Ok(Intervention { position: position.0.unsigned_abs(), at: event.at, kind, by: event.actor, reason, owner })
}

fn page(page: engine::reading::Page, next: Option<String>, now: Timestamp) -> Page<Lease> {
    Page {
        items: page.rows.into_iter().map(|row| Lease::at(row.lease_key, &row.lease, now)).collect(),
        next,
        count: page.count.map(|count| Count { at_least: count.min(MOST_COUNTED), is_all: count <= MOST_COUNTED }),
        as_of: AsOf { position: page.as_of.0.unsigned_abs(), time: now },
        server_time: now,
    }
}

/// The engine answered something else than what was asked: ours to mend.
fn unexpected(what: &str) -> ApiError {
    tracing::error!(what, "the engine gave another kind of answer");
    ApiError::internal()
}
