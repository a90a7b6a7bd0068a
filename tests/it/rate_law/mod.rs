//! Tokens granted <= burst + rate x window, over every window; over a year, exactly that, to the token.

mod sliding;
mod together;
mod windows;
mod year;
