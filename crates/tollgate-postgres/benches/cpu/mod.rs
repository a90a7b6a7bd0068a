//! The time of a server's processes, for the benches of stores.

/// The time that a process and its children, also those that have ended, have used so far, in microseconds.
pub fn cpu(server: u32) -> u64 {
    let ids = std::fs::read_dir("/proc").expect("Linux").flatten();
    let used = ids.filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // After the name, in parentheses: the state, the parent, and ten fields further on the times in hundredths of a second.
        let fields = text.rsplit(')').next()?.split(' ').skip(2).map(|field| field.parse().unwrap_or(0));
        let fields: Vec<u64> = fields.collect();
        let ended = if id == server { fields[12] + fields[13] } else { 0 };
        (id == server || fields[0] == u64::from(server)).then(|| (fields[10] + fields[11] + ended) * 10_000)
    });
    used.sum()
}
