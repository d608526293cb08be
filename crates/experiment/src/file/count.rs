//! Random whole numbers, such as the pages that a client asks for or the objects of a page.

use weirgate_spanned_yaml::decode::{Context, Decode, Optional, Required};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Count, Whole};
use weirgate_spanned_yaml::{any_of, record};

use crate::distribution::Counts;

/// A distribution of whole numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Numbers(pub(crate) Counts);

record! {
    /// A distribution of whole numbers: exactly one of the fields. A number alone is a constant.
    pub(crate) struct NumbersForm {
        /// Pareto, rounded down. The objects of SURGE's pages are `{ shape: 2.43, min: 1, max: 100 }`.
        pareto: Optional<ParetoNumbersForm>,
        /// Inverse Gaussian, rounded, such as the number of pages in a visit.
        inverse_gaussian: Optional<InverseGaussianForm>,
    }
}

record! {
    /// A Pareto distribution of whole numbers.
    pub(crate) struct ParetoNumbersForm {
        /// α, more than 0. The smaller it is, the heavier the tail.
        shape: Required<Amount>,
        /// Smallest value.
        min: Required<Count>,
        /// Largest value. Larger draws are cut to it.
        max: Required<Count>,
    }
}

record! {
    /// An inverse Gaussian distribution of whole numbers from 1 on.
    pub(crate) struct InverseGaussianForm {
        /// µ, more than 0.
        mean: Required<Amount>,
        /// λ, more than 0. The larger it is, the closer values are to the mean.
        shape: Required<Amount>,
        /// Largest value. Larger draws are cut to it.
        max: Required<Count>,
    }
}

const NUMBERS: &str = "a number such as `8`, `{ pareto: … }` or `{ inverse_gaussian: … }`";

impl NumbersForm {
    fn counts(&self, cx: &mut Context) -> Option<Counts> {
        if let Some(form) = self.pareto.get() {
            let (&Amount(shape), &Count(min)) = (form.shape.get()?, form.min.get()?);
            let &Count(max) = form.max.get()?;
            if shape <= 0.0 {
                cx.fail(form.shape.mark, "this is not the shape of a tail", "write more than 0");
            }
            if max < min {
                let what = format!("at most {max} are less than at least {min}");
                cx.fail(form.max.mark, what, "write `max` not smaller than `min`");
            }
            return (shape > 0.0 && max >= min).then_some(Counts::Pareto { shape, min, max });
        }
        let form = self.inverse_gaussian.get()?;
        let (&Amount(mean), &Amount(shape), &Count(max)) = (form.mean.get()?, form.shape.get()?, form.max.get()?);
        for (figure, mark) in [(mean, form.mean.mark), (shape, form.shape.mark)] {
            if figure <= 0.0 {
                cx.fail(mark, "there is no such distribution", "write more than 0");
            }
        }
        (mean > 0.0 && shape > 0.0).then_some(Counts::InverseGaussian { mean, shape, max })
    }
}

impl Decode for Numbers {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(_) => Whole::decode(node, cx).map(|Whole(count)| Numbers(Counts::Fixed(count))),
            Value::Map(_) => {
                let before = cx.problems.reports();
                let form = NumbersForm::decode(node, cx)?;
                if form.pareto.given != form.inverse_gaussian.given {
                    return form.counts(cx).map(Numbers);
                }
                if cx.problems.reports() == before {
                    let hint = "give it `pareto:` or `inverse_gaussian:`";
                    cx.complain(Complaint::new("one distribution is needed here", hint));
                }
                None
            }
            _ => {
                cx.mismatch(NUMBERS, node);
                None
            }
        }
    }
}

any_of! {
    Numbers: "A distribution of whole numbers. A number alone is a constant." = [Whole, NumbersForm];
}
