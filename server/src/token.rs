//! The secret that lets a request in if the kernel does not vouch for its sender.

use std::fmt;

/// Shortest token that a user may choose; ours have 64 characters.
const TOKEN_CHARS_MIN: usize = 16;
const RANDOM_BYTES: usize = 32;

/// Sent as `Authorization: Bearer TOKEN`. Never printed by `{:?}`, so that no log shows it.
#[derive(Clone)]
pub struct Token(String);

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("TELEM_TOKEN has {found} characters; at least {TOKEN_CHARS_MIN} are needed, all of them visible ASCII")]
    Weak { found: usize },
    #[error("the operating system provides no random bytes: {0}")]
    NoRandom(#[from] getrandom::Error),
}

impl Token {
    /// 256 random bits from the operating system, in hexadecimal.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn random() -> Result<Self, TokenError> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// A token chosen by the user.
    ///
    /// # Errors
    /// When it is short, or cannot stand in a header.
    pub fn chosen(text: &str) -> Result<Self, TokenError> {
        if text.len() < TOKEN_CHARS_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Weak { found: text.chars().count() });
        }
        Ok(Self(text.to_owned()))
    }

    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Takes as long for a nearly right guess as for a wrong one.
    pub fn is(&self, guess: &[u8]) -> bool {
        let own = self.0.as_bytes();
        own.len() == guess.len() && own.iter().zip(guess).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(...)")
    }
}
