//! The standard normal distribution: shares and quantiles.
//!
//! The quantile is P. J. Acklam's rational approximation (2003), with a relative error below 1.2·10⁻⁹. The
//! share uses the Chebyshev fit of the complementary error function in *Numerical Recipes* (Press et al., Sec.
//! 6.2), with a relative error below 1.2·10⁻⁷. Both are far more precise than any number derived from them.

/// Returns the share of the distribution below `z`.
pub fn share_below(z: f64) -> f64 {
    const FIT: [f64; 10] = [
        -1.265_512_23, 1.000_023_68, 0.374_091_96, 0.096_784_18, -0.186_288_06, 0.278_868_07, -1.135_203_98,
        1.488_515_87, -0.822_152_23, 0.170_872_77,
    ];
    // Φ(z) = erfc(−z/√2) / 2.
    let x = -z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + x.abs() / 2.0);
    let erfc = t * (-x * x + polynomial(&FIT, t)).exp();
    if x >= 0.0 { erfc / 2.0 } else { 1.0 - erfc / 2.0 }
}

/// Returns the point below which `share` of the distribution lies. A share of 0 or less counts as the
/// smallest above 0, and one of 1 or more as the largest below 1, so that the result is finite.
pub fn quantile(share: f64) -> f64 {
    const A: [f64; 6] = [
        2.506_628_277_459_239, -30.664_798_066_147_16, 138.357_751_867_269, -275.928_510_446_968_7,
        220.946_098_424_520_5, -39.696_830_286_653_76,
    ];
    const B: [f64; 6] = [
        1.0, -13.280_681_552_885_72, 66.801_311_887_719_72, -155.698_979_859_886_6, 161.585_836_858_040_9,
        -54.476_098_798_224_06,
    ];
    const C: [f64; 6] = [
        2.938_163_982_698_783, 4.374_664_141_464_968, -2.549_732_539_343_734, -2.400_758_277_161_838,
        -0.322_396_458_041_136_5, -0.007_784_894_002_430_293,
    ];
    const D: [f64; 5] =
        [1.0, 3.754_408_661_907_416, 2.445_134_137_142_996, 0.322_467_129_070_039_8, 0.007_784_695_709_041_462];
    /// Below this share, and above 1 minus it, another fit applies.
    const EDGE: f64 = 0.024_25;
    let p = share.clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON / 2.0);
    let outer = |p: f64| {
        let q = (-2.0 * p.ln()).sqrt();
        polynomial(&C, q) / polynomial(&D, q)
    };
    if p < EDGE {
        outer(p)
    } else if p > 1.0 - EDGE {
        -outer(1.0 - p)
    } else {
        let q = p - 0.5;
        q * polynomial(&A, q * q) / polynomial(&B, q * q)
    }
}

/// Evaluates a polynomial with `coefficients` from the constant one on.
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_have_the_known_values() {
        for (z, share) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_543),
            (-1.0, 0.158_655_253_931_457),
            (1.959_963_984_540_054, 0.975),
            (-3.0, 0.001_349_898_031_630_095),
            (4.753_424_308_822_899, 0.999_999),
        ] {
            assert!((share_below(z) - share).abs() < 2e-7, "{z}: {}", share_below(z));
            assert!((quantile(share) - z).abs() < 1e-7, "{share}: {}", quantile(share));
        }
    }

    #[test]
    fn no_share_is_without_a_point() {
        for share in [-1.0, 0.0, f64::MIN_POSITIVE, 1.0 - f64::EPSILON, 1.0, 2.0] {
            assert!(quantile(share).is_finite(), "{share}");
        }
    }
}
