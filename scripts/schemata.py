"""All mutants in one build ("mutant schemata"): the engine of scripts/mutants, which explains its use.

cargo-mutants lists the changes (`cargo mutants --list --json`). Each expression that it would change becomes
`if crate::mutant(7) { changed } else { original }` in a copy of the tree, and MUTANT=7 in the environment of a test
chooses one. Without it, each mutant records that it was reached: it is only tried with the tests that reach it. So the crate is built
a few times instead of a thousand times: once for each round of mutants that do not compile, which are left out, and once for
the tests. Needs the packages tree-sitter and tree-sitter-rust.
"""
import argparse, collections, concurrent.futures, json, os, re, resource, shutil, subprocess, sys, tempfile, tomllib
import tree_sitter, tree_sitter_rust

args = argparse.ArgumentParser()
args.add_argument("--out", required=True, help="the folder of the copy, the builds and the results of the mutants")
args.add_argument("--roots", required=True, help="test roots in this order; `lib` is src itself, a/b/c the tests in a with b or c in their names")
args.add_argument("--features", default="--all-features")
args.add_argument("--jobs", type=int, default=os.cpu_count())
args.add_argument("-f", "--file", action="append", help="only these files (globs); default: those of .cargo/mutants.toml")
args.add_argument("--resume", action="store_true", help="continues a stopped run of the same tree")
args.add_argument("--recheck", action="store_true", help="repeats mutants that hung with four times the time limit, in the root in which they hung")
args = args.parse_args()
config = tomllib.load(open(".cargo/mutants.toml", "rb"))
out, tree, parser = args.out, f"{args.out}/tree", tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
target = f"{out}/build" + ("-loom" if "tollgate_loom" in os.environ.get("RUSTFLAGS", "") else "")
SWITCH = """
pub(crate) fn mutant(id: usize) -> bool {
    use std::sync::{OnceLock, atomic::{AtomicBool, Ordering}};
    static CHOSEN: OnceLock<usize> = OnceLock::new();
    static REACHED: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];
    let chosen = *CHOSEN.get_or_init(|| std::env::var("MUTANT").map_or(0, |id| id.parse().unwrap()));
    if chosen == 0 && !REACHED[id].load(Ordering::Relaxed) && !REACHED[id].swap(true, Ordering::Relaxed)
        && let Some(path) = std::env::var_os("REACHED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        std::io::Write::write_all(&mut file.unwrap(), format!("{id} ").as_bytes()).unwrap();
    }
    chosen == id
}
"""

def listed():
    """The mutants of cargo-mutants by number, also those that the configuration lists as equivalent."""
    files = [a for f in args.file or config["examine_globs"] for a in ("-f", f)]
    text = subprocess.run(["cargo", "mutants", "--list", "--json", "--no-config", *files], stdout=subprocess.PIPE, check=True).stdout
    return dict(enumerate((m for m in json.loads(text) if not re.search("impl fmt::Debug|tests(::|/|\\.rs)", m["name"])), 1))

def nodes(node):
    yield node
    for child in node.children:
        yield from nodes(child)

def rewrite(file, mutants):
    """Puts a switch for each of `mutants` into `file`; returns the verdicts of those that cannot have one."""
    data, lost = open(file, "rb").read().replace(b"const fn", b"      fn"), {} # the switch is not const
    lines, found = data.splitlines(keepends=True), list(nodes(parser.parse(data).root_node))
    place = lambda at: sum(map(len, lines[: at["line"] - 1])) + len(lines[at["line"] - 1].decode()[: at["column"] - 1].encode())
    choices, inserts, streams = collections.defaultdict(list), collections.defaultdict(str), collections.defaultdict(str)
    for id, m in mutants.items():
        start, end, new, genre = place(m["span"]["start"]), place(m["span"]["end"]), m["replacement"], m["genre"]
        around = [n for n in found if n.start_byte <= start and n.end_byte >= end]
        inner = lambda *types: min((n for n in around if n.type in types), key=lambda n: n.end_byte - n.start_byte, default=None)
        if inner("const_item", "static_item"):
            lost[id] = "constant"
            continue
        elif genre == "FnValue" and "-> impl Iterator" in m["name"]:
            body = inner("function_item").child_by_field_name("body")
            streams[body.start_byte + 1, body.end_byte - 1] += f"if crate::mutant({id}) {{ Box::new({new}) }} else "
            continue
        elif genre == "FnValue" and (function := inner("function_item")):
            inserts[function.child_by_field_name("body").start_byte + 1] += f" if crate::mutant({id}) {{ return {new}; }}"
            continue
        elif genre == "BinaryOperator" and (e := inner("binary_expression", "compound_assignment_expr", "let_chain")):
            if e.type == "let_chain":
                lost[id] = "unviable" # there is no `||` with a `let`
                continue
            choices[e.start_byte, e.end_byte].append((id, (data[e.start_byte : start] + new.encode() + data[end : e.end_byte]).decode()))
            continue
        elif genre == "UnaryOperator" and (e := inner("unary_expression")):
            choices[e.start_byte, e.end_byte].append((id, data[e.start_byte + 1 : e.end_byte].decode()))
            continue
        elif genre == "StructField" and (e := inner("struct_expression")):
            choices[e.start_byte, e.end_byte].append((id, re.sub(r",\s*,", ",", (data[e.start_byte : start] + data[end : e.end_byte]).decode())))
            continue
        elif genre == "MatchArmGuard":
            choices[start, end].append((id, new))
            continue
        elif genre == "MatchArm" and (arm := inner("match_arm")):
            pattern = arm.child_by_field_name("pattern")
            condition = pattern.child_by_field_name("condition")
            where = condition.start_byte if condition else pattern.end_byte
            inserts[where] += f"!crate::mutant({id}) && " if condition else f" if !crate::mutant({id})"
            continue
        lost[id] = "not tried"
    for (start, end), switches in streams.items():
        inserts[start] += f" let all: Box<dyn Iterator<Item = _> + '_> = {switches}{{ Box::new({{"
        inserts[end] += "}) }; all"

    def text(start, end, within=None):
        result, at = "", start
        tops = []
        for span in sorted((s for s in choices if start <= s[0] and s[1] <= end and s != within), key=lambda s: (s[0], -s[1])):
            if not tops or span[0] >= tops[-1][1]:
                tops.append(span)
        marks = [(s[0], 1, s) for s in tops]
        marks += [(p, 0, p) for p in inserts if start <= p < end and not any(s[0] < p < s[1] for s in tops)]
        for position, is_choice, key in sorted(marks):
            result, at = result + data[at:position].decode(), position
            if is_choice:
                result += "(" + "".join(f"if crate::mutant({id}) {{ {new} }} else " for id, new in choices[key])
                result, at = result + "{ " + text(*key, within=key) + " })", key[1]
            else:
                result += inserts[key]
        return result + data[at:end].decode()

    open(f"{tree}/{file}", "w").write(text(0, len(data)))
    return lost

def build(*command):
    env = {**os.environ, "CARGO_TARGET_DIR": os.path.abspath(target), "CARGO_PROFILE_DEV_DEBUG": "0"}
    command = ["cargo", *command, *args.features.split(), "--message-format=json"]
    run = subprocess.run(command, cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return run, [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]

def left_out(mutants):
    """Leaves out mutants that do not compile, until the rest compiles."""
    unviable, lost = set(), {}
    while True:
        # With a new modification time: a file that was edited during a build would look older than the build.
        ignored = shutil.ignore_patterns("target", ".git")
        shutil.copytree(".", tree, dirs_exist_ok=True, copy_function=shutil.copy, ignore=ignored)
        for file in {m["file"] for m in mutants.values()}:
            lost |= rewrite(file, {id: m for id, m in mutants.items() if m["file"] == file and id not in unviable})
        open(f"{tree}/src/lib.rs", "a").write(SWITCH.replace("MOST", str(len(mutants) + 1)))
        run, messages = build("build", "--lib")
        bad = set()
        for message in (m["message"] for m in messages if m["reason"] == "compiler-message" and m["message"]["level"] == "error"):
            for span in (s for s in message["spans"] if s["is_primary"]):
                code = open(f"{tree}/{span['file_name']}", "rb").read()
                if "non-exhaustive" in message["message"]: # the arm is needed: `span` is the matched expression
                    match = next(n for n in nodes(parser.parse(code).root_node) if n.type == "match_expression"
                                 and n.child_by_field_name("value").start_byte == span["byte_start"])
                    bad |= {int(id) for id in re.findall(rb"!crate::mutant\((\d+)", match.text)}
                else:
                    before = [int(m[1]) for m in re.finditer(rb"crate::mutant\((\d+)", code) if m.start() <= span["byte_start"] + 3]
                    bad |= set(before[-1:])
        print(f"{len(mutants)} mutants, {len(unviable)} unviable, {len(bad)} more", flush=True)
        if run.returncode == 0:
            return {**dict.fromkeys(unviable, "unviable"), **lost}
        if not bad - unviable:
            sys.exit(f"the copy in {tree} does not compile:\n{run.stderr[-3000:]}")
        unviable |= bad

def executables(root):
    run, messages = build("test", "--no-run", *(["--lib"] if root == "lib" else ["--test", root]))
    if run.returncode:
        sys.exit(f"{root} does not build:\n{run.stderr[-3000:]}")
    return [m["executable"] for m in messages if m["reason"] == "compiler-artifact" and m["executable"]]

def clock(pid):
    """The CPU seconds of a process, and whether it sleeps. The time in which it waits for a CPU, or is stopped, says nothing about a
    hang."""
    try:
        states = [open(f"/proc/{pid}/task/{task}/stat").read().rsplit(")", 1)[1].split()[0] for task in os.listdir(f"/proc/{pid}/task")]
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), set(states) <= {"S"}
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, False

def verdict(id, binary, filters, limit, reached=None):
    """The verdict and its duration: `red` with the failed test, `green`, or `hangs` if it ran or slept for longer than `limit`."""
    env = {"PROPTEST_CASES": "60", "PROPTEST_RNG_SEED": "20261122", **os.environ, "MUTANT": str(id), "RUST_BACKTRACE": "0"}
    if reached:
        env["REACHED"] = reached
    with tempfile.TemporaryFile() as output:
        run = subprocess.Popen([binary, "--test-threads=4", *filters], cwd=tree, env=env, stdout=output, stderr=subprocess.DEVNULL)
        resource.prlimit(run.pid, resource.RLIMIT_AS, (16 << 30,) * 2)
        spent = ran = 0.0
        answer = None
        while answer is None and spent < limit:
            try:
                answer = "red" if run.wait(0.05) else "green"
            except subprocess.TimeoutExpired:
                now, sleeps = clock(run.pid)
                spent, ran = spent + max(now - ran, 0.05 * sleeps), max(ran, now)
            # One failed test is enough.
            failed = re.search(rb"^test (\S+).* FAILED$", os.pread(output.fileno(), 1 << 20, 0), re.M)
            if failed:
                answer = "red"
        run.kill()
        run.wait()
    return answer or "hangs", failed[1].decode() if failed else "", spent

def confirmed(id, binary, filters, limit):
    """The verdict, but a test must fail twice: some tests race, or depend on real time."""
    fate, test, spent = verdict(id, binary, filters, limit)
    if fate == "red" and test and verdict(id, binary, [test, "--exact"], limit)[0] == "green":
        return "green", "", spent
    return fate, test, spent

def reaches(binary, filters):
    """The mutants that each test reaches, and its duration. A mutant that is reached only when threads contend may not be recorded
    here: then it counts as missed, and not as caught."""
    listed = subprocess.run([binary, "--list", "--format=terse", *filters], stdout=subprocess.PIPE, text=True, check=True).stdout
    def look(test):
        with tempfile.NamedTemporaryFile() as notes:
            for _ in range(3): # some depend on real time
                fate, _, took = verdict(0, binary, [test, "--exact"], 3600, notes.name)
                if fate == "green":
                    break
            else:
                sys.exit(f"{test} of {binary} is not green without a mutant: {fate}")
            return test, set(map(int, open(notes.name).read().split())), took
    tests = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    with concurrent.futures.ThreadPoolExecutor(2 * args.jobs) as pool:
        return list(pool.map(look, tests))

def planted(m):
    """A constant has no switch: it is changed in the copy. Returns a function that restores it."""
    path, (start, end) = f"{tree}/{m['file']}", (m["span"]["start"], m["span"]["end"])
    line, before = open(m["file"]).read().splitlines()[start["line"] - 1], open(path).read()
    changed = line[: start["column"] - 1] + m["replacement"] + line[end["column"] - 1 :]
    open(path, "w").write(before.replace(line, changed, 1))
    return lambda: open(path, "w").write(before)

def keep(name, *fate):
    known[name] = fate
    with open(f"{store}.new", "w") as file:
        json.dump(known, file, indent=0)
    os.replace(f"{store}.new", store)

mutants = listed()
names = {id: m["name"] for id, m in mutants.items()}
equivalent = {name for name in names.values() if any(re.search(e, name) for e in config["exclude_re"])}
store = f"{out}/known.json" # by the mutant's name: its verdict, the root and the test
known = json.load(open(store)) if os.path.exists(store) else {}
if not args.resume:
    for id, fate in left_out(mutants).items():
        if fate != "constant" or names[id] not in known:
            keep(names[id], fate, "")
roots = args.roots.split(",")
after = {root: place for place, root in enumerate(roots, 1)} if args.resume else {}
for place, root in enumerate(roots):
    fates = {id: known.get(name, ["green", ""]) for id, name in names.items()}
    left = [id for id, fate in fates.items() if fate[0] == "green" and after.get(fate[1], 0) <= place]
    if args.recheck:
        left = [id for id, fate in fates.items() if fate[:2] == ["hangs", root]]
    if not left:
        continue
    (root_name, *filters), tried = root.split("/"), collections.Counter()
    [binary] = executables(root_name)
    tests = reaches(binary, filters)
    against = {id: [(test, took) for test, reached, took in tests if id in reached] for id in left}
    with concurrent.futures.ThreadPoolExecutor(2 * args.jobs) as pool:
        limit = lambda id: (5 + 6 * sum(took for _, took in against[id])) * (4 if args.recheck else 1)
        chosen = lambda id: ["--exact", *(test for test, _ in against[id])]
        running = {pool.submit(confirmed, id, binary, chosen(id), limit(id)): id for id in left if against[id]}
        for id in set(left) - set(running.values()):
            keep(names[id], "green", root, "")
        for done in concurrent.futures.as_completed(running):
            fate, test, _ = done.result()
            keep(names[running[done]], fate, root, test)
            tried[fate] += 1
    print(f"{root}, {sum(took for _, _, took in tests):.1f} s: {len(left)} left, {len(running)} reached,", dict(tried), flush=True)

for id in (id for id, name in names.items() if known.get(name, [""])[0] == "constant"):
    put_back, result = planted(mutants[id]), ("green", "", "")
    for root in roots:
        name, *filters = root.split("/")
        try:
            [binary] = executables(name)
        except SystemExit:
            result = ("unviable", "", "")
            break
        fate, test, _ = verdict(0, binary, filters, 120)
        result = (fate, root, test)
        if fate != "green":
            break
    put_back()
    keep(names[id], *result)

fates = {name: known.get(name, ["green"])[0] for name in names.values()}
count = collections.Counter(fates.values())
missed = [name for name in names.values() if fates[name] == "green" and name not in equivalent]
for name, fate in fates.items():
    if fate in ("red", "hangs") and name in equivalent:
        print("listed as equivalent, but", *known[name], name)
    if fate in ("hangs", "not tried"):
        print(*known[name], name)
print(*(f"missed {name}" for name in missed), sep="\n")
caught, same = count["red"] + count["hangs"], count["green"] - len(missed)
share = lambda of: f"{100 * caught / max(of, 1):.1f} %"
print(f"{len(names)} mutants: {count['red']} red, {count['hangs']} hang, {count['unviable']} do not compile, {count['not tried']} not tried,",
      f"{same} equivalent, {len(missed)} missed: {share(caught + len(missed))} caught, {share(caught + len(missed) + same)} with the equivalent ones")
sys.exit(bool(missed))
