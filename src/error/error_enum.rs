//! Error enums with a message for each variant, without a procedural macro: see docs/decisions.md.

/// Defines an enum, its `Display` and its `Error`. The message of a variant is written as for `format!`, and sees the
/// fields of the variant as references; `{0}` is the only field of a tuple variant.
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
            #[allow(unused_variables)]
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

        impl std::error::Error for $name {}
    };
}

/// The first name: for the parts of [`error_enum`] that are there if a variant has an unnamed field.
macro_rules! first {
    ($name:ident of $type:ty) => {
        $name
    };
}

pub(crate) use {error_enum, first};
