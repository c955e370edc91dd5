//! Formulas in one variable as text, such as Extra-P prints them: `1.5 + 2 * size^(1/2) * log2(size)`.
//!
//! The one idea: text becomes a list of steps for a stack of numbers, without any recursion, so that no text can exhaust
//! the program's own stack. `log` is the logarithm to the base 10, as it is there.

#[cfg(test)]
mod tests;

use std::str::FromStr;

/// No model of Extra-P is nearly as long.
pub const FORMULA_BYTES_MAX: usize = 4 << 10;
/// Of parentheses, functions and operators that wait for their right side.
pub const FORMULA_DEPTH_MAX: usize = 64;
/// The names that a formula may call its variable by.
const VARIABLES: [&str; 5] = ["size", "p", "x", "n", "processes"];
/// How much of what was found an error shows, in characters.
const FOUND_MAX: usize = 32;

/// Why a text is no formula.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    #[error("the formula has {found} bytes, expected at most {max}")]
    TooLong { found: usize, max: usize },
    #[error("column {column} of the formula is nested deeper than {max}")]
    TooDeep { column: usize, max: usize },
    #[error("column {column} of the formula: expected {expected}, found {found}")]
    Unexpected {
        /// From 1, in characters.
        column: usize,
        expected: &'static str,
        found: String,
    },
    #[error("column {column} of the formula: '{found}' beside '{known}': expected one variable")]
    SecondVariable { column: usize, known: String, found: String },
}

/// What a step does with the numbers on top of the stack.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FormulaStep {
    Number(f64),
    Variable,
    Negative,
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,
    Log2,
    Log10,
    Ln,
}

impl FormulaStep {
    /// How tightly an operator binds. Functions and the rest are none.
    fn tightness(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => 1,
            Self::Multiply | Self::Divide => 2,
            Self::Negative => 3,
            Self::Power => 4,
            _ => 0,
        }
    }

    fn function(name: &str) -> Option<Self> {
        Some(match name {
            "log2" => Self::Log2,
            "log" | "log10" => Self::Log10,
            "ln" => Self::Ln,
            _ => return None,
        })
    }
}

/// What waits for its right side.
#[derive(Clone, Copy)]
enum PendingOperator {
    Operator(FormulaStep),
    /// A parenthesis that is open, and the function before it.
    Open(Option<FormulaStep>),
}

/// A formula that can be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    text: String,
    /// Checked: each step finds its numbers on the stack, and one is left in the end.
    steps: Vec<FormulaStep>,
}

impl Formula {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same with natural logarithms only: `log2(x)` as `(ln(x)/ln(2))`, `log(x)` as `(ln(x)/ln(10))`.
    pub fn in_natural_logarithms(&self) -> String {
        let (mut written, mut rest, mut open) = (String::new(), &*self.text, Vec::new());
        while let Some(at) = rest.find(['(', ')']) {
            let (before, behind) = (&rest[..at], &rest[at + 1..]);
            if rest[at..].starts_with('(') {
                let stem = before.trim_end().trim_end_matches(|c: char| c.is_ascii_alphanumeric());
                let base = match before.trim_end()[stem.len()..].trim() {
                    "log2" => "2",
                    "log" | "log10" => "10",
                    _ => "",
                };
                match base {
                    "" => written.extend([before, "("]),
                    _ => written.extend([stem, "(ln("]),
                }
                open.push(base);
            } else {
                written.extend([before, ")"]);
                if let Some(base) = open.pop().filter(|base| !base.is_empty()) {
                    written.extend(["/ln(", base, "))"]);
                }
            }
            rest = behind;
        }
        written.push_str(rest);
        written
    }

    /// Its value where the variable is `at`; no number where there is none, such as the logarithm of -1.
    pub fn at(&self, at: f64) -> f64 {
        let mut stack: Vec<f64> = Vec::with_capacity(8);
        for step in &self.steps {
            let mut top = || stack.pop().unwrap_or(f64::NAN);
            let number = match *step {
                FormulaStep::Number(number) => number,
                FormulaStep::Variable => at,
                FormulaStep::Negative => -top(),
                FormulaStep::Log2 => top().log2(),
                FormulaStep::Log10 => top().log10(),
                FormulaStep::Ln => top().ln(),
                binary => {
                    let (right, left) = (top(), top());
                    match binary {
                        FormulaStep::Add => left + right,
                        FormulaStep::Subtract => left - right,
                        FormulaStep::Multiply => left * right,
                        FormulaStep::Divide => left / right,
                        _ => left.powf(right),
                    }
                }
            };
            stack.push(number);
        }
        stack.pop().unwrap_or(f64::NAN)
    }
}

impl FromStr for Formula {
    type Err = FormulaError;

    fn from_str(text: &str) -> Result<Self, FormulaError> {
        if text.len() > FORMULA_BYTES_MAX {
            return Err(FormulaError::TooLong { found: text.len(), max: FORMULA_BYTES_MAX });
        }
        let mut reader = FormulaReader { text, at: 0, steps: Vec::new(), waiting: Vec::new(), variable: None };
        reader.read()?;
        Ok(Self { text: text.trim().to_owned(), steps: reader.steps })
    }
}

struct FormulaReader<'a> {
    text: &'a str,
    at: usize,
    steps: Vec<FormulaStep>,
    waiting: Vec<PendingOperator>,
    /// The name of the variable, once it was seen.
    variable: Option<&'a str>,
}

impl<'a> FormulaReader<'a> {
    fn read(&mut self) -> Result<(), FormulaError> {
        loop {
            self.operand()?;
            // Whatever ends here, an operator may follow.
            loop {
                match self.peek() {
                    None => return self.end(),
                    Some(')') => self.close()?,
                    Some(_) => break,
                }
            }
            let operator = self.operator()?;
            let tightness = operator.tightness();
            while let Some(PendingOperator::Operator(before)) = self.waiting.last().copied() {
                let is_first = match operator {
                    // Powers are taken from the right.
                    FormulaStep::Power => before.tightness() > tightness,
                    _ => before.tightness() >= tightness,
                };
                if !is_first {
                    break;
                }
                self.waiting.pop();
                self.steps.push(before);
            }
            self.wait(PendingOperator::Operator(operator))?;
        }
    }

    /// A number or the variable, with signs, parentheses and functions before it.
    fn operand(&mut self) -> Result<(), FormulaError> {
        loop {
            match self.peek() {
                Some('-') => {
                    self.at += 1;
                    self.wait(PendingOperator::Operator(FormulaStep::Negative))?;
                }
                Some('+') => self.at += 1,
                Some('(') => {
                    self.at += 1;
                    self.wait(PendingOperator::Open(None))?;
                }
                Some('0'..='9' | '.') => {
                    let number = self.number()?;
                    self.steps.push(FormulaStep::Number(number));
                    return Ok(());
                }
                Some(c) if c.is_ascii_alphabetic() => {
                    let (before, name) = (self.at, self.name());
                    if self.peek() == Some('(') {
                        let Some(function) = FormulaStep::function(name) else {
                            self.at = before;
                            return Err(self.unexpected("log2, log10, log or ln before a parenthesis"));
                        };
                        self.at += 1;
                        self.wait(PendingOperator::Open(Some(function)))?;
                        continue;
                    }
                    self.at = before;
                    self.variable(name)?;
                    self.at += name.len();
                    self.steps.push(FormulaStep::Variable);
                    return Ok(());
                }
                _ => return Err(self.unexpected("a number, a variable or a parenthesis")),
            }
        }
    }

    fn variable(&mut self, name: &'a str) -> Result<(), FormulaError> {
        if !VARIABLES.contains(&name) {
            return Err(self.unexpected("a variable, such as size or p"));
        }
        let known = *self.variable.get_or_insert(name);
        if known != name {
            let (known, found) = (known.to_owned(), name.to_owned());
            return Err(FormulaError::SecondVariable { column: self.column(), known, found });
        }
        Ok(())
    }

    fn operator(&mut self) -> Result<FormulaStep, FormulaError> {
        let (len, operator) = match self.peek() {
            Some('+') => (1, FormulaStep::Add),
            Some('-') => (1, FormulaStep::Subtract),
            Some('*') if self.text[self.at..].starts_with("**") => (2, FormulaStep::Power),
            Some('*') => (1, FormulaStep::Multiply),
            Some('/') => (1, FormulaStep::Divide),
            Some('^') => (1, FormulaStep::Power),
            _ => return Err(self.unexpected("an operator, ) or the end")),
        };
        self.at += len;
        Ok(operator)
    }

    /// Everything up to the last open parenthesis has what it waited for.
    fn close(&mut self) -> Result<(), FormulaError> {
        loop {
            match self.waiting.pop() {
                Some(PendingOperator::Operator(step)) => self.steps.push(step),
                Some(PendingOperator::Open(function)) => {
                    self.steps.extend(function);
                    self.at += 1;
                    return Ok(());
                }
                None => return Err(self.unexpected("an operator or the end")),
            }
        }
    }

    fn end(&mut self) -> Result<(), FormulaError> {
        while let Some(waiting) = self.waiting.pop() {
            match waiting {
                PendingOperator::Operator(step) => self.steps.push(step),
                PendingOperator::Open(_) => return Err(self.unexpected("an operator or )")),
            }
        }
        Ok(())
    }

    fn wait(&mut self, waiting: PendingOperator) -> Result<(), FormulaError> {
        if self.waiting.len() >= FORMULA_DEPTH_MAX {
            return Err(FormulaError::TooDeep { column: self.column(), max: FORMULA_DEPTH_MAX });
        }
        self.waiting.push(waiting);
        Ok(())
    }

    /// The next character that is no blank; the place is at it.
    fn peek(&mut self) -> Option<char> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest.chars().next()
    }

    fn name(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn number(&mut self) -> Result<f64, FormulaError> {
        let rest = &self.text[self.at..];
        let digits = |from: usize| rest[from..].bytes().take_while(u8::is_ascii_digit).count();
        let mut len = digits(0);
        if rest[len..].starts_with('.') {
            len += 1 + digits(len + 1);
        }
        if rest[len..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[len + 1..].starts_with(['+', '-']));
            let exponent = digits(len + 1 + sign);
            if exponent > 0 {
                len += 1 + sign + exponent;
            }
        }
        let number = rest[..len].parse().map_err(|_| self.unexpected("a number"))?;
        self.at += len;
        Ok(number)
    }

    fn column(&self) -> usize {
        self.text[..self.at].chars().count() + 1
    }

    fn unexpected(&self, expected: &'static str) -> FormulaError {
        let rest = &self.text[self.at..];
        let shown: String = rest.chars().take(FOUND_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let found = if rest.is_empty() { "the end".to_owned() } else { format!("'{shown}'") };
        FormulaError::Unexpected { column: self.column(), expected, found }
    }
}
