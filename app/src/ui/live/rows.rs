//! A table of leases that follows the events.

use std::sync::Arc;

use domain::Timestamp;
use serde::{Deserialize, Serialize};

use super::line::{Change, Line};
use crate::api::leases::{Lease, Status};

/// A lease as a table shows it: the last one granted on its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The key; a table has one row for each.
    pub lease_key: Arc<str>,
    /// The job it is for.
    pub job_key: Option<Arc<str>>,
    /// Who holds or held it.
    pub owner: Arc<str>,
    /// The status the server last told.
    pub status: Status,
    /// The greatest token of the key.
    pub fencing_token: u64,
    /// When it was granted.
    pub acquired_at: Timestamp,
    /// When it ends, or ended.
    pub expires_at: Timestamp,
    /// The last change.
    pub updated_at: Timestamp,
}

impl Row {
    /// The status at `now`: a lease whose time is up is over, whether or not anybody has told so yet.
    #[must_use]
    pub fn status_at(&self, now: Option<Timestamp>) -> Status {
        self.status.at(self.expires_at, now)
    }
}

impl From<&Lease> for Row {
    fn from(lease: &Lease) -> Self {
        Self {
            lease_key: lease.lease_key.clone().into(),
            job_key: lease.job_key.clone().map(Into::into),
            owner: lease.owner.clone().into(),
            status: lease.status,
            fencing_token: lease.fencing_token.get(),
            acquired_at: lease.acquired_at,
            expires_at: lease.expires_at,
            updated_at: lease.updated_at,
        }
    }
}

/// What a line does to the row of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it is old, or about a lease that the table does not show.
    Nothing,
    /// The row is this now.
    Becomes(Row),
    /// The row is behind: a grant was missed, so the table must be read anew.
    Missed,
}

/// What `line` does to the row its key has now. A line that the row already reflects does nothing, so lines may be
/// applied again, and a list read in the middle of a stream may be followed by lines it already contains.
#[must_use]
pub fn step(row: Option<&Row>, line: &Line) -> Step {
    let Some((key, token, change)) = line.change() else { return Step::Nothing };
    if let Change::Granted { owner, job_key, expires_at } = change {
        return if row.is_some_and(|row| row.fencing_token >= token) {
            Step::Nothing
        } else {
            Step::Becomes(Row {
                lease_key: key.clone(),
                job_key,
                owner,
                status: Status::Held,
                fencing_token: token,
                acquired_at: line.at,
                expires_at,
                updated_at: line.at,
            })
        };
    }
    let Some(row) = row else { return Step::Nothing };
    if row.fencing_token < token {
        return Step::Missed;
    }
    if row.fencing_token > token || !row.status.is_alive() || line.at < row.updated_at {
        return Step::Nothing;
    }
    let mut next = row.clone();
    next.updated_at = line.at;
    match change {
        Change::Granted { .. } => {}
        Change::Renewed { expires_at } => next.expires_at = expires_at,
        Change::Breaking { expires_at } => {
            next.status = Status::Breaking;
            next.expires_at = expires_at;
        }
        Change::Ended { status, at } => {
            next.status = status;
            next.expires_at = at;
        }
    }
    if next == *row { Step::Nothing } else { Step::Becomes(next) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_micros(1_783_111_200_000_000 + second * 1_000_000)
    }

    fn line(kind: &str, at: i64, token: u64) -> Line {
        Line {
            at: second(at),
            kind: Arc::from(kind),
            lease_key: Some(Arc::from("k")),
            fencing_token: Some(token),
            owner: Some(Arc::from("w")),
            job_key: None,
            expires_at: Some(second(at + 30)),
            ended_at: Some(second(at)),
        }
    }

    fn becomes(row: Option<&Row>, line: &Line) -> Row {
        match step(row, line) {
            Step::Becomes(row) => row,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lease_is_granted_renewed_broken_and_over() {
        let held = becomes(None, &line("lease.granted", 0, 1));
        assert_eq!((held.status, held.expires_at), (Status::Held, second(30)));
        let renewed = becomes(Some(&held), &line("lease.renewed", 10, 1));
        assert_eq!((renewed.expires_at, renewed.updated_at), (second(40), second(10)));
        let breaking = becomes(Some(&renewed), &line("lease.breaking", 20, 1));
        assert_eq!((breaking.status, breaking.expires_at), (Status::Breaking, second(50)));
        let over = becomes(Some(&breaking), &line("lease.broken", 25, 1));
        assert_eq!((over.status, over.expires_at), (Status::Broken, second(25)));
        let again = becomes(Some(&over), &line("lease.granted", 26, 2));
        assert_eq!((again.status, again.fencing_token), (Status::Held, 2));
    }

    #[test]
    fn what_the_row_already_reflects_changes_nothing() {
        let lines = [
            line("lease.granted", 0, 1),
            line("lease.renewed", 10, 1),
            line("lease.released", 12, 1),
            line("lease.granted", 13, 2),
        ];
        let mut row = becomes(None, &lines[0]);
        for line in &lines[1..] {
            row = becomes(Some(&row), line);
        }
        for line in &lines {
            assert_eq!(step(Some(&row), line), Step::Nothing, "{}", line.kind);
        }
    }

    #[test]
    fn an_end_is_final_and_a_missed_grant_is_noticed() {
        let held = becomes(None, &line("lease.granted", 0, 1));
        let over = becomes(Some(&held), &line("lease.expired", 30, 1));
        assert_eq!(step(Some(&over), &line("lease.renewed", 31, 1)), Step::Nothing);
        assert_eq!(step(Some(&held), &line("lease.renewed", 31, 2)), Step::Missed);
        assert_eq!(step(None, &line("lease.renewed", 31, 2)), Step::Nothing);
    }

    #[test]
    fn a_lease_whose_time_is_up_is_over_without_being_told() {
        let held = becomes(None, &line("lease.granted", 0, 1));
        assert_eq!(held.status_at(Some(second(29))), Status::Held);
        assert_eq!(held.status_at(Some(second(30))), Status::Expired);
        assert_eq!(held.status_at(None), Status::Held);
    }
}
