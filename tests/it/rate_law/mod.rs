//! Tokens granted <= burst + rate x window, over every window; over a year, exactly that, to the token.

mod windows;
mod year;
