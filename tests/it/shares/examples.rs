//! The worked examples of the specification. Unless an example says otherwise: 100 tokens per second, burst 10, empty
//! at 0, all weights 1, and all claims arrive at 0 in the order named. Instants are in milliseconds.

use super::bucket::Rule;
use super::fixture::{Fixture, share};
use super::fraction::Fraction;
use super::model::{ClassId, Id, Int, Model};
use std::collections::HashMap;

const MS: Int = 1_000_000;
const SECOND: Int = 1_000 * MS;

/// A limiter with classes, or without: what an example is replayed on.
pub(crate) trait Subject {
    fn class(&mut self, parent: ClassId, weight: Int, floor: Option<Int>, ceiling: Option<Rule>) -> ClassId;
    fn arrive(&mut self, at: Int, class: ClassId, cost: Int) -> Id;
    fn cancel(&mut self, at: Int, id: Id);
    fn release(&mut self, at: Int, tokens: Int);
    fn set_quota(&mut self, at: Int, rule: Rule);
    /// The grants until `at`: the claim, and when.
    fn grants(&mut self, at: Int) -> Vec<(Id, Int)>;
}

impl Subject for Model {
    fn class(&mut self, parent: ClassId, weight: Int, floor: Option<Int>, ceiling: Option<Rule>) -> ClassId {
        self.add_class(0, parent, weight, floor.map(|floor| Fraction::new(floor, SECOND)), ceiling)
    }

    fn arrive(&mut self, at: Int, class: ClassId, cost: Int) -> Id {
        Model::arrive(self, at, class, cost)
    }

    fn cancel(&mut self, at: Int, id: Id) {
        Model::cancel(self, at, id);
    }

    fn release(&mut self, at: Int, tokens: Int) {
        Model::release(self, at, tokens);
    }

    fn set_quota(&mut self, at: Int, rule: Rule) {
        Model::set_quota(self, at, 0, rule);
    }

    fn grants(&mut self, at: Int) -> Vec<(Id, Int)> {
        self.serve(at);
        self.log.iter().map(|granted| (granted.id, granted.at)).collect()
    }
}

impl Subject for Fixture {
    fn class(&mut self, parent: ClassId, weight: Int, floor: Option<Int>, ceiling: Option<Rule>) -> ClassId {
        let floor = floor.map(|floor| (floor, SECOND));
        // Example 7 has a ceiling with a small burst, but no floor below it.
        self.add(parent, share(weight, floor, ceiling)).expect("a valid share")
    }

    fn arrive(&mut self, at: Int, class: ClassId, cost: Int) -> Id {
        self.walk(at);
        Fixture::arrive(self, class, cost)
    }

    fn cancel(&mut self, at: Int, id: Id) {
        self.walk(at);
        Fixture::cancel(self, id);
    }

    fn release(&mut self, at: Int, tokens: Int) {
        self.walk(at);
        let held = self.held.iter().position(|(.., grant)| Int::from(grant.cost()) == tokens);
        drop(self.held.remove(held.expect("a grant of this cost is held")));
    }

    fn set_quota(&mut self, at: Int, rule: Rule) {
        self.walk(at);
        self.limiter.set_quota(0, rule.quota()).expect("a valid quota");
    }

    fn grants(&mut self, at: Int) -> Vec<(Id, Int)> {
        self.walk(at);
        self.instants.clone()
    }
}

/// The quotas of an example and its in-flight cap; `classes` is false for a limiter without classes.
pub(crate) struct Setup {
    pub(crate) quotas: Vec<Rule>,
    pub(crate) cap: Option<Int>,
    pub(crate) classes: bool,
}

fn hundred(initial: Int) -> Rule {
    Rule::continuous(100, SECOND, 10, initial)
}

/// Claims by name: `a3` is the fourth claim of the class `a`.
pub(crate) struct Story<'a> {
    subject: &'a mut dyn Subject,
    classes: HashMap<String, ClassId>,
    ids: HashMap<Id, String>,
    counts: HashMap<String, usize>,
}

impl<'a> Story<'a> {
    fn new(subject: &'a mut dyn Subject) -> Self {
        Self { subject, classes: HashMap::new(), ids: HashMap::new(), counts: HashMap::new() }
    }

    fn class(&mut self, name: &str, weight: Int, floor: Option<Int>, ceiling: Option<Rule>) -> ClassId {
        let class = self.subject.class(0, weight, floor, ceiling);
        self.classes.insert(name.into(), class);
        class
    }

    fn classes(&mut self, names: &[&str]) {
        names.iter().for_each(|name| {
            self.class(name, 1, None, None);
        });
    }

    fn come(&mut self, at: Int, class: &str, count: usize, cost: Int) {
        for _ in 0..count {
            let number = self.counts.entry(class.into()).or_default();
            let name = format!("{class}{number}");
            *number += 1;
            let id = self.subject.arrive(at * MS, self.classes[class], cost);
            self.ids.insert(id, name);
        }
    }

    fn id(&self, name: &str) -> Id {
        *self.ids.iter().find(|(_, known)| *known == name).expect("the claim has come").0
    }

    /// The grants as the specification writes them; those of one instant in the order of their arrivals.
    fn log(&mut self) -> String {
        let grants = self.subject.grants(10 * SECOND);
        let mut entries: Vec<_> = grants
            .into_iter()
            .map(|(id, at)| {
                assert_eq!(at % MS, 0, "{} at {at}", self.ids[&id]);
                (at / MS, id)
            })
            .collect();
        entries.sort_unstable();
        entries.into_iter().map(|(at, id)| format!("{} {at}", self.ids[&id])).collect::<Vec<_>>().join(", ")
    }
}

pub(crate) type Telling = fn(&mut Story<'_>);

/// The number of an example, its setup, what happens, and the grants.
pub(crate) fn examples() -> Vec<(u8, Setup, Telling, &'static str)> {
    let plain = |initial| Setup { quotas: vec![hundred(initial)], cap: None, classes: true };
    vec![
        (
            1,
            plain(0),
            |story| {
                story.class("a", 3, None, None);
                story.class("b", 1, None, None);
                story.come(0, "a", 8, 1);
                story.come(0, "b", 4, 1);
            },
            "a0 10, b0 20, a1 30, a2 40, a3 50, b1 60, a4 70, a5 80, a6 90, b2 100, a7 110, b3 120",
        ),
        (
            2,
            plain(0),
            |story| {
                story.classes(&["a", "b"]);
                story.come(0, "a", 3, 4);
                story.come(0, "b", 12, 1);
            },
            "b0 10, a0 50, b1 60, b2 70, b3 80, b4 90, a1 130, b5 140, b6 150, b7 160, b8 170, a2 210, b9 220, b10 230, \
             b11 240",
        ),
        (
            3,
            plain(0),
            |story| {
                story.classes(&["a", "b"]);
                story.come(0, "a", 1, 35);
                story.come(0, "b", 12, 1);
            },
            "b0 10, b1 120, b2 130, b3 140, b4 150, b5 160, b6 170, b7 180, b8 190, b9 200, b10 210, b11 320, a0 470",
        ),
        (
            4,
            plain(0),
            |story| {
                story.classes(&["a", "b"]);
                story.come(0, "a", 12, 1);
                story.come(50, "b", 4, 1);
            },
            "a0 10, a1 20, a2 30, a3 40, a4 50, b0 60, a5 70, b1 80, a6 90, b2 100, a7 110, b3 120, a8 130, a9 140, \
             a10 150, a11 160",
        ),
        (
            5,
            plain(0),
            |story| {
                let p = story.class("p", 1, None, None);
                story.class("q", 1, None, None);
                for name in ["x", "y"] {
                    let class = story.subject.class(p, 1, None, None);
                    story.classes.insert(name.into(), class);
                }
                story.come(0, "x", 4, 1);
                story.come(0, "y", 4, 1);
                story.come(0, "q", 8, 1);
            },
            "x0 10, q0 20, y0 30, q1 40, x1 50, q2 60, y1 70, q3 80, x2 90, q4 100, y2 110, q5 120, x3 130, q6 140, \
             y3 150, q7 160",
        ),
        (
            6,
            plain(0),
            |story| {
                story.class("a", 1, Some(50), None);
                story.class("b", 9, None, None);
                story.come(0, "a", 6, 1);
                story.come(0, "b", 8, 1);
            },
            "a0 10, a1 20, b0 30, a2 40, b1 50, a3 60, b2 70, a4 80, b3 90, a5 100, b4 110, b5 120, b6 130, b7 140",
        ),
        (
            7,
            plain(0),
            |story| {
                story.class("a", 1, None, Some(Rule::continuous(20, SECOND, 2, 0)));
                story.class("b", 1, None, None);
                story.come(0, "a", 4, 1);
                story.come(0, "b", 14, 1);
            },
            "b0 10, b1 20, b2 30, b3 40, a0 50, b4 60, b5 70, b6 80, b7 90, a1 100, b8 110, b9 120, b10 130, b11 140, \
             a2 150, b12 160, b13 170, a3 200",
        ),
        (
            8,
            plain(0),
            |story| {
                story.classes(&["a", "b"]);
                story.come(0, "a", 1, 100);
                story.come(0, "b", 14, 1);
                let giant = story.id("a0");
                story.subject.cancel(325 * MS, giant);
                story.come(325, "b", 12, 1);
            },
            "b0 10, b1 120, b2 130, b3 140, b4 150, b5 160, b6 170, b7 180, b8 190, b9 200, b10 210, b11 320, b12 325, \
             b13 325, b14 325, b15 325, b16 325, b17 325, b18 325, b19 325, b20 325, b21 330, b22 340, b23 350, b24 360, \
             b25 370",
        ),
        (
            9,
            plain(0),
            |story| {
                story.class("a", 1, Some(60), None);
                story.class("b", 1, Some(20), None);
                story.class("c", 1, None, None);
                story.subject.set_quota(0, Rule::continuous(40, SECOND, 10, 0));
                story.come(0, "a", 9, 1);
                story.come(0, "b", 4, 1);
                story.come(0, "c", 2, 1);
            },
            "a0 25, a1 50, a2 75, b0 100, a3 125, a4 150, a5 175, b1 200, a6 225, a7 250, a8 275, b2 300, b3 325, c0 350, \
             c1 375",
        ),
        (
            10,
            Setup { quotas: vec![hundred(10)], cap: Some(8), classes: true },
            |story| {
                story.classes(&["a", "b"]);
                story.come(0, "a", 1, 6);
                story.come(0, "a", 1, 4);
                story.come(0, "b", 1, 1);
                story.subject.release(70 * MS, 6);
            },
            "a0 0, b0 0, a1 70",
        ),
        (
            11,
            Setup {
                quotas: vec![hundred(10), Rule { amount: 6, period: 100 * MS, stepped: true, burst: 6, initial: 6 }],
                cap: None,
                classes: true,
            },
            |story| {
                story.classes(&["a", "b"]);
                story.come(0, "a", 3, 4);
                story.come(0, "b", 3, 2);
            },
            "a0 0, b0 0, a1 100, b1 100, a2 200, b2 200",
        ),
        (
            12,
            plain(10),
            |story| {
                story.classes(&["a", "b"]);
                story.come(0, "a", 14, 1);
                story.come(0, "b", 4, 1);
            },
            "a0 0, a1 0, a2 0, a3 0, a4 0, a5 0, a6 0, a7 0, a8 0, a9 0, a10 10, b0 20, a11 30, b1 40, a12 50, b2 60, \
             a13 70, b3 80",
        ),
        (
            13,
            Setup { quotas: vec![hundred(7)], cap: None, classes: false },
            |story| {
                story.classes.insert("a".into(), 0);
                story.come(0, "a", 1, 15);
                story.come(0, "a", 1, 1);
            },
            "a0 80, a1 90",
        ),
    ]
}

/// Tells one example to a subject and returns the grants in words.
pub(crate) fn tell(telling: Telling, subject: &mut dyn Subject) -> String {
    let mut story = Story::new(subject);
    telling(&mut story);
    story.log()
}

#[test]
fn a_limiter_gives_the_grants_of_every_worked_example_to_the_nanosecond() {
    for (number, setup, telling, grants) in examples().into_iter().filter(|(_, setup, ..)| setup.classes) {
        let mut fixture = Fixture::new(&setup.quotas, setup.cap);
        assert_eq!(tell(telling, &mut fixture), grants, "example {number}");
    }
}

#[test]
fn the_model_gives_the_grants_of_every_worked_example() {
    for (number, setup, telling, grants) in examples() {
        let mut model = match setup.classes {
            true => Model::new(&setup.quotas, setup.cap),
            false => Model::without_classes(&setup.quotas, setup.cap),
        };
        assert_eq!(tell(telling, &mut model), grants, "example {number}");
    }
}
