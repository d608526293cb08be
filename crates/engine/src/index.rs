//! Typed indices: a table can only be indexed by the id type of its rows.
//!
//! Every id is a `u32`. The number of a class cannot be used as the number of a node, and `as usize` is
//! written in one place.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut, Index, IndexMut};

use crate::request::{ClassId, NodeId};

/// A number that identifies a row of a table.
pub(crate) trait Id: Copy + PartialOrd + core::fmt::Debug {
    /// Its row number.
    fn row(self) -> usize;
    /// The id of a row.
    fn of(row: usize) -> Self;
}

impl Id for u32 {
    #[inline]
    fn row(self) -> usize {
        self as usize
    }

    fn of(row: usize) -> u32 {
        row as u32
    }
}

/// Makes a `u32` newtype an [`Id`].
macro_rules! id {
    ($id:ident) => {
        impl Id for $id {
            #[inline]
            fn row(self) -> usize {
                self.0 as usize
            }

            fn of(row: usize) -> $id {
                $id(row as u32)
            }
        }
    };
}

/// A machine: an index into the list of machines of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MachineId(pub(crate) u32);

/// A group of machines that share a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MachineGroupId(pub(crate) u32);

/// A partition: a pool as a whole, or its part for one set of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartitionId(pub(crate) u32);

/// The nodes of a partition in one machine group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OverlapId(pub(crate) u32);

id!(ClassId);
id!(NodeId);
id!(MachineId);
id!(MachineGroupId);
id!(PartitionId);
id!(OverlapId);

impl ClassId {
    /// No class.
    pub(crate) const NONE: ClassId = ClassId(u32::MAX);
}

impl NodeId {
    /// No node.
    pub(crate) const NONE: NodeId = NodeId(u32::MAX);
}

/// A list of rows that is indexed by their ids.
#[derive(Clone, Debug)]
pub(crate) struct Table<I, T> {
    rows: Vec<T>,
    ids: PhantomData<I>,
}

impl<I: Id, T> Table<I, T> {
    pub(crate) const fn new() -> Table<I, T> {
        Table { rows: Vec::new(), ids: PhantomData }
    }

    /// Appends a row and returns its id.
    pub(crate) fn push(&mut self, row: T) -> I {
        self.rows.push(row);
        I::of(self.rows.len() - 1)
    }

    /// The ids of all rows, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.rows.len()).map(I::of)
    }

    /// All rows with their ids, in order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (I, &T)> {
        self.rows.iter().enumerate().map(|(row, value)| (I::of(row), value))
    }

    /// All rows with their ids, in order and mutable.
    pub(crate) fn pairs_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.rows.iter_mut().enumerate().map(|(row, value)| (I::of(row), value))
    }

    /// The row of an id, if there is one.
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.rows.get(id.row())
    }

    /// The row of an id, mutable, if there is one.
    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.rows.get_mut(id.row())
    }
}

impl<I: Id, T: Clone> Table<I, T> {
    /// A table with `rows` equal rows.
    pub(crate) fn filled(rows: usize, row: T) -> Table<I, T> {
        Table { rows: vec![row; rows], ids: PhantomData }
    }

    /// Extends the table to at least `rows` rows.
    pub(crate) fn grow(&mut self, rows: usize, row: T) {
        if self.rows.len() < rows {
            self.rows.resize(rows, row);
        }
    }

    /// Sets a row. If the table is too short, the rows before it are filled with the same value.
    pub(crate) fn put(&mut self, id: I, row: T) {
        if self.rows.len() <= id.row() {
            self.rows.resize(id.row() + 1, row.clone());
        }
        self.rows[id.row()] = row;
    }
}

impl<I: Id, T> FromIterator<T> for Table<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(rows: A) -> Table<I, T> {
        Table { rows: rows.into_iter().collect(), ids: PhantomData }
    }
}

impl<I, T> Deref for Table<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.rows
    }
}

impl<I, T> DerefMut for Table<I, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.rows
    }
}

impl<I: Id, T> Index<I> for Table<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        &self.rows[id.row()]
    }
}

impl<I: Id, T> IndexMut<I> for Table<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.rows[id.row()]
    }
}

impl<'a, I, T> IntoIterator for &'a Table<I, T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl<'a, I, T> IntoIterator for &'a mut Table<I, T> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter_mut()
    }
}
