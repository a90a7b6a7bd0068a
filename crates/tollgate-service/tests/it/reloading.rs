//! A changed configuration takes effect and keeps what it can, a bad one changes nothing, and levels survive a restart.

use crate::asked::*;
use std::fs;
use std::time::SystemTime;
use tollgate_service::files;
use tollgate_service::state;

/// A directory of its own, which is removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-service-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn rule(domain: &str, requests: u32) -> String {
    format!(
        "{{domain: {domain}, descriptors: [{{key: k, rate_limit: {{unit: hour, requests_per_unit: {requests}}}}}]}}"
    )
}

fn start(directory: &Directory) -> (Arc<Service>, Reloader) {
    let paths = vec![directory.0.clone()];
    let meters = Arc::<Meters>::default();
    let sources = files::read(&paths).unwrap();
    let rules = config::load(&sources, Options::default(), &meters).unwrap().rules;
    let service = Arc::new(Service::new(rules, meters, Manner::default(), maker(NOW)));
    (Arc::clone(&service), Reloader::new(service, Health::default(), paths, Options::default(), false, sources))
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_levels_and_a_bad_file_changes_nothing() {
    let directory = Directory::new("reload");
    directory.write("a.yaml", &rule("a", 3));
    directory.write(".hidden.yaml", "nonsense");
    directory.write("notes.txt", "nonsense");
    let (service, reloader) = start(&directory);
    let loads = || (service.totals.loads.load(Ordering::Relaxed), service.totals.load_errors.load(Ordering::Relaxed));
    assert_eq!(passed(&service, "a k=v", 2).await, 2);

    directory.write("b.yaml", &rule("b", 1));
    reloader.look();
    assert_eq!(loads(), (2, 0));
    assert_eq!((passed(&service, "a k=v", 5).await, passed(&service, "b k=v", 5).await), (1, 1), "levels are kept");

    let meters = service.meters.all().len();
    directory.write("b.yaml", &format!("{}\n---\ndomain: b\ndescripters: []\n", rule("c", 1)));
    reloader.look();
    assert_eq!(service.meters.all().len(), meters, "rules that were not taken over have no metrics");
    reloader.look();
    assert_eq!(loads(), (2, 1), "a bad file is reported once");
    assert!(reloader.problems()[0].line().contains("did you mean `descriptors`"));
    assert_eq!(passed(&service, "b k=w", 5).await, 1, "the rules are those of before");

    directory.write("b.yaml", &rule("b", 2));
    reloader.look();
    assert_eq!((loads(), reloader.problems().len()), ((3, 1), 0));
    assert_eq!(passed(&service, "b k=w", 5).await, 2, "another limit begins anew");

    fs::remove_file(directory.0.join("b.yaml")).unwrap();
    std::os::unix::fs::symlink("nowhere", directory.0.join("b.yaml")).unwrap();
    reloader.look();
    assert_eq!(loads(), (3, 2), "a link to nothing takes no limit away");

    // As an editor leaves it for a moment.
    fs::remove_file(directory.0.join("b.yaml")).unwrap();
    directory.write("b.yaml", "");
    reloader.look();
    assert_eq!(loads(), (3, 3), "an empty file takes no limit away");

    fs::remove_dir_all(&directory.0).unwrap();
    reloader.look();
    assert_eq!(loads(), (3, 4));
    assert!(reloader.problems()[0].line().contains("there is no such file or directory"));
    assert_eq!(passed(&service, "a k=w", 5).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_began_before_a_reload_is_charged_to_the_limit_that_goes_on() {
    let directory = Directory::new("during");
    directory.write("a.yaml", &rule("a", 1));
    let (service, reloader) = start(&directory);
    let before = service.rules.load_full();
    directory.write("b.yaml", &rule("b", 1));
    reloader.look();
    assert!(before.all[0].bucket(&service.maker).try_charge(b"v", 1).is_ok(), "the first request makes the limiter");
    assert_eq!(passed(&service, "a k=v", 1).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_levels_of_a_rule_with_the_same_limit() {
    for (before, after) in [
        ("", "detailed_metric: true"),
        ("value_to_metric: true", ""),
        ("", "shadow_mode: false, wait: 1s"),
        ("", "max_waiting: 9"),
        ("", "outage: refuse"),
        ("classes: {v: 1}", "classes: {v: 2, w: 1}"),
    ] {
        let directory = Directory::new("same");
        let write = |extra: &str| {
            let limit = "rate_limit: {unit: hour, requests_per_unit: 3}";
            directory.write("a.yaml", &format!("{{domain: a, descriptors: [{{key: k, {limit}, {extra}}}]}}"));
        };
        write(before);
        let (service, reloader) = start(&directory);
        assert_eq!(passed(&service, "a k=v", 2).await, 2);
        write(after);
        reloader.look();
        assert_eq!(passed(&service, "a k=v", 5).await, 1, "from `{before}` to `{after}`");
    }
}

#[tokio::test(start_paused = true)]
async fn levels_survive_a_restart() {
    let directory = Directory::new("state");
    let rules = "{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 3}}, \
                 {key: b, rate_limit: {unit: day, requests_per_unit: 3, burst: 3}}, \
                 {key: m, rate_limit: [{unit: year, requests_per_unit: 3}, {unit: day, requests_per_unit: 9, burst: 9}]}, \
                 {key: s, rate_limit: {unit: day, requests_per_unit: 3, sliding: true}}, \
                 {key: z, rate_limit: {unit: year, requests_per_unit: 3, time_zone: UTC}}, \
                 {key: c, classes: {v: 2}, rate_limit: {unit: year, requests_per_unit: 3}}, \
                 {key: other, rate_limit: {unit: year, requests_per_unit: LIMIT}}]}";
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let start = |limit: &str| service_by(&rules.replace("LIMIT", limit), Manner::default(), maker(now));
    // A name that ends like that of the file which is not complete.
    let path = directory.0.join("levels.partial");
    let service = start("3");
    assert_eq!(state::restore(&path, &service), Ok(0), "there is no file yet");
    let asked = ["d k=v", "d b=v", "d m=v", "d s=v", "d z=v", "d c=v", "d other=v"];
    for text in asked {
        assert_eq!(passed(&service, text, 2).await, 2, "{text}");
    }
    assert_eq!(state::save(&path, &service), Ok(7));
    let service = start("4");
    assert_eq!(state::restore(&path, &service), Ok(6));
    for text in asked {
        let expected = if text == "d other=v" { 4 } else { 1 };
        assert_eq!(passed(&service, text, 9).await, expected, "{text}");
    }
    assert_eq!(passed(&service, "d k=w", 9).await, 3);
    // Windows end at the same instants as before.
    let year = 365 * 86_400;
    advance(Duration::from_secs(year - now.as_secs() % year + 1)).await;
    for text in ["d k=v", "d m=v", "d c=v"] {
        assert_eq!(passed(&service, text, 9).await, 3, "{text}");
    }
    assert!(!path.exists(), "levels count once");
    let nowhere = state::restore(&directory.0.join("nowhere/levels"), &service).unwrap_err();
    assert!(nowhere.contains("cannot be saved in"), "{nowhere}");
    fs::write(&path, "nonsense").unwrap();
    assert!(state::restore(&path, &start("3")).unwrap_err().contains("are lost"));
}
