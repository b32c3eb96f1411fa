//! The rows of the leases table as signals, one a row: a change redraws its row and no other.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use domain::Timestamp;
use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use crate::api::ApiError;
use crate::api::leases::{self, ListRequest};
use crate::api::page::Count;
use crate::api::values::PageSize;
use crate::ui::live::line::Line;
use crate::ui::live::rows::{Row, Step, step};

/// More rows than this, two pages' worth, are not kept by following: the list is read anew. Until then rows are only added,
/// since what fell off the end would be on no page.
const MOST: usize = 2 * PageSize::DEFAULT.get() as usize;

/// What one reading of the list brought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// In the order asked for.
    pub rows: Vec<Row>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
    /// How many rows there are on all pages.
    pub count: Option<Count>,
    /// It includes all lines of the timeline up to here.
    pub position: u64,
    /// The server's time.
    pub read_at: Timestamp,
}

impl Reading {
    /// Reads a page: on the server while rendering, or in the browser. Boxed, since it is waited for in several places, each of
    /// which would get its own copy.
    pub fn fetch(request: ListRequest) -> Pin<Box<dyn Future<Output = Result<Self, ApiError>> + Send>> {
        Box::pin(Self::read(request))
    }

    async fn read(request: ListRequest) -> Result<Self, ApiError> {
        let page = leases::list(request).await?;
        Ok(Self {
            rows: page.items.iter().map(Row::from).collect(),
            next: page.next,
            count: page.count,
            position: page.as_of.position,
            read_at: page.server_time,
        })
    }
}

/// One row and its signal.
#[derive(Clone)]
pub struct Entry {
    /// Its key, by which the table knows it.
    pub lease_key: Arc<str>,
    /// What it shows.
    pub row: ArcRwSignal<Row>,
}

impl Entry {
    fn new(row: Row) -> Self {
        Self { lease_key: row.lease_key.clone(), row: ArcRwSignal::new(row) }
    }
}

/// The table.
#[derive(Clone, Copy)]
pub struct Board {
    entries: RwSignal<Vec<Entry>>,
    next: RwSignal<Option<String>>,
    count: RwSignal<Option<Count>>,
    /// How many leases were granted that it does not show.
    fresh: RwSignal<u64>,
    /// Whether new leases appear in it: at its top.
    takes_new: bool,
    /// Whether it was kept from moving, so that it is to be read anew.
    is_due: StoredValue<bool>,
}

impl Board {
    /// A table of what was read.
    #[must_use]
    pub fn new(reading: Reading, takes_new: bool) -> Self {
        let entries = reading.rows.into_iter().map(Entry::new).collect();
        let (entries, next, fresh) = (RwSignal::new(entries), RwSignal::new(reading.next), RwSignal::new(0));
        Self { entries, next, count: RwSignal::new(reading.count), fresh, takes_new, is_due: StoredValue::new(false) }
    }

    /// The rows in order.
    #[must_use]
    pub fn entries(&self) -> Signal<Vec<Entry>> {
        self.entries.into()
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.read().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it was kept from taking or moving a row, so that it is to be read anew once it may.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_due.get_value()
    }

    /// How many leases were granted since it was read that it does not show: it shows some leases only, or in an order in
    /// which only the server knows their place.
    #[must_use]
    pub fn fresh(&self) -> Signal<u64> {
        self.fresh.into()
    }

    /// How many rows there were on all pages when it was read.
    #[must_use]
    pub fn count(&self) -> Signal<Option<Count>> {
        self.count.into()
    }

    /// Where the next page begins, if there is one.
    #[must_use]
    pub fn next(&self) -> Signal<Option<String>> {
        self.next.into()
    }

    /// Follows `lines`. False if they tell of more than the table can follow, so that it must be read anew. While the reader
    /// has a hand on it (`is_in_hand`), rows change but none comes or moves.
    #[must_use]
    pub fn follow(&self, lines: &[Line], is_in_hand: bool) -> bool {
        let takes_new = self.takes_new && !is_in_hand;
        let entries = self.entries.get_untracked();
        let known: BTreeMap<&str, &Entry> = entries.iter().map(|entry| (&*entry.lease_key, entry)).collect();
        let mut changed: BTreeMap<Arc<str>, Row> = BTreeMap::new();
        for line in lines {
            if line.changes_all() {
                return false;
            }
            let Some(key) = &line.lease_key else { continue };
            let current =
                changed.get(key).cloned().or_else(|| known.get(&**key).map(|entry| entry.row.get_untracked()));
            if current.is_none() && !takes_new {
                if line.is_grant() {
                    self.fresh.update(|fresh| *fresh += 1);
                    self.is_due.set_value(self.takes_new);
                }
                continue;
            }
            match step(current.as_ref(), line) {
                Step::Nothing => {}
                Step::Becomes(row) => drop(changed.insert(key.clone(), row)),
                Step::Missed => return false,
            }
        }
        let mut moved = Vec::new();
        for (key, row) in changed {
            match known.get(&*key) {
                Some(entry) => {
                    let granted_anew = entry.row.read_untracked().fencing_token != row.fencing_token;
                    entry.row.set(row);
                    if granted_anew && takes_new {
                        moved.push((*entry).clone());
                    } else if granted_anew && self.takes_new {
                        self.is_due.set_value(true);
                    }
                }
                None => moved.push(Entry::new(row)),
            }
        }
        if moved.is_empty() {
            return true;
        }
        let entries = arrange(entries, moved);
        let room = entries.len() <= MOST;
        self.entries.set(entries);
        room
    }

    /// Shows another reading in place of what was there. Rows that stay keep their signals. While the reader has a hand on it,
    /// rows only change.
    pub fn replace(&self, reading: Reading, is_in_hand: bool) {
        let old = self.entries.get_untracked();
        let known: BTreeMap<&str, &Entry> = old.iter().map(|entry| (&*entry.lease_key, entry)).collect();
        self.is_due.set_value(is_in_hand);
        if is_in_hand {
            for row in reading.rows {
                if let Some(entry) = known.get(&*row.lease_key).filter(|entry| *entry.row.read_untracked() != row) {
                    entry.row.set(row);
                }
            }
            return;
        }
        let entries: Vec<Entry> = reading
            .rows
            .into_iter()
            .map(|row| match known.get(&*row.lease_key) {
                Some(entry) => {
                    if *entry.row.read_untracked() != row {
                        entry.row.set(row);
                    }
                    (*entry).clone()
                }
                None => Entry::new(row),
            })
            .collect();
        if entries.iter().map(|entry| &entry.lease_key).ne(old.iter().map(|entry| &entry.lease_key)) {
            self.entries.set(entries);
        }
        self.next.set(reading.next);
        self.count.set(reading.count);
        self.fresh.set(0);
    }
}

/// The entries with those of `moved` where their rows belong now: newest grant first.
fn arrange(mut entries: Vec<Entry>, moved: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| moved.iter().all(|other| other.lease_key != entry.lease_key));
    for entry in moved {
        let acquired_at = entry.row.read_untracked().acquired_at;
        let at = entries.partition_point(|other| other.row.read_untracked().acquired_at > acquired_at);
        entries.insert(at, entry);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::leases::Status;

    fn line(json: &str) -> Line {
        Line::parse(json).unwrap()
    }

    fn granted(key: &str, token: u64, second: u64) -> Line {
        line(&format!(
            r#"{{"at":"2026-07-03T20:41:{second:02}Z","kind":"lease.granted","lease_key":"{key}",
                "fencing_token":{token},"owner":"w","expires_at":"2026-07-03T20:59:00Z"}}"#
        ))
    }

    fn released(key: &str, token: u64, second: u64) -> Line {
        let at = format!("2026-07-03T20:41:{second:02}Z");
        line(&format!(
            r#"{{"at":"{at}","kind":"lease.released","lease_key":"{key}","fencing_token":{token},"ended_at":"{at}"}}"#
        ))
    }

    fn empty(first_page: bool) -> Board {
        let reading = Reading { rows: Vec::new(), next: None, count: None, position: 0, read_at: Timestamp::EPOCH };
        Board::new(reading, first_page)
    }

    fn shown(board: Board) -> Vec<(String, u64, Status)> {
        let entries = board.entries.get_untracked();
        let rows = entries.iter().map(|entry| entry.row.get_untracked());
        rows.map(|row| (row.lease_key.to_string(), row.fencing_token, row.status)).collect()
    }

    #[test]
    fn leases_appear_at_the_top_and_a_row_changes_in_its_place() {
        Owner::new().with(|| {
            let board = empty(true);
            assert!(board.follow(&[granted("a", 1, 1), granted("b", 2, 2)], false));
            let before = board.entries.get_untracked();
            assert!(board.follow(&[released("a", 1, 3)], false));
            assert_eq!(shown(board), [("b".into(), 2, Status::Held), ("a".into(), 1, Status::Released)]);
            // Granted anew, it moves to the top with the signal it had.
            assert!(board.follow(&[granted("a", 3, 4)], false));
            assert_eq!(shown(board), [("a".into(), 3, Status::Held), ("b".into(), 2, Status::Held)]);
            assert_eq!(before[1].row.read_untracked().fencing_token, 3);
        });
    }

    #[test]
    fn many_lines_on_one_key_end_in_the_last_state() {
        Owner::new().with(|| {
            let board = empty(true);
            let lines = [granted("a", 1, 1), released("a", 1, 2), granted("a", 2, 2), released("a", 2, 3)];
            assert!(board.follow(&lines, false));
            assert_eq!(shown(board), [("a".into(), 2, Status::Released)]);
            assert!(board.follow(&lines, false), "lines that are already in do no harm");
            assert_eq!(shown(board), [("a".into(), 2, Status::Released)]);
        });
    }

    #[test]
    fn other_pages_follow_their_rows_and_count_new_leases() {
        Owner::new().with(|| {
            let board = empty(false);
            assert!(board.follow(&[granted("a", 1, 1), released("a", 1, 2)], false));
            assert!(board.is_empty());
            assert_eq!(board.fresh().get_untracked(), 1);
        });
    }

    #[test]
    fn while_the_reader_has_a_hand_on_it_rows_change_but_none_comes_or_moves() {
        Owner::new().with(|| {
            let board = empty(true);
            assert!(board.follow(&[granted("a", 1, 1), granted("b", 2, 2)], false));
            assert!(board.follow(&[released("a", 1, 3), granted("a", 3, 4), granted("c", 4, 5)], true));
            assert_eq!(shown(board), [("b".into(), 2, Status::Held), ("a".into(), 3, Status::Held)]);
            assert_eq!((board.fresh().get_untracked(), board.is_due()), (1, true));
            let row = |key: &str, token| {
                let board = empty(true);
                assert!(board.follow(&[granted(key, token, 5)], false));
                board.entries.get_untracked()[0].row.get_untracked()
            };
            let reading = |rows| Reading { rows, next: None, count: None, position: 9, read_at: Timestamp::EPOCH };
            board.replace(reading(vec![row("c", 4), row("a", 3), row("b", 5)]), true);
            assert_eq!(shown(board), [("b".into(), 5, Status::Held), ("a".into(), 3, Status::Held)]);
            assert!(board.is_due());
            board.replace(reading(vec![row("c", 4), row("a", 3), row("b", 5)]), false);
            assert_eq!((shown(board).len(), board.is_due()), (3, false));
        });
    }

    #[test]
    fn a_table_that_has_grown_too_long_is_read_anew() {
        Owner::new().with(|| {
            let board = empty(true);
            let lines: Vec<_> = (0..250).map(|n| granted(&format!("k{n}"), n + 1, n % 60)).collect();
            assert!(board.follow(&lines[..MOST], false));
            assert!(!board.follow(&lines[MOST..], false));
        });
    }

    #[test]
    fn what_cannot_be_followed_asks_for_another_reading() {
        Owner::new().with(|| {
            let board = empty(true);
            assert!(board.follow(&[granted("a", 1, 1)], false));
            assert!(!board.follow(&[released("a", 2, 2)], false));
            assert!(!board.follow(&[line(r#"{"at":"2026-07-03T20:41:39Z","kind":"server.outage"}"#)], false));
        });
    }

    #[test]
    fn another_reading_keeps_the_signals_of_rows_that_stay() {
        Owner::new().with(|| {
            let board = empty(true);
            assert!(board.follow(&[granted("a", 1, 1), granted("b", 2, 2)], false));
            let before = board.entries.get_untracked();
            let mut row = before[1].row.get_untracked();
            row.status = Status::Expired;
            let reading = Reading {
                rows: vec![row],
                next: Some("c".into()),
                count: None,
                position: 9,
                read_at: Timestamp::EPOCH,
            };
            board.replace(reading, false);
            assert_eq!(shown(board), [("a".into(), 1, Status::Expired)]);
            assert_eq!(before[1].row.read_untracked().status, Status::Expired);
            assert_eq!(board.next.get_untracked().as_deref(), Some("c"));
        });
    }
}
