//! Cursors: where a page ended, as text that means something to this server only.

use app::api::ApiError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::lease::FencingToken;
use engine::reading::{Cursor, Sort};
use engine::timeline::Position;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Of {
    descending: bool,
    at: Cursor,
}

/// The text of a list's cursor.
///
/// # Errors
/// `internal` if it cannot be written.
pub(super) fn write_list(at: &Cursor, sort: Sort) -> Result<String, ApiError> {
    let of = Of { descending: sort.descending, at: at.clone() };
    serde_json::to_vec(&of).map(|json| URL_SAFE_NO_PAD.encode(json)).map_err(|_| ApiError::internal())
}

/// Reads a list's cursor.
///
/// # Errors
/// `cursor_invalid` if it was not given out, or for a list in another order.
pub(super) fn of_list(text: &str, sort: Sort) -> Result<Cursor, ApiError> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
    let of: Of = serde_json::from_slice(&json).map_err(|_| bad())?;
    if of.at.field != sort.field || of.descending != sort.descending {
        return Err(ApiError::invalid("cursor", "belongs to a list in another order"));
    }
    Ok(of.at)
}

/// The text of a history's cursor.
pub(super) fn write_history(before: FencingToken) -> String {
    URL_SAFE_NO_PAD.encode(before.get().to_be_bytes())
}

/// Reads a history's cursor.
///
/// # Errors
/// `cursor_invalid` if it was not given out.
pub(super) fn of_history(text: &str) -> Result<FencingToken, ApiError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
    let number = bytes.try_into().map(u64::from_be_bytes).map_err(|_| bad())?;
    FencingToken::new(number).ok_or_else(bad)
}

/// The text of a timeline's cursor.
pub(super) fn write_timeline(before: Position) -> String {
    URL_SAFE_NO_PAD.encode(before.0.to_be_bytes())
}

/// Reads a timeline's cursor.
///
/// # Errors
/// `cursor_invalid` if it was not given out.
pub(super) fn of_timeline(text: &str) -> Result<Position, ApiError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
    let number = bytes.try_into().map(i64::from_be_bytes).map_err(|_| bad())?;
    if number > 0 { Ok(Position(number)) } else { Err(bad()) }
}

fn bad() -> ApiError {
    ApiError::invalid("cursor", "is not the next of a page")
}

#[cfg(test)]
mod tests {
    use engine::reading::SortField;

    use super::*;

    #[test]
    fn a_cursor_is_good_for_the_order_it_was_given_out_for() {
        let at = Cursor { field: SortField::ExpiresAt, value: -5, lease_key: "k/\u{e9}".to_owned(), token: 7 };
        let sort = Sort { field: SortField::ExpiresAt, descending: true };
        let text = write_list(&at, sort).unwrap();
        assert_eq!(of_list(&text, sort).unwrap(), at);
        assert!(of_list(&text, Sort { descending: false, ..sort }).is_err());
        assert!(of_list(&text, Sort { field: SortField::LeaseKey, ..sort }).is_err());
        assert!(of_list("nonsense!", sort).is_err());
    }

    #[test]
    fn a_historys_cursor_is_read_back() {
        let token = FencingToken::new(1_783_111_299_469_980).unwrap();
        assert_eq!(of_history(&write_history(token)).unwrap(), token);
        assert!(of_history("AAAAAAAAAAA").is_err());
    }
}
