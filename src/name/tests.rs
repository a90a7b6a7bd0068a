use super::*;

#[test]
fn equal_names_are_one_and_come_back() {
    let (one, two) = (Name::of("name.rs: one"), Name::of("name.rs: two"));
    assert_ne!(one, two);
    assert_eq!(one, Name::of(&String::from("name.rs: one")));
    assert_eq!([one, two, Name::NONE].map(Name::text), [Some("name.rs: one"), Some("name.rs: two"), None]);
    assert_eq!(Name::of_number(two.number()), two);
}

#[test]
fn any_number_of_names_takes_a_bounded_memory() {
    let mut names = Names::default();
    for tenant in 0..200_000 {
        names.keep(&format!("tenant {tenant}"), MOST_BYTES);
    }
    let texts: usize = names.texts.iter().map(|text| text.len()).sum();
    assert!(texts + OVERHEAD * names.texts.len() <= MOST_BYTES, "{} names", names.texts.len());
    assert_ne!(names.keep("tenant 7", MOST_BYTES), Name::NONE, "it is known");
    assert_eq!(names.keep("tenant 199999", MOST_BYTES), Name::NONE);
}

#[test]
fn paths_of_classes_leave_space_for_the_names_of_quotas() {
    let mut names = Names::default();
    while names.keep(&format!("tenant {}", names.texts.len()), MOST_BYTES / 4) != Name::NONE {}
    assert!(names.bytes <= MOST_BYTES / 4);
    assert_ne!(names.keep("day", MOST_BYTES), Name::NONE);
    assert_eq!(names.keep(&"long ".repeat(MOST_BYTES), MOST_BYTES), Name::NONE);
}
