//! The program as a user runs it: traces in all formats, malformed lines, messages, exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    /// An empty folder for the test of this name.
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_size")).args(arguments).current_dir(&self.0).output().unwrap()
    }
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn last_line(output: &Output) -> String {
    printed(output).lines().last().unwrap_or_default().to_owned()
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn has_all(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
}

const QUOTA: [&str; 2] = ["--quota", "1/s, burst 1"];

/// Three calls at 10 s, 10.5 s and 11 s of two keys. One quota of one token per second lets them wait for 0, 0.5 and
/// 1 s.
#[test]
fn one_trace_in_many_formats() {
    let folder = Folder::new("formats");
    folder.write("trace.csv", "cost,instant,key\n1,10,ann\n1,10.5,bob\n1,11,ann\n");
    folder.write("bare.csv", "instant\n10\n10.5\n11\n");
    folder.write(
        "dates.csv",
        "Instant, Key\n2026-11-23T07:00:10Z, a\n2026-11-23 07:00:10.5, b\n2026-11-23T08:00:11+01:00, a\n",
    );
    folder.write(
        "trace.jsonl",
        "{\"instant\":10,\"key\":\"ann\",\"cost\":1}\n\n{\"instant\":\"10.5\",\"key\":17,\"more\":[]}\n{\"key\":\"\\u0061nn\",\"instant\":11}\n",
    );
    for name in ["trace.csv", "bare.csv", "dates.csv", "trace.jsonl"] {
        let output = folder.run(&[&[name], &QUOTA[..]].concat());
        assert_eq!(last_line(&output), "size: rate=1/s burst=1 wait_p99_ms=1000.000 refused=0", "{name}: {output:?}");
    }
    for name in ["trace.csv", "dates.csv", "trace.jsonl"] {
        let output = folder.run(&[&[name, "--per-key"], &QUOTA[..]].concat());
        assert_eq!(last_line(&output), "size: rate=1/s burst=1 wait_p99_ms=0.000 refused=0", "{name}: {output:?}");
    }
}

#[test]
fn access_logs_are_spread_over_their_seconds() {
    let folder = Folder::new("logs");
    let line = |host: &str, second: u32| {
        format!("{host} - - [10/Oct/2000:13:55:{second} -0700] \"GET / HTTP/1.1\" 200 12 \"-\" \"curl [8]\"\n")
    };
    let log = [line("::1", 36), line("10.0.0.1", 37), line("::1", 36), line("::1", 36), line("::1", 36)].concat();
    folder.write("access.log", log);
    let run = |more: &[&str]| last_line(&folder.run(&[&["access.log", "--quota", "4/s, burst 1"], more].concat()));
    assert_eq!(run(&[]), "size: rate=4/s burst=1 wait_p99_ms=0.000 refused=0");
    assert_eq!(run(&["--no-spread"]), "size: rate=4/s burst=1 wait_p99_ms=750.000 refused=0");
    let remarks = error(&folder.run(&["access.log", "--quota", "4/s"]));
    assert!(remarks.contains("1 times a call stands behind a later one"), "{remarks}");
}

/// Three calls of one client and one of another, in formats with more columns than the Combined Log Format has.
#[test]
fn the_client_of_an_access_log_is_recognised_or_named() {
    let folder = Folder::new("columns");
    let log = |line: fn(&str) -> String| ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1"].map(line).concat();
    const REST: &str = r#"[17/May/2015:10:00:03 +0000] "GET /a?b=[1] HTTP/1.1" 200 1015 "-" "a \"b\" 1.2.3.4""#;
    folder.write("common.log", log(|client| format!("{client} - - {REST}\n")));
    folder.write("names.log", log(|client| format!("{client}.example.com - ann {REST}\n")));
    folder.write("vhost.log", log(|client| format!("www.example.net:443 {client} - - {REST}\n")));
    folder.write("vhost_names.log", log(|client| format!("www.example.net:443 {client}.example.com - - {REST}\n")));
    folder.write("balancer.log", log(|client| format!("{client} - 172.31.0.100 - - {REST}\n")));
    folder.write(
        "forwarded.log",
        log(|client| format!("10.0.0.9 - - {REST} \"198.51.100.{}, {client}\"\n", client.len())),
    );
    folder.write("names_forwarded.log", log(|client| format!("proxy - - {REST} \"{client}\"\n")));
    folder.write(
        "alb.log",
        [1, 2, 3, 4].map(|call| {
            let client = if call == 3 { "[2001:db8::2]:80".to_owned() } else { format!("192.0.2.1:{call}") };
            format!("http 2018-07-02T22:23:00.18664{call}Z app/lb/0 {client} 10.0.0.1:80 0.000 \"GET http://a:80/\" \"curl\" -\n")
        }).concat(),
    );
    let run = |name: &str, more: &[&str]| {
        folder.run(&[&[name, "--per-key", "--quota", "1/h, burst 2", "--max-wait", "0s"], more].concat())
    };
    let of_clients = |output: &Output| {
        assert!(printed(output).starts_with("trace: 4 calls, 2 keys, 4 tokens"), "{output:?}");
        assert_eq!(last_line(output), "size: rate=1/h burst=2 wait_p99_ms=0.000 refused=1", "{output:?}");
    };
    for name in ["common.log", "names.log", "vhost.log"] {
        of_clients(&run(name, &[]));
    }
    for (name, column, doubt) in [
        ("vhost_names.log", "2", "column 1 (`www.example.net:443`) or column 2 (`192.0.2.1.example.com`)"),
        ("balancer.log", "1", "column 1 (`192.0.2.1`) or column 3 (`172.31.0.100`)"),
        ("forwarded.log", "10", "column 1 (`10.0.0.9`) or column 10 (`198.51.100.9, 192.0.2.1`)"),
        ("names_forwarded.log", "10", "column 1 (`proxy`) or column 10 (`192.0.2.1`)"),
        ("alb.log", "4", "column 4 (`192.0.2.1:1`) or column 5 (`10.0.0.1:80`)"),
    ] {
        let refused = run(name, &[]);
        let text = format!(
            "size: --per-key needs the client of each call: {doubt} may be the client: name it with --key-column\n"
        );
        assert_eq!((refused.status.code(), printed(&refused).as_str()), (Some(2), ""), "{refused:?}");
        assert!(error(&refused).ends_with(&text), "{refused:?}");
        of_clients(&run(name, &["--key-column", column]));
        let output = folder.run(&[&[name], &QUOTA[..]].concat());
        // One quota for all needs no client.
        assert!(printed(&output).starts_with("trace: 4 calls, 1 key, "), "{output:?}");
    }
    assert!(!error(&run("alb.log", &["--key-column", "4"])).contains("spread"), "its times are not whole seconds");
    has_all(&error(&run("common.log", &["--key-column", "77"])), &["column 77 is missing: the line has 9 columns"]);
    folder.write("a.csv", "instant\n1\n");
    assert!(error(&run("a.csv", &["--key-column", "1"])).contains("--key-column is for access logs"));
}

#[test]
fn malformed_lines_are_counted_and_shown() {
    let folder = Folder::new("malformed");
    let mut csv = b"instant,key,cost\n1,ann,1\nnoon,ann,1\n2,ann,-3\n3,ann\n4,\xff,1\n".to_vec();
    csv.extend(b"x,ann,1\ny,ann,1\nz,ann,1\n5,ann,1\n");
    folder.write("bad.csv", csv);
    let output = folder.run(&[&["bad.csv"], &QUOTA[..]].concat());
    let remarks = error(&output);
    assert!(output.status.success());
    assert_eq!(
        remarks.lines().take(3).collect::<Vec<_>>(),
        [
            "7 lines are malformed",
            "  line 3: `noon` is no instant: write seconds such as 12.5, or a timestamp such as 2026-11-23T07:45:11.5Z",
            "  line 4: `-3` is no cost: write a whole number of tokens from 0 to 281474976710656",
        ]
    );
    has_all(
        &remarks,
        &["line 5: the column `cost` is missing", "line 6: not UTF-8", "line 7: `x`", "and 2 more", "left out"],
    );
    assert!(printed(&output).starts_with("trace: 2 calls, 1 key, 2 tokens in 4.000 s"), "{output:?}");

    let strict = folder.run(&[&["bad.csv", "--strict"], &QUOTA[..]].concat());
    assert_eq!((strict.status.code(), strict.stdout.len()), (Some(1), 0));
    assert!(error(&strict).contains("line 3: `noon`"));

    folder.write("bad.jsonl", "{\"instant\":1}\n{\"key\":\"ann\"}\n[2]\n{\"instant\":3,\"cost\":1.5}\n");
    let remarks = error(&folder.run(&[&["bad.jsonl"], &QUOTA[..]].concat()));
    has_all(
        &remarks,
        &["3 lines", "line 2: missing field `instant`", "line 3: ", "line 4: `1.5` is no cost", "\"instant\":12.5"],
    );

    folder.write("bad.log", "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET /\" 200 1\n::1 - - [10/Okt/2000:13:55:36 -0700] \"GET /\" 200 1\nhello\n");
    let remarks = error(&folder.run(&[&["bad.log"], &QUOTA[..]].concat()));
    has_all(&remarks, &["line 2: `10/Okt/2000:13:55:36 -0700` is no time of a log", "line 3: `hello` is no log line"]);
}

#[test]
fn bad_input_is_named_with_what_to_write() {
    let folder = Folder::new("bad_input");
    folder.write("nothing.csv", "");
    folder.write("empty.csv", "instant,key\n");
    folder.write("headless.csv", "2026-11-23T07:00:10Z\n2026-11-23T07:00:11Z\n");
    folder.write("odd.csv", "time,user\n1,ann\n");
    folder.write("keyless.csv", "instant\n1\n");
    folder.write("millis.csv", "instant\n1700000000123\n");
    folder.write("keys.csv", "instant,key\n1,ann\n");
    let cases: [(&[&str], &str); 17] = [
        (&["headless.csv", "--wait-p99", "1s"], "`2026-11-23T07:00:10Z`, names no column `instant`"),
        (&["keys.csv", "--per-key", "--quota", "9/s, initial 0"], "initial"),
        (&["gone.csv", "--wait-p99", "1s"], "cannot open the trace `gone.csv`: No such file"),
        (&["nothing.csv", "--wait-p99", "1s"], "the trace is empty: write a header"),
        (&["empty.csv", "--wait-p99", "1s"], "the trace has no calls: write at least one line"),
        (&["odd.csv", "--wait-p99", "1s"], "`time,user`, names no column `instant`: write a header such as"),
        (&["millis.csv", "--wait-p99", "1s"], "say with --unit ms, us or ns"),
        (&["keyless.csv", "--wait-p99", "1s", "--per-key"], "add a column or a field `key`"),
        (&["keyless.csv"], "say what is good enough, such as --wait-p99 50ms"),
        (&["keyless.csv", "--refuse", "1%"], "add --max-wait 1s or --wait-p99 50ms"),
        (&["keyless.csv", "--wait-p99", "50"], "`50` is no duration: write a number and a unit, such as 50ms"),
        (&["keyless.csv", "--refuse", "many"], "`many` is no share of the calls: write 0.1% or 0.001"),
        (&["keyless.csv", "--quota", "100"], "`100` is no rate such as `100/s`"),
        (&["keyless.csv", "--quota", "manual 9"], "has no rate: write one, such as"),
        (&["keyless.csv", "--quota", "9/day@Mars"], "`Mars` is no time zone"),
        (&["keyless.csv", "--quota", "0/s, burst 1"], "amount"),
        (&[], "<TRACE>"),
    ];
    for (arguments, message) in cases {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(error(&output).contains(message), "{arguments:?}: {}", error(&output));
    }
}

#[test]
fn the_search_says_what_it_chose_and_always_the_same() {
    let folder = Folder::new("search");
    let arguments =
        ["--demo", "burst", "--events", "1000", "--wait-p99", "1s", "--max-burst", "100", "--write", "trace.csv"];
    let first = folder.run(&arguments);
    assert_eq!(last_line(&first), "size: rate=890/s burst=100 wait_p99_ms=1000.000 refused=0");
    assert!(printed(&first).contains("\"890/s, burst 100\" is chosen: 890/s is the smallest rate that meets the goal"));
    let second = folder.run(&arguments);
    assert_eq!(printed(&first), printed(&second));
    let written = folder.run(&["trace.csv", "--wait-p99", "1s", "--max-burst", "100"]);
    assert_eq!(printed(&first), printed(&written), "a trace that was written is the same trace");
}

#[test]
fn a_goal_that_no_quota_meets_fails() {
    let folder = Folder::new("goals");
    let demo = ["--demo", "burst", "--events", "1000", "--max-wait", "0s", "--refuse", "1%"];
    let none = "size: rate=none burst=none wait_p99_ms=none refused=none";
    let output = folder.run(&[&demo[..], &["--max-burst", "989"]].concat());
    assert_eq!((output.status.code(), last_line(&output)), (Some(1), none.to_owned()));
    let output = folder.run(&[&demo[..], &["--quota", "5/s, burst 980"]].concat());
    assert_eq!((output.status.code(), last_line(&output)), (Some(1), none.to_owned()));

    // The last line has the quota with the smallest rate that meets the goal, and then the smallest burst.
    let quotas = ["5/s, burst 980", "2/s, burst 995", "60/min, burst 999", "1/s, burst 992"];
    let quotas: Vec<_> = quotas.into_iter().flat_map(|quota| ["--quota", quota]).collect();
    let output = folder.run(&[&demo[..], &quotas].concat());
    assert_eq!(last_line(&output), "size: rate=1/s burst=992 wait_p99_ms=0.000 refused=8");
}
