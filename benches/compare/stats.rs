//! What rounds give: medians, with their spread.

/// The figures of all rounds of one thing.
#[derive(Clone, Debug, Default)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        match sorted.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => sorted[count / 2],
            count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
        }
    }

    /// Least and most.
    pub fn range(&self) -> (f64, f64) {
        let sorted = self.sorted();
        let end = |figure: Option<&f64>| figure.copied().unwrap_or(f64::NAN);
        (end(sorted.first()), end(sorted.last()))
    }

    /// This over that, round by round.
    pub fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(this, that)| this / that).collect())
    }

    /// This less that, round by round.
    pub fn less(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(this, that)| this - that).collect())
    }

    /// `2.31 (2.28..2.40)`
    pub fn show(&self) -> String {
        let (least, most) = self.range();
        match self.0.len() {
            0 => "–".into(),
            1 => number(least),
            _ => format!("{} ({}..{})", number(self.median()), number(least), number(most)),
        }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

impl FromIterator<f64> for Rounds {
    fn from_iter<T: IntoIterator<Item = f64>>(figures: T) -> Self {
        Self(figures.into_iter().collect())
    }
}

/// Three digits that count, and commas.
pub fn number(figure: f64) -> String {
    if !figure.is_finite() {
        return "–".into();
    }
    match figure.abs() {
        size if size >= 99.95 => grouped(figure.round()),
        size if size >= 9.995 => format!("{figure:.1}"),
        size if size >= 0.0995 || size == 0.0 => format!("{figure:.2}"),
        size if size >= 0.01 => format!("{figure:.3}"),
        _ => format!("{figure:.4}"),
    }
}

fn grouped(whole: f64) -> String {
    let digits = format!("{:.0}", whole.abs());
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if whole < 0.0 {
        format!("-{out}")
    } else {
        out
    }
}

/// Measures all in turn, round after round, the first round for nothing: they
/// meet whatever else the machine does alike. Every other round goes backwards,
/// so that nobody is always measured after the same one.
pub fn alternate<S, T>(
    rounds: usize,
    subjects: &mut [S],
    mut measure: impl FnMut(&mut S, usize) -> T,
) -> Vec<Vec<T>> {
    let mut all: Vec<Vec<T>> = subjects.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let figure = measure(&mut subjects[index], round);
            if round > 0 {
                all[index].push(figure);
            }
        }
    }
    all
}
