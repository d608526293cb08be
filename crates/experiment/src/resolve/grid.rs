//! The grid of an experiment.

use weirgate_spanned_yaml::decode::{At, Context};
use weirgate_spanned_yaml::errors::quoted;

use crate::file::ExperimentFile;
use crate::grid::{GridCell, GridRow};

/// Maximum number of cells of a grid. Each is played for each discipline and seed.
const MAX_CELLS: usize = 1_000;

pub(super) fn grid(file: &ExperimentFile, cx: &mut Context) -> Vec<GridRow> {
    let mut rows: Vec<GridRow> = Vec::new();
    for At { value: form, mark, .. } in file.grid.get().map_or(&[][..], Vec::as_slice) {
        let (Some(name), Some(forms)) = (form.row.get(), form.cells.get()) else { continue };
        let mut cells: Vec<GridCell> = Vec::new();
        for At { value: form, .. } in forms {
            let (Some(name), Some(set)) = (form.name.get(), form.set.get()) else { continue };
            if cells.iter().any(|cell| cell.name == name.0) {
                let what = format!("the row has another cell {}", quoted(&name.0));
                cx.fail(form.name.mark, what, "give each cell of a row its own name");
            }
            let set = set.0.iter().map(|change| change.value.0.clone()).collect();
            cells.push(GridCell { name: name.0.clone(), set });
        }
        if forms.is_empty() {
            cx.fail(*mark, "the row has no cells", "give it at least one, or leave the row out");
        }
        rows.push(GridRow { name: name.0.clone(), cells });
    }
    let cells = rows.iter().map(|row| row.cells.len()).sum::<usize>();
    if cells > MAX_CELLS {
        let what = format!("the grid has {cells} cells");
        cx.fail(file.grid.mark, what, format!("write at most {MAX_CELLS}"));
    }
    rows
}
