//! Records of all kinds by the beginning of their names.

use app::api::exchange::Exchange;
use app::api::leases::ListRequest;
use app::api::records::{FindRequest, Record, RecordKind, Records as Found, RecordsBackend};
use app::api::values::PageSize;
use app::api::{ApiError, Pending};
use domain::Role;
use engine::Engine;
use engine::reading::Named;

use super::problems::of_fault;

/// How many of each kind, if the request does not say.
const DEFAULT: Option<PageSize> = PageSize::new(10);

/// The kinds of subjects that people look for without naming the kind.
const KINDS: [&str; 3] = ["customer:", "license:", "invoice:"];

/// Records.
pub(crate) struct Records {
    engine: Engine,
}

impl Records {
    pub(crate) const fn new(engine: Engine) -> Self {
        Self { engine }
    }

    async fn named(&self, of: Named, kind: RecordKind, prefix: String, limit: u32) -> Result<Vec<Record>, ApiError> {
        let names = self.engine.names(of, prefix, limit).await.map_err(of_fault)?;
        Ok(names.into_iter().map(|name| Record { kind, name, status: None, owner: None }).collect())
    }
}

impl RecordsBackend for Records {
    fn find<'a>(&'a self, exchange: &'a Exchange, request: FindRequest) -> Pending<'a, Found> {
        Box::pin(async move {
            let FindRequest { prefix, limit } = request;
            let caller = exchange.require(Role::Viewer)?;
            let list = ListRequest { prefix: Some(prefix.clone()), limit: limit.or(DEFAULT), ..ListRequest::default() };
            let (prefix, limit) = (String::from(prefix), list.limit.map_or(0, |limit| u32::from(limit.get())));
            // It waits until the read models have what was committed before; for the names as well.
            let listed = exchange.backends().leases.list(exchange, list).await?;
            let leases = listed.items.into_iter().map(|lease| Record {
                kind: RecordKind::Lease,
                name: lease.lease_key.to_string(),
                status: Some(lease.status),
                owner: Some(lease.owner.to_string()),
            });
            let mut items: Vec<Record> = leases.collect();
            // Owners, jobs and subjects are those of all keys: their names may tell of keys that the caller may not see.
            if caller.prefixes.is_empty() {
                items.extend(self.named(Named::Owner, RecordKind::Owner, prefix.clone(), limit).await?);
                items.extend(self.named(Named::Job, RecordKind::Job, prefix.clone(), limit).await?);
                let mut subjects = Vec::new();
                for kind in [""].into_iter().chain(KINDS) {
                    let room = limit.saturating_sub(u32::try_from(subjects.len()).unwrap_or(limit));
                    if room > 0 {
                        let prefix = format!("{kind}{prefix}");
                        subjects.extend(self.named(Named::Subject, RecordKind::Subject, prefix, room).await?);
                    }
                }
                items.append(&mut subjects);
            }
            Ok(Found { items, server_time: listed.server_time })
        })
    }
}
