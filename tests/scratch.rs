mod distributed {
    #[path = "../it/distributed/class_attacks.rs"]
    mod class_attacks;
    #[path = "../it/distributed/class_callers.rs"]
    mod class_callers;
    #[path = "../it/distributed/class_fleet.rs"]
    mod class_fleet;
    #[path = "../it/distributed/classes.rs"]
    mod classes;
    #[path = "../it/distributed/law.rs"]
    pub mod law;
    #[path = "../it/distributed/nodes.rs"]
    mod nodes;
}
