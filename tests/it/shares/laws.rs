//! The laws of the specification, checked on what the model has served.
