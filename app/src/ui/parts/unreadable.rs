//! What stands where something could not be read.

use leptos::prelude::*;

use crate::api::ApiError;

/// What happened, what is safe, and how to go on.
#[component]
pub fn Unreadable(
    /// The words for what could not be read.
    title: &'static str,
    /// Why.
    error: ApiError,
    /// Where to try again.
    again: String,
) -> impl IntoView {
    view! {
        <div class="empty" role="alert">
            <h3>{title}</h3>
            <p>{error.message.into_owned()}</p>
            <p>"No lease is affected by this. " <a href=again>"Read again"</a></p>
        </div>
    }
}
