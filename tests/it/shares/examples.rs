//! The worked examples of the specification. Unless an example says otherwise: 100 tokens per second, burst 10, empty
//! at 0, all weights 1, and all claims arrive at 0 in the order named. Instants are in milliseconds.

use super::fixture::{Fixture, share};
use super::model::{ClassId, Id, Int};
use crate::fixture::Share;
use crate::oracle::Rule;
use crate::oracle::conversions::quota;
use crate::oracle::ops::{continuous, stepped};
use std::collections::HashMap;

const MS: Int = 1_000_000;
const SECOND: Int = 1_000 * MS;

fn hundred(initial: Int) -> Rule {
    continuous(100, SECOND, 10, initial)
}

/// Claims by name: `a3` is the fourth claim of the class `a`.
struct Story {
    fixture: Fixture,
    classes: HashMap<String, ClassId>,
    ids: HashMap<Id, String>,
    counts: HashMap<String, usize>,
}

impl Story {
    fn new(quotas: &[Rule], cap: Option<Int>) -> Self {
        let (classes, ids, counts) = Default::default();
        Self { fixture: Fixture::new(quotas, cap), classes, ids, counts }
    }

    fn class(&mut self, name: &str, weight: Int, floor: Option<Int>, ceiling: Option<Rule>) -> ClassId {
        self.class_in(0, name, share(weight, floor.map(|floor| (floor, SECOND)), ceiling))
    }

    fn class_in(&mut self, parent: ClassId, name: &str, share: Share) -> ClassId {
        let class = self.fixture.add(parent, share).expect("a valid share");
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
            self.fixture.walk(at * MS);
            let id = self.fixture.arrive(self.classes[class], cost);
            self.ids.insert(id, name);
        }
    }

    fn id(&self, name: &str) -> Id {
        *self.ids.iter().find(|(_, known)| *known == name).expect("the claim has come").0
    }

    /// The grants as the specification writes them; those of one instant in the order of their arrivals.
    fn log(&mut self) -> String {
        self.fixture.walk(10 * SECOND);
        let to_millis = |(id, at): &(Id, Int)| {
            assert_eq!(at % MS, 0, "{} at {at}", self.ids[id]);
            (at / MS, *id)
        };
        let mut entries: Vec<_> = self.fixture.instants.iter().map(to_millis).collect();
        entries.sort_unstable();
        entries.into_iter().map(|(at, id)| format!("{} {at}", self.ids[&id])).collect::<Vec<_>>().join(", ")
    }

    fn check(mut self, example: u8, grants: &str) {
        assert_eq!(self.log(), grants, "example {example}");
    }
}

#[test]
fn a_limiter_gives_the_grants_of_every_worked_example_to_the_nanosecond() {
    let mut story = Story::new(&[hundred(0)], None);
    story.class("a", 3, None, None);
    story.class("b", 1, None, None);
    story.come(0, "a", 8, 1);
    story.come(0, "b", 4, 1);
    story.check(1, "a0 10, b0 20, a1 30, a2 40, a3 50, b1 60, a4 70, a5 80, a6 90, b2 100, a7 110, b3 120");

    let mut story = Story::new(&[hundred(0)], None);
    story.classes(&["a", "b"]);
    story.come(0, "a", 3, 4);
    story.come(0, "b", 12, 1);
    let grants = "b0 10, a0 50, b1 60, b2 70, b3 80, b4 90, a1 130, b5 140, b6 150, b7 160, b8 170, a2 210, b9 220, \
                  b10 230, b11 240";
    story.check(2, grants);

    let mut story = Story::new(&[hundred(0)], None);
    story.classes(&["a", "b"]);
    story.come(0, "a", 1, 35);
    story.come(0, "b", 12, 1);
    let grants = "b0 10, b1 120, b2 130, b3 140, b4 150, b5 160, b6 170, b7 180, b8 190, b9 200, b10 210, b11 320, \
                  a0 470";
    story.check(3, grants);

    let mut story = Story::new(&[hundred(0)], None);
    story.classes(&["a", "b"]);
    story.come(0, "a", 12, 1);
    story.come(50, "b", 4, 1);
    let grants = "a0 10, a1 20, a2 30, a3 40, a4 50, b0 60, a5 70, b1 80, a6 90, b2 100, a7 110, b3 120, a8 130, \
                  a9 140, a10 150, a11 160";
    story.check(4, grants);

    let mut story = Story::new(&[hundred(0)], None);
    let p = story.class("p", 1, None, None);
    story.class("q", 1, None, None);
    for name in ["x", "y"] {
        story.class_in(p, name, Share::weight(1));
    }
    story.come(0, "x", 4, 1);
    story.come(0, "y", 4, 1);
    story.come(0, "q", 8, 1);
    let grants = "x0 10, q0 20, y0 30, q1 40, x1 50, q2 60, y1 70, q3 80, x2 90, q4 100, y2 110, q5 120, x3 130, \
                  q6 140, y3 150, q7 160";
    story.check(5, grants);

    let mut story = Story::new(&[hundred(0)], None);
    story.class("a", 1, Some(50), None);
    story.class("b", 9, None, None);
    story.come(0, "a", 6, 1);
    story.come(0, "b", 8, 1);
    let grants = "a0 10, a1 20, b0 30, a2 40, b1 50, a3 60, b2 70, a4 80, b3 90, a5 100, b4 110, b5 120, b6 130, \
                  b7 140";
    story.check(6, grants);

    let mut story = Story::new(&[hundred(0)], None);
    story.class("a", 1, None, Some(continuous(20, SECOND, 2, 0)));
    story.class("b", 1, None, None);
    story.come(0, "a", 4, 1);
    story.come(0, "b", 14, 1);
    let grants = "b0 10, b1 20, b2 30, b3 40, a0 50, b4 60, b5 70, b6 80, b7 90, a1 100, b8 110, b9 120, b10 130, \
                  b11 140, a2 150, b12 160, b13 170, a3 200";
    story.check(7, grants);

    let mut story = Story::new(&[hundred(0)], None);
    story.classes(&["a", "b"]);
    story.come(0, "a", 1, 100);
    story.come(0, "b", 14, 1);
    let giant = story.id("a0");
    story.fixture.walk(325 * MS);
    story.fixture.cancel(giant);
    story.come(325, "b", 12, 1);
    let grants = "b0 10, b1 120, b2 130, b3 140, b4 150, b5 160, b6 170, b7 180, b8 190, b9 200, b10 210, b11 320, \
                  b12 325, b13 325, b14 325, b15 325, b16 325, b17 325, b18 325, b19 325, b20 325, b21 330, b22 340, \
                  b23 350, b24 360, b25 370";
    story.check(8, grants);

    let mut story = Story::new(&[hundred(0)], None);
    story.class("a", 1, Some(60), None);
    story.class("b", 1, Some(20), None);
    story.class("c", 1, None, None);
    story.fixture.limiter.set_quota(0, quota(continuous(40, SECOND, 10, 0))).expect("a valid quota");
    story.come(0, "a", 9, 1);
    story.come(0, "b", 4, 1);
    story.come(0, "c", 2, 1);
    let grants = "a0 25, a1 50, a2 75, b0 100, a3 125, a4 150, a5 175, b1 200, a6 225, a7 250, a8 275, b2 300, \
                  b3 325, c0 350, c1 375";
    story.check(9, grants);

    let mut story = Story::new(&[hundred(10)], Some(8));
    story.classes(&["a", "b"]);
    story.come(0, "a", 1, 6);
    story.come(0, "a", 1, 4);
    story.come(0, "b", 1, 1);
    story.fixture.walk(70 * MS);
    story.fixture.held.retain(|(.., grant)| grant.cost() != 6);
    story.check(10, "a0 0, b0 0, a1 70");

    let mut story = Story::new(&[hundred(10), stepped(6, 100 * MS, 6, 6)], None);
    story.classes(&["a", "b"]);
    story.come(0, "a", 3, 4);
    story.come(0, "b", 3, 2);
    story.check(11, "a0 0, b0 0, a1 100, b1 100, a2 200, b2 200");

    let mut story = Story::new(&[hundred(10)], None);
    story.classes(&["a", "b"]);
    story.come(0, "a", 14, 1);
    story.come(0, "b", 4, 1);
    let grants = "a0 0, a1 0, a2 0, a3 0, a4 0, a5 0, a6 0, a7 0, a8 0, a9 0, a10 10, b0 20, a11 30, b1 40, a12 50, \
                  b2 60, a13 70, b3 80";
    story.check(12, grants);
}
