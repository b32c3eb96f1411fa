//! Small widgets and the words they are made of.

pub mod countdown;
pub mod counter;
pub mod numbers;
pub mod shapes;
pub mod times;
pub mod trend;
pub mod unreadable;

pub use countdown::Countdown;
pub use counter::{Counter, Counters};
pub use shapes::{Shape, ShapeSheet, StatusMark};
pub use trend::TrendLine;
pub use unreadable::Unreadable;
