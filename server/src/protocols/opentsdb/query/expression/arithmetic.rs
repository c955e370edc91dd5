//! Arithmetic on variables: `(a + b) * 100 / c`, comparisons, `&&`, `||`, `!` and `x ? y : z`.
//!
//! Numbers without a decimal point are integers until they meet a float, so `1 / 2 * a` is 0. Division by 0 gives 0.
//! Both rules are those of the original's expression language.

use std::collections::BTreeSet;

/// Deepest nesting of brackets.
pub(crate) const DEPTH_MAX: usize = 64;
/// Most operators and operands of an expression.
pub(crate) const PARTS_MAX: usize = 1_000;

/// An expression that is ready to be worked out.
#[derive(Clone, Debug, PartialEq)]
pub enum Arithmetic {
    Number(Number),
    Variable(String),
    Not(Box<Arithmetic>),
    Negative(Box<Arithmetic>),
    Two(Operator, Box<Arithmetic>, Box<Arithmetic>),
    If(Box<Arithmetic>, Box<Arithmetic>, Box<Arithmetic>),
    /// A function call, which is not supported: an error once it is computed.
    Call(String, Vec<Arithmetic>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    Float(f64),
    Truth(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Plus,
    Minus,
    Times,
    By,
    Remainder,
}

/// Operators by how strongly they bind, the weakest first, each with its names.
const LEVELS: [&[(&str, Operator)]; 6] = [
    &[("||", Operator::Or), ("or", Operator::Or)],
    &[("&&", Operator::And), ("and", Operator::And)],
    &[("==", Operator::Equal), ("!=", Operator::Unequal), ("eq", Operator::Equal), ("ne", Operator::Unequal)],
    &[
        ("<=", Operator::AtMost),
        (">=", Operator::AtLeast),
        ("<", Operator::Less),
        (">", Operator::Greater),
        ("lt", Operator::Less),
        ("le", Operator::AtMost),
        ("gt", Operator::Greater),
        ("ge", Operator::AtLeast),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[
        ("*", Operator::Times),
        ("/", Operator::By),
        ("%", Operator::Remainder),
        ("div", Operator::By),
        ("mod", Operator::Remainder),
    ],
];

impl Arithmetic {
    /// # Errors
    /// Says what was found where something else is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { rest: tokens(text)?.into_iter().peekable(), depth: 0 };
        let expression = reader.choice()?;
        match reader.rest.next() {
            Some(token) => Err(format!("found '{token}' after the end of an expression in '{text}'")),
            None => Ok(expression),
        }
    }

    /// The names of its variables.
    pub fn variables(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.name(&mut names);
        names
    }

    fn name<'a>(&'a self, names: &mut BTreeSet<&'a str>) {
        match self {
            Arithmetic::Number(_) => {}
            Arithmetic::Variable(name) => drop(names.insert(name)),
            Arithmetic::Not(of) | Arithmetic::Negative(of) => of.name(names),
            Arithmetic::Two(_, left, right) => [left, right].into_iter().for_each(|part| part.name(names)),
            Arithmetic::If(test, yes, no) => [test, yes, no].into_iter().for_each(|part| part.name(names)),
            Arithmetic::Call(_, of) => of.iter().for_each(|part| part.name(names)),
        }
    }

    /// The result, where `value` gives a variable's value.
    ///
    /// # Errors
    /// Names the called function; functions are not supported.
    pub fn work_out(&self, value: &impl Fn(&str) -> f64) -> Result<Number, String> {
        Ok(match self {
            Arithmetic::Number(number) => *number,
            Arithmetic::Variable(name) => Number::Float(value(name)),
            Arithmetic::Not(of) => Number::Truth(!of.work_out(value)?.is_true()),
            Arithmetic::Negative(of) => match of.work_out(value)? {
                Number::Int(int) => Number::Int(int.wrapping_neg()),
                number => Number::Float(-number.float()),
            },
            Arithmetic::If(test, yes, no) => match test.work_out(value)?.is_true() {
                true => yes.work_out(value)?,
                false => no.work_out(value)?,
            },
            Arithmetic::Two(operator, left, right) => two(*operator, left.work_out(value)?, right.work_out(value)?),
            Arithmetic::Call(name, _) => {
                return Err(format!("the function {name} is unknown: there are only operators"));
            }
        })
    }
}

impl Number {
    pub fn float(self) -> f64 {
        match self {
            Number::Int(int) => int as f64,
            Number::Float(float) => float,
            Number::Truth(truth) => f64::from(u8::from(truth)),
        }
    }

    fn is_true(self) -> bool {
        let float = self.float();
        float != 0.0 && !float.is_nan()
    }
}

fn two(operator: Operator, left: Number, right: Number) -> Number {
    let (a, b) = (left.float(), right.float());
    match operator {
        Operator::Or => return Number::Truth(left.is_true() || right.is_true()),
        Operator::And => return Number::Truth(left.is_true() && right.is_true()),
        Operator::Equal => return Number::Truth(a == b),
        Operator::Unequal => return Number::Truth(a != b),
        Operator::Less => return Number::Truth(a < b),
        Operator::AtMost => return Number::Truth(a <= b),
        Operator::Greater => return Number::Truth(a > b),
        Operator::AtLeast => return Number::Truth(a >= b),
        Operator::By | Operator::Remainder if b == 0.0 => return Number::Float(0.0),
        _ => {}
    }
    if let (Number::Int(a), Number::Int(b)) = (left, right) {
        return Number::Int(match operator {
            Operator::Plus => a.wrapping_add(b),
            Operator::Minus => a.wrapping_sub(b),
            Operator::Times => a.wrapping_mul(b),
            Operator::Remainder => a.wrapping_rem(b),
            _ => a.wrapping_div(b),
        });
    }
    Number::Float(match operator {
        Operator::Plus => a + b,
        Operator::Minus => a - b,
        Operator::Times => a * b,
        Operator::Remainder => a % b,
        _ => a / b,
    })
}

/// Names, numbers and signs.
fn tokens(text: &str) -> Result<Vec<&str>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let two = rest.get(..2).filter(|two| ["==", "!=", "<=", ">=", "&&", "||"].contains(two));
        let length = match first {
            _ if two.is_some() => 2,
            c if c.is_ascii_digit() || c == '.' => {
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len())
            }
            c if c.is_alphabetic() || c == '_' => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            '+' | '-' | '*' | '/' | '%' | '(' | ')' | '<' | '>' | '!' | '?' | ':' | ',' => 1,
            other => return Err(format!("found '{other}' in the expression '{text}'")),
        };
        tokens.push(&rest[..length]);
        if tokens.len() > PARTS_MAX {
            return Err(format!("an expression has more than {PARTS_MAX} parts"));
        }
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::vec::IntoIter<&'a str>>,
    depth: usize,
}

impl Reader<'_> {
    fn choice(&mut self) -> Result<Arithmetic, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("brackets are nested more than {DEPTH_MAX} deep"));
        }
        let test = self.level(0)?;
        let chosen = if self.rest.next_if_eq(&"?").is_some() {
            let yes = self.choice()?;
            self.expect(":")?;
            Arithmetic::If(Box::new(test), Box::new(yes), Box::new(self.choice()?))
        } else {
            test
        };
        self.depth -= 1;
        Ok(chosen)
    }

    fn level(&mut self, level: usize) -> Result<Arithmetic, String> {
        let Some(operators) = LEVELS.get(level) else { return self.single() };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = self.operator(operators) {
            let right = self.level(level + 1)?;
            left = Arithmetic::Two(operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn operator(&mut self, among: &[(&str, Operator)]) -> Option<Operator> {
        let next = *self.rest.peek()?;
        let (_, operator) = among.iter().find(|(name, _)| *name == next)?;
        self.rest.next();
        Some(*operator)
    }

    fn single(&mut self) -> Result<Arithmetic, String> {
        let mut signs = Vec::new();
        while let Some(sign) = self.rest.next_if(|token| ["-", "+", "!", "not"].contains(token)) {
            signs.push(sign);
        }
        let found = match self.rest.next() {
            None => return Err("an expression ends where a number or a variable is expected".to_owned()),
            Some("(") => {
                let inner = self.choice()?;
                self.expect(")")?;
                inner
            }
            Some(token) if token.starts_with(|c: char| c.is_ascii_digit() || c == '.') => number(token)?,
            Some("true") => Arithmetic::Number(Number::Truth(true)),
            Some("false") => Arithmetic::Number(Number::Truth(false)),
            Some(token) if token.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                match self.rest.next_if_eq(&"(") {
                    Some(_) => Arithmetic::Call(token.to_owned(), self.arguments()?),
                    None => Arithmetic::Variable(token.to_owned()),
                }
            }
            Some(token) => return Err(format!("found '{token}' where a number or a variable is expected")),
        };
        let signed = |of: Arithmetic, sign: &str| match sign {
            "-" => Arithmetic::Negative(Box::new(of)),
            "+" => of,
            _ => Arithmetic::Not(Box::new(of)),
        };
        Ok(signs.into_iter().rev().fold(found, signed))
    }

    /// The text between the brackets of a call, the first of which is read already.
    fn arguments(&mut self) -> Result<Vec<Arithmetic>, String> {
        let mut arguments = Vec::new();
        if self.rest.next_if_eq(&")").is_some() {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.choice()?);
            if self.rest.next_if_eq(&",").is_none() {
                self.expect(")")?;
                return Ok(arguments);
            }
        }
    }

    fn expect(&mut self, expected: &str) -> Result<(), String> {
        match self.rest.next() {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(format!("expected '{expected}' in an expression, found '{found}'")),
            None => Err(format!("expected '{expected}' in an expression, found its end")),
        }
    }
}

/// With the letters behind it that say its type: `2`, `2L`, `2.5`, `2.5f`.
fn number(token: &str) -> Result<Arithmetic, String> {
    let plain = token.trim_end_matches(['l', 'L', 'f', 'F', 'd', 'D', 'h', 'H', 'b', 'B']);
    let number = match plain.parse::<i64>() {
        Ok(int) if !token.ends_with(['f', 'F', 'd', 'D']) => Some(Number::Int(int)),
        _ => plain.parse().ok().map(Number::Float),
    };
    number.map(Arithmetic::Number).ok_or_else(|| format!("'{token}' is not a number"))
}
