//! Enums with a name of each variant, for tables.

/// Declares an enum with the list of its variants and their names.
macro_rules! named {
    (
        $(#[$attribute:meta])+
        pub enum $Name:ident { $( $(#[$about:meta])+ $Variant:ident = $name:literal, )+ }
    ) => {
        $(#[$attribute])+
        pub enum $Name { $( $(#[$about])+ $Variant, )+ }

        impl $Name {
            /// All of them, in their order.
            pub const ALL: [$Name; [$( $name ),+].len()] = [$( $Name::$Variant ),+];

            /// Returns its name in tables.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $( $Name::$Variant => $name, )+ }
            }
        }
    };
}

pub(super) use named;
