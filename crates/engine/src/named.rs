//! Enums whose variants have words, for replies, logs, metrics, policies and tables.

/// Declares an enum with the list of its variants and the word of each.
#[macro_export]
macro_rules! named {
    (
        $(#[$attribute:meta])+
        $visibility:vis enum $Name:ident { $( $(#[$about:meta])+ $Variant:ident = $word:literal, )+ }
    ) => {
        $(#[$attribute])+
        $visibility enum $Name { $( $(#[$about])+ $Variant, )+ }

        impl $Name {
            /// All variants, in their order.
            pub const ALL: [$Name; [$( $word ),+].len()] = [$( $Name::$Variant ),+];

            /// Returns the word of the variant.
            pub const fn as_str(self) -> &'static str {
                match self { $( $Name::$Variant => $word, )+ }
            }
        }

        impl core::fmt::Display for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
