//! What the server and the browser share: the API's shapes and server functions, and the console.
//!
//! Compiled twice: for the server with `ssr`, for the browser with `hydrate`.

pub mod api;
pub mod ui;
