//! The CPU time of this process.

use std::fs;

/// The unit of `/proc/self/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// The CPU time of all threads: in nanoseconds if there is one thread, which is as of when it last slept, else in ticks.
pub fn seconds() -> f64 {
    let read = |path: &str| fs::read_to_string(path).expect("Linux");
    let threads = fs::read_dir("/proc/self/task").expect("Linux").count();
    if threads == 1 {
        let stat = read("/proc/self/schedstat");
        let nanos = stat.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok());
        return nanos.expect("a number") * 1e-9;
    }
    // Fields 14 and 15 of a line with a second field that may contain spaces.
    let stat = read("/proc/self/stat");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("the rest").split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}
