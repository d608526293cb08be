//! YAML whose every part knows its line and column: typed records, all errors at once, JSON Schema.
//!
//! A file takes three steps. [`read`] turns its bytes into text, [`tree`] turns the text into a tree of nodes with
//! their positions, and [`decode`] turns the tree into typed records. The macros `record!` and `words!` declare a
//! record or a choice of words once: the declaration is the type, its decoder and its JSON Schema. [`mod@unit`] has the
//! figures that people write with a unit, [`overrides`] changes a tree before it is decoded (`--set path=value`), and
//! [`mod@print`] writes a tree as text.
//!
//! Readers that are built on serde stop at the first error and do not know where a value stands. Here no step stops
//! at an error that it can step over: [`errors`] collects all of them.

pub mod decode;
pub mod errors;
pub mod overrides;
pub mod print;
pub mod read;
pub mod tree;
pub mod unit;
