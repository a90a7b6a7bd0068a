//! The CPU time of this process.

/// The unit of `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// The CPU time of all threads: fields 14 and 15 of a line with a second field that may contain spaces.
pub fn seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("the rest").split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}
