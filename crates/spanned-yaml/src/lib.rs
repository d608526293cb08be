//! YAML as typed records, with the line and column of every part, all errors at once, and a JSON Schema.
//!
//! A file takes three steps. [`read`] turns its bytes into text, [`tree`] turns the text into a tree of nodes with
//! their positions, and [`decode`] turns the tree into typed records. The macros `record!`, `words!` and `choice!`
//! declare a record, a choice of words, and a choice of methods with figures. One declaration makes the type, its
//! decoder and its JSON Schema. [`mod@unit`] has the figures that people write with a unit. [`overrides`] changes a
//! tree before it is decoded (`--set path=value`), and [`mod@print`] writes a tree as text.
//!
//! Readers that are built on serde stop at the first error and do not know the position of a value. Here each step
//! skips invalid parts if it can, and [`errors`] collects all errors.

pub mod decode;
pub mod errors;
pub mod overrides;
pub mod print;
pub mod read;
pub mod tree;
pub mod unit;
