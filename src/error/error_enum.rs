//! Error enums with a message for each variant, without a procedural macro: see docs/decisions.md.

/// Defines an enum and its `Display`. The message of a variant is written as for `format!`. It can name the fields of the
/// variant, which are references; `{0}` is the only field of a tuple variant.
macro_rules! error_enum {
    ($(#[$of_enum:meta])* pub enum $name:ident {
        $(
            $(#[doc = $doc:expr])*
            $(#[cfg($cfg:meta)])?
            #[error($($message:tt)+)]
            $variant:ident $(($inner:ty))? $({ $($(#[doc = $of_field:expr])* $field:ident: $type:ty),+ $(,)? })?
        ),+ $(,)?
    }) => {
        $(#[$of_enum])*
        pub enum $name {
            $(
                $(#[doc = $doc])*
                $(#[cfg($cfg)])?
                $variant $(($inner))? $({ $($(#[doc = $of_field])* $field: $type),+ })?,
            )+
        }

        impl std::fmt::Display for $name {
            #[allow(unused_variables, reason = "a message need not name all fields")]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(
                        $(#[cfg($cfg)])?
                        Self::$variant $(($crate::error::first!(inner of $inner)))? $({ $($field),+ })? => {
                            write!(f, $($message)+ $(, $crate::error::first!(inner of $inner))?)
                        }
                    )+
                }
            }
        }
    };
}

/// Expands to `$name`. A part of [`error_enum`] for tuple variants has to mention `$type`: a macro repeats a part once for
/// each match of a variable in it.
macro_rules! first {
    ($name:ident of $type:ty) => {
        $name
    };
}

pub(crate) use {error_enum, first};
