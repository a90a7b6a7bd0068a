//! The script and the line in memory agree to the integer.
