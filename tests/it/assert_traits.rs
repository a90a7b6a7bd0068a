//! One line for each type: is it `Send`, `Sync`, `Unpin`?

/// Asks the compiler whether a type has a trait.
macro_rules! assert_traits {
    ($($type:ty: $send:ident $sync:ident $unpin:ident;)*) => {
        #[test]
        fn every_public_type_has_the_listed_traits() {
            $(
                assert_traits!(@ $type, Send, $send);
                assert_traits!(@ $type, Sync, $sync);
                assert_traits!(@ $type, Unpin, $unpin);
            )*
        }
    };
    (@ $type:ty, $trait:ident, yes) => {{
        fn is<T: $trait + ?Sized>() {}
        is::<$type>();
    }};
    // If the type has the trait, there are two implementations of `Ambiguous`, and the compiler cannot choose one.
    (@ $type:ty, $trait:ident, no) => {{
        trait Ambiguous<A> {
            fn some() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        struct HasIt;
        impl<T: $trait + ?Sized> Ambiguous<HasIt> for T {}
        <$type as Ambiguous<_>>::some();
    }};
}

pub(crate) use assert_traits;
